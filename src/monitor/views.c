/*
 * views.c
 *		stream.views, stream.positions and stream.watermarks: what each continuous view is doing.
 *
 * A row is put together from pg_class, the view's catalog row (under the query's snapshot) and
 * its counters in shared memory (as of now), so the parts may be of slightly different times. No
 * relation is waited for: a view that somebody has locked exclusively is shown by what the
 * catalogs say, and its positions, for which it has to be opened, are left out for that moment.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "funcapi.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/progress.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/monitor/visible.h"
#include "stream_ext/pipeline/compile.h"
#include "stream_ext/source/kafka_position.h"
#include "stream_ext/storage/tail.h"
#include "stream_ext/worker/launcher.h"

PG_FUNCTION_INFO_V1(stream_ext_get_views);
PG_FUNCTION_INFO_V1(stream_ext_get_positions);

/* Columns of stream.get_views(). */
enum
{
	VIEWS_VIEW,
	VIEWS_OWNER,
	VIEWS_STATE,
	VIEWS_REASON,
	VIEWS_COMMITS,
	VIEWS_ROWS_IN,
	VIEWS_ROWS_OUT,
	VIEWS_LAST_COMMIT,
	VIEWS_BLOCKS_BEHIND,
	VIEWS_RECORDS_BEHIND,
	VIEWS_DEAD_LETTERS,
	VIEWS_TOMBSTONES,
	VIEWS_WATERMARK,
	VIEWS_ERROR_CODE,
	VIEWS_ERROR_MESSAGE,
	VIEWS_ERROR_DETAIL,
	VIEWS_ERROR_HINT,
	VIEWS_ERROR_TIME,
	VIEWS_FAILURES,
	VIEWS_WORKER_PID,
	VIEWS_COLUMNS
};

/* Columns of stream.get_positions(). */
enum
{
	POSITIONS_VIEW,
	POSITIONS_SOURCE,
	POSITIONS_GENERATION,
	POSITIONS_CURSOR,
	POSITIONS_OPEN_BLOCKS,
	POSITIONS_RUNNING,
	POSITIONS_PARTITION,
	POSITIONS_OFFSET,
	POSITIONS_WATERMARK,
	POSITIONS_MAX_TIME,
	POSITIONS_COLUMNS
};

/* A continuous view as pg_class has it. */
typedef struct ViewInfo
{
	Oid view;
	Oid owner;
	bool is_populated;
} ViewInfo;

/* What the workers of this database are doing. */
typedef struct WorkerSummary
{
	bool any_running;
	bool has_launcher;
	bool any_no_slot;
	bool any_retrying;
} WorkerSummary;

/* The continuous views of this database that the current user may see. */
static List *
visible_views(void)
{
	List *infos = NIL;
	Oid am = sx_continuous_am();
	bool sees_all = sx_monitor_sees_all();
	Relation rel = table_open(RelationRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	HeapTuple tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);
		ViewInfo *info;

		if (form->relkind != RELKIND_MATVIEW || form->relam != am)
			continue;
		if (!sees_all && !has_privs_of_role(GetUserId(), form->relowner))
			continue;
		info = palloc(sizeof(ViewInfo));
		info->view = form->oid;
		info->owner = form->relowner;
		info->is_populated = form->relispopulated;
		infos = lappend(infos, info);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	return infos;
}

static WorkerSummary
summarize_workers(void)
{
	WorkerSummary summary = {0};
	ListCell *lc;

	foreach(lc, sx_launcher_workers())
	{
		SxWorkerInfo *info = lfirst(lc);

		summary.has_launcher |= !OidIsValid(info->dboid);
		if (info->dboid != MyDatabaseId)
			continue;
		summary.any_running |= info->state == SX_WORKER_RUNNING;
		summary.any_no_slot |= info->state == SX_WORKER_NO_SLOT;
		summary.any_retrying |= info->state == SX_WORKER_RETRYING;
	}
	return summary;
}

/*
 * The state of a view in one word or two, and in *reason why it is that and what to do, NULL if
 * nothing. What the user has ordered comes first, then what keeps all workers away, then the view's
 * own error, then what its worker lacks.
 */
