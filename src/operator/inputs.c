/*
 * inputs.c
 *		Aggregates that keep their inputs and are computed anew from them.
 *
 * DISTINCT and ORDER BY aggregates sort all inputs of a group at its end, and the transition
 * values of some others (array_agg, ordered sets, ..) can be neither stored nor restored. For
 * these the operator keeps the argument values of every row. When a group has changed, the
 * server's own Agg node runs over its inputs, so that the result is the server's by construction;
 * this costs O(n log n) for a changed group of n rows.
 *
 * DISTINCT: of inputs with the same bytes one is kept. That never changes the result, and bounds
 * the memory by what is distinct. Where the order of the inputs does not matter either (count, sum
 * and avg of exact numbers, ..) nothing is computed anew: the operator feeds the transition with
 * the values that were not in the set yet. And to some aggregates DISTINCT makes no difference.
 *
 * The Agg node is a plain aggregate over a CustomScan that returns the bag's rows. Its input row is
 * the argument values, a flag, and the columns of the operator's own input, for direct arguments.
 * The flag is the aggregate's FILTER: an empty bag is shown as one row without it, since direct
 * arguments need a row to be evaluated from.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "stream_ext/operator/inputs.h"
#include "stream_ext/state/groups.h"

#include "host.h"

/* Rows up to which DISTINCT compares with all rows, without an index. */
#define SMALL_BAG 8

/* The scan over a bag, below the Agg node. */
typedef struct BagScan
{
	CustomScanState css;
	SxInputs *inputs;
	SxInputBag *bag;
	TupleTableSlot *keys;
	int64 next;
} BagScan;

struct SxInputs
{
	MemoryContext bag_cxt;
	bool is_distinct;
	SxKeyColumn *key; /* of a set: how its values are compared; NULL: by their bytes */
	int nargs;
	ExprState **args; /* over the operator's input */
	ExprState *filter;
	int16 *typlen;
	bool *typbyval;
	TupleDesc desc; /* of the state table */
	int nkeys;      /* columns of the operator's input */
	AggState *agg;
	BagScan *scan;
};

static TupleTableSlot *
scan_next(CustomScanState *node)
{
	BagScan *scan = (BagScan *) node;
	SxInputs *inputs = scan->inputs;
	TupleTableSlot *slot = scan->css.ss.ss_ScanTupleSlot;
	int64 nrows = Max(scan->bag->nrows, 1);
	int n = inputs->nargs;

	ExecClearTuple(slot);
	if (scan->next >= nrows)
		return slot;
	if (scan->bag->nrows > 0)
	{
		memcpy(slot->tts_values, scan->bag->values + scan->next * n, sizeof(Datum) * n);
		memcpy(slot->tts_isnull, scan->bag->nulls + scan->next * n, sizeof(bool) * n);
	}
	else
		memset(slot->tts_isnull, true, sizeof(bool) * n);
	slot->tts_values[n] = BoolGetDatum(scan->bag->nrows > 0);
	slot->tts_isnull[n] = false;
	memcpy(slot->tts_values + n + 1, scan->keys->tts_values, sizeof(Datum) * inputs->nkeys);
	memcpy(slot->tts_isnull + n + 1, scan->keys->tts_isnull, sizeof(bool) * inputs->nkeys);
	scan->next++;
	return ExecStoreVirtualTuple(slot);
}

static void
scan_begin(CustomScanState *node, EState *estate, int eflags)
{
}

static void
scan_end(CustomScanState *node)
{
}

static void
scan_rescan(CustomScanState *node)
{
	((BagScan *) node)->next = 0;
}

static const CustomExecMethods scan_exec_methods = {
	.CustomName = "stream_ext inputs",
	.BeginCustomScan = scan_begin,
	.ExecCustomScan = scan_next,
	.EndCustomScan = scan_end,
	.ReScanCustomScan = scan_rescan,
};

