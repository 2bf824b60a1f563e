/*
 * aggregate.c
 *		GROUP BY with any aggregates, over append-only input.
 *
 * Groups are found by our own hash; what the server does well it does here, too: transitions run
 * through the expression that ExecInitAgg builds (strictness, FILTER, argument expressions and
 * type lengths included), final functions and output expressions through the Agg node's own
 * projection. The node is hosted as a plain aggregate: its own hash table is never used, and the
 * per-group array that the expression works on is switched to the row's group before each call.
 *
 * Aggregates that keep their inputs (inputs.c) are taken out of the hosted node; the places where
 * it used their values read an inner tuple that is filled before the projection runs.
 *
 * State: one row a group with its key and transition values, written in the worker's commit, and
 * for aggregates that keep inputs one row an input. In memory all groups are held. Crash
 * behaviour: what is committed is loaded again; the row also says where the group's row in the
 * view is.
 *
 * Memory: groups, keys and transition values live in contexts of the operator. Transition values
 * are freed by the transition functions' caller as in nodeAgg.c.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "stream_ext/base/rows.h"
#include "stream_ext/operator/aggregate.h"
#include "stream_ext/operator/inputs.h"
#include "stream_ext/state/groups.h"
#include "stream_ext/state/table.h"

/* How the value of one transition is stored. */
typedef struct TransColumn
{
	bool is_serialized; /* "internal": stored as bytea through these functions */
	FmgrInfo serialize;
	FmgrInfo deserialize;
} TransColumn;

typedef struct Aggregate
{
	SxOperator base;
	Oid view;
	bool is_plain;
	MemoryContext groups_cxt; /* the hash, and bags */
	MemoryContext flush_cxt;  /* reset after each flush */
	SxGroups *groups;
	int nkeys;
	AttrNumber *keys;

	AggState *agg;
	ExprContext *agg_cxt;     /* memory of transition values */
	TupleTableSlot *input;    /* a row of the input, for transitions */
	TupleTableSlot *key_slot; /* a row of the input with only the key set, for output */
	int nread;                /* columns that transitions and kept inputs read */
	int *read;
	TransColumn *columns; /* [numtrans] */

	int ninputs; /* aggregates that keep their inputs */
	SxInputs **inputs;
	TupleTableSlot *inputs_slot; /* their results */
	Size bags_offset;            /* of the payload */

	SxGroup **dirty;
	int64 ndirty;
	int64 dirty_capacity;

	TupleDesc state_desc;
	Oid state_relid;
	RelFileNumber state_file; /* the file that state_tid of groups points into */
	bool reemit;              /* rows of the view are gone */
} Aggregate;

static inline AggStatePerGroup
transitions_of(Aggregate *op, SxGroup *group)
{
	return sx_group_payload(op->groups, group);
}

static inline SxInputBag *
bags_of(Aggregate *op, SxGroup *group)
{
	return (SxInputBag *) ((char *) sx_group_payload(op->groups, group) + op->bags_offset);
}

/* ---------------------------------------------------------------- input */

/* A new group: initial transition values, as the aggregate defines them. */
static void
init_group(void *arg, SxGroup *group)
{
	Aggregate *op = arg;
	AggStatePerGroup pergroup = transitions_of(op, group);

	for (int t = 0; t < op->agg->numtrans; t++)
	{
		AggStatePerTrans trans = &op->agg->pertrans[t];

		pergroup[t].transValue = trans->initValue;
		if (!trans->initValueIsNull)
		{
			MemoryContext old = MemoryContextSwitchTo(op->agg_cxt->ecxt_per_tuple_memory);

			pergroup[t].transValue =
				datumCopy(trans->initValue, trans->transtypeByVal, trans->transtypeLen);
			MemoryContextSwitchTo(old);
		}
		pergroup[t].transValueIsNull = trans->initValueIsNull;
		pergroup[t].noTransValue = trans->initValueIsNull;
	}
}