static const char *
view_state(const ViewInfo *info, const SxViewRow *row, SxProgress *progress,
		   const WorkerSummary *workers, const char **reason)
{
	char message[SX_SOURCE_MESSAGE];
	TimestampTz since;

	*reason = NULL;
	if (sx_view_options(info->view) == NULL)
	{
		*reason = "It was restored without security labels. ALTER MATERIALIZED VIEW .. RESET "
				  "(stream.emit) defines it with all defaults.";
		return "undefined";
	}
	if (!info->is_populated || row == NULL)
	{
		*reason = RecoveryInProgress()
					  ? "Use REFRESH MATERIALIZED VIEW on the primary server to start it."
					  : "Use REFRESH MATERIALIZED VIEW to start it.";
		return "stopped";
	}
	if (row->paused)
	{
		*reason = RecoveryInProgress()
					  ? "Use stream.resume() on the primary server to let it go on."
					  : "Use stream.resume() to let it go on.";
		return "paused";
	}
	if (RecoveryInProgress())
	{
		*reason = "The server is a standby; workers run on its primary server.";
		return "stopped";
	}
	if (!sx_launcher_available())
	{
		*reason = "Add stream_ext to shared_preload_libraries and restart the server.";
		return "stopped";
	}
	if (sx_workers == 0)
	{
		*reason = "stream.workers is 0.";
		return "stopped";
	}
	if (row->error_code != NULL)
	{
		*reason = "It is tried again from time to time; stream.resume() does that at once.";
		return "failed";
	}
	if (progress == NULL || pg_atomic_read_u32(&progress->worker_pid) == 0)
	{
		if (!workers->has_launcher)
		{
			*reason = "The launcher does not run; see the server log. If there are too many "
					  "background workers, raise max_worker_processes and restart the server.";
			return "waiting for a worker slot";
		}
		if (workers->any_no_slot)
		{
			*reason = "Raise max_worker_processes and restart the server.";
			return "waiting for a worker slot";
		}
		if (workers->any_retrying)
		{
			*reason = "Its worker has ended and is started again; see the server log.";
			return "waiting for a worker";
		}
		if (progress == NULL && workers->any_running)
		{
			*reason = "It is about to start. If it does not, raise stream.max_views and restart "
					  "the server.";
			return "waiting for a worker";
		}
		return "waiting for a worker";
	}
	switch (sx_progress_get_source(progress, &since, message))
	{
		case SX_SOURCE_OK:
			break;
		case SX_SOURCE_CONNECTING:
			*reason = message[0] != '\0' ? pstrdup(message) : "No broker has answered yet.";
			return "connecting";
		case SX_SOURCE_DEGRADED:
			*reason = pstrdup(message);
			return "degraded";
		case SX_SOURCE_FAILING:
			*reason = pstrdup(message);
			return "failing";
	}
	if (row->rebuild || !row->caught_up)
		return "building";
	return "running";
}

/* Puts a text that may be NULL into a row. */
static void
put_text(Datum *values, bool *nulls, int column, const char *text)
{
	nulls[column] = text == NULL;
	if (text != NULL)
		values[column] = CStringGetTextDatum(text);
}

/* Puts a watermark into a row: NULL if there is none yet. */
static void
put_watermark(Datum *values, bool *nulls, int column, int64 watermark)
{
	nulls[column] = watermark == PG_INT64_MIN;
	values[column] = TimestampTzGetDatum(watermark);
}

static void
put_counters(Datum *values, bool *nulls, SxProgress *progress, bool reads_topic)
{
	TimestampTz commit_time = (TimestampTz) pg_atomic_read_u64(&progress->commit_time);
	uint32 pid = pg_atomic_read_u32(&progress->worker_pid);

	values[VIEWS_COMMITS] = Int64GetDatum((int64) pg_atomic_read_u64(&progress->commits));
	values[VIEWS_ROWS_IN] = Int64GetDatum((int64) pg_atomic_read_u64(&progress->rows_in));
	values[VIEWS_ROWS_OUT] = Int64GetDatum((int64) pg_atomic_read_u64(&progress->rows_out));
	values[VIEWS_BLOCKS_BEHIND] = Int64GetDatum((int64) pg_atomic_read_u64(&progress->behind));
	values[VIEWS_RECORDS_BEHIND] = values[VIEWS_BLOCKS_BEHIND];
	nulls[VIEWS_BLOCKS_BEHIND] = reads_topic;
	nulls[VIEWS_RECORDS_BEHIND] = !reads_topic;
	values[VIEWS_DEAD_LETTERS] = Int64GetDatum((int64) pg_atomic_read_u64(&progress->dead_letters));
	values[VIEWS_TOMBSTONES] = Int64GetDatum((int64) pg_atomic_read_u64(&progress->tombstones));
	values[VIEWS_LAST_COMMIT] = TimestampTzGetDatum(commit_time);
	nulls[VIEWS_LAST_COMMIT] = commit_time == 0;
	put_watermark(values, nulls, VIEWS_WATERMARK, (int64) pg_atomic_read_u64(&progress->watermark));
	values[VIEWS_WORKER_PID] = Int32GetDatum((int32) pid);
	nulls[VIEWS_WORKER_PID] = pid == 0;
}

static void
hide_counters(bool *nulls)
{
	nulls[VIEWS_COMMITS] = true;
	nulls[VIEWS_ROWS_IN] = true;
	nulls[VIEWS_ROWS_OUT] = true;
	nulls[VIEWS_LAST_COMMIT] = true;
	nulls[VIEWS_BLOCKS_BEHIND] = true;
	nulls[VIEWS_RECORDS_BEHIND] = true;
	nulls[VIEWS_DEAD_LETTERS] = true;
	nulls[VIEWS_TOMBSTONES] = true;
	nulls[VIEWS_WATERMARK] = true;
	nulls[VIEWS_WORKER_PID] = true;
}