static Node *
scan_create(CustomScan *cscan)
{
	BagScan *scan = (BagScan *) newNode(sizeof(BagScan), T_CustomScanState);

	scan->css.methods = &scan_exec_methods;
	return (Node *) scan;
}

static const CustomScanMethods scan_methods = {
	.CustomName = "stream_ext inputs",
	.CreateCustomScanState = scan_create,
};

/* Names of the server's own aggregates to which the order of their inputs does not matter. */
static const char *const unordered[] = {"count", "sum", "avg", "bit_xor"};

/* And those to which repeated inputs do not matter, either. */
static const char *const idempotent[] = {"min",   "max",     "bool_and", "bool_or",
										 "every", "bit_and", "bit_or"};

static bool
is_listed(const char *name, const char *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(name, list[i]) == 0)
			return true;
	return false;
}

/* An aggregate with DISTINCT on one argument, which may be ordered by it. */
static SxInputsMode
distinct_mode(Aggref *aggref)
{
	TargetEntry *arg = linitial_node(TargetEntry, aggref->args);
	Oid typid = exprType((Node *) arg->expr);
	const char *name = get_func_name(aggref->aggfnoid);
	SortGroupClause *distinct = linitial_node(SortGroupClause, aggref->aggdistinct);

	if (aggref->aggfnoid >= FirstUnpinnedObjectId || name == NULL)
		return SX_INPUTS_REPLAY;
	if (is_listed(name, idempotent, lengthof(idempotent)))
		return SX_INPUTS_NONE;
	/*
	 * Sums of floats depend on the order. Equal intervals need not have equal sums, and equal
	 * numerics of another scale not the same average: leave the choice to the server.
	 */
	if (!is_listed(name, unordered, lengthof(unordered)) ||
		(strcmp(name, "count") != 0 &&
		 (typid == FLOAT4OID || typid == FLOAT8OID || typid == INTERVALOID)))
		return SX_INPUTS_REPLAY;
	if (strcmp(name, "avg") == 0 && typid == NUMERICOID)
		return SX_INPUTS_REPLAY;
	return op_hashjoinable(distinct->eqop, getBaseType(typid)) &&
				   OidIsValid(lookup_type_cache(typid, TYPECACHE_HASH_PROC)->hash_proc)
			   ? SX_INPUTS_SET
			   : SX_INPUTS_REPLAY;
}

SxInputsMode
sx_inputs_mode(Aggref *aggref)
{
	HeapTuple tuple;
	Form_pg_aggregate form;
	bool replay;

	if (aggref->aggkind != AGGKIND_NORMAL)
		return SX_INPUTS_REPLAY;
	if (aggref->aggdistinct != NIL && list_length(aggref->args) == 1)
		return distinct_mode(aggref);
	if (aggref->aggdistinct != NIL || aggref->aggorder != NIL)
		return SX_INPUTS_REPLAY;
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	switch (form->aggtransfn)
	{
		/* these got a serial form in PostgreSQL 16; it would be written as a whole at each commit */
		case F_ARRAY_AGG_TRANSFN:
		case F_ARRAY_AGG_ARRAY_TRANSFN:
		case F_STRING_AGG_TRANSFN:
		case F_BYTEA_STRING_AGG_TRANSFN:
			replay = true;
			break;
		default:
			if (form->aggfinalmodify != AGGMODIFY_READ_ONLY)
				replay = true; /* the result can be asked for only once */
			else if (aggref->aggtranstype == INTERNALOID)
				replay = !OidIsValid(form->aggserialfn) || !OidIsValid(form->aggdeserialfn) ||
						 !OidIsValid(form->aggcombinefn) || func_strict(form->aggcombinefn);
			else
				replay = get_typtype(aggref->aggtranstype) == TYPTYPE_PSEUDO;
			break;
	}
	ReleaseSysCache(tuple);
	return replay ? SX_INPUTS_REPLAY : SX_INPUTS_NONE;
}

typedef struct ShiftContext
{
	int offset;
} ShiftContext;

