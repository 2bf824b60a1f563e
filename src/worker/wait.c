/*
 * wait.c
 *		stream.wait() and stream.wait_all(): until all that is committed now is in the views.
 *
 * A waiter draws a token from the view's progress entry, wakes the workers and sleeps until the
 * worker has completed a poll that began after the token was drawn; see base/progress.h. In
 * between it looks at the view's catalog row, under a new snapshot each time, so that it ends with
 * the view's own error instead of waiting for a view that does not move.
 *
 * While it waits it holds no lock that a worker asks for. Its caller may: a transaction that has
 * locked the view or its sources against the worker waits for ever, or until the timeout. Rows that
 * the caller's own transaction has not committed are not waited for, and in a transaction of level
 * REPEATABLE READ later statements still see the view as of its snapshot.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "common/int.h"
#include "storage/condition_variable.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/progress.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/worker/launcher.h"

/* Longest sleep between two looks at the catalog row, in ms. */
#define WAIT_SLICE 1000

/* Time that workers get to show up before their absence is an error, in ms. */
#define WORKER_GRACE 2000

/* Milliseconds for which the launcher may be missing: it starts again after a second. */
#define LAUNCHER_PATIENCE_MS 10000

/* Milliseconds for which a source may refuse before that ends a wait. */
#define SOURCE_PATIENCE_MS 5000

/* A view that is waited for. */
typedef struct ViewWait
{
	Oid view;
	SxProgress *progress;
	uint64 token;
	uint64 failures; /* SxProgress.failures when the catalog row was last read */
} ViewWait;

PG_FUNCTION_INFO_V1(stream_ext_wait);
PG_FUNCTION_INFO_V1(stream_ext_wait_all);

/* End of the wait; infinity without a timeout. Errors: a negative timeout. */
static TimestampTz
deadline_from_arg(FunctionCallInfo fcinfo, int argno)
{
	Interval *timeout;
	int64 us;
	TimestampTz deadline;

	if (PG_ARGISNULL(argno))
		return DT_NOEND;
	timeout = PG_GETARG_INTERVAL_P(argno);
	if (INTERVAL_NOT_FINITE(timeout))
		us = timeout->month < 0 ? -1 : PG_INT64_MAX;
	else if (pg_mul_s64_overflow((int64) timeout->month * DAYS_PER_MONTH + timeout->day,
								 USECS_PER_DAY, &us) ||
			 pg_add_s64_overflow(us, timeout->time, &us))
		us = timeout->month < 0 || timeout->day < 0 ? -1 : PG_INT64_MAX;
	if (us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("timeout must not be negative")));
	if (pg_add_s64_overflow(GetCurrentTimestamp(), us, &deadline) || !IS_VALID_TIMESTAMP(deadline))
		return DT_NOEND;
	return deadline;
}

/* Errors out if no worker can ever run on this server as it is set up. */
static void
require_workers(void)
{
	sx_launcher_require();
	if (RecoveryInProgress())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot wait for a continuous view during recovery"),
						errhint("Wait on the primary server.")));
	if (sx_workers == 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("continuous views are not being kept up to date"),
						errdetail("stream.workers is 0."),
						errhint("Set stream.workers to 1 or more and reload the configuration.")));
}

/*
 * Errors out if workers of this database have been waiting for a slot for a while, or the launcher
 * has: it is gone for a moment when the server starts or recovers, and for good if there was no
 * slot for it.
 */
static void
require_slot(void)
{
	static TimestampTz missing_since = 0;
	TimestampTz now = GetCurrentTimestamp();
	bool has_launcher = false;
	ListCell *lc;

	foreach(lc, sx_launcher_workers())
	{
		SxWorkerInfo *info = lfirst(lc);

		has_launcher |= !OidIsValid(info->dboid);
		if (info->dboid != MyDatabaseId || info->state != SX_WORKER_NO_SLOT)
			continue;
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("no background worker slot is free for a worker of stream_ext"),
						errhint("Raise max_worker_processes and restart the server.")));
	}
	if (has_launcher)
		missing_since = 0;
	else if (missing_since == 0)
		missing_since = now;
	else if (TimestampDifferenceExceeds(missing_since, now, LAUNCHER_PATIENCE_MS))
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("the launcher of stream_ext does not run"),
						errhint("If the server log says that there are too many background "
								"workers, raise max_worker_processes and restart the server.")));
}

/* May the current user wait for the view? */
static bool
may_read(Oid view)
{
	return pg_class_aclcheck(view, GetUserId(), ACL_SELECT) == ACLCHECK_OK ||
		   object_ownercheck(RelationRelationId, view, GetUserId());
}

