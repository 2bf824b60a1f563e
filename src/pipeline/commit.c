/*
 * commit.c
 *		The one transaction of a cycle: poll, compute, flush, positions, commit.
 *
 * Results, operator state and source positions go into one transaction; that is the whole of
 * exactly once. This is the only file that ends a transaction in which data was read. If anything
 * fails nothing has moved, and the caller puts memory back to what is committed.
 *
 * Locks: AccessShareLock on the source and RowExclusiveLock on the views, taken only if they are
 * free, so that no user's DDL waits for more than one cycle, and no cycle waits for a user.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "access/xact.h"
#include "portability/instr_time.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/stop.h"
#include "stream_ext/catalog/records.h"
#include "stream_ext/operator/aggregate.h"
#include "stream_ext/pipeline/pipeline.h"
#include "stream_ext/view/view.h"

/* The longest time between two commits, however expensive a flush is. */
#define MAX_INTERVAL_MS 1000.0

static double
elapsed_ms(instr_time start)
{
	instr_time now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_MILLISEC(now);
}

/*
 * Has the owner still SELECT on the source, or on the columns that are read? As in any query, that
 * is some column if none is.
 */
static bool
may_read(SxPipeline *pipeline, Oid source, Oid owner)
{
	int attno = 0;
	bool any = false;

	if (pg_class_aclcheck(source, owner, ACL_SELECT) == ACLCHECK_OK)
		return true;
	while ((attno = bms_next_member(pipeline->flow->needed, attno)) > 0)
	{
		if (pg_attribute_aclcheck(source, attno, owner, ACL_SELECT) != ACLCHECK_OK)
			return false;
		any = true;
	}
	return any || pg_attribute_aclcheck_all(source, owner, ACL_SELECT, ACLMASK_ANY) == ACLCHECK_OK;
}

/*
 * After an invalidation of the source or the view: does what was compiled still hold? Privileges
 * were checked for the owner when the view was compiled, so a change of either compiles it anew.
 */
static bool
still_holds(SxPipeline *pipeline, Relation rel, Relation source)
{
	Oid owner = rel->rd_rel->relowner;

	return owner == pipeline->owner && may_read(pipeline, RelationGetRelid(source), owner) &&
		   sx_relation_shape(source) == pipeline->flow->source_shape;
}

/* Lists of members that drop out must outlive the transaction. */
static List *
append_permanent(List *list, SxPipeline *pipeline)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	list = lappend(list, pipeline);
	MemoryContextSwitchTo(old);
	return list;
}

/* Can the member run, with what it has in memory? If so, opens and locks its view. */
static Relation
open_view(SxPipeline *pipeline, Relation source, List **absent, List **stale)
{
	Relation rel;

	if (!ConditionalLockRelationOid(pipeline->view, RowExclusiveLock) ||
		(pipeline->flow->aggregate != NULL && !sx_aggregate_lock(pipeline->flow->aggregate)))
	{
		*absent = append_permanent(*absent, pipeline);
		return NULL;
	}
	rel = try_relation_open(pipeline->view, NoLock);
	if (rel == NULL || rel->rd_locator.relNumber != pipeline->view_file || pipeline->reload ||
		(pipeline->check_shape && !still_holds(pipeline, rel, source)) ||
		(pipeline->flow->aggregate != NULL && sx_aggregate_is_stale(pipeline->flow->aggregate)))
	{
		if (rel != NULL)
			relation_close(rel, NoLock);
		*stale = append_permanent(*stale, pipeline);
		return NULL;
	}
	pipeline->check_shape = false;
	if (pipeline->flow->aggregate != NULL && sx_aggregate_needs_restore(pipeline->flow->aggregate))
	{
		sx_frame_enter(pipeline);
		sx_aggregate_restore(pipeline->flow->aggregate);
		sx_frame_leave();
	}
	return rel;
}

