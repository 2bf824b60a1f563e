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
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "stream_ext/base/rows.h"
#include "stream_ext/state/table.h"

#include "aggregate_internal.h"
#include "host.h"

/* So many groups may leave old values behind before the operator is loaded anew. */
#define MIN_ABANDONED 10000

/* ---------------------------------------------------------------- input */

/* A new group: initial transition values, as the aggregate defines them. */
static void
init_group(void *arg, SxGroup *group)
{
	SxAggregate *op = arg;
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
	SxAggregate *op = (SxAggregate *) base;

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
touch(SxAggregate *op, SxGroup *group)
{
	if (group->is_dirty)
		return;
	before_image(&op->base, group);
	group->saved_tid = group->state_tid;
	group->is_dirty = true;
}

static void
aggregate_push(SxOperator *base, SxBatch *in)
{
	SxAggregate *op = (SxAggregate *) base;
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
		for (int k = 0; k < op->ninputs; k++)
		{
			bool added = sx_inputs_add(op->inputs[k], &bags_of(op, group)[k], tmp);

			/* the flag that lets the value of a set into its transition */
			op->input->tts_values[op->natts + k] = BoolGetDatum(added);
			op->input->tts_isnull[op->natts + k] = false;
		}
		if (agg->numtrans > 0)
		{
			bool isnull;

			agg->all_pergroups[0] = transitions_of(op, group);
			(void) ExecEvalExprSwitchContext(agg->phase->evaltrans, tmp, &isnull);
		}
		if ((i & 31) == 31)
			ResetExprContext(tmp);
	}
	ResetExprContext(tmp);
}

/* ---------------------------------------------------------------- output */

/* The aggregate's value over one group, in the current memory context. */
static Datum
finalize(SxAggregate *op, int aggno, AggStatePerGroup pergroup, bool *isnull)
{
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);
	AggState *agg = op->agg;
	AggStatePerAgg peragg = &agg->peragg[aggno];
	AggStatePerTrans trans = &agg->pertrans[peragg->transno];
	AggStatePerGroup value = &pergroup[peragg->transno];
	Datum result;

	if (!OidIsValid(peragg->finalfn_oid))
	{
		/* an expression over the result must not change the state in place */
		*isnull = value->transValueIsNull;
		return MakeExpandedObjectReadOnly(value->transValue, value->transValueIsNull,
										  trans->transtypeLen);
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
emit_group(SxAggregate *op, SxGroup *group)
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
		if (!sx_inputs_is_set(op->inputs[k]))
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

static void
forget_row(void *arg, SxGroup *group)
{
	ItemPointerSetInvalid(&group->row_tid);
	touch(arg, group);
}

static void
aggregate_flush(SxOperator *base)
{
	SxAggregate *op = (SxAggregate *) base;
	MemoryContext old = MemoryContextSwitchTo(op->flush_cxt);

	if (op->reemit)
	{
		sx_groups_visit(op->groups, forget_row, op);
		op->reemit = false;
		op->has_reemitted = true;
	}
	/* in the order of the view's blocks, new rows last */
	if (op->ndirty > 1)
		qsort(op->dirty, op->ndirty, sizeof(SxGroup *), compare_row_tids);
	for (int64 i = 0; i < op->ndirty; i++)
	{
		if ((i & 1023) == 1023)
			CHECK_FOR_INTERRUPTS();
		emit_group(op, op->dirty[i]);
		sx_progress_steps++;
	}
	base->next->methods->flush(base->next);
	if (op->ndirty > 0)
		sx_aggregate_write_state(op);
	MemoryContextSwitchTo(old);
	MemoryContextReset(op->flush_cxt);
}

static void
aggregate_committed(SxOperator *base)
{
	SxAggregate *op = (SxAggregate *) base;

	for (int64 i = 0; i < op->ndirty; i++)
		op->dirty[i]->is_dirty = false;
	op->ndirty = 0;
	op->committed_id = op->groups->next_id;
	op->has_reemitted = false;
	if (base->next->methods->committed != NULL)
		base->next->methods->committed(base->next);
}

/*
 * Untouched groups are as they were. Those of this transaction go; those that it has touched are read
 * again from the state table, where they are as of the last commit, at the start of the next
 * transaction. So undoing costs what was touched, and doing costs nothing more.
 *
 * The old transition values stay behind in memory: nobody but its own functions can free what an
 * aggregate has built. Before that is much the operator is loaded anew. It also is if its aggregates
 * keep inputs, of which rows would have to be found by group, or if rows of the view are missing.
 */
static bool
aggregate_rolled_back(SxOperator *base)
{
	SxAggregate *op = (SxAggregate *) base;
	int64 kept = 0;

	if (op->has_reemitted || op->reemit || op->needs_restore || (op->ndirty > 0 && op->ninputs > 0))
		return false;
	op->nabandoned += op->groups->next_id - op->committed_id;
	sx_groups_remove_from(op->groups, op->committed_id);
	for (int64 i = 0; i < op->ndirty; i++)
	{
		SxGroup *group = op->dirty[i];

		if (group->id >= op->committed_id)
			continue;
		if (!ItemPointerIsValid(&group->saved_tid))
			return false;
		op->dirty[kept++] = group;
	}
	op->ndirty = kept;
	op->nabandoned += kept;
	if (op->nabandoned > Max(op->groups->ngroups, MIN_ABANDONED) ||
		(op->is_plain && op->groups->ngroups == 0))
		return false;
	op->needs_restore = kept > 0;
	MemoryContextReset(op->flush_cxt);
	return base->next->methods->rolled_back == NULL || base->next->methods->rolled_back(base->next);
}

bool
sx_aggregate_needs_restore(SxOperator *base)
{
	return ((SxAggregate *) base)->needs_restore;
}

void
sx_aggregate_restore(SxOperator *base)
{
	SxAggregate *op = (SxAggregate *) base;

	sx_aggregate_reread_state(op);
	for (int64 i = 0; i < op->ndirty; i++)
		op->dirty[i]->is_dirty = false;
	op->ndirty = 0;
	op->needs_restore = false;
}

static void
aggregate_state_size(SxOperator *base, uint64 *rows, uint64 *bytes)
{
	SxAggregate *op = (SxAggregate *) base;

	*rows = op->groups->ngroups;
	*bytes = MemoryContextMemAllocated(op->groups_cxt, true) +
			 MemoryContextMemAllocated(op->agg_cxt->ecxt_per_tuple_memory, true);
}

static void
aggregate_load(SxOperator *base)
{
	SxAggregate *op = (SxAggregate *) base;

	sx_aggregate_read_state(op);
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
	((SxAggregate *) base)->reemit = true;
}

bool
sx_aggregate_lock(SxOperator *base)
{
	SxAggregate *op = (SxAggregate *) base;

	for (int part = 0; part <= op->ninputs; part++)
	{
		Oid *relid = &op->state_relids[part];

		if (!OidIsValid(*relid))
			*relid = sx_state_table_find(op->view, op->base.id, part);
		if (!OidIsValid(*relid))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
							errmsg("state table of view \"%s\" is missing", get_rel_name(op->view)),
							errhint("Use REFRESH MATERIALIZED VIEW to build the view anew.")));
		if (!ConditionalLockRelationOid(*relid, RowExclusiveLock))
			return false;
	}
	return true;
}