static void
before_image(SxOperator *base, void *entry)
{
	Aggregate *op = (Aggregate *) base;

	if (op->ndirty == op->dirty_capacity)
	{
		op->dirty_capacity = Max(1024, op->dirty_capacity * 2);
		op->dirty = op->dirty == NULL
						? MemoryContextAlloc(op->groups_cxt, sizeof(SxGroup *) * op->dirty_capacity)
						: repalloc_huge(op->dirty, sizeof(SxGroup *) * op->dirty_capacity);
	}
	op->dirty[op->ndirty++] = entry;
}

static void
touch(Aggregate *op, SxGroup *group)
{
	if (group->is_dirty)
		return;
	before_image(&op->base, group);
	group->is_dirty = true;
}

static void
aggregate_push(SxOperator *base, SxBatch *in)
{
	Aggregate *op = (Aggregate *) base;
	SxGroup *groups[SX_BATCH_ROWS];
	Datum *key_values[INDEX_MAX_KEYS * 4];
	bool *key_nulls[INDEX_MAX_KEYS * 4];
	AggState *agg = op->agg;
	ExprContext *tmp = agg->tmpcontext;
	MemoryContext old = MemoryContextSwitchTo(in->cxt);

	for (int k = 0; k < op->nkeys; k++)
	{
		key_values[k] = in->values[op->keys[k] - 1];
		key_nulls[k] = in->nulls[op->keys[k] - 1];
	}
	sx_groups_lookup(op->groups, key_values, key_nulls, in->nrows, groups, init_group, op);
	MemoryContextSwitchTo(old);

	tmp->ecxt_outertuple = op->input;
	for (int i = 0; i < in->nrows; i++)
	{
		SxGroup *group = groups[i];

		for (int r = 0; r < op->nread; r++)
		{
			int a = op->read[r];

			op->input->tts_values[a] = in->values[a][i];
			op->input->tts_isnull[a] = in->nulls[a][i];
		}
		touch(op, group);
		if (agg->numtrans > 0)
		{
			bool isnull;

			agg->all_pergroups[0] = transitions_of(op, group);
			(void) ExecEvalExprSwitchContext(agg->phase->evaltrans, tmp, &isnull);
		}
		for (int k = 0; k < op->ninputs; k++)
			sx_inputs_add(op->inputs[k], &bags_of(op, group)[k], tmp);
		if ((i & 31) == 31)
			ResetExprContext(tmp);
	}
	ResetExprContext(tmp);
}

/* ---------------------------------------------------------------- output */

/* The aggregate's value over one group, in the current memory context. */
static Datum
finalize(Aggregate *op, int aggno, AggStatePerGroup pergroup, bool *isnull)
{
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	AggState *agg = op->agg;
	AggStatePerAgg peragg = &agg->peragg[aggno];
	AggStatePerTrans trans = &agg->pertrans[peragg->transno];
	AggStatePerGroup value = &pergroup[peragg->transno];
	Datum result;

	if (!OidIsValid(peragg->finalfn_oid))
	{
		*isnull = value->transValueIsNull;
		return value->transValue;
	}
	InitFunctionCallInfoData(*fcinfo, &peragg->finalfn, peragg->numFinalArgs, trans->aggCollation,
							 (void *) agg, NULL);
	fcinfo->args[0].value =
		MakeExpandedObjectReadOnly(value->transValue, value->transValueIsNull, trans->transtypeLen);
	fcinfo->args[0].isnull = value->transValueIsNull;
	/* arguments beyond the state only tell a polymorphic final function its types */
	for (int i = 1; i < peragg->numFinalArgs; i++)
	{
		fcinfo->args[i].value = (Datum) 0;
		fcinfo->args[i].isnull = true;
	}
	if (peragg->finalfn.fn_strict && (value->transValueIsNull || peragg->numFinalArgs > 1))
	{
		*isnull = true;
		return (Datum) 0;
	}
	agg->curperagg = peragg;
	result = FunctionCallInvoke(fcinfo);
	agg->curperagg = NULL;
	*isnull = fcinfo->isnull;
	return result;
}

