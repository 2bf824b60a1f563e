/*
 * aggregate_state.c
 *		Stores and loads the state of the aggregate operator.
 *
 * One table has a row a group: its number, the place of its row in the view, which transitions
 * have had no value yet, the key, and the transition values. A value of type "internal" is stored
 * as its aggregate's serial form. Each aggregate that keeps its inputs has a table of its own with
 * a row an input, to which rows are only added.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "stream_ext/base/rows.h"
#include "stream_ext/state/table.h"

#include "aggregate_internal.h"

/* Columns of the state table before the key: group, row in the view, transitions without value. */
#define STATE_COLUMNS 3

void
sx_aggregate_init_columns(SxAggregate *op, TupleDesc input)
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
	op->columns = palloc0(sizeof(SxTransColumn) * Max(numtrans, 1));
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
			fmgr_info(form->aggcombinefn, &op->columns[t].combine);
			ReleaseSysCache(tuple);
			typid = BYTEAOID;
		}
		TupleDescInitEntry(desc, ++c, psprintf("s%d", t + 1), typid, -1, 0);
	}
	op->state_desc = desc;
}

static int
compare_state_tids(const void *a, const void *b)
{
	return ItemPointerCompare(&(*(SxGroup *const *) a)->state_tid,
							  &(*(SxGroup *const *) b)->state_tid);
}

/* The value of a transition as it is stored. Result in the current memory context. */
static Datum
store_transition(SxAggregate *op, int t, AggStatePerGroup value)
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

/*
 * The inverse of store_transition() for a serialized value. Result in the current memory context,
 * which has to be that of transition values.
 *
 * What a deserialization function returns is made to be combined, not to be continued: the states of
 * variance() over numeric, for example, come back without the mark to add up squares. So it is combined
 * with no state, as the server does with the first partial state of a group.
 */
static Datum
load_transition(SxAggregate *op, int t, Datum stored)
{
	SxTransColumn *column = &op->columns[t];
	ExprContext *tmp = op->agg->tmpcontext;
	MemoryContext old = MemoryContextSwitchTo(tmp->ecxt_per_tuple_memory);
	Datum value;
	LOCAL_FCINFO(fcinfo, 2);

	InitFunctionCallInfoData(*fcinfo, &column->deserialize, 2, InvalidOid, (void *) op->agg, NULL);
	fcinfo->args[0].value = stored;
	fcinfo->args[0].isnull = false;
	fcinfo->args[1].value = (Datum) 0;
	fcinfo->args[1].isnull = true;
	value = FunctionCallInvoke(fcinfo);
	MemoryContextSwitchTo(old);

	InitFunctionCallInfoData(*fcinfo, &column->combine, 2, op->agg->pertrans[t].aggCollation,
							 (void *) op->agg, NULL);
	fcinfo->args[0].value = (Datum) 0;
	fcinfo->args[0].isnull = true;
	fcinfo->args[1].value = value;
	fcinfo->args[1].isnull = false;
	value = FunctionCallInvoke(fcinfo);
	ResetExprContext(tmp);
	return value;
}

static void
form_state_row(SxAggregate *op, SxGroup *group, Datum *values, bool *nulls)
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

void
sx_aggregate_write_state(SxAggregate *op)
{
	Relation rel = table_open(op->state_relids[0], NoLock);
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
		sx_progress_steps++;
	}
	sx_rows_close(writer);
	MemoryContextDelete(row_cxt);
	table_close(rel, NoLock);

	for (int k = 0; k < op->ninputs; k++)
	{
		rel = table_open(op->state_relids[k + 1], NoLock);
		writer = sx_rows_open(rel);
		for (int64 i = 0; i < op->ndirty; i++)
		{
			sx_inputs_persist(op->inputs[k], &bags_of(op, op->dirty[i])[k], op->dirty[i]->id,
							  writer);
			sx_progress_steps++;
		}
		sx_rows_close(writer);
		table_close(rel, NoLock);
	}
}

static void
skip_init(void *arg, SxGroup *group)
{
}

/* Sets the state of a group from its stored row. Values may point into a buffer. */
static void
fill_group(SxAggregate *op, SxGroup *group, TupleTableSlot *slot)
{
	Datum *values = slot->tts_values;
	bool *nulls = slot->tts_isnull;
	AggStatePerGroup pergroup = transitions_of(op, group);
	bytea *novalue = nulls[2] ? NULL : DatumGetByteaPP(values[2]);
	int c = STATE_COLUMNS + op->nkeys;
	MemoryContext old;

	group->id = DatumGetInt64(values[0]);
	group->state_tid = slot->tts_tid;
	ItemPointerSetInvalid(&group->row_tid);
	if (!nulls[1])
		group->row_tid = *(ItemPointer) DatumGetPointer(values[1]);
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
			pergroup[t].transValue = load_transition(op, t, values[c]);
		else if (trans->transtypeLen == -1)
			pergroup[t].transValue = PointerGetDatum(PG_DETOAST_DATUM_COPY(values[c]));
		else
			pergroup[t].transValue =
				datumCopy(values[c], trans->transtypeByVal, trans->transtypeLen);
	}
	MemoryContextSwitchTo(old);
}

/* Puts one stored group into the hash. */
static void
load_group(SxAggregate *op, TupleTableSlot *slot)
{
	SxGroup *group;
	Datum *key_values[INDEX_MAX_KEYS * 4];
	bool *key_nulls[INDEX_MAX_KEYS * 4];

	for (int k = 0; k < op->nkeys; k++)
	{
		key_values[k] = &slot->tts_values[STATE_COLUMNS + k];
		key_nulls[k] = &slot->tts_isnull[STATE_COLUMNS + k];
	}
	sx_groups_lookup(op->groups, key_values, key_nulls, 1, &group, skip_init, NULL);
	fill_group(op, group, slot);
	op->groups->next_id = Max(op->groups->next_id, group->id + 1);
}

void
sx_aggregate_reread_state(SxAggregate *op)
{
	Relation rel = table_open(op->state_relids[0], NoLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	MemoryContext row_cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext restore", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(row_cxt);

	for (int64 i = 0; i < op->ndirty; i++)
	{
		SxGroup *group = op->dirty[i];

		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_fetch_row_version(rel, &group->saved_tid, snapshot, slot))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
							errmsg("state of group %lld is not where it was stored",
								   (long long) group->id)));
		slot_getallattrs(slot);
		fill_group(op, group, slot);
		ExecClearTuple(slot);
		MemoryContextReset(row_cxt);
		sx_progress_steps++;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(row_cxt);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
}

/* Groups by id, while inputs are being loaded. */
typedef struct IdEntry
{
	int64 id;
	SxGroup *group;
} IdEntry;

typedef struct Loader
{
	SxAggregate *op;
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
	SxAggregate *op = loader->op;
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
	Relation rel = table_open(relid, NoLock);
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
		sx_progress_steps++;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(row_cxt);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	if (loader->part == 0)
		loader->op->state_file = rel->rd_locator.relNumber;
	table_close(rel, NoLock);
}

void
sx_aggregate_read_state(SxAggregate *op)
{
	Loader loader = {.op = op};

	for (int part = 0; part <= op->ninputs; part++)
	{
		loader.part = part;
		if (part == 1)
		{
			loader.ids =
				MemoryContextAllocHuge(op->flush_cxt, sizeof(IdEntry) * (op->groups->ngroups + 1));
			sx_groups_visit(op->groups, collect_id, &loader);
			qsort(loader.ids, loader.nids, sizeof(IdEntry), compare_ids);
		}
		load_table(&loader, op->state_relids[part]);
	}
}
