/*
 * launcher.c
 *		The one process that finds the databases with the extension and keeps their workers running.
 *
 * The launcher connects to no database; it reads pg_database only. Whether a database has the
 * extension only a process inside it can tell, so worker 0 of each is started once: without the
 * extension it notes that and ends, with it it stays and is the first worker. Thus no connection
 * to a database without the extension lasts, and none is made again until somebody asks
 * (sx_launcher_request_probe). At most MAX_PROBES look at the same time: worker slots are few
 * (max_worker_processes is 8 by default) and others need them, too.
 *
 * A pass of the loop is: note who has ended, read pg_database, bring every database to what it
 * should have. What it should have is computed from scratch in each pass, so a wake-up that is
 * lost or one too many does no harm.
 *
 * States of a worker's entry:
 *
 *	                 registered             attached, extension found
 *	   (free) ------> STARTING ----------------> RUNNING
 *	     ^  ^           |  ^                        |
 *	     |  |   no slot |  | later         told to  | error
 *	     |  |           v  |               end      v
 *	     |  +----- NO_SLOT or RETRYING <------------+----> STOPPING ---> (free)
 *	     +-------- ended: no extension
 *
 * A worker that ends with an error is started again after 1 s, then 2 s, up to 60 s; a minute of
 * health resets that. The views are distributed by (number, count of workers), so a change of
 * stream.workers ends all workers of a database before the first of the new count starts.
 *
 * If the launcher itself ends with an error the postmaster starts it again. It has lost the
 * handles of its workers then; it ends those that are attached, and those that are still about to
 * attach see from the epoch that they belong to an earlier launcher. A process killed the hard way
 * resets shared memory, and all begins anew.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <signal.h>

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/progress.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/worker/registry.h"

/* Databases that are looked into at the same time. */
#define MAX_PROBES 2

/* Time between passes if nothing happens, and between tries to get a worker slot, in ms. */
#define PASS_INTERVAL 10000

/*
 * Time to the second try. A slot missing for less is not reported: at server start the slots are
 * taken and given back by the probes of other databases.
 */
#define SLOT_GRACE 2000

/* Pause before a failed worker is started again: first, longest; health that resets it. In ms. */
#define RETRY_FIRST   1000
#define RETRY_LONGEST 60000
#define HEALTHY       60000

/* A database that allows connections, as read from pg_database. */
typedef struct DatabaseRow
{
	Oid dboid;
	bool is_allowed; /* connections, by users */
} DatabaseRow;

/* Handles of the processes behind the entries of the registry. Lives until exit. */
static BackgroundWorkerHandle *handles[SX_REGISTRY_WORKERS];

static bool slot_warning_given = false;
static bool full_warning_given = false;

static void
launcher_exit(int code, Datum arg)
{
	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	sx_registry->launcher_pid = 0;
	LWLockRelease(sx_registry->lock);
}

static void
free_worker(SxWorkerEntry *entry)
{
	memset(entry, 0, sizeof(SxWorkerEntry));
}

/*
 * Ends the workers of an earlier launcher, waits for them, and empties the registry of all but the
 * holds, which belong to sessions.
 */
static void
take_over(void)
{
	bool any;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	sx_registry->epoch++;
	sx_registry->launcher_pid = MyProcPid;
	sx_registry->launcher_since = GetCurrentTimestamp();
	LWLockRelease(sx_registry->lock);
	before_shmem_exit(launcher_exit, (Datum) 0);

	do
	{
		any = false;
		LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
		for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
		{
			SxWorkerEntry *entry = &sx_registry->workers[i];

			/* it clears its pid under the lock before it ends, so the pid is its own */
			if (entry->pid != 0 && kill(entry->pid, SIGTERM) == 0)
				any = true;
		}
		LWLockRelease(sx_registry->lock);
		if (any)
			(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
							 WaitEventExtensionNew("StreamLauncherTakeOver"));
		CHECK_FOR_INTERRUPTS();
	} while (any);

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	memset(sx_registry->databases, 0, sizeof(sx_registry->databases));
	memset(sx_registry->workers, 0, sizeof(sx_registry->workers));
	LWLockRelease(sx_registry->lock);
	ConditionVariableBroadcast(&sx_registry->changed);
}