/* Gives the row of a changed group, or that it has none any more, to the next operator. */
static void
emit_group(Aggregate *op, SxGroup *group)
{
	AggState *agg = op->agg;
	ExprContext *econtext = agg->ss.ps.ps_ExprContext;
	AggStatePerGroup pergroup = transitions_of(op, group);
	Datum *keys = sx_group_keys(group);
	bool *nulls = sx_group_nulls(op->groups, group);
	SxOperator *next = op->base.next;
	TupleTableSlot *slot;
	MemoryContext old;

	ResetExprContext(econtext);
	for (int k = 0; k < op->nkeys; k++)
	{
		op->key_slot->tts_values[op->keys[k] - 1] = keys[k];
		op->key_slot->tts_isnull[op->keys[k] - 1] = nulls[k];
	}
	econtext->ecxt_outertuple = op->key_slot;
	econtext->ecxt_innertuple = op->inputs_slot;
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	for (int a = 0; a < agg->numaggs; a++)
		econtext->ecxt_aggvalues[a] = finalize(op, a, pergroup, &econtext->ecxt_aggnulls[a]);
	for (int k = 0; k < op->ninputs; k++)
		op->inputs_slot->tts_values[k] =
			sx_inputs_result(op->inputs[k], &bags_of(op, group)[k], op->key_slot,
							 &op->inputs_slot->tts_isnull[k]);
	MemoryContextSwitchTo(old);

	if (agg->ss.ps.qual != NULL && !ExecQual(agg->ss.ps.qual, econtext))
	{
		next->methods->retract(next, &group->row_tid);
		return;
	}
	slot = ExecProject(agg->ss.ps.ps_ProjInfo);
	op->base.rows_out++;
	next->rows_in++;
	next->methods->upsert(next, &group->row_tid, slot->tts_values, slot->tts_isnull);
}

static int
compare_row_tids(const void *a, const void *b)
{
	return ItemPointerCompare(&(*(SxGroup *const *) a)->row_tid, &(*(SxGroup *const *) b)->row_tid);
}

static int
compare_state_tids(const void *a, const void *b)
{
	return ItemPointerCompare(&(*(SxGroup *const *) a)->state_tid,
							  &(*(SxGroup *const *) b)->state_tid);
}

/* The value of a transition as it is stored. Result in the current memory context. */
static Datum
store_transition(Aggregate *op, int t, AggStatePerGroup value)
{
	LOCAL_FCINFO(fcinfo, 1);

	if (!op->columns[t].is_serialized)
		return value->transValue;
	InitFunctionCallInfoData(*fcinfo, &op->columns[t].serialize, 1, InvalidOid, (void *) op->agg,
							 NULL);
	fcinfo->args[0].value = value->transValue;
	fcinfo->args[0].isnull = false;
	return FunctionCallInvoke(fcinfo);
}

/* Columns of the state table before the key: group, row in the view, transitions without value. */
#define STATE_COLUMNS 3

static void
form_state_row(Aggregate *op, SxGroup *group, Datum *values, bool *nulls)
{
	AggStatePerGroup pergroup = transitions_of(op, group);
	int numtrans = op->agg->numtrans;
	int c = STATE_COLUMNS;
	bytea *novalue = NULL;

	values[0] = Int64GetDatum(group->id);
	nulls[0] = false;
	values[1] = PointerGetDatum(&group->row_tid);
	nulls[1] = !ItemPointerIsValid(&group->row_tid);
	for (int k = 0; k < op->nkeys; k++, c++)
	{
		values[c] = sx_group_keys(group)[k];
		nulls[c] = sx_group_nulls(op->groups, group)[k];
	}
	for (int t = 0; t < numtrans; t++, c++)
	{
		nulls[c] = pergroup[t].transValueIsNull;
		values[c] = nulls[c] ? (Datum) 0 : store_transition(op, t, &pergroup[t]);
		if (!pergroup[t].noTransValue)
			continue;
		if (novalue == NULL)
		{
			novalue = palloc0(VARHDRSZ + (numtrans + 7) / 8);
			SET_VARSIZE(novalue, VARHDRSZ + (numtrans + 7) / 8);
		}
		VARDATA(novalue)[t / 8] |= (char) (1 << (t % 8));
	}
	values[2] = PointerGetDatum(novalue);
	nulls[2] = novalue == NULL;
}

