/*
 * registry.c
 *		The table of databases and workers in shared memory, and what sessions ask of the launcher.
 *
 * The launcher alone makes and frees entries. Everything here is small and rare, so one LWLock
 * guards it all; nothing under the lock can fail.
 *
 * A hold keeps the workers out of a database while a session drops, renames or copies it. It
 * counts from the moment it is in the table: the launcher looks for holds in the same critical
 * section in which it marks a worker as starting, so that after the hold no worker appears, and
 * those that are there can be waited for. Holds end with the transaction, after its changes of
 * pg_database became visible, so that the launcher does not start a worker in a database that is
 * being dropped.
 *
 * Crash behaviour: shared memory only, reset with it.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "stream_ext/base/wake.h"
#include "stream_ext/worker/registry.h"

#define REGISTRY_TRANCHE "stream_ext workers"

/* How long a session waits for the workers of a database to end, in ms. */
#define HOLD_TIMEOUT 30000

/* Probes one transaction can ask for; a session creates the extension in its own database. */
#define MAX_PROBE_REQUESTS 4

SxRegistry *sx_registry = NULL;

static int nholds = 0; /* of this session */
static bool exit_callback_registered = false;
static Oid probe_requests[MAX_PROBE_REQUESTS];
static int nprobe_requests = 0;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static void
registry_shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(sizeof(SxRegistry));
	RequestNamedLWLockTranche(REGISTRY_TRANCHE, 1);
}

static void
registry_shmem_startup(void)
{
	bool found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	sx_registry = ShmemInitStruct(REGISTRY_TRANCHE, sizeof(SxRegistry), &found);
	if (!found)
	{
		memset(sx_registry, 0, sizeof(SxRegistry));
		sx_registry->lock = &GetNamedLWLockTranche(REGISTRY_TRANCHE)->lock;
		ConditionVariableInit(&sx_registry->changed);
	}
	LWLockRelease(AddinShmemInitLock);
}

bool
sx_registry_is_live(const SxWorkerEntry *entry)
{
	return OidIsValid(entry->dboid) &&
		   (entry->state == SX_WORKER_STARTING || entry->state == SX_WORKER_RUNNING ||
			entry->state == SX_WORKER_STOPPING);
}

/* The entry of a database; NULL: the launcher does not know it. */
SxDatabaseEntry *
sx_registry_database(Oid dboid)
{
	for (int i = 0; i < SX_REGISTRY_DATABASES; i++)
	{
		if (sx_registry->databases[i].dboid == dboid)
			return &sx_registry->databases[i];
	}
	return NULL;
}

bool
sx_registry_is_held(Oid dboid)
{
	for (int i = 0; i < SX_REGISTRY_HOLDS; i++)
	{
		if (sx_registry->holds[i].dboid == dboid)
			return true;
	}
	return false;
}

void
sx_registry_set_state(SxWorkerEntry *entry, SxWorkerState state)
{
	entry->state = state;
	entry->since = GetCurrentTimestamp();
}

/* Takes this session's holds of a database, or all (InvalidOid), out of the table. */
static void
release_holds(Oid dboid)
{
	bool released = false;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SX_REGISTRY_HOLDS; i++)
	{
		SxHold *hold = &sx_registry->holds[i];

		if (hold->pid != MyProcPid || (OidIsValid(dboid) && hold->dboid != dboid))
			continue;
		hold->dboid = InvalidOid;
		hold->pid = 0;
		nholds--;
		released = true;
	}
	LWLockRelease(sx_registry->lock);
	if (released)
		sx_wake_database(InvalidOid);
}

static void
registry_exit(int code, Datum arg)
{
	if (nholds > 0)
		release_holds(InvalidOid);
}

/* Commit: hands the requests for probes to the launcher. */
static void
publish_probe_requests(void)
{
	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	for (int i = 0; i < nprobe_requests; i++)
	{
		/* a database that is not in the table will be probed when it is found */
		SxDatabaseEntry *database = sx_registry_database(probe_requests[i]);

		if (database != NULL)
			database->probe_requested = true;
	}
	LWLockRelease(sx_registry->lock);
	sx_wake_database(InvalidOid);
}

static void
registry_xact_callback(XactEvent event, void *arg)
{
	if (likely(nholds == 0 && nprobe_requests == 0))
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			if (nprobe_requests > 0)
				publish_probe_requests();
			break;
		case XACT_EVENT_PREPARE:
			/* what is asked for at COMMIT PREPARED cannot be kept; ask now, and in vain at worst */
			if (nprobe_requests > 0)
				publish_probe_requests();
			break;
		case XACT_EVENT_ABORT:
			break;
		default:
			return;
	}
	nprobe_requests = 0;
	if (nholds > 0)
		release_holds(InvalidOid);
}

