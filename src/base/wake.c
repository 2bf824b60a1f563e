/*
 * wake.c
 *		Latch wake-up from the committing backend to the workers of its database.
 *
 * A worker that sleeps would otherwise see new rows only at its next poll. Every process that
 * wants to be woken takes a slot in shared memory; a committing backend sets the latches of all
 * slots of its database. Slots are read without a lock: latches live in PGPROC, which is never
 * freed, and a wake-up too many is harmless. A wake-up lost to a race (worker attaches while a
 * backend commits) is made up for by the first poll of the worker, which comes after attaching.
 *
 * Prepared transactions do not run commit callbacks; the utility hook calls
 * sx_wake_at_commit() in COMMIT PREPARED instead.
 *
 * Crash behaviour: shared memory only, reset with it.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "port/atomics.h"
#include "postmaster/bgworker_internals.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "stream_ext/base/wake.h"

/* One waiting process. 'used' is taken by compare-and-swap; the rest is written by its owner. */
typedef struct WakeSlot
{
	pg_atomic_uint32 used;
	Oid dboid; /* InvalidOid: the launcher */
	Latch *latch;
	bool ready; /* dboid and latch are valid */
} WakeSlot;

typedef struct WakeShared
{
	pg_atomic_uint64 catalog_changes; /* commits that changed stream.catalog_view */
	WakeSlot slots[FLEXIBLE_ARRAY_MEMBER];
} WakeShared;

static WakeShared *shared = NULL;
static WakeSlot *slots = NULL;
static WakeSlot *my_slot = NULL;
static int nslots = 0;

static bool wake_workers = false;  /* at commit of this transaction */
static bool wake_launcher = false; /* at commit of this transaction */
static bool count_change = false;  /* at commit of this transaction */

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(WakeShared, slots),
					mul_size(sizeof(WakeSlot), max_worker_processes + 1));
}

static void
wake_shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(shared_size());
}

static void
wake_shmem_startup(void)
{
	bool found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	nslots = max_worker_processes + 1;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("stream_ext wake", shared_size(), &found);
	slots = shared->slots;
	if (!found)
	{
		memset(shared, 0, shared_size());
		pg_atomic_init_u64(&shared->catalog_changes, 0);
		for (int i = 0; i < nslots; i++)
			pg_atomic_init_u32(&slots[i].used, 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

static void
wake_xact_callback(XactEvent event, void *arg)
{
	if (likely(!wake_workers && !wake_launcher))
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			if (count_change && shared != NULL)
				pg_atomic_fetch_add_u64(&shared->catalog_changes, 1);
			if (wake_workers)
				sx_wake_database(MyDatabaseId);
			if (wake_launcher)
				sx_wake_database(InvalidOid);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			break;
		default:
			return;
	}
	wake_workers = false;
	wake_launcher = false;
	count_change = false;
}

static void
wake_detach(int code, Datum arg)
{
	if (my_slot == NULL)
		return;
	my_slot->ready = false;
	pg_write_barrier();
	pg_atomic_write_u32(&my_slot->used, 0);
	my_slot = NULL;
}

/* Called by _PG_init. Without preloading there is no shared memory and every call is a no-op. */
void
sx_wake_init(void)
{
	RegisterXactCallback(wake_xact_callback, NULL);
	if (!process_shared_preload_libraries_in_progress)
		return;
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = wake_shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = wake_shmem_startup;
}

void
sx_wake_attach(Oid dboid)
{
	Assert(slots != NULL && my_slot == NULL);
	for (int i = 0; i < nslots; i++)
	{
		uint32 expected = 0;

		if (!pg_atomic_compare_exchange_u32(&slots[i].used, &expected, 1))
			continue;
		my_slot = &slots[i];
		my_slot->dboid = dboid;
		my_slot->latch = &MyProc->procLatch;
		pg_write_barrier();
		my_slot->ready = true;
		before_shmem_exit(wake_detach, (Datum) 0);
		return;
	}
	/* cannot happen: there are as many slots as background workers */
	elog(ERROR, "no free wake slot");
}

void
sx_wake_database(Oid dboid)
{
	for (int i = 0; i < nslots; i++)
	{
		if (!slots[i].ready)
			continue;
		pg_read_barrier();
		if (slots[i].dboid == dboid)
			SetLatch(slots[i].latch);
	}
}

void
sx_wake_at_commit(void)
{
	wake_workers = true;
}

void
sx_wake_catalog_at_commit(void)
{
	wake_workers = true;
	count_change = true;
}

uint64
sx_wake_catalog_changes(void)
{
	return shared != NULL ? pg_atomic_read_u64(&shared->catalog_changes) : 0;
}

void
sx_wake_launcher_at_commit(void)
{
	wake_workers = true;
	wake_launcher = true;
}