/* Writes the changed groups into the state tables. */
static void
write_state(Aggregate *op)
{
	Relation rel = table_open(op->state_relid, RowExclusiveLock);
	SxRowWriter *writer = sx_rows_open(rel);
	MemoryContext row_cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext state row", ALLOCSET_DEFAULT_SIZES);
	Datum *values = palloc(sizeof(Datum) * op->state_desc->natts);
	bool *nulls = palloc(sizeof(bool) * op->state_desc->natts);

	qsort(op->dirty, op->ndirty, sizeof(SxGroup *), compare_state_tids);
	for (int64 i = 0; i < op->ndirty; i++)
	{
		SxGroup *group = op->dirty[i];
		MemoryContext old = MemoryContextSwitchTo(row_cxt);

		form_state_row(op, group, values, nulls);
		if (ItemPointerIsValid(&group->state_tid))
			sx_rows_update(writer, &group->state_tid, values, nulls);
		else
			sx_rows_insert(writer, values, nulls, &group->state_tid);
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_cxt);
	}
	sx_rows_close(writer);
	MemoryContextDelete(row_cxt);
	table_close(rel, NoLock);

	for (int k = 0; k < op->ninputs; k++)
	{
		rel = table_open(sx_state_table_find(op->view, op->base.id, k + 1), RowExclusiveLock);
		writer = sx_rows_open(rel);
		for (int64 i = 0; i < op->ndirty; i++)
			sx_inputs_persist(op->inputs[k], &bags_of(op, op->dirty[i])[k], op->dirty[i]->id,
							  writer);
		sx_rows_close(writer);
		table_close(rel, NoLock);
	}
}

static void
forget_row(void *arg, SxGroup *group)
{
	ItemPointerSetInvalid(&group->row_tid);
	touch(arg, group);
}

static void
aggregate_flush(SxOperator *base)
{
	Aggregate *op = (Aggregate *) base;
	MemoryContext old = MemoryContextSwitchTo(op->flush_cxt);

	if (op->reemit)
	{
		sx_groups_visit(op->groups, forget_row, op);
		op->reemit = false;
	}
	/* in the order of the view's blocks, new rows first */
	if (op->ndirty > 1)
		qsort(op->dirty, op->ndirty, sizeof(SxGroup *), compare_row_tids);
	for (int64 i = 0; i < op->ndirty; i++)
	{
		if ((i & 1023) == 1023)
			CHECK_FOR_INTERRUPTS();
		emit_group(op, op->dirty[i]);
	}
	base->next->methods->flush(base->next);
	if (op->ndirty > 0)
		write_state(op);
	MemoryContextSwitchTo(old);
	MemoryContextReset(op->flush_cxt);
}

static void
aggregate_committed(SxOperator *base)
{
	Aggregate *op = (Aggregate *) base;

	for (int64 i = 0; i < op->ndirty; i++)
		op->dirty[i]->is_dirty = false;
	op->ndirty = 0;
	if (base->next->methods->committed != NULL)
		base->next->methods->committed(base->next);
}

/* Untouched state is as it was; for the rest there is no image of before yet. */
static bool
aggregate_rolled_back(SxOperator *base)
{
	return ((Aggregate *) base)->ndirty == 0 && (base->next->methods->rolled_back == NULL ||
												 base->next->methods->rolled_back(base->next));
}

static void
aggregate_state_size(SxOperator *base, uint64 *rows, uint64 *bytes)
{
	Aggregate *op = (Aggregate *) base;

	*rows = op->groups->ngroups;
	*bytes = MemoryContextMemAllocated(op->groups_cxt, true) +
			 MemoryContextMemAllocated(op->agg_cxt->ecxt_per_tuple_memory, true);
}

/* ---------------------------------------------------------------- load */

static void
skip_init(void *arg, SxGroup *group)
{
}