/* Opens the views of all members that can run; their number. Takes the others out of the group. */
static int
open_members(SxPollGroup *group, Relation source, Relation *rels, List **absent, List **stale)
{
	List *present = NIL;
	ListCell *lc;
	int n = 0;
	MemoryContext old;

	foreach(lc, group->members)
	{
		SxPipeline *pipeline = lfirst(lc);
		Relation rel = open_view(pipeline, source, absent, stale);

		if (rel == NULL)
			continue;
		sx_view_begin(pipeline->flow->sink, rel);
		rels[n++] = rel;
		present = lappend(present, pipeline);
	}
	old = MemoryContextSwitchTo(group->cxt);
	list_free(group->members);
	group->members = list_copy(present);
	MemoryContextSwitchTo(old);
	return n;
}

static void
check_memory(SxPipeline *pipeline)
{
	Size total;

	pipeline->memory = sx_dataflow_memory(pipeline->flow);
	total = sx_runtime_memory();
	if (total / 1024 <= (Size) sx_state_memory)
		return;
	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY),
					errmsg("operator state of this worker exceeds stream.state_memory"),
					errdetail("All views of the worker use %zu MB, this one %zu MB.",
							  total / (1024 * 1024), pipeline->memory / (1024 * 1024)),
					errhint("Raise stream.state_memory, or make the view keep fewer groups.")));
}

/* Reads and pushes batches until the source is drained or a limit of the commit is reached. */
static void
poll_source(SxPollGroup *group, instr_time start, uint64 *rows)
{
	const SxSourceMethods *methods = group->reader->methods;
	SxBatch *batch = group->batch;
	uint64 bytes = 0;

	group->drained = false;
	group->level = false;
	while (*rows < (uint64) sx_batch_rows && bytes / 1024 < (uint64) sx_batch_bytes)
	{
		ListCell *lc;

		sx_frame_reading();
		CHECK_FOR_INTERRUPTS();
		sx_batch_reset(batch);
		if (!methods->next(group->reader, batch))
		{
			group->drained = true;
			group->level = methods->is_level == NULL || methods->is_level(group->reader);
			break;
		}
		*rows += batch->nrows;
		bytes += batch->bytes;
		foreach(lc, group->members)
		{
			SxPipeline *pipeline = lfirst(lc);

			if (batch->nrows == 0)
				break;
			sx_frame_enter(pipeline);
			sx_operator_push(pipeline->flow->first, batch);
			check_memory(pipeline);
		}
		if (elapsed_ms(start) >= group->interval)
			break;
	}
}

/* Saves what the catalog keeps of a member; part of the commit. */
static void
save_member(SxPipeline *pipeline, SxPollGroup *group, bytea *position, bool moved)
{
	ListCell *lc;

	if (moved)
		sx_catalog_position_set(pipeline->view, group->source, position, &pipeline->position_tid);
	foreach(lc, group->reader->gaps)
	{
		SxSourceGap *gap = lfirst(lc);

		sx_catalog_gap_add(pipeline->view, group->source, gap->topic, gap->partition,
						   gap->from_offset, gap->to_offset);
	}
	/* rarely: the end of the build, or of a row of failures; not worth waiting for anybody */
	if (((group->level && !pipeline->caught_up) || (pipeline->has_error && group->sound)) &&
		sx_catalog_view_lock(pipeline->view, false))
	{
		SxViewRow *row = sx_catalog_view(pipeline->view);

		if (row == NULL)
			return;
		row->caught_up |= group->level;
		if (group->sound)
			sx_catalog_view_clear_error(row);
		sx_catalog_view_update(row);
		pipeline->caught_up = row->caught_up;
		pipeline->has_error &= !group->sound;
	}
}

/* Tells how the source is, and what it has left out since the last time. */
static void
publish_source(SxProgress *progress, SxPollGroup *group)
{
	SxSource *source = group->reader;
	SxSourceStatus status;

	if (source->methods->status == NULL)
		return;
	source->methods->status(source, &status);
	sx_progress_set_source(progress, status.health, status.since, status.message);
	pg_atomic_fetch_add_u64(&progress->dead_letters, source->dead_letters - group->dead_letters);
	pg_atomic_fetch_add_u64(&progress->tombstones, source->tombstones - group->tombstones);
}