void
sx_registry_init(void)
{
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = registry_shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = registry_shmem_startup;
	RegisterXactCallback(registry_xact_callback, NULL);
}

bool
sx_launcher_available(void)
{
	return sx_registry != NULL;
}

void
sx_launcher_require(void)
{
	if (sx_launcher_available())
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("stream_ext is not loaded by shared_preload_libraries"),
					errhint("Add stream_ext to shared_preload_libraries and restart the server.")));
}

void
sx_launcher_request_probe(Oid dboid)
{
	if (sx_registry == NULL)
		return;
	for (int i = 0; i < nprobe_requests; i++)
	{
		if (probe_requests[i] == dboid)
			return;
	}
	if (nprobe_requests < MAX_PROBE_REQUESTS)
		probe_requests[nprobe_requests++] = dboid;
}

/* Puts a hold into the table. Returns false if the table is full. */
static bool
add_hold(Oid dboid)
{
	bool added = false;

	LWLockAcquire(sx_registry->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SX_REGISTRY_HOLDS && !added; i++)
	{
		SxHold *hold = &sx_registry->holds[i];

		if (OidIsValid(hold->dboid))
			continue;
		hold->dboid = dboid;
		hold->pid = MyProcPid;
		nholds++;
		added = true;
	}
	LWLockRelease(sx_registry->lock);
	return added;
}

static bool
has_live_workers(Oid dboid)
{
	bool live = false;

	LWLockAcquire(sx_registry->lock, LW_SHARED);
	for (int i = 0; i < SX_REGISTRY_WORKERS && !live; i++)
	{
		const SxWorkerEntry *entry = &sx_registry->workers[i];

		live = entry->dboid == dboid && sx_registry_is_live(entry);
	}
	LWLockRelease(sx_registry->lock);
	return live;
}

void
sx_launcher_hold_database(Oid dboid)
{
	TimestampTz start = GetCurrentTimestamp();
	bool is_live;

	if (sx_registry == NULL || !OidIsValid(dboid))
		return;
	if (!exit_callback_registered)
	{
		before_shmem_exit(registry_exit, (Datum) 0);
		exit_callback_registered = true;
	}
	if (!add_hold(dboid))
		ereport(ERROR, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						errmsg("too many sessions are dropping, renaming or copying databases"),
						errhint("Try again later.")));
	sx_wake_database(InvalidOid);

	/* an error from here on ends the transaction, and the hold with it */
	while ((is_live = has_live_workers(dboid)) &&
		   !TimestampDifferenceExceeds(start, GetCurrentTimestamp(), HOLD_TIMEOUT))
		(void) ConditionVariableTimedSleep(&sx_registry->changed, 1000,
										   WaitEventExtensionNew("StreamDatabaseHold"));
	ConditionVariableCancelSleep();
	if (is_live)
	{
		release_holds(dboid);
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("workers of stream_ext in database \"%s\" have not ended within %d s",
						get_database_name(dboid), HOLD_TIMEOUT / 1000),
				 errhint("Look at stream.stat_workers and the server log, and try again.")));
	}
}

void
sx_launcher_release_database(Oid dboid)
{
	if (sx_registry != NULL && nholds > 0)
		release_holds(dboid);
}

List *
sx_launcher_workers(void)
{
	List *infos = NIL;
	SxWorkerEntry *copies;
	SxWorkerInfo *info;
	int ncopies = 0;
	int launcher_pid;
	TimestampTz launcher_since;

	if (sx_registry == NULL)
		return NIL;

	copies = palloc(sizeof(SxWorkerEntry) * SX_REGISTRY_WORKERS);
	LWLockAcquire(sx_registry->lock, LW_SHARED);
	launcher_pid = sx_registry->launcher_pid;
	launcher_since = sx_registry->launcher_since;
	for (int i = 0; i < SX_REGISTRY_WORKERS; i++)
	{
		if (OidIsValid(sx_registry->workers[i].dboid))
			copies[ncopies++] = sx_registry->workers[i];
	}
	LWLockRelease(sx_registry->lock);

	if (launcher_pid != 0)
	{
		info = palloc0(sizeof(SxWorkerInfo));
		info->pid = launcher_pid;
		info->state = SX_WORKER_RUNNING;
		info->since = launcher_since;
		infos = lappend(infos, info);
	}
	for (int i = 0; i < ncopies; i++)
	{
		info = palloc0(sizeof(SxWorkerInfo));
		info->dboid = copies[i].dboid;
		info->number = copies[i].number;
		info->pid = copies[i].pid;
		info->state = copies[i].state;
		info->since = copies[i].since;
		info->restart = copies[i].restart;
		info->failures = copies[i].failures;
		infos = lappend(infos, info);
	}
	pfree(copies);
	return infos;
}