/* Puts one stored group into the hash. Values may point into a buffer. */
static void
load_group(Aggregate *op, TupleTableSlot *slot)
{
	Datum *values = slot->tts_values;
	bool *nulls = slot->tts_isnull;
	SxGroup *group;
	AggStatePerGroup pergroup;
	Datum *key_values[INDEX_MAX_KEYS * 4];
	bool *key_nulls[INDEX_MAX_KEYS * 4];
	bytea *novalue = nulls[2] ? NULL : DatumGetByteaPP(values[2]);
	int c = STATE_COLUMNS;
	MemoryContext old;

	for (int k = 0; k < op->nkeys; k++, c++)
	{
		key_values[k] = &values[c];
		key_nulls[k] = &nulls[c];
	}
	sx_groups_lookup(op->groups, key_values, key_nulls, 1, &group, skip_init, NULL);
	group->id = DatumGetInt64(values[0]);
	op->groups->next_id = Max(op->groups->next_id, group->id + 1);
	group->state_tid = slot->tts_tid;
	if (!nulls[1])
		group->row_tid = *(ItemPointer) DatumGetPointer(values[1]);
	pergroup = transitions_of(op, group);
	old = MemoryContextSwitchTo(op->agg_cxt->ecxt_per_tuple_memory);
	for (int t = 0; t < op->agg->numtrans; t++, c++)
	{
		AggStatePerTrans trans = &op->agg->pertrans[t];

		pergroup[t].transValueIsNull = nulls[c];
		pergroup[t].noTransValue =
			novalue != NULL && (VARDATA_ANY(novalue)[t / 8] & (1 << (t % 8))) != 0;
		if (nulls[c])
			continue;
		if (op->columns[t].is_serialized)
		{
			LOCAL_FCINFO(fcinfo, 2);

			InitFunctionCallInfoData(*fcinfo, &op->columns[t].deserialize, 2, InvalidOid,
									 (void *) op->agg, NULL);
			fcinfo->args[0].value = values[c];
			fcinfo->args[0].isnull = false;
			fcinfo->args[1].value = (Datum) 0;
			fcinfo->args[1].isnull = true;
			pergroup[t].transValue = FunctionCallInvoke(fcinfo);
		}
		else if (trans->transtypeLen == -1)
			pergroup[t].transValue = PointerGetDatum(PG_DETOAST_DATUM_COPY(values[c]));
		else
			pergroup[t].transValue =
				datumCopy(values[c], trans->transtypeByVal, trans->transtypeLen);
	}
	MemoryContextSwitchTo(old);
}

/* Groups by id, while inputs are being loaded. */
typedef struct IdEntry
{
	int64 id;
	SxGroup *group;
} IdEntry;

typedef struct Loader
{
	Aggregate *op;
	int part; /* 0: groups; n: inputs of the n-th aggregate that keeps any */
	IdEntry *ids;
	int64 nids;
} Loader;

static void
collect_id(void *arg, SxGroup *group)
{
	Loader *loader = arg;

	loader->ids[loader->nids++] = (IdEntry){.id = group->id, .group = group};
}

static int
compare_ids(const void *a, const void *b)
{
	int64 x = ((const IdEntry *) a)->id;
	int64 y = ((const IdEntry *) b)->id;

	return x < y ? -1 : x > y;
}

/* Gives an input to its group. */
static void
load_input(Loader *loader, TupleTableSlot *slot)
{
	Aggregate *op = loader->op;
	IdEntry key = {.id = DatumGetInt64(slot->tts_values[0])};
	IdEntry *entry = bsearch(&key, loader->ids, loader->nids, sizeof(IdEntry), compare_ids);
	int natts = slot->tts_tupleDescriptor->natts;

	if (entry == NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("state table has inputs of group %lld, which does not exist",
							   (long long) key.id)));
	for (int a = 2; a < natts; a++)
		if (!slot->tts_isnull[a] && TupleDescAttr(slot->tts_tupleDescriptor, a)->attlen == -1)
			slot->tts_values[a] = PointerGetDatum(PG_DETOAST_DATUM_PACKED(slot->tts_values[a]));
	sx_inputs_load(op->inputs[loader->part - 1], &bags_of(op, entry->group)[loader->part - 1],
				   slot->tts_values + 2, slot->tts_isnull + 2);
}

