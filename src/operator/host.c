/*
 * host.c
 *		Hosts an Agg node of the server outside a query.
 *
 * The aggregate operator lets the server's Agg node do what it is good at: the operator for its
 * transition and output expressions, inputs.c for computing an aggregate from all its inputs. The
 * node is a plain aggregate over a CustomScan without a relation, so that nothing stays open or
 * locked between transactions.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "executor/executor.h"
#include "nodes/makefuncs.h"

#include "host.h"

/* A scan that is never run; it gives the types of the columns. */
static void
types_begin(CustomScanState *node, EState *estate, int eflags)
{
}

static TupleTableSlot *
types_next(CustomScanState *node)
{
	return NULL;
}

static void
types_end(CustomScanState *node)
{
}

static const CustomExecMethods types_exec_methods = {
	.CustomName = "stream_ext types",
	.BeginCustomScan = types_begin,
	.ExecCustomScan = types_next,
	.EndCustomScan = types_end,
	.ReScanCustomScan = types_end,
};

static Node *
types_create(CustomScan *cscan)
{
	CustomScanState *css = (CustomScanState *) newNode(sizeof(CustomScanState), T_CustomScanState);

	css->methods = &types_exec_methods;
	return (Node *) css;
}

static const CustomScanMethods types_methods = {
	.CustomName = "stream_ext types",
	.CreateCustomScanState = types_create,
};

List *
sx_host_add_column(List *columns, Oid typid, int32 typmod, Oid collation)
{
	AttrNumber attno = list_length(columns) + 1;
	Var *var = makeVar(INDEX_VAR, attno, typid, typmod, collation, 0);

	return lappend(columns, makeTargetEntry((Expr *) var, attno, psprintf("c%d", attno), false));
}

List *
sx_host_add_columns(List *columns, TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		columns = sx_host_add_column(columns, att->atttypid, att->atttypmod, att->attcollation);
	}
	return columns;
}

AggState *
sx_host_agg(EState *estate, const CustomScanMethods *methods, List *columns, List *targetlist,
			List *qual)
{
	Agg *agg = makeNode(Agg);
	CustomScan *cscan = makeNode(CustomScan);

	cscan->methods = methods != NULL ? methods : &types_methods;
	cscan->custom_scan_tlist = columns;
	cscan->scan.plan.targetlist = copyObject(columns);
	agg->aggstrategy = AGG_PLAIN;
	agg->aggsplit = AGGSPLIT_SIMPLE;
	agg->numGroups = 1;
	agg->plan.lefttree = &cscan->scan.plan;
	agg->plan.targetlist = targetlist;
	agg->plan.qual = qual;
	return (AggState *) ExecInitNode(&agg->plan, estate, 0);
}