/* Pause before the next start after 'failures' (from 1) ends with an error, in ms. */
static int
retry_delay(int failures)
{
	int delay = RETRY_FIRST;

	for (int i = 1; i < failures && delay < RETRY_LONGEST; i++)
		delay *= 2;
	return Min(delay, RETRY_LONGEST);
}

/* Notes in the registry why a process has ended. Lock: exclusive. */
static void
note_end(SxWorkerEntry *entry)
{
	SxDatabaseEntry *database = sx_registry_database(entry->dboid);
	TimestampTz now = GetCurrentTimestamp();

	if (entry->no_extension)
	{
		if (database != NULL)
			database->extension = SX_EXTENSION_ABSENT;
		free_worker(entry);
	}
	else if (entry->state == SX_WORKER_STOPPING)
		free_worker(entry);
	else
	{
		if (TimestampDifferenceExceeds(entry->started, now, HEALTHY))
			entry->failures = 0;
		entry->failures++;
		entry->restart = TimestampTzPlusMilliseconds(now, retry_delay(entry->failures));
		entry->pid = 0;
		sx_registry_set_state(entry, SX_WORKER_RETRYING);
	}
}

/* Notes all processes that have ended since the last pass. */
static void
reap_workers(void)
{
	bool any = false;

	for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
	{
		pid_t pid;

		if (handles[i] == NULL || GetBackgroundWorkerPid(handles[i], &pid) != BGWH_STOPPED)
			continue;
		pfree(handles[i]);
		handles[i] = NULL;
		LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
		note_end(&sx_registry->workers[i]);
		LWLockRelease(sx_registry->lock);
		any = true;
	}
	if (!any)
		return;

	/* slots have become free: those who wait for one may try at once */
	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
	{
		if (sx_registry->workers[i].state == SX_WORKER_NO_SLOT)
			sx_registry->workers[i].restart = 0;
	}
	LWLockRelease(sx_registry->lock);
	ConditionVariableBroadcast(&sx_registry->changed);
}

/* Reads pg_database into 'cxt': list of DatabaseRow *, without those that are half dropped. */
static List *
read_databases(MemoryContext cxt)
{
	List *rows = NIL;
	Relation rel;
	TableScanDesc scan;
	HeapTuple tuple;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext oldcxt;
		DatabaseRow *row;

		if (database_is_invalid_form(form))
			continue;
		oldcxt = MemoryContextSwitchTo(cxt);
		row = palloc(sizeof(DatabaseRow));
		row->dboid = form->oid;
		row->is_allowed = form->datallowconn;
		rows = lappend(rows, row);
		MemoryContextSwitchTo(oldcxt);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	return rows;
}

/* Tells the live workers of a database to end, forgets the others. Returns how many are live. */
static int
stop_workers(Oid dboid)
{
	int live = 0;

	for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
	{
		SxWorkerEntry *entry = &sx_registry->workers[i];
		bool terminate = false;

		/* only this process changes dboid */
		if (entry->dboid != dboid)
			continue;
		LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
		if (!sx_registry_is_live(entry))
			free_worker(entry);
		else
		{
			live++;
			terminate = entry->state != SX_WORKER_STOPPING;
			if (terminate)
				sx_registry_set_state(entry, SX_WORKER_STOPPING);
		}
		LWLockRelease(sx_registry->lock);
		if (terminate)
			TerminateBackgroundWorker(handles[i]);
	}
	return live;
}

/* Finds the entry of a worker, or makes one. -1: the registry is full. */
static int
worker_index(Oid dboid, int number)
{
	int free_index = -1;

	for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
	{
		SxWorkerEntry *entry = &sx_registry->workers[i];

		if (entry->dboid == dboid && entry->number == number)
			return i;
		if (!OidIsValid(entry->dboid) && free_index < 0)
			free_index = i;
	}
	if (free_index >= 0)
	{
		SxWorkerEntry *entry = &sx_registry->workers[free_index];

		LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
		free_worker(entry);
		entry->dboid = dboid;
		entry->number = number;
		sx_registry_set_state(entry, SX_WORKER_QUEUED);
		LWLockRelease(sx_registry->lock);
	}
	return free_index;
}

static void
report_no_slot(void)
{
	if (slot_warning_given)
		return;
	slot_warning_given = true;
	ereport(WARNING, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					  errmsg("no background worker slot is free for a worker of stream_ext"),
					  errdetail("Its continuous views do not move on until one is free."),
					  errhint("Raise max_worker_processes (now %d) and restart the server.",
							  max_worker_processes)));
}

