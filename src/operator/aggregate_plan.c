/*
 * aggregate_plan.c
 *		Prepares the expressions of an Agg node for the aggregate operator.
 *
 * Aggregates that keep their inputs are replaced by columns of an inner tuple; the rest is hosted
 * by an Agg node of the server (host.c). The signature describes the
 * layout of the state that follows from all this, in our own words.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/regproc.h"

#include "aggregate_internal.h"

static int
place_of(List **list, int number)
{
	ListCell *lc;
	int i = 0;

	foreach(lc, *list)
	{
		if (lfirst_int(lc) == number)
			return i;
		i++;
	}
	*list = lappend_int(*list, number);
	return i;
}

/*
 * Place of an aggregate among those that keep inputs. A set serves all aggregates that share a
 * transition value, other inputs belong to one aggregate.
 */
static int
place_of_inputs(SxAggregateSplit *split, Aggref *aggref, SxInputsMode mode)
{
	int before = list_length(split->places);
	int number = mode == SX_INPUTS_SET ? aggref->aggtransno * 2 + 1 : aggref->aggno * 2;
	int place = place_of(&split->places, number);

	if (list_length(split->places) > before)
		split->kept = lappend(split->kept, aggref);
	return place;
}

Node *
sx_aggregate_split(Node *node, void *context)
{
	SxAggregateSplit *split = context;
	SxInputsMode mode;
	Aggref *aggref;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Aggref))
		return expression_tree_mutator(node, sx_aggregate_split, context);
	aggref = (Aggref *) node;
	mode = sx_inputs_mode(aggref);
	if (mode == SX_INPUTS_REPLAY)
		return (Node *) makeVar(INNER_VAR, place_of_inputs(split, aggref, mode) + 1,
								aggref->aggtype, -1, aggref->aggcollid, 0);
	aggref = copyObject(aggref);
	if (mode == SX_INPUTS_SET)
	{
		/* the flag says that the value is new to the set, and that FILTER lets it in */
		int flag = split->natts + place_of_inputs(split, (Aggref *) node, mode) + 1;

		aggref->aggfilter = (Expr *) makeVar(OUTER_VAR, flag, BOOLOID, -1, InvalidOid, 0);
	}
	aggref->aggdistinct = NIL;
	aggref->aggorder = NIL;
	aggref->aggno = place_of(&split->aggnos, aggref->aggno);
	aggref->aggtransno = place_of(&split->transnos, aggref->aggtransno);
	sx_aggref_clear_presorted(aggref);
	return (Node *) aggref;
}

static bool
collect_outer_vars(Node *node, void *context)
{
	Bitmapset **attrs = context;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		if (((Var *) node)->varno == OUTER_VAR)
			*attrs = bms_add_member(*attrs, ((Var *) node)->varattno);
		return false;
	}
	return expression_tree_walker(node, collect_outer_vars, context);
}

bool
sx_aggregate_argument_vars(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Aggref *aggref = (Aggref *) node;

		return collect_outer_vars((Node *) aggref->args, context) ||
			   collect_outer_vars((Node *) aggref->aggfilter, context);
	}
	return expression_tree_walker(node, sx_aggregate_argument_vars, context);
}

Bitmapset *
sx_aggregate_inputs(const SxAggregateSpec *spec, int natts)
{
	Bitmapset *attrs = NULL;

	collect_outer_vars((Node *) spec->targetlist, &attrs);
	collect_outer_vars((Node *) spec->qual, &attrs);
	for (int k = 0; k < spec->nkeys; k++)
		attrs = bms_add_member(attrs, spec->keys[k]);
	return attrs;
}

typedef struct SignatureContext
{
	StringInfo out;
	List *aggnos;
	List *transnos;
} SignatureContext;

/* Words for each aggregate, in the order in which sx_aggregate_create() numbers them. */
static bool
describe_aggregates(Node *node, void *context)
{
	SignatureContext *sig = context;
	SxInputsMode mode;
	Aggref *aggref;
	int before;

	if (node == NULL)
		return false;
	if (!IsA(node, Aggref))
		return expression_tree_walker(node, describe_aggregates, context);
	aggref = (Aggref *) node;
	before = list_length(sig->aggnos);
	(void) place_of(&sig->aggnos, aggref->aggno);
	if (list_length(sig->aggnos) == before)
		return false;
	appendStringInfo(sig->out, " %s", format_procedure_qualified(aggref->aggfnoid));
	mode = sx_inputs_mode(aggref);
	if (mode != SX_INPUTS_NONE)
	{
		ListCell *lc;

		appendStringInfo(sig->out, " %s(",
						 mode == SX_INPUTS_SET        ? "set"
						 : aggref->aggdistinct != NIL ? "distinct"
													  : "inputs");
		foreach(lc, aggref->args)
			appendStringInfo(sig->out, "%s%s", lc == list_head(aggref->args) ? "" : ", ",
							 format_type_be_qualified(
								 exprType((Node *) ((TargetEntry *) lfirst(lc))->expr)));
		appendStringInfoString(sig->out, ")");
	}
	if (mode != SX_INPUTS_REPLAY)
		appendStringInfo(sig->out, " state %d of %s",
						 place_of(&sig->transnos, aggref->aggtransno) + 1,
						 format_type_be_qualified(aggref->aggtranstype));
	if (aggref->aggfilter != NULL)
		appendStringInfoString(sig->out, " filter");
	appendStringInfoString(sig->out, ";");
	return false;
}

char *
sx_aggregate_signature(const SxAggregateSpec *spec, TupleDesc input)
{
	StringInfoData out;
	SignatureContext sig = {.out = &out};

	initStringInfo(&out);
	appendStringInfoString(&out, spec->is_plain ? "aggregate" : "aggregate by");
	for (int k = 0; k < spec->nkeys; k++)
		appendStringInfo(&out, "%s %s", k > 0 ? "," : "",
						 format_type_be_qualified(
							 TupleDescAttr(input, spec->keys[k] - 1)->atttypid));
	appendStringInfoString(&out, ":");
	describe_aggregates((Node *) spec->targetlist, &sig);
	describe_aggregates((Node *) spec->qual, &sig);
	return out.data;
}