/* Does somebody wait for the token that was taken last? */
static bool
is_waited_for(SxPipeline *pipeline)
{
	return pipeline->progress != NULL &&
		   pipeline->token > pg_atomic_read_u64(&pipeline->progress->completed);
}

/*
 * What waiters ask for before the rows of a poll are looked for is covered by that poll. A source
 * outside of this server has to be asked where it ends now, once for each new waiter.
 */
static void
take_tokens(SxPollGroup *group)
{
	const SxSourceMethods *methods = group->reader->methods;
	bool is_new = false;
	ListCell *lc;

	foreach(lc, group->members)
	{
		SxPipeline *pipeline = lfirst(lc);

		if (pipeline->progress == NULL)
			continue;
		pipeline->token = pg_atomic_read_u64(&pipeline->progress->requested);
		is_new |= is_waited_for(pipeline) && pipeline->marked != pipeline->token;
	}
	if (methods->mark == NULL || !is_new || !methods->mark(group->reader))
		return;
	foreach(lc, group->members)
		((SxPipeline *) lfirst(lc))->marked = ((SxPipeline *) lfirst(lc))->token;
}

/* Has all been read that the tokens stand for? */
static bool
tokens_reached(SxPollGroup *group)
{
	const SxSourceMethods *methods = group->reader->methods;
	ListCell *lc;

	if (methods->mark == NULL)
		return group->drained;
	foreach(lc, group->members)
	{
		SxPipeline *pipeline = lfirst(lc);

		if (is_waited_for(pipeline) && pipeline->marked != pipeline->token)
			return false;
	}
	return methods->reached(group->reader);
}

/* After the commit: memory follows, waiters are told. */
static void
publish_member(SxPipeline *pipeline, SxPollGroup *group, uint64 rows, uint64 behind, bool committed,
			   bool reached)
{
	SxDataflow *flow = pipeline->flow;
	SxProgress *progress = pipeline->progress;

	flow->first->methods->committed(flow->first);
	if (group->sound)
		pipeline->failures = 0;
	if (progress == NULL)
		return;
	if (committed)
	{
		pg_atomic_fetch_add_u64(&progress->commits, 1);
		pg_atomic_fetch_add_u64(&progress->rows_in, rows);
		pg_atomic_write_u64(&progress->rows_out, flow->sink->rows_out);
		pg_atomic_write_u64(&progress->commit_time, (uint64) GetCurrentTimestamp());
	}
	pg_atomic_write_u64(&progress->watermark,
						(uint64) group->reader->methods->watermark(group->reader));
	pg_atomic_write_u64(&progress->behind, behind);
	publish_source(progress, group);
	pg_atomic_write_u32(&progress->worker_pid, (uint32) MyProcPid);
	for (int i = 0; i < flow->noperators && i < SX_PROGRESS_OPERATORS && committed; i++)
	{
		SxOperator *op = flow->operators[i];
		uint64 state_rows = 0;
		uint64 state_bytes = 0;

		if (op->methods->state_size != NULL)
			op->methods->state_size(op, &state_rows, &state_bytes);
		pg_atomic_write_u64(&progress->operators[i].rows_in, op->rows_in);
		pg_atomic_write_u64(&progress->operators[i].rows_out, op->rows_out);
		pg_atomic_write_u64(&progress->operators[i].state_rows, state_rows);
		pg_atomic_write_u64(&progress->operators[i].state_bytes, state_bytes);
	}
	/* the source has the number after the operators */
	if (flow->noperators < SX_PROGRESS_OPERATORS)
		pg_atomic_write_u64(&progress->operators[flow->noperators].rows_out, flow->first->rows_in);
	if (reached && pipeline->token > pg_atomic_read_u64(&progress->completed))
	{
		pg_atomic_write_u64(&progress->completed, pipeline->token);
		ConditionVariableBroadcast(&progress->changed);
	}
}