/* Loads one state table, as the latest snapshot sees it. */
static void
load_table(Loader *loader, Oid relid)
{
	Relation rel = table_open(relid, RowExclusiveLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	MemoryContext row_cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext load", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(row_cxt);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(slot);
		if (loader->part == 0)
			load_group(loader->op, slot);
		else
			load_input(loader, slot);
		MemoryContextReset(row_cxt);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(row_cxt);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	if (loader->part == 0)
	{
		loader->op->state_relid = relid;
		loader->op->state_file = rel->rd_locator.relNumber;
	}
	table_close(rel, NoLock);
}

static void
aggregate_load(SxOperator *base)
{
	Aggregate *op = (Aggregate *) base;
	Loader loader = {.op = op};

	for (int part = 0; part <= op->ninputs; part++)
	{
		Oid relid = sx_state_table_find(op->view, op->base.id, part);

		if (!OidIsValid(relid))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
							errmsg("state table of view \"%s\" is missing", get_rel_name(op->view)),
							errhint("Use REFRESH MATERIALIZED VIEW to build the view anew.")));
		loader.part = part;
		if (part == 1)
		{
			loader.ids =
				MemoryContextAllocHuge(op->flush_cxt, sizeof(IdEntry) * (op->groups->ngroups + 1));
			sx_groups_visit(op->groups, collect_id, &loader);
			qsort(loader.ids, loader.nids, sizeof(IdEntry), compare_ids);
		}
		load_table(&loader, relid);
	}
	if (op->is_plain && op->groups->ngroups == 0)
	{
		SxGroup *group;

		/* the one group of an aggregate without GROUP BY exists before any row does */
		sx_groups_lookup(op->groups, NULL, NULL, 1, &group, init_group, op);
		touch(op, group);
	}
	MemoryContextReset(op->flush_cxt);
}

static const SxOperatorMethods aggregate_methods = {
	.name = "aggregate",
	.load = aggregate_load,
	.push = aggregate_push,
	.flush = aggregate_flush,
	.before_image = before_image,
	.committed = aggregate_committed,
	.rolled_back = aggregate_rolled_back,
	.state_size = aggregate_state_size,
};

void
sx_aggregate_reemit(SxOperator *base)
{
	((Aggregate *) base)->reemit = true;
}

bool
sx_aggregate_is_stale(SxOperator *base)
{
	Aggregate *op = (Aggregate *) base;
	Relation rel = try_relation_open(op->state_relid, NoLock);
	bool stale;

	if (rel == NULL)
		return true;
	stale = rel->rd_locator.relNumber != op->state_file;
	relation_close(rel, NoLock);
	return stale;
}

void
sx_aggregate_build(SxOperator *base)
{
	Aggregate *op = (Aggregate *) base;

	(void) sx_state_table_create(op->view, op->base.id, 0, op->state_desc, 1);
	for (int k = 0; k < op->ninputs; k++)
		(void) sx_state_table_create(op->view, op->base.id, k + 1, sx_inputs_desc(op->inputs[k]),
									 2);
}

/* ---------------------------------------------------------------- creation */

/* Takes the aggregates that keep their inputs out of expressions, and numbers the others anew. */
typedef struct SplitContext
{
	List *kept;    /* Aggref, the first of each number */
	List *numbers; /* aggno of each, as the planner gave it */
	List *aggnos;  /* of the others: new number = place in the list */
	List *transnos;
} SplitContext;

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

static Node *
split_aggregates(Node *node, void *context)
{
	SplitContext *split = context;
	Aggref *aggref;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Aggref))
		return expression_tree_mutator(node, split_aggregates, context);
	aggref = (Aggref *) node;
	if (sx_inputs_needed(aggref))
	{
		int before = list_length(split->numbers);
		int place = place_of(&split->numbers, aggref->aggno);

		if (list_length(split->numbers) > before)
			split->kept = lappend(split->kept, aggref);
		return (Node *) makeVar(INNER_VAR, place + 1, aggref->aggtype, -1, aggref->aggcollid, 0);
	}
	aggref = copyObject(aggref);
	aggref->aggno = place_of(&split->aggnos, aggref->aggno);
	aggref->aggtransno = place_of(&split->transnos, aggref->aggtransno);
	sx_aggref_clear_presorted(aggref);
	return (Node *) aggref;
}

/* The input of the hosted Agg node: never runs, gives the types of the input. */
static void
input_begin(CustomScanState *node, EState *estate, int eflags)
{
}