/*
 * Starts the process of an entry that is due. The entry is marked before, in one critical section
 * with the look at the holds; see registry.c.
 */
static void
start_worker(int index, int count)
{
	SxWorkerEntry *entry = &sx_registry->workers[index];
	SxWorkerStart start = {0};
	BackgroundWorker worker = {0};
	bool waits_for_slot = entry->state == SX_WORKER_NO_SLOT;
	TimestampTz waits_since = entry->since;
	TimestampTz now;
	bool held;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	held = sx_registry_is_held(entry->dboid);
	if (!held)
	{
		SxDatabaseEntry *database = sx_registry_database(entry->dboid);

		/* it will see what was committed up to now; a later request wants another look */
		if (database->extension == SX_EXTENSION_UNKNOWN)
			database->probe_requested = false;
		entry->no_extension = false;
		entry->pid = 0;
		entry->started = GetCurrentTimestamp();
		sx_registry_set_state(entry, SX_WORKER_STARTING);
	}
	LWLockRelease(sx_registry->lock);
	if (held)
		return;

	start.epoch = sx_registry->epoch;
	start.index = index;
	start.dboid = entry->dboid;
	start.number = entry->number;
	start.count = count;
	StaticAssertStmt(sizeof(start) <= BGW_EXTRALEN, "start data must fit into bgw_extra");

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	snprintf(worker.bgw_name, BGW_MAXLEN, "stream_ext worker %d", entry->number);
	strlcpy(worker.bgw_type, "stream_ext worker", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "stream_ext", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "sx_worker_main", BGW_MAXLEN);
	memcpy(worker.bgw_extra, &start, sizeof(start));

	if (RegisterDynamicBackgroundWorker(&worker, &handles[index]))
		return;
	handles[index] = NULL;
	now = GetCurrentTimestamp();
	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	entry->restart = TimestampTzPlusMilliseconds(now, waits_for_slot ? PASS_INTERVAL : SLOT_GRACE);
	sx_registry_set_state(entry, SX_WORKER_NO_SLOT);
	if (waits_for_slot)
		entry->since = waits_since;
	LWLockRelease(sx_registry->lock);
	ConditionVariableBroadcast(&sx_registry->changed);
	if (waits_for_slot && TimestampDifferenceExceeds(waits_since, now, SLOT_GRACE))
		report_no_slot();
}

/* Processes that are finding out whether their database has the extension. */
static int
count_probes(void)
{
	int n = 0;

	for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
	{
		const SxWorkerEntry *entry = &sx_registry->workers[i];
		const SxDatabaseEntry *database;

		if (handles[i] == NULL)
			continue;
		database = sx_registry_database(entry->dboid);
		if (database != NULL && database->extension == SX_EXTENSION_UNKNOWN)
			n++;
	}
	return n;
}

/* Brings one database to what it should have. 'is_allowed': connections, by pg_database. */
static void
serve_database(SxDatabaseEntry *database, bool is_allowed, int *probes)
{
	Oid dboid = database->dboid;
	SxExtensionState extension;
	bool held;
	int want;

	/* workers that have not noticed yet must be gone before anybody looks again */
	if (database->extension == SX_EXTENSION_ABSENT && stop_workers(dboid) > 0)
		return;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	held = sx_registry_is_held(dboid);
	if (database->extension == SX_EXTENSION_ABSENT && database->probe_requested)
		database->extension = SX_EXTENSION_UNKNOWN;
	extension = database->extension;
	LWLockRelease(sx_registry->lock);

	want = held || !is_allowed || extension == SX_EXTENSION_ABSENT ? 0 : sx_workers;
	if (want == 0 || (database->count != 0 && database->count != want))
	{
		if (stop_workers(dboid) > 0)
			return; /* their end starts the next pass */
		database->count = 0;
	}
	if (want == 0)
		return;
	database->count = want;

	/* until worker 0 has found the extension there are no others */
	if (extension == SX_EXTENSION_UNKNOWN)
		want = 1;
	for (int number = 0; number < want; number++)
	{
		int index = worker_index(dboid, number);

		if (index < 0)
		{
			report_no_slot();
			return;
		}
		if (sx_registry_is_live(&sx_registry->workers[index]) ||
			sx_registry->workers[index].restart > GetCurrentTimestamp())
			continue;
		if (extension == SX_EXTENSION_UNKNOWN && *probes >= MAX_PROBES)
			continue;
		start_worker(index, database->count);
		if (extension == SX_EXTENSION_UNKNOWN && handles[index] != NULL)
			(*probes)++;
	}
}