/* Direct arguments: columns of the operator's input follow the argument values and the flag. */
static Node *
shift_vars(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		Var *var = copyObject((Var *) node);

		var->varattno += ((ShiftContext *) context)->offset;
		return (Node *) var;
	}
	return expression_tree_mutator(node, shift_vars, context);
}

/* Builds and starts the Agg node over the bag scan. */
static void
create_agg(SxInputs *inputs, EState *estate, Aggref *original, TupleDesc input)
{
	Aggref *aggref = copyObject(original);
	ShiftContext shift = {.offset = inputs->nargs + 1};
	List *columns = NIL;
	List *targetlist;
	ListCell *lc;

	foreach(lc, aggref->args)
	{
		TargetEntry *tle = lfirst(lc);
		Oid typid = exprType((Node *) tle->expr);
		int32 typmod = exprTypmod((Node *) tle->expr);
		Oid collation = exprCollation((Node *) tle->expr);

		columns = sx_host_add_column(columns, typid, typmod, collation);
		tle->expr = (Expr *) makeVar(OUTER_VAR, list_length(columns), typid, typmod, collation, 0);
	}
	columns = sx_host_add_column(columns, BOOLOID, -1, InvalidOid);
	aggref->aggfilter =
		(Expr *) makeVar(OUTER_VAR, list_length(columns), BOOLOID, -1, InvalidOid, 0);
	columns = sx_host_add_columns(columns, input);
	aggref->aggdirectargs = (List *) shift_vars((Node *) aggref->aggdirectargs, &shift);
	aggref->aggno = 0;
	aggref->aggtransno = 0;
	sx_aggref_clear_presorted(aggref);
	targetlist = list_make1(makeTargetEntry((Expr *) aggref, 1, "result", false));
	inputs->agg = sx_host_agg(estate, &scan_methods, columns, targetlist, NIL);
	inputs->scan = (BagScan *) outerPlanState(inputs->agg);
	inputs->scan->inputs = inputs;
}

SxInputs *
sx_inputs_create(EState *estate, Aggref *aggref, SxInputsMode mode, TupleDesc input,
				 MemoryContext bag_cxt)
{
	SxInputs *inputs = palloc0(sizeof(SxInputs));
	int n = list_length(aggref->args);
	ListCell *lc;
	int i = 0;

	inputs->bag_cxt = bag_cxt;
	inputs->is_distinct = aggref->aggdistinct != NIL;
	inputs->nargs = n;
	inputs->nkeys = input->natts;
	inputs->args = palloc(sizeof(ExprState *) * Max(n, 1));
	inputs->typlen = palloc(sizeof(int16) * Max(n, 1));
	inputs->typbyval = palloc(sizeof(bool) * Max(n, 1));
	inputs->desc = CreateTemplateTupleDesc(n + 2);
	TupleDescInitEntry(inputs->desc, 1, "g", INT8OID, -1, 0);
	TupleDescInitEntry(inputs->desc, 2, "i", INT8OID, -1, 0);
	foreach(lc, aggref->args)
	{
		Node *arg = (Node *) ((TargetEntry *) lfirst(lc))->expr;

		inputs->args[i] = ExecInitExpr((Expr *) arg, NULL);
		get_typlenbyval(exprType(arg), &inputs->typlen[i], &inputs->typbyval[i]);
		TupleDescInitEntry(inputs->desc, i + 3, psprintf("a%d", i + 1), exprType(arg), -1, 0);
		i++;
	}
	inputs->filter = aggref->aggfilter != NULL ? ExecInitExpr(aggref->aggfilter, NULL) : NULL;
	if (mode == SX_INPUTS_SET)
	{
		Node *arg = (Node *) linitial_node(TargetEntry, aggref->args)->expr;

		inputs->key = palloc(sizeof(SxKeyColumn));
		sx_key_column_init(inputs->key, exprType(arg),
						   linitial_node(SortGroupClause, aggref->aggdistinct)->eqop,
						   exprCollation(arg));
	}
	else
		create_agg(inputs, estate, aggref, input);
	return inputs;
}

