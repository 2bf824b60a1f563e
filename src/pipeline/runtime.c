/*
 * runtime.c
 *		What one worker runs: the list of its views, their groups, and failures.
 *
 * A cycle looks at the catalog, loads what is new or changed, then runs every poll group once.
 * Views whose positions in a source are equal share a group and so a poll; a view that is behind
 * (new, resumed, locked for a while) has a group of its own until it has caught up, and the groups
 * are merged.
 *
 * Failures stay with the view that caused them. An error aborts the transaction of one group; the
 * other members go on from what is committed, with their state put back to that where they had touched
 * it. The failed view is left out, its error goes into the catalog, and it is
 * tried again after a pause that doubles up to a minute, alone.
 *
 * Memory: pipelines and groups are children of TopMemoryContext; everything of a cycle dies with
 * its transaction.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "commands/matview.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/pipeline/compile.h"
#include "stream_ext/pipeline/pipeline.h"
#include "stream_ext/pipeline/runtime.h"
#include "stream_ext/state/table.h"

/* Milliseconds until the next cycle if nothing happens; and if something was locked. */
#define IDLE_MS   1000
#define LOCKED_MS 20

/* The same if a source has more that has not arrived yet: the net below its event. */
#define ARRIVING_MS 100

/* Pause after a failure: a second, doubled with each one, up to a minute. */
#define MAX_RETRY_SECONDS 60

/* After a timeout at least this many times as long. */
#define TIMEOUT_PAUSE 20

static int my_number = 0;
static int my_count = 1;
static List *pipelines = NIL; /* SxPipeline *, in TopMemoryContext */
static bool extension_gone = false;
static Oid catalog_relid = InvalidOid; /* of stream.catalog_view */
static bool catalog_changed = true;    /* somebody wrote into it */
static uint64 catalog_changes = 0;     /* sx_wake_catalog_changes() when it was read last */
static TimestampTz catalog_read_at = 0;
static bool orphans_dropped = false;
static bool timed_out = false; /* the last error was that of stream.view_timeout */

/* ---------------------------------------------------------------- invalidations */

/* Who changes a row of stream.catalog_view sends an invalidation of that table. */
static void
relation_changed(Datum arg, Oid relid)
{
	ListCell *lc;

	if (relid == InvalidOid || relid == catalog_relid)
		catalog_changed = true;
	foreach(lc, pipelines)
	{
		SxPipeline *pipeline = lfirst(lc);

		if (relid == InvalidOid || relid == pipeline->source || relid == pipeline->view)
			pipeline->check_shape = true;
	}
}

static void
function_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	ListCell *lc;

	foreach(lc, pipelines)
	{
		SxPipeline *pipeline = lfirst(lc);

		if (pipeline->flow != NULL && sx_dataflow_uses(pipeline->flow, cacheid, hashvalue))
			pipeline->reload = true;
	}
}

/*
 * Roles and memberships decide what a view's owner may read, and which policies of row-level
 * security are his. Neither changes anything in the relations.
 */
static void
role_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	ListCell *lc;

	foreach(lc, pipelines)
		((SxPipeline *) lfirst(lc))->check_shape = true;
}

void
sx_runtime_init(int number, int count)
{
	my_number = number;
	my_count = count;
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, function_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, function_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, role_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, role_changed, (Datum) 0);
}

bool
sx_runtime_extension_gone(void)
{
	return extension_gone;
}

Size
sx_runtime_memory(void)
{
	Size total = 0;
	ListCell *lc;

	foreach(lc, pipelines)
		total += ((SxPipeline *) lfirst(lc))->memory;
	return total;
}

/* ---------------------------------------------------------------- the list of views */

static SxPipeline *
find_pipeline(Oid view)
{
	ListCell *lc;

	foreach(lc, pipelines)
		if (((SxPipeline *) lfirst(lc))->view == view)
			return lfirst(lc);
	return NULL;
}

static void
drop_pipeline(SxPipeline *pipeline)
{
	sx_group_detach(pipeline);
	sx_pipeline_unload(pipeline);
	pipelines = list_delete_ptr(pipelines, pipeline);
	MemoryContextDelete(pipeline->cxt);
}

/* Views that read the same source share a worker. */
static bool
is_mine(Oid source)
{
	return my_count <= 1 || murmurhash32(source) % my_count == (uint32) my_number;
}

/*
 * Is the catalog row that of a view which exists, is populated, and was not dropped and remade? Of
 * the label only the id is looked at: an error in the rest is that of the view when it is loaded.
 */
