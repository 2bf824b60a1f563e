/*
 * worker.c
 *		A worker process: the loop around sx_runtime_cycle().
 *
 * The worker belongs to one database and one number of a fixed count. It attaches to its entry of
 * the registry before it connects, so that the launcher can tell it from one that never came up,
 * and it leaves the entry to the launcher when it ends. Worker 0 of a database is also the probe
 * for the extension.
 *
 * Between two cycles there is no transaction, no snapshot and no lock: only here does a worker
 * sleep. SIGTERM is handled as in any backend, at the next CHECK_FOR_INTERRUPTS; what was not
 * committed then is read again by the next worker.
 *
 * Crash behaviour: nothing is kept outside of the database.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <unistd.h>

#include "access/xact.h"
#include "commands/extension.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/pipeline/runtime.h"
#include "stream_ext/source/kafka_client.h"
#include "stream_ext/worker/registry.h"

static SxWorkerStart my_start;

/*
 * Settings that a worker must not take from ALTER DATABASE .. SET or postgresql.conf. A name that
 * this version of the server does not know is passed over.
 */
static const struct
{
	const char *name;
	const char *value;
} pinned_settings[] = {
	/* results and positions are in one commit record, so losing the last ones together is fine */
	{"synchronous_commit", "off"},
	{"search_path", "pg_catalog, pg_temp"},
	{"default_table_access_method", "heap"},
	{"default_transaction_isolation", "read committed"},
	{"default_transaction_read_only", "off"},
	{"default_transaction_deferrable", "off"},
	{"session_replication_role", "origin"},
	{"statement_timeout", "0"},
	{"lock_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"idle_session_timeout", "0"},
	{"transaction_timeout", "0"},
	{"client_min_messages", "error"},
	/* these change what STABLE functions return; every view sees them as the server ships them */
	{"array_nulls", "on"},
	{"bytea_output", "hex"},
	{"extra_float_digits", "1"},
	{"row_security", "on"},
	{"xmlbinary", "base64"},
	{"xmloption", "content"},
};

static void
worker_exit(int code, Datum arg)
{
	SxWorkerEntry *entry = &sx_registry->workers[my_start.index];

	sx_progress_detach();
	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	if (entry->pid == MyProcPid)
		entry->pid = 0;
	LWLockRelease(sx_registry->lock);
}

/* Takes this process's entry of the registry. False: it was started by an earlier launcher. */
static bool
attach_entry(void)
{
	SxWorkerEntry *entry = &sx_registry->workers[my_start.index];
	bool attached = false;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	if (sx_registry->epoch == my_start.epoch)
	{
		entry->pid = MyProcPid;
		attached = true;
	}
	LWLockRelease(sx_registry->lock);
	if (attached)
		on_shmem_exit(worker_exit, (Datum) 0);
	return attached;
}

/* Leaves the reason for the launcher and ends the process. */
static void
exit_without_extension(void)
{
	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	sx_registry->workers[my_start.index].no_extension = true;
	LWLockRelease(sx_registry->lock);
	proc_exit(0);
}

/* Tells the launcher that this worker works, and worker 0 that its database has the extension. */
static void
report_running(void)
{
	SxWorkerEntry *entry = &sx_registry->workers[my_start.index];
	SxDatabaseEntry *database;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	if (entry->state == SX_WORKER_STARTING)
		sx_registry_set_state(entry, SX_WORKER_RUNNING);
	database = sx_registry_database(my_start.dboid);
	if (database != NULL)
		database->extension = SX_EXTENSION_PRESENT;
	LWLockRelease(sx_registry->lock);
	sx_wake_database(InvalidOid);
}

static bool
extension_exists(void)
{
	bool exists;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	exists = OidIsValid(get_extension_oid("stream_ext", true));
	CommitTransactionCommand();
	return exists;
}

static void
pin_settings(void)
{
	for (size_t i = 0; i < lengthof(pinned_settings); i++)
	{
		if (GetConfigOption(pinned_settings[i].name, true, false) != NULL)
			SetConfigOption(pinned_settings[i].name, pinned_settings[i].value, PGC_SUSET,
							PGC_S_OVERRIDE);
	}
	SetConfigOption("application_name", MyBgworkerEntry->bgw_name, PGC_USERSET, PGC_S_OVERRIDE);
}

/* What ends the sleep of a worker, besides time: its latch, and news from brokers. */
static WaitEventSet *
create_wait_events(void)
{
	WaitEventSet *events = sx_create_wait_event_set(3);

	AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(events, WL_SOCKET_READABLE, sx_kafka_event_fd(), NULL, NULL);
	return events;
}

/* Sleeps for at most 'timeout' ms. */
static void
wait_for_work(WaitEventSet *events, long timeout)
{
	WaitEvent event;
	uint64 count;

	if (WaitEventSetWait(events, timeout, &event, 1, WaitEventExtensionNew("StreamWorkerMain")) <
			1 ||
		(event.events & WL_SOCKET_READABLE) == 0)
		return;
	/*
	 * Before the queues are read: an event is sent only when one gets its first entry, so what comes
	 * after they were read is a new one.
	 */
	if (read(event.fd, &count, sizeof(count)) < 0 && errno != EAGAIN && errno != EINTR)
		elog(ERROR, "could not read from eventfd: %m");
}

/* Entry point of a worker. */
void
sx_worker_main(Datum arg)
{
	WaitEventSet *events;

	memcpy(&my_start, MyBgworkerEntry->bgw_extra, sizeof(my_start));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (!attach_entry())
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(my_start.dboid, InvalidOid, 0);
	pin_settings();
	if (!extension_exists())
		exit_without_extension();

	/* before the first cycle: what commits from now on sets the latch, the rest it sees */
	sx_wake_attach(MyDatabaseId);
	sx_runtime_init(my_start.number, my_start.count);
	events = create_wait_events();
	report_running();

	for (;;)
	{
		long wait;

		ResetLatch(MyLatch);
		/* between two cycles there is nothing to cancel */
		QueryCancelPending = false;
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}

		pgstat_report_activity(STATE_RUNNING, "processing continuous views");
		wait = sx_runtime_cycle();
		if (sx_runtime_extension_gone())
			exit_without_extension();
		pgstat_report_stat(false);
		if (wait <= 0)
			continue;

		pgstat_report_activity(STATE_IDLE, NULL);
		wait_for_work(events, Min(wait, 1000));
	}
}