/*
 * Commits less often while a flush is more than half of the cycle, more often again when it is not.
 */
static void
adapt_interval(SxPollGroup *group, double poll_ms, double flush_ms)
{
	if (group->drained || flush_ms < poll_ms / 4)
		group->interval = Max(group->interval / 2, sx_commit_interval);
	else if (flush_ms > poll_ms)
		group->interval =
			Min(Max(group->interval, 1) * 2, Max(MAX_INTERVAL_MS, sx_commit_interval));
}

void
sx_group_run(SxPollGroup *group, List **absent, List **stale)
{
	int nmembers = list_length(group->members);
	Relation source;
	Relation *rels;
	bytea *position;
	bool moved;
	bool committed;
	bool reached;
	uint64 rows = 0;
	uint64 behind;
	instr_time start;
	double poll_ms;
	ListCell *lc;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	group->sat_out = true;
	if (!ConditionalLockRelationOid(group->source, AccessShareLock))
	{
		CommitTransactionCommand();
		return;
	}
	source = try_relation_open(group->source, NoLock);
	if (source == NULL || sx_catalog_generation(group->source) != group->generation)
	{
		/* dropped or truncated; loading tells which */
		MemoryContextSwitchTo(TopMemoryContext);
		*stale = list_copy(group->members);
		group->members = NIL;
		if (source != NULL)
			table_close(source, NoLock);
		CommitTransactionCommand();
		return;
	}
	rels = palloc(sizeof(Relation) * nmembers);
	nmembers = open_members(group, source, rels, absent, stale);
	if (nmembers == 0)
	{
		table_close(source, NoLock);
		CommitTransactionCommand();
		return;
	}
	group->sat_out = false;

	INSTR_TIME_SET_CURRENT(start);
	if (group->reader->methods->mark == NULL)
		take_tokens(group);
	group->reader->methods->begin(group->reader, source);
	if (group->reader->methods->mark != NULL)
		take_tokens(group);
	PushActiveSnapshot(group->reader->methods->snapshot(group->reader));
	poll_source(group, start, &rows);
	group->sound =
		group->reader->methods->is_sound == NULL || group->reader->methods->is_sound(group->reader);
	poll_ms = elapsed_ms(start);
	SX_STOP_POINT("polled");

	foreach(lc, group->members)
	{
		SxPipeline *pipeline = lfirst(lc);

		sx_frame_enter(pipeline);
		pipeline->flow->first->methods->flush(pipeline->flow->first);
	}
	sx_frame_leave();
	PopActiveSnapshot();
	SX_STOP_POINT("flushed");

	reached = tokens_reached(group);
	behind = group->reader->methods->behind(group->reader);
	group->reader->methods->end(group->reader);
	position = group->reader->methods->position(group->reader);
	moved = group->position == NULL || VARSIZE(position) != VARSIZE(group->position) ||
			memcmp(position, group->position, VARSIZE(position)) != 0;
	foreach(lc, group->members)
		save_member(lfirst(lc), group, position, moved);
	group->reader->gaps = NIL;
	for (int i = 0; i < nmembers; i++)
		table_close(rels[i], NoLock);
	table_close(source, NoLock);
	if (moved)
	{
		MemoryContext old = MemoryContextSwitchTo(group->cxt);
		bytea *copy = palloc(VARSIZE(position));

		memcpy(copy, position, VARSIZE(position));
		if (group->position != NULL)
			pfree(group->position);
		group->position = copy;
		MemoryContextSwitchTo(old);
	}
	committed = TransactionIdIsValid(GetTopTransactionIdIfAny());
	SX_STOP_POINT("before_commit");
	CommitTransactionCommand();

	adapt_interval(group, poll_ms, elapsed_ms(start) - poll_ms);
	foreach(lc, group->members)
		publish_member(lfirst(lc), group, rows, behind, committed, reached);
	group->dead_letters = group->reader->dead_letters;
	group->tombstones = group->reader->tombstones;
}