static TupleTableSlot *
input_next(CustomScanState *node)
{
	return NULL;
}

static void
input_end(CustomScanState *node)
{
}

static const CustomExecMethods input_exec_methods = {
	.CustomName = "stream_ext input",
	.BeginCustomScan = input_begin,
	.ExecCustomScan = input_next,
	.EndCustomScan = input_end,
	.ReScanCustomScan = input_end,
};

static Node *
input_create(CustomScan *cscan)
{
	CustomScanState *css = (CustomScanState *) newNode(sizeof(CustomScanState), T_CustomScanState);

	css->methods = &input_exec_methods;
	return (Node *) css;
}

static const CustomScanMethods input_methods = {
	.CustomName = "stream_ext input",
	.CreateCustomScanState = input_create,
};

static AggState *
host_agg(EState *estate, List *targetlist, List *qual, TupleDesc input)
{
	Agg *agg = makeNode(Agg);
	CustomScan *cscan = makeNode(CustomScan);
	List *tlist = NIL;

	for (int i = 0; i < input->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(input, i);

		tlist =
			lappend(tlist, makeTargetEntry((Expr *) makeVar(INDEX_VAR, i + 1, att->atttypid,
															att->atttypmod, att->attcollation, 0),
										   i + 1, psprintf("c%d", i + 1), false));
	}
	cscan->methods = &input_methods;
	cscan->custom_scan_tlist = tlist;
	cscan->scan.plan.targetlist = copyObject(tlist);
	agg->aggstrategy = AGG_PLAIN;
	agg->aggsplit = AGGSPLIT_SIMPLE;
	agg->numGroups = 1;
	agg->plan.lefttree = &cscan->scan.plan;
	agg->plan.targetlist = targetlist;
	agg->plan.qual = qual;
	return (AggState *) ExecInitNode(&agg->plan, estate, 0);
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

/* Aggrefs only: their arguments and filters are what transitions read. */
static bool
collect_aggregate_vars(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Aggref *aggref = (Aggref *) node;

		return collect_outer_vars((Node *) aggref->args, context) ||
			   collect_outer_vars((Node *) aggref->aggfilter, context);
	}
	return expression_tree_walker(node, collect_aggregate_vars, context);
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

/* How each transition value is stored, and the columns of the state table. */
static void
init_state_columns(Aggregate *op, TupleDesc input)
{
	int numtrans = op->agg->numtrans;
	TupleDesc desc = CreateTemplateTupleDesc(STATE_COLUMNS + op->nkeys + numtrans);
	int c = STATE_COLUMNS;

	TupleDescInitEntry(desc, 1, "g", INT8OID, -1, 0);
	TupleDescInitEntry(desc, 2, "t", TIDOID, -1, 0);
	TupleDescInitEntry(desc, 3, "n", BYTEAOID, -1, 0);
	for (int k = 0; k < op->nkeys; k++)
		TupleDescInitEntry(desc, ++c, psprintf("k%d", k + 1),
						   TupleDescAttr(input, op->keys[k] - 1)->atttypid, -1, 0);
	op->columns = palloc0(sizeof(TransColumn) * Max(numtrans, 1));
	for (int t = 0; t < numtrans; t++)
	{
		AggStatePerTrans trans = &op->agg->pertrans[t];
		Oid typid = trans->aggtranstype;

		if (typid == INTERNALOID)
		{
			HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(trans->aggref->aggfnoid));
			Form_pg_aggregate form;

			if (!HeapTupleIsValid(tuple))
				elog(ERROR, "cache lookup failed for aggregate %u", trans->aggref->aggfnoid);
			form = (Form_pg_aggregate) GETSTRUCT(tuple);
			op->columns[t].is_serialized = true;
			fmgr_info(form->aggserialfn, &op->columns[t].serialize);
			fmgr_info(form->aggdeserialfn, &op->columns[t].deserialize);
			ReleaseSysCache(tuple);
			typid = BYTEAOID;
		}
		TupleDescInitEntry(desc, ++c, psprintf("s%d", t + 1), typid, -1, 0);
	}
	op->state_desc = desc;
}