bool
sx_inputs_is_set(const SxInputs *inputs)
{
	return inputs->key != NULL;
}

TupleDesc
sx_inputs_desc(SxInputs *inputs)
{
	return inputs->desc;
}

static uint32
hash_row(SxInputs *inputs, const Datum *values, const bool *nulls)
{
	uint32 hash = 0;

	if (inputs->key != NULL)
		return nulls[0] ? 0 : (uint32) sx_key_hash(inputs->key, values[0]);
	for (int i = 0; i < inputs->nargs; i++)
		hash = hash_combine(hash, nulls[i] ? 0
										   : datum_image_hash(values[i], inputs->typbyval[i],
															  inputs->typlen[i]));
	return hash;
}

static bool
same_row(SxInputs *inputs, const Datum *a, const bool *a_nulls, const Datum *b, const bool *b_nulls)
{
	if (inputs->key != NULL)
		return a_nulls[0] || b_nulls[0] ? a_nulls[0] && b_nulls[0]
										: sx_key_equal(inputs->key, a[0], b[0]);
	for (int i = 0; i < inputs->nargs; i++)
	{
		if (a_nulls[i] != b_nulls[i])
			return false;
		if (!a_nulls[i] && !datum_image_eq(a[i], b[i], inputs->typbyval[i], inputs->typlen[i]))
			return false;
	}
	return true;
}

static void
index_row(SxInputs *inputs, SxInputBag *bag, int64 row)
{
	uint32 mask = (uint32) (bag->index_size - 1);
	uint32 pos =
		hash_row(inputs, bag->values + row * inputs->nargs, bag->nulls + row * inputs->nargs) &
		mask;

	while (bag->index[pos] != 0)
		pos = (pos + 1) & mask;
	bag->index[pos] = (uint32) (row + 1);
}

/* Is a row with the same bytes in the bag? Keeps the index at most half full. */
static bool
contains(SxInputs *inputs, SxInputBag *bag, const Datum *values, const bool *nulls)
{
	uint32 mask;
	uint32 pos;

	if (bag->nrows <= SMALL_BAG)
	{
		for (int64 i = 0; i < bag->nrows; i++)
			if (same_row(inputs, bag->values + i * inputs->nargs, bag->nulls + i * inputs->nargs,
						 values, nulls))
				return true;
		return false;
	}
	if (bag->nrows * 2 >= bag->index_size)
	{
		int64 size = Max(64, bag->index_size * 2);

		while (bag->nrows * 2 >= size)
			size *= 2;
		if (bag->index != NULL)
			pfree(bag->index);
		bag->index = MemoryContextAllocExtended(inputs->bag_cxt, sizeof(uint32) * size,
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
		bag->index_size = size;
		for (int64 i = 0; i < bag->nrows; i++)
			index_row(inputs, bag, i);
	}
	mask = (uint32) (bag->index_size - 1);
	pos = hash_row(inputs, values, nulls) & mask;
	for (; bag->index[pos] != 0; pos = (pos + 1) & mask)
	{
		int64 row = (int64) bag->index[pos] - 1;

		if (same_row(inputs, bag->values + row * inputs->nargs, bag->nulls + row * inputs->nargs,
					 values, nulls))
			return true;
	}
	return false;
}

/* Appends a row, copying its values. */
static void
append_row(SxInputs *inputs, SxInputBag *bag, const Datum *values, const bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(inputs->bag_cxt);
	int n = inputs->nargs;

	if (bag->nrows >= PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("too many inputs of an aggregate in one group")));
	if (bag->nrows == bag->capacity)
	{
		int64 capacity = Max(4, bag->capacity * 2);

		if (bag->values == NULL)
		{
			bag->values = palloc(sizeof(Datum) * capacity * Max(n, 1));
			bag->nulls = palloc(sizeof(bool) * capacity * Max(n, 1));
		}
		else
		{
			bag->values = repalloc_huge(bag->values, sizeof(Datum) * capacity * Max(n, 1));
			bag->nulls = repalloc_huge(bag->nulls, sizeof(bool) * capacity * Max(n, 1));
		}
		bag->capacity = capacity;
	}
	for (int i = 0; i < n; i++)
	{
		bag->nulls[bag->nrows * n + i] = nulls[i];
		bag->values[bag->nrows * n + i] =
			nulls[i] ? (Datum) 0 : datumCopy(values[i], inputs->typbyval[i], inputs->typlen[i]);
	}
	bag->nrows++;
	if (bag->index != NULL && bag->nrows * 2 < bag->index_size)
		index_row(inputs, bag, bag->nrows - 1);
	MemoryContextSwitchTo(old);
}