/* Was the view made, or its definition changed, by the transaction that runs now? */
static bool
changed_by_me(HeapTuple tuple)
{
	TransactionId xmin = HeapTupleHeaderGetXmin(tuple->t_data);

	return TransactionIdIsNormal(xmin) && TransactionIdIsCurrentTransactionId(xmin);
}

/* The view's catalog row as it is committed now, in the current memory context. */
static SxViewRow *
read_row(Oid view)
{
	SxViewRow *row;

	PushActiveSnapshot(GetLatestSnapshot());
	row = sx_catalog_view(view);
	PopActiveSnapshot();
	return row;
}

/* May the current user see what an error says about the rows of a stream? */
static bool
sees_details(Oid view)
{
	Oid monitor = get_role_oid("stream_monitor", true);

	return object_ownercheck(RelationRelationId, view, GetUserId()) ||
		   (OidIsValid(monitor) && has_privs_of_role(GetUserId(), monitor));
}

/* Raises the error that a view has stopped with. */
static void
raise_view_error(Oid view, const SxViewRow *row)
{
	const char *code = row->error_code;
	int sqlstate = ERRCODE_INTERNAL_ERROR;

	if (strlen(code) == 5 && strcmp(code, "00000") != 0)
		sqlstate = MAKE_SQLSTATE(code[0], code[1], code[2], code[3], code[4]);
	if (!sees_details(view))
		ereport(ERROR,
				(errcode(sqlstate), errmsg("continuous view \"%s\" has failed", get_rel_name(view)),
				 errdetail("Its owner can see why in stream.views.")));
	ereport(ERROR, (errcode(sqlstate),
					errmsg_internal("%s", row->error_message ? row->error_message
															 : "continuous view has failed"),
					row->error_detail ? errdetail_internal("%s", row->error_detail) : 0,
					row->error_hint ? errhint("%s", row->error_hint) : 0,
					errcontext("continuous view \"%s\"", get_rel_name(view))));
}

/* Errors out if the view does not move on: dropped, undefined, stopped, paused, failed. */
static void
require_running(Oid view)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(view));
	SxViewRow *row;
	const char *name;
	bool is_populated;
	bool is_mine;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("continuous view was dropped")));
	name = pstrdup(NameStr(((Form_pg_class) GETSTRUCT(tuple))->relname));
	is_populated = ((Form_pg_class) GETSTRUCT(tuple))->relispopulated;
	is_mine = changed_by_me(tuple);
	ReleaseSysCache(tuple);

	if (is_mine)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot wait for continuous view \"%s\" in the transaction that "
							   "created or changed it",
							   name),
						errdetail("Its worker does not see it before the commit."),
						errhint("Commit first.")));
	if (sx_view_options(view) == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("continuous view \"%s\" is undefined", name),
						errdetail("It has no options; it was restored without security labels."),
						errhint("ALTER MATERIALIZED VIEW .. RESET (stream.emit) defines it "
								"with all defaults.")));
	row = is_populated ? read_row(view) : NULL;
	if (row == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("continuous view \"%s\" is stopped", name),
						errhint("Use REFRESH MATERIALIZED VIEW to start it.")));
	if (row->paused)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("continuous view \"%s\" is paused", name),
						errhint("Use stream.resume() to let it go on.")));
	if (row->error_code != NULL)
		raise_view_error(view, row);
}

/*
 * Errors out if the source of the view refuses to be read and has for a while: somebody must act, and
 * a wait without a timeout would last until he does.
 */
static void
require_source(Oid view, SxProgress *progress)
{
	char message[SX_SOURCE_MESSAGE];
	TimestampTz since;

	if (sx_progress_get_source(progress, &since, message) != SX_SOURCE_FAILING ||
		!TimestampDifferenceExceeds(since, GetCurrentTimestamp(), SOURCE_PATIENCE_MS))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
			 errmsg("the source of continuous view \"%s\" cannot be read", get_rel_name(view)),
			 sees_details(view) ? errdetail_internal("%s", message)
								: errdetail("Its owner can see why in stream.views."),
			 errhint("The worker goes on trying.")));
}

/* Draws a token for a view. Errors as require_running(), and if there is no progress entry. */
static void
begin_wait(ViewWait *wait, Oid view)
{
	wait->view = view;
	wait->progress = sx_progress_get(view, false);
	if (wait->progress == NULL)
	{
		/* not to make an entry for a view that is being dropped */
		LockRelationOid(view, AccessShareLock);
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(view)))
			wait->progress = sx_progress_get(view, true);
		else
			require_running(view);
		UnlockRelationOid(view, AccessShareLock);
	}
	if (wait->progress == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("too many continuous views"),
				 errdetail("This server has room for %d in all its databases.", sx_max_views),
				 errhint("Raise stream.max_views and restart the server.")));
	wait->failures = pg_atomic_read_u64(&wait->progress->failures);
	require_running(view);
	/* a full barrier: what was committed before is seen by the poll that completes the token */
	wait->token = pg_atomic_fetch_add_u64(&wait->progress->requested, 1) + 1;
}