static void
init_inputs(Aggregate *op, EState *estate, List *kept, TupleDesc input)
{
	TupleDesc desc = CreateTemplateTupleDesc(list_length(kept));
	ListCell *lc;

	op->inputs = palloc(sizeof(SxInputs *) * Max(list_length(kept), 1));
	foreach(lc, kept)
	{
		Aggref *aggref = lfirst(lc);

		op->inputs[op->ninputs++] = sx_inputs_create(estate, aggref, input, op->groups_cxt);
		TupleDescInitEntry(desc, op->ninputs, psprintf("a%d", op->ninputs), aggref->aggtype, -1, 0);
	}
	op->inputs_slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	ExecStoreAllNullTuple(op->inputs_slot);
}

SxOperator *
sx_aggregate_create(EState *estate, const SxAggregateSpec *spec, TupleDesc input, Oid view, int id)
{
	Aggregate *op = palloc0(sizeof(Aggregate));
	SplitContext split = {0};
	List *targetlist = (List *) split_aggregates((Node *) spec->targetlist, &split);
	List *qual = (List *) split_aggregates((Node *) spec->qual, &split);
	SxKeyColumn *columns = palloc(sizeof(SxKeyColumn) * Max(spec->nkeys, 1));
	Bitmapset *read = NULL;
	int a = -1;
	MemoryContext old;

	op->base.methods = &aggregate_methods;
	op->base.id = id;
	op->view = view;
	op->is_plain = spec->is_plain;
	op->groups_cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext aggregate", ALLOCSET_DEFAULT_SIZES);
	op->flush_cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_ext aggregate flush",
										  ALLOCSET_DEFAULT_SIZES);
	op->nkeys = spec->nkeys;
	op->keys = spec->keys;
	if (op->nkeys > INDEX_MAX_KEYS * 4)
		ereport(ERROR, (errcode(ERRCODE_TOO_MANY_COLUMNS),
						errmsg("a continuous view cannot group by more than %d values",
							   INDEX_MAX_KEYS * 4)));
	for (int k = 0; k < op->nkeys; k++)
	{
		Form_pg_attribute att = TupleDescAttr(input, op->keys[k] - 1);

		sx_key_column_init(&columns[k], att->atttypid, spec->equality[k], att->attcollation);
	}

	op->agg = host_agg(estate, targetlist, qual, input);
	op->agg_cxt = op->agg->aggcontexts[0];
	op->input = MakeSingleTupleTableSlot(input, &TTSOpsVirtual);
	ExecStoreAllNullTuple(op->input);
	op->key_slot = MakeSingleTupleTableSlot(input, &TTSOpsVirtual);
	ExecStoreAllNullTuple(op->key_slot);
	init_inputs(op, estate, split.kept, input);
	init_state_columns(op, input);

	collect_aggregate_vars((Node *) spec->targetlist, &read);
	collect_aggregate_vars((Node *) spec->qual, &read);
	op->read = palloc(sizeof(int) * Max(bms_num_members(read), 1));
	while ((a = bms_next_member(read, a)) >= 0)
		op->read[op->nread++] = a - 1;

	op->bags_offset = MAXALIGN(sizeof(AggStatePerGroupData) * op->agg->numtrans);
	old = MemoryContextSwitchTo(op->groups_cxt);
	op->groups =
		sx_groups_create(op->nkeys, columns, op->bags_offset + sizeof(SxInputBag) * op->ninputs);
	MemoryContextSwitchTo(old);
	return &op->base;
}

TupleDesc
sx_aggregate_output(SxOperator *base)
{
	return ((Aggregate *) base)->agg->ss.ps.ps_ResultTupleSlot->tts_tupleDescriptor;
}

/* ---------------------------------------------------------------- signature */

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
	if (sx_inputs_needed(aggref))
	{
		ListCell *lc;

		appendStringInfoString(sig->out, aggref->aggdistinct != NIL ? " distinct(" : " inputs(");
		foreach(lc, aggref->args)
			appendStringInfo(sig->out, "%s%s", lc == list_head(aggref->args) ? "" : ", ",
							 format_type_be_qualified(
								 exprType((Node *) ((TargetEntry *) lfirst(lc))->expr)));
		appendStringInfoString(sig->out, ")");
	}
	else
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