/* Does the view read a topic? False also for one that somebody has locked. */
static bool
reads_topic(Oid view)
{
	bool result = false;
	ListCell *lc;

	if (!ConditionalLockRelationOid(view, AccessShareLock))
		return false;
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(view)))
	{
		foreach(lc, sx_compile_sources(view))
			result |= get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE;
	}
	UnlockRelationOid(view, AccessShareLock);
	return result;
}

/* stream.get_views(): a row for each continuous view that the current user may see. */
Datum
stream_ext_get_views(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WorkerSummary workers = summarize_workers();
	ListCell *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, visible_views())
	{
		ViewInfo *info = lfirst(lc);
		SxViewRow *row = sx_catalog_view(info->view);
		SxProgress *progress = sx_progress_get(info->view, false);
		Datum values[VIEWS_COLUMNS] = {0};
		bool nulls[VIEWS_COLUMNS] = {0};
		const char *reason;

		values[VIEWS_VIEW] = ObjectIdGetDatum(info->view);
		values[VIEWS_OWNER] =
			DirectFunctionCall1(namein, CStringGetDatum(GetUserNameFromId(info->owner, true)
															? GetUserNameFromId(info->owner, true)
															: ""));
		put_text(values, nulls, VIEWS_STATE, view_state(info, row, progress, &workers, &reason));
		put_text(values, nulls, VIEWS_REASON, reason);
		if (progress != NULL)
			put_counters(values, nulls, progress, reads_topic(info->view));
		else
			hide_counters(nulls);
		put_text(values, nulls, VIEWS_ERROR_CODE, row ? row->error_code : NULL);
		put_text(values, nulls, VIEWS_ERROR_MESSAGE, row ? row->error_message : NULL);
		put_text(values, nulls, VIEWS_ERROR_DETAIL, row ? row->error_detail : NULL);
		put_text(values, nulls, VIEWS_ERROR_HINT, row ? row->error_hint : NULL);
		nulls[VIEWS_ERROR_TIME] = row == NULL || row->error_code == NULL;
		values[VIEWS_ERROR_TIME] = TimestampTzGetDatum(row ? row->error_time : 0);
		values[VIEWS_FAILURES] = Int32GetDatum(row ? row->failures : 0);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Adds the rows of a position in a topic: one a partition. */
static void
put_partitions(ReturnSetInfo *rsinfo, Datum *values, bool *nulls, bytea *bytes)
{
	SxKafkaPosition *position =
		sx_kafka_position_decode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));

	nulls[POSITIONS_GENERATION] = true;
	nulls[POSITIONS_CURSOR] = true;
	nulls[POSITIONS_OPEN_BLOCKS] = true;
	nulls[POSITIONS_RUNNING] = true;
	put_watermark(values, nulls, POSITIONS_WATERMARK, position->watermark);
	for (int i = 0; i < position->npartitions; i++)
	{
		SxKafkaPartition *partition = &position->partitions[i];

		values[POSITIONS_PARTITION] = Int32GetDatum(i);
		values[POSITIONS_OFFSET] = Int64GetDatum(partition->next);
		put_watermark(values, nulls, POSITIONS_MAX_TIME, partition->max_time);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* Adds the rows of one (view, source), if the view has a position in it. */
static void
put_position(ReturnSetInfo *rsinfo, Oid view, Oid source)
{
	bytea *bytes = sx_catalog_position(view, source);
	SxTailSummary summary;
	Datum values[POSITIONS_COLUMNS] = {0};
	bool nulls[POSITIONS_COLUMNS] = {0};

	if (bytes == NULL)
		return;
	values[POSITIONS_VIEW] = ObjectIdGetDatum(view);
	values[POSITIONS_SOURCE] = ObjectIdGetDatum(source);
	if (get_rel_relkind(source) == RELKIND_FOREIGN_TABLE)
	{
		put_partitions(rsinfo, values, nulls, bytes);
		return;
	}
	sx_tail_position_summary(sx_tail_position_decode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes)),
							 &summary);
	values[POSITIONS_GENERATION] = Int64GetDatum((int64) summary.generation);
	values[POSITIONS_CURSOR] = Int64GetDatum((int64) summary.cursor);
	values[POSITIONS_OPEN_BLOCKS] = Int32GetDatum(summary.open_blocks);
	values[POSITIONS_RUNNING] = Int32GetDatum(summary.running_transactions);
	nulls[POSITIONS_PARTITION] = true;
	nulls[POSITIONS_OFFSET] = true;
	nulls[POSITIONS_MAX_TIME] = true;
	put_watermark(values, nulls, POSITIONS_WATERMARK, summary.watermark);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* stream.get_positions(): a row for each source of each view that the current user may see. */
Datum
stream_ext_get_positions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, visible_views())
	{
		ViewInfo *info = lfirst(lc);
		ListCell *lc2;

		if (!ConditionalLockRelationOid(info->view, AccessShareLock))
			continue;
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(info->view)))
		{
			foreach(lc2, sx_compile_sources(info->view))
				put_position(rsinfo, info->view, lfirst_oid(lc2));
		}
		UnlockRelationOid(info->view, AccessShareLock);
	}
	return (Datum) 0;
}