/* Waits for the token. False: the deadline has passed. Errors as require_running(). */
static bool
finish_wait(ViewWait *wait, TimestampTz deadline)
{
	SxProgress *progress = wait->progress;
	TimestampTz start = GetCurrentTimestamp();
	TimestampTz last_look = start;
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext wait", ALLOCSET_SMALL_SIZES);
	bool done = false;

	for (;;)
	{
		TimestampTz now;
		long slice = WAIT_SLICE;

		/* the slot may be another view's by now; then the next look finds the view gone */
		if (progress->view == wait->view && progress->dboid == MyDatabaseId &&
			pg_atomic_read_u64(&progress->completed) >= wait->token)
		{
			done = true;
			break;
		}
		now = GetCurrentTimestamp();
		if (progress->view != wait->view || progress->dboid != MyDatabaseId ||
			pg_atomic_read_u64(&progress->failures) != wait->failures ||
			TimestampDifferenceExceeds(last_look, now, WAIT_SLICE))
		{
			MemoryContext oldcxt = MemoryContextSwitchTo(cxt);

			/* the number first: an error noted in between is looked at once more */
			wait->failures = pg_atomic_read_u64(&progress->failures);
			AcceptInvalidationMessages();
			require_running(wait->view);
			require_source(wait->view, progress);
			require_workers();
			if (TimestampDifferenceExceeds(start, now, WORKER_GRACE))
				require_slot();
			MemoryContextSwitchTo(oldcxt);
			MemoryContextReset(cxt);
			last_look = now;
			/* the net, in case that a wake-up was lost while a worker started */
			sx_wake_database(MyDatabaseId);
		}
		if (now >= deadline)
			break;
		if (!TIMESTAMP_IS_NOEND(deadline))
			slice = Min(slice, TimestampDifferenceMilliseconds(now, deadline));
		(void) ConditionVariableTimedSleep(&progress->changed, Max(slice, 1),
										   WaitEventExtensionNew("StreamWait"));
	}
	ConditionVariableCancelSleep();
	MemoryContextDelete(cxt);
	return done;
}

/* stream.wait(view regclass, timeout interval) returns boolean */
Datum
stream_ext_wait(PG_FUNCTION_ARGS)
{
	Oid view;
	TimestampTz deadline;
	ViewWait wait;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	view = PG_GETARG_OID(0);
	deadline = deadline_from_arg(fcinfo, 1);
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(view)))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation with OID %u does not exist", view)));
	if (!sx_is_continuous(view))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a continuous view", get_rel_name(view))));
	if (!may_read(view))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_MATVIEW, get_rel_name(view));
	require_workers();

	begin_wait(&wait, view);
	sx_wake_database(MyDatabaseId);
	PG_RETURN_BOOL(finish_wait(&wait, deadline));
}

/*
 * Views that stream.wait_all() waits for: those that the caller may read, less those that somebody
 * has stopped or paused on purpose.
 */
static List *
running_views(void)
{
	List *views = NIL;
	List *rows;
	ListCell *lc;

	PushActiveSnapshot(GetLatestSnapshot());
	rows = sx_catalog_views();
	PopActiveSnapshot();
	foreach(lc, rows)
	{
		SxViewRow *row = lfirst(lc);
		HeapTuple tuple;
		bool is_populated;

		if (row->paused || !sx_is_continuous(row->view))
			continue;
		tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(row->view));
		if (!HeapTupleIsValid(tuple))
			continue;
		is_populated = ((Form_pg_class) GETSTRUCT(tuple))->relispopulated;
		ReleaseSysCache(tuple);
		if (is_populated && may_read(row->view))
			views = lappend_oid(views, row->view);
	}
	return views;
}

/* stream.wait_all(timeout interval) returns boolean */
Datum
stream_ext_wait_all(PG_FUNCTION_ARGS)
{
	TimestampTz deadline = deadline_from_arg(fcinfo, 0);
	List *views;
	ListCell *lc;
	ViewWait *waits;
	int nwaits = 0;

	require_workers();
	views = running_views();
	waits = palloc(sizeof(ViewWait) * Max(list_length(views), 1));
	/* all tokens before the first wait, so that the views work at the same time */
	foreach(lc, views)
		begin_wait(&waits[nwaits++], lfirst_oid(lc));
	sx_wake_database(MyDatabaseId);
	for (int i = 0; i < nwaits; i++)
	{
		if (!finish_wait(&waits[i], deadline))
			PG_RETURN_BOOL(false);
	}
	PG_RETURN_BOOL(true);
}