bool
sx_inputs_add(SxInputs *inputs, SxInputBag *bag, ExprContext *econtext)
{
	Datum values[FUNC_MAX_ARGS * 2];
	bool nulls[FUNC_MAX_ARGS * 2];

	if (inputs->filter != NULL)
	{
		bool isnull;
		Datum pass = ExecEvalExprSwitchContext(inputs->filter, econtext, &isnull);

		if (isnull || !DatumGetBool(pass))
			return false;
	}
	if (inputs->nargs > lengthof(values))
		ereport(ERROR, (errcode(ERRCODE_TOO_MANY_ARGUMENTS),
						errmsg("too many arguments and sort expressions in an aggregate")));
	for (int i = 0; i < inputs->nargs; i++)
	{
		values[i] = ExecEvalExprSwitchContext(inputs->args[i], econtext, &nulls[i]);
		if (!nulls[i] && inputs->typlen[i] == -1 &&
			(VARATT_IS_EXTERNAL(DatumGetPointer(values[i])) ||
			 VARATT_IS_COMPRESSED(DatumGetPointer(values[i]))))
		{
			MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

			values[i] = PointerGetDatum(PG_DETOAST_DATUM(values[i]));
			MemoryContextSwitchTo(old);
		}
	}
	if (inputs->is_distinct && contains(inputs, bag, values, nulls))
		return false;
	append_row(inputs, bag, values, nulls);
	return true;
}

void
sx_inputs_load(SxInputs *inputs, SxInputBag *bag, const Datum *values, const bool *nulls)
{
	append_row(inputs, bag, values, nulls);
	bag->npersisted = bag->nrows;
}

Datum
sx_inputs_result(SxInputs *inputs, SxInputBag *bag, TupleTableSlot *keys, bool *isnull)
{
	TupleTableSlot *slot;
	Form_pg_attribute att;
	Datum result;

	inputs->scan->bag = bag;
	inputs->scan->keys = keys;
	ExecReScan((PlanState *) inputs->agg);
	slot = ExecProcNode((PlanState *) inputs->agg);
	if (TupIsNull(slot))
		elog(ERROR, "aggregate returned no row");
	result = slot_getattr(slot, 1, isnull);
	att = TupleDescAttr(slot->tts_tupleDescriptor, 0);
	return *isnull ? (Datum) 0 : datumCopy(result, att->attbyval, att->attlen);
}

void
sx_inputs_persist(SxInputs *inputs, SxInputBag *bag, int64 group, SxRowWriter *writer)
{
	int n = inputs->nargs;
	Datum values[FUNC_MAX_ARGS * 2 + 2];
	bool nulls[FUNC_MAX_ARGS * 2 + 2] = {false};

	values[0] = Int64GetDatum(group);
	for (int64 row = bag->npersisted; row < bag->nrows; row++)
	{
		values[1] = Int64GetDatum(row);
		memcpy(values + 2, bag->values + row * n, sizeof(Datum) * n);
		memcpy(nulls + 2, bag->nulls + row * n, sizeof(bool) * n);
		sx_rows_insert(writer, values, nulls, NULL);
	}
	bag->npersisted = bag->nrows;
}