static bool
is_live(SxViewRow *row)
{
	HeapTuple tuple;
	bool populated;
	char *label;
	const char *id;

	if (!sx_is_continuous(row->view))
		return false;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(row->view));
	if (!HeapTupleIsValid(tuple))
		return false;
	populated = ((Form_pg_class) GETSTRUCT(tuple))->relispopulated;
	ReleaseSysCache(tuple);
	if (!populated)
		return false;
	label = sx_label_get(row->view);
	id = label != NULL ? sx_option_find(sx_label_parse(label), "id") : NULL;
	return id != NULL && strcmp(id, row->id) == 0;
}

static SxPipeline *
create_pipeline(SxViewRow *row)
{
	MemoryContext cxt =
		AllocSetContextCreate(TopMemoryContext, "stream_ext pipeline", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SxPipeline *pipeline = palloc0(sizeof(SxPipeline));
	List *sources;

	pipeline->cxt = cxt;
	pipeline->view = row->view;
	pipeline->id = pstrdup(row->id);
	sources = sx_compile_sources(row->view);
	if (sources != NIL)
		pipeline->source = linitial_oid(sources);
	MemoryContextSwitchTo(TopMemoryContext);
	pipelines = lappend(pipelines, pipeline);
	MemoryContextSwitchTo(old);
	return pipeline;
}

/* Takes over what the catalog says about a view. */
static void
update_pipeline(SxViewRow *row)
{
	SxPipeline *pipeline = find_pipeline(row->view);

	if (!is_live(row))
		return;
	if (pipeline != NULL && strcmp(pipeline->id, row->id) != 0)
	{
		drop_pipeline(pipeline);
		pipeline = NULL;
	}
	if (pipeline == NULL)
	{
		pipeline = create_pipeline(row);
		pipeline->has_error = row->error_code != NULL;
		pipeline->failures = row->failures;
	}
	pipeline->is_listed = true;
	pipeline->is_paused = row->paused;
	if (!is_mine(pipeline->source))
		return;
	/* the lock keeps the view, so that the entry does not outlive it */
	if (pipeline->progress == NULL)
	{
		if (ConditionalLockRelationOid(row->view, RowExclusiveLock))
		{
			pipeline->progress = sx_progress_get(row->view, true);
			if (pipeline->progress != NULL)
				pg_atomic_write_u32(&pipeline->progress->worker_pid, (uint32) MyProcPid);
		}
		else
			catalog_changed = true; /* look again */
	}
	if (pipeline->has_error && row->error_code == NULL)
	{
		/* stream.resume() */
		pipeline->has_error = false;
		pipeline->failures = 0;
		pipeline->retry_at = 0;
	}
	if (row->paused || row->rebuild)
	{
		sx_group_detach(pipeline);
		sx_pipeline_unload(pipeline);
	}
}

/*
 * Reads the catalog if it has changed, and once a second in any case: most cycles are for a few
 * rows, and there may be many views.
 */
static void
read_catalog(void)
{
	List *rows;
	ListCell *lc;

	/* takes in invalidations */
	StartTransactionCommand();
	if (!catalog_changed && catalog_relid != InvalidOid &&
		catalog_changes == sx_wake_catalog_changes() &&
		!TimestampDifferenceExceeds(catalog_read_at, GetCurrentTimestamp(), IDLE_MS))
	{
		CommitTransactionCommand();
		return;
	}
	catalog_changed = false;
	catalog_changes = sx_wake_catalog_changes();
	catalog_read_at = GetCurrentTimestamp();
	if (!OidIsValid(sx_extension()))
	{
		extension_gone = true;
		while (pipelines != NIL)
			drop_pipeline(linitial(pipelines));
		CommitTransactionCommand();
		return;
	}
	catalog_relid = sx_catalog_relid("catalog_view");
	foreach(lc, pipelines)
		((SxPipeline *) lfirst(lc))->is_listed = false;
	/* reading the rule of a view or a catalog table may need a snapshot */
	PushActiveSnapshot(GetTransactionSnapshot());
	rows = sx_catalog_views();
	foreach(lc, rows)
		update_pipeline(lfirst(lc));
	PopActiveSnapshot();
	for (int i = list_length(pipelines) - 1; i >= 0; i--)
	{
		SxPipeline *pipeline = list_nth(pipelines, i);

		if (!pipeline->is_listed)
			drop_pipeline(pipeline);
	}
	CommitTransactionCommand();
}

/* ---------------------------------------------------------------- failures */

/* Makes of a cancelled call one that took too long, which is the view's fault. */
static void
say_timeout(ErrorData *error, SxPipeline *pipeline)
{
	error->message = psprintf("a step of the view took longer than stream.view_timeout (%d ms)",
							  sx_view_timeout);
	error->hint = pstrdup("A function that it calls may not come to an end. If it only needs long, "
						  "raise stream.view_timeout.");
	ereport(LOG, (errmsg_internal("%s", error->message),
				  errcontext("continuous view \"%s\"", pipeline->name)));
}

/*
 * After an error in the present transaction: ends it and returns the error, in TopMemoryContext,
 * and whose it was in *failed (NULL: not a view's).
 */
static ErrorData *
end_failed_transaction(SxPipeline **failed)
{
	ErrorData *error;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(TopMemoryContext);
	error = CopyErrorData();
	*failed = sx_frame_pipeline();
	timed_out =
		sx_frame_timed_out() && *failed != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED;
	if (!timed_out)
		EmitErrorReport();
	FlushErrorState();
	if (timed_out)
		say_timeout(error, *failed);
	sx_frame_abort();
	AbortCurrentTransaction();
	MemoryContextSwitchTo(TopMemoryContext);
	RESUME_INTERRUPTS();
	return error;
}

/* Writes the error of a view into its catalog row. In a transaction of its own. */
static void
write_error(SxPipeline *pipeline, ErrorData *error)
{
	SxViewRow *row;
	bool written = false;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	/* if somebody holds the row the next failure will be written */
	row = sx_catalog_view_lock(pipeline->view, false) ? sx_catalog_view(pipeline->view) : NULL;
	if (row != NULL && strcmp(row->id, pipeline->id) == 0)
	{
		row->error_code = unpack_sql_state(error->sqlerrcode);
		row->error_message = error->message;
		row->error_detail = error->detail;
		row->error_hint = error->hint;
		row->error_time = GetCurrentTimestamp();
		row->failures = pipeline->failures;
		sx_catalog_view_update(row);
		written = true;
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	pipeline->has_error |= written;
}

/* Makes the error of a view known, as far as that is possible. */
static void
record_error(SxPipeline *pipeline, ErrorData *error)
{
	PG_TRY();
	{
		write_error(pipeline, error);
	}
	PG_CATCH();
	{
		SxPipeline *failed;

		FreeErrorData(end_failed_transaction(&failed));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(TopMemoryContext);
	if (pipeline->progress != NULL)
	{
		pg_atomic_fetch_add_u64(&pipeline->progress->failures, 1);
		ConditionVariableBroadcast(&pipeline->progress->changed);
	}
}

static void
fail_pipeline(SxPipeline *pipeline, ErrorData *error)
{
	int seconds;

	sx_group_detach(pipeline);
	sx_pipeline_unload(pipeline);
	if (pipeline->failures < PG_INT32_MAX)
		pipeline->failures++;
	seconds = pipeline->failures > 6 ? MAX_RETRY_SECONDS
									 : Min(1 << (pipeline->failures - 1), MAX_RETRY_SECONDS);
	/* other views stood still meanwhile */
	if (timed_out)
		seconds = Max(seconds, TIMEOUT_PAUSE * sx_view_timeout / 1000);
	pipeline->retry_at =
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(), seconds * INT64CONST(1000));
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && !timed_out)
		return; /* somebody cancelled the worker: no fault of the view */
	record_error(pipeline, error);
}

/* ---------------------------------------------------------------- a cycle */

/*
 * Once: drops state tables that no view has. Not doing it costs space only. Waits for the first
 * view, because state tables that a dump holds may just be on their way in: pg_restore needs them
 * until it is done with all data, indexes and constraints, and only then refreshes views.
 */
static void
drop_orphans(void)
{
	orphans_dropped = true;
	PG_TRY();
	{
		StartTransactionCommand();
		PushActiveSnapshot(GetTransactionSnapshot());
		sx_state_tables_drop_orphans();
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		SxPipeline *failed;

		FreeErrorData(end_failed_transaction(&failed));
	}
	PG_END_TRY();
}

/*
 * Reads the catalog. False: the extension is gone, perhaps while it was being read, or the catalog
 * cannot be read; then it is tried again.
 */
static bool
try_read_catalog(void)
{
	volatile bool ok = false;

	PG_TRY();
	{
		read_catalog();
		ok = true;
	}
	PG_CATCH();
	{
		ErrorData *error;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(TopMemoryContext);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();
		catalog_changed = true;
		StartTransactionCommand();
		extension_gone = !OidIsValid(sx_extension());
		CommitTransactionCommand();
		if (!extension_gone)
			ereport(LOG, (errcode(error->sqlerrcode),
						  errmsg("could not read the catalog of stream_ext: %s", error->message)));
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(TopMemoryContext);
	return ok && !extension_gone;
}

/*
 * In a transaction: makes the state of a pipeline ready, which may still be in memory. *loaded says
 * that it had to be loaded. False: something is locked.
 */
static bool
make_ready(SxPipeline *pipeline, volatile bool *loaded)
{
	if (pipeline->flow != NULL)
	{
		if (!ConditionalLockRelationOid(pipeline->source, AccessShareLock))
			return false;
		if (sx_catalog_generation(pipeline->source) == pipeline->generation)
			return true;
		/* truncated while the view sat out: the rows that it has counted are gone */
		sx_pipeline_unload(pipeline);
	}
	*loaded = true;
	return sx_pipeline_load(pipeline);
}

/* Loads and attaches a pipeline that is neither; false: locked, try again soon. */
static bool
start_pipeline(SxPipeline *pipeline)
{
	volatile bool ok = true;
	volatile bool loaded = false;
	MemoryContext old = CurrentMemoryContext;

	PG_TRY();
	{
		StartTransactionCommand();
		ok = make_ready(pipeline, &loaded);
		if (ok)
		{
			PushActiveSnapshot(GetTransactionSnapshot());
			sx_group_attach(pipeline);
			PopActiveSnapshot();
			CommitTransactionCommand();
			if (loaded)
				pipeline->flow->first->methods->committed(pipeline->flow->first);
		}
		else
			AbortCurrentTransaction();
	}
	PG_CATCH();
	{
		SxPipeline *failed;
		ErrorData *error = end_failed_transaction(&failed);

		ok = true;
		fail_pipeline(pipeline, error);
		FreeErrorData(error);
	}
	PG_END_TRY();
	if (!ok && loaded)
	{
		sx_frame_abort();
		sx_pipeline_unload(pipeline);
	}
	MemoryContextSwitchTo(old);
	return ok;
}

/* Runs a group; afterwards it may be gone. */
static void
run_group(SxPollGroup *group)
{
	List *absent = NIL;
	List *stale = NIL;
	ListCell *lc;

	PG_TRY();
	{
		sx_group_run(group, &absent, &stale);
	}
	PG_CATCH();
	{
		SxPipeline *failed;
		ErrorData *error = end_failed_transaction(&failed);
		List *members = list_copy(group->members);

		/* members keep their state if they can; their positions are those of the catalog */
		sx_group_free(group);
		group = NULL;
		foreach(lc, members)
		{
			SxPipeline *pipeline = lfirst(lc);
			SxOperator *first = pipeline->flow->first;

			if (!first->methods->rolled_back(first))
				sx_pipeline_unload(pipeline);
		}
		foreach(lc, members)
			if (failed == NULL || failed == lfirst(lc))
				fail_pipeline(lfirst(lc), error);
		list_free(members);
		FreeErrorData(error);
	}
	PG_END_TRY();

	foreach(lc, stale)
	{
		((SxPipeline *) lfirst(lc))->group = NULL;
		sx_pipeline_unload(lfirst(lc));
	}
	foreach(lc, absent)
		((SxPipeline *) lfirst(lc))->group = NULL;
	list_free(stale);
	list_free(absent);
	if (group != NULL && group->members == NIL)
		sx_group_free(group);
}

long
sx_runtime_cycle(void)
{
	long wait = IDLE_MS;
	TimestampTz now;
	List *todo;
	ListCell *lc;

	MemoryContextSwitchTo(TopMemoryContext);
	sx_frame_set_timer();
	/* what pg_stat_activity shows as the start of the transactions */
	SetCurrentStatementStartTimestamp();
	if (!try_read_catalog())
		return IDLE_MS;
	if (!orphans_dropped && my_number == 0 && pipelines != NIL)
		drop_orphans();

	now = GetCurrentTimestamp();
	foreach(lc, pipelines)
	{
		SxPipeline *pipeline = lfirst(lc);

		if (!is_mine(pipeline->source) || pipeline->is_paused || pipeline->group != NULL)
			continue;
		if (pipeline->retry_at > now)
		{
			wait = Min(wait, TimestampDifferenceMilliseconds(now, pipeline->retry_at) + 1);
			continue;
		}
		if (!start_pipeline(pipeline))
			wait = Min(wait, LOCKED_MS);
	}

	todo = list_copy(sx_groups);
	foreach(lc, todo)
	{
		if (!list_member_ptr(sx_groups, lfirst(lc)))
			continue;
		sx_group_align(lfirst(lc));
		run_group(lfirst(lc));
		MemoryContextSwitchTo(TopMemoryContext);
	}
	list_free(todo);
	sx_groups_merge();
	foreach(lc, sx_groups)
	{
		SxPollGroup *group = lfirst(lc);

		if (group->sat_out)
			wait = Min(wait, LOCKED_MS);
		else if (!group->drained)
			wait = 0;
		else if (!group->level)
			wait = Min(wait, ARRIVING_MS);
	}
	/* pipelines that lost their group are started by the next cycle */
	foreach(lc, pipelines)
	{
		SxPipeline *pipeline = lfirst(lc);

		if (is_mine(pipeline->source) && !pipeline->is_paused && pipeline->group == NULL &&
			pipeline->retry_at <= now)
			wait = Min(wait, LOCKED_MS);
	}
	return wait;
}