/* Makes the entry of a database that is not known yet. */
static void
add_database(Oid dboid)
{
	SxDatabaseEntry *database;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	database = sx_registry_database(InvalidOid);
	if (database != NULL)
	{
		memset(database, 0, sizeof(SxDatabaseEntry));
		database->dboid = dboid;
		database->extension = SX_EXTENSION_UNKNOWN;
	}
	LWLockRelease(sx_registry->lock);
	if (database != NULL || full_warning_given)
		return;
	full_warning_given = true;
	ereport(WARNING, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					  errmsg("too many databases for stream_ext"),
					  errdetail("It serves the first %d databases that allow connections.",
								SX_REGISTRY_DATABASES),
					  errhint("Set ALLOW_CONNECTIONS to false for databases that nobody uses.")));
}

static DatabaseRow *
find_row(List *rows, Oid dboid)
{
	ListCell *lc;

	foreach(lc, rows)
	{
		DatabaseRow *row = lfirst(lc);

		if (row->dboid == dboid)
			return row;
	}
	return NULL;
}

/* Compares the registry with pg_database, then serves every database. */
static void
serve_databases(List *rows)
{
	ListCell *lc;
	int probes;

	foreach(lc, rows)
	{
		DatabaseRow *row = lfirst(lc);

		if (row->is_allowed && sx_registry_database(row->dboid) == NULL)
			add_database(row->dboid);
	}

	probes = count_probes();
	for (int i = 0; i < SX_REGISTRY_DATABASES; i++)
	{
		SxDatabaseEntry *database = &sx_registry->databases[i];
		Oid dboid = database->dboid;
		DatabaseRow *row;

		if (!OidIsValid(dboid))
			continue;
		row = find_row(rows, dboid);
		serve_database(database, row != NULL && row->is_allowed, &probes);
		if ((row != NULL && row->is_allowed) || database->count != 0)
			continue;
		if (row == NULL)
			sx_progress_drop_database(dboid);
		LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
		database->dboid = InvalidOid;
		LWLockRelease(sx_registry->lock);
		full_warning_given = false;
	}
}

/* Milliseconds until the first entry is due for a try, at most PASS_INTERVAL. */
static long
time_to_next_pass(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long wait = PASS_INTERVAL;
	bool waits_for_slot = false;

	for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
	{
		const SxWorkerEntry *entry = &sx_registry->workers[i];

		if (!OidIsValid(entry->dboid) || sx_registry_is_live(entry))
			continue;
		waits_for_slot |= entry->state == SX_WORKER_NO_SLOT;
		/* one that is due already waits for its turn to probe, which the end of a probe brings */
		if (entry->restart > now)
			wait = Min(wait, TimestampDifferenceMilliseconds(now, entry->restart));
	}
	if (!waits_for_slot)
		slot_warning_given = false;
	return Max(wait, 1);
}

/* Entry point of the launcher. */
void
sx_launcher_main(Datum arg)
{
	MemoryContext cxt;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	take_over();
	sx_wake_attach(InvalidOid);
	cxt =
		AllocSetContextCreate(TopMemoryContext, "stream_ext launcher pass", ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		MemoryContextSwitchTo(TopMemoryContext); /* where handles live */
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		reap_workers();
		serve_databases(read_databases(cxt));
		MemoryContextReset(cxt);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 time_to_next_pass(), WaitEventExtensionNew("StreamLauncherMain"));
	}
}

/* Called by _PG_init. Without preloading there are no workers. */
void
sx_worker_init(void)
{
	BackgroundWorker worker = {0};

	if (!process_shared_preload_libraries_in_progress)
		return;
	sx_registry_init();

	/* pg_upgrade must find the databases as they are, without anybody working in them */
	if (IsBinaryUpgrade)
		return;
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_name, "stream_ext launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "stream_ext launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_library_name, "stream_ext", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "sx_launcher_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