bool
sx_aggregate_is_stale(SxOperator *base)
{
	SxAggregate *op = (SxAggregate *) base;
	Relation rel = try_relation_open(op->state_relids[0], NoLock);
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
	SxAggregate *op = (SxAggregate *) base;

	(void) sx_state_table_create(op->view, op->base.id, 0, op->state_desc, 1);
	for (int k = 0; k < op->ninputs; k++)
		(void) sx_state_table_create(op->view, op->base.id, k + 1, sx_inputs_desc(op->inputs[k]),
									 2);
}

static void
init_inputs(SxAggregate *op, EState *estate, List *kept, TupleDesc input)
{
	TupleDesc desc = CreateTemplateTupleDesc(list_length(kept));
	ListCell *lc;

	op->inputs = palloc(sizeof(SxInputs *) * Max(list_length(kept), 1));
	foreach(lc, kept)
	{
		Aggref *aggref = lfirst(lc);

		op->inputs[op->ninputs] =
			sx_inputs_create(estate, aggref, sx_inputs_mode(aggref), input, op->groups_cxt);
		sx_state_table_check(sx_inputs_desc(op->inputs[op->ninputs++]));
		TupleDescInitEntry(desc, op->ninputs, psprintf("a%d", op->ninputs), aggref->aggtype, -1, 0);
	}
	op->inputs_slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	ExecStoreAllNullTuple(op->inputs_slot);
}

/* The input followed by a flag for each aggregate that keeps inputs. */
static TupleDesc
add_flags(TupleDesc input, int nflags)
{
	TupleDesc desc = CreateTemplateTupleDesc(input->natts + nflags);

	for (int i = 1; i <= input->natts; i++)
		TupleDescCopyEntry(desc, i, input, i);
	for (int i = 1; i <= nflags; i++)
		TupleDescInitEntry(desc, input->natts + i, psprintf("new%d", i), BOOLOID, -1, 0);
	return desc;
}

SxOperator *
sx_aggregate_create(EState *estate, const SxAggregateSpec *spec, TupleDesc input, Oid view, int id)
{
	SxAggregate *op = palloc0(sizeof(SxAggregate));
	SxAggregateSplit split = {.natts = input->natts};
	List *targetlist = (List *) sx_aggregate_split((Node *) spec->targetlist, &split);
	List *qual = (List *) sx_aggregate_split((Node *) spec->qual, &split);
	SxKeyColumn *columns = palloc(sizeof(SxKeyColumn) * Max(spec->nkeys, 1));
	TupleDesc flagged;
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

	op->natts = input->natts;
	flagged = add_flags(input, list_length(split.kept));
	op->agg = sx_host_agg(estate, NULL, sx_host_add_columns(NIL, flagged), targetlist, qual);
	op->agg_cxt = op->agg->aggcontexts[0];
	op->input = MakeSingleTupleTableSlot(flagged, &TTSOpsVirtual);
	ExecStoreAllNullTuple(op->input);
	op->key_slot = MakeSingleTupleTableSlot(flagged, &TTSOpsVirtual);
	ExecStoreAllNullTuple(op->key_slot);
	init_inputs(op, estate, split.kept, input);
	sx_aggregate_init_columns(op, input);
	sx_state_table_check(op->state_desc);

	sx_aggregate_argument_vars((Node *) spec->targetlist, &read);
	sx_aggregate_argument_vars((Node *) spec->qual, &read);
	op->read = palloc(sizeof(int) * Max(bms_num_members(read), 1));
	while ((a = bms_next_member(read, a)) >= 0)
		op->read[op->nread++] = a - 1;

	op->state_relids = palloc0(sizeof(Oid) * (op->ninputs + 1));
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
	return ((SxAggregate *) base)->agg->ss.ps.ps_ResultTupleSlot->tts_tupleDescriptor;
}
