/*
 * progress.c
 *		Counters and wait tokens of continuous views, in shared memory.
 *
 * An array of stream.max_views slots, made at server start, and a hash from (database, view) to
 * the slot. The hash and the list of free slots are guarded by one LWLock; the contents of a slot
 * are atomics and a condition variable, used without a lock through remembered pointers.
 *
 * A process may therefore still hold the pointer of a view that was dropped, while the slot
 * belongs to another view already. Two rules make that harmless:
 *
 *	- A condition variable is initialised once for the life of the server, never when its slot is
 *	  reused: a waiter of the old view may still be in its list. It is woken, finds that the slot
 *	  is not its view's any more, and leaves.
 *	- The tokens 'requested' and 'completed' go on counting when a slot is reused. A worker that
 *	  stores an old value of 'requested' into 'completed' late cannot satisfy a waiter of the new
 *	  view, whose token is greater; it only makes the worker complete once more.
 *
 * The other counters are for people to read; a late increment in a reused slot is not worth more.
 *
 * A slot can outlive its view: a DROP that is prepared (PREPARE TRANSACTION) runs no callback when
 * it commits. When no slot is free, those of this database whose relation is gone are freed.
 *
 * Crash behaviour: shared memory only, reset with it.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "nodes/pg_list.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/progress.h"

#define PROGRESS_TRANCHE "stream_ext progress"
#define NO_SLOT          (-1)

typedef struct ProgressSlot
{
	SxProgress progress;
	int next_free; /* next slot of the free list; NO_SLOT: the last */
} ProgressSlot;

typedef struct ProgressShared
{
	LWLock *lock; /* guards free_slots, next_free and the hash */
	int free_slots;
	ProgressSlot slots[FLEXIBLE_ARRAY_MEMBER];
} ProgressShared;

typedef struct ProgressKey
{
	Oid dboid;
	Oid view;
} ProgressKey;

typedef struct ProgressEntry
{
	ProgressKey key;
	int slot;
} ProgressEntry;

/* A view to be forgotten when the transaction commits; lives in TopTransactionContext. */
typedef struct PendingDrop
{
	Oid view;
	int level; /* of the subtransaction that dropped it */
} PendingDrop;

volatile uint32 sx_progress_steps = 0;

static ProgressShared *shared = NULL;
static HTAB *entries = NULL;
static List *pending_drops = NIL;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(ProgressShared, slots),
					mul_size(sizeof(ProgressSlot), (Size) sx_max_views));
}

static void
progress_shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(hash_estimate_size(sx_max_views, sizeof(ProgressEntry)));
	RequestNamedLWLockTranche(PROGRESS_TRANCHE, 1);
}

void
sx_progress_set_source(SxProgress *progress, SxSourceHealth health, TimestampTz since,
					   const char *message)
{
	SpinLockAcquire(&progress->mutex);
	progress->source_health = health;
	progress->source_since = since;
	strlcpy(progress->source_message, message, SX_SOURCE_MESSAGE);
	SpinLockRelease(&progress->mutex);
}

SxSourceHealth
sx_progress_get_source(SxProgress *progress, TimestampTz *since, char *message)
{
	SxSourceHealth health;

	SpinLockAcquire(&progress->mutex);
	health = progress->source_health;
	*since = progress->source_since;
	memcpy(message, progress->source_message, SX_SOURCE_MESSAGE);
	SpinLockRelease(&progress->mutex);
	return health;
}

/* Sets all that is shown of a slot to "nothing yet". The tokens stay; see the file header. */
static void
reset_counters(SxProgress *progress)
{
	pg_atomic_write_u64(&progress->failures, 0);
	pg_atomic_write_u64(&progress->commits, 0);
	pg_atomic_write_u64(&progress->rows_in, 0);
	pg_atomic_write_u64(&progress->rows_out, 0);
	pg_atomic_write_u64(&progress->commit_time, 0);
	pg_atomic_write_u64(&progress->watermark, (uint64) PG_INT64_MIN);
	pg_atomic_write_u64(&progress->behind, 0);
	pg_atomic_write_u64(&progress->dead_letters, 0);
	pg_atomic_write_u64(&progress->tombstones, 0);
	sx_progress_set_source(progress, SX_SOURCE_OK, 0, "");
	pg_atomic_write_u32(&progress->worker_pid, 0);
	for (int i = 0; i < SX_PROGRESS_OPERATORS; i++)
	{
		pg_atomic_write_u64(&progress->operators[i].rows_in, 0);
		pg_atomic_write_u64(&progress->operators[i].rows_out, 0);
		pg_atomic_write_u64(&progress->operators[i].state_rows, 0);
		pg_atomic_write_u64(&progress->operators[i].state_bytes, 0);
	}
}

static void
init_slot(ProgressSlot *slot, int next_free)
{
	SxProgress *progress = &slot->progress;

	slot->next_free = next_free;
	progress->dboid = InvalidOid;
	progress->view = InvalidOid;
	ConditionVariableInit(&progress->changed);
	pg_atomic_init_u64(&progress->requested, 0);
	pg_atomic_init_u64(&progress->completed, 0);
	pg_atomic_init_u64(&progress->failures, 0);
	pg_atomic_init_u64(&progress->commits, 0);
	pg_atomic_init_u64(&progress->rows_in, 0);
	pg_atomic_init_u64(&progress->rows_out, 0);
	pg_atomic_init_u64(&progress->commit_time, 0);
	pg_atomic_init_u64(&progress->watermark, (uint64) PG_INT64_MIN);
	pg_atomic_init_u64(&progress->behind, 0);
	pg_atomic_init_u64(&progress->dead_letters, 0);
	pg_atomic_init_u64(&progress->tombstones, 0);
	SpinLockInit(&progress->mutex);
	sx_progress_set_source(progress, SX_SOURCE_OK, 0, "");
	pg_atomic_init_u32(&progress->worker_pid, 0);
	for (int i = 0; i < SX_PROGRESS_OPERATORS; i++)
	{
		pg_atomic_init_u64(&progress->operators[i].rows_in, 0);
		pg_atomic_init_u64(&progress->operators[i].rows_out, 0);
		pg_atomic_init_u64(&progress->operators[i].state_rows, 0);
		pg_atomic_init_u64(&progress->operators[i].state_bytes, 0);
	}
}

static void
progress_shmem_startup(void)
{
	HASHCTL ctl = {0};
	bool found;

	if (prev_shmem_startup)
		prev_shmem_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct(PROGRESS_TRANCHE, shared_size(), &found);
	if (!found)
	{
		shared->lock = &GetNamedLWLockTranche(PROGRESS_TRANCHE)->lock;
		for (int i = 0; i < sx_max_views; i++)
			init_slot(&shared->slots[i], i + 1 < sx_max_views ? i + 1 : NO_SLOT);
		shared->free_slots = 0;
	}
	ctl.keysize = sizeof(ProgressKey);
	ctl.entrysize = sizeof(ProgressEntry);
	entries = ShmemInitHash("stream_ext progress entries", sx_max_views, sx_max_views, &ctl,
							HASH_ELEM | HASH_BLOBS);
	LWLockRelease(AddinShmemInitLock);
}

/* Gives the slot of an entry back and wakes its waiters. Lock: exclusive. */
static void
free_entry(ProgressEntry *entry)
{
	int index = entry->slot;
	ProgressSlot *slot = &shared->slots[index];

	slot->progress.dboid = InvalidOid;
	slot->progress.view = InvalidOid;
	slot->next_free = shared->free_slots;
	shared->free_slots = index;
	(void) hash_search(entries, &entry->key, HASH_REMOVE, NULL);
	ConditionVariableBroadcast(&slot->progress.changed);
}

static void
drop_view(Oid view)
{
	ProgressKey key = {.dboid = MyDatabaseId, .view = view};
	ProgressEntry *entry;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = hash_search(entries, &key, HASH_FIND, NULL);
	if (entry != NULL)
		free_entry(entry);
	LWLockRelease(shared->lock);
}

/* Commit of the transaction: forgets what it dropped. Must not fail, and allocates nothing. */
static void
progress_xact_callback(XactEvent event, void *arg)
{
	ListCell *lc;

	if (likely(pending_drops == NIL))
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			foreach(lc, pending_drops)
				drop_view(((PendingDrop *) lfirst(lc))->view);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			break;
		default:
			return;
	}
	/* the list itself goes with TopTransactionContext */
	pending_drops = NIL;
}

/* A rolled back savepoint takes its drops back; a released one hands them to its parent. */
static void
progress_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
						  SubTransactionId parentSubid, void *arg)
{
	int level;
	ListCell *lc;

	if (likely(pending_drops == NIL))
		return;
	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	level = GetCurrentTransactionNestLevel();
	foreach(lc, pending_drops)
	{
		PendingDrop *drop = lfirst(lc);

		if (drop->level < level)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			drop->level = level - 1;
		else
			pending_drops = foreach_delete_current(pending_drops, lc);
	}
}

/* Called by _PG_init. Without preloading there is no shared memory and there are no entries. */
void
sx_progress_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	RegisterXactCallback(progress_xact_callback, NULL);
	RegisterSubXactCallback(progress_subxact_callback, NULL);
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = progress_shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = progress_shmem_startup;
}

/* The slot of a view, or NULL. Takes the lock. */
static ProgressSlot *
find_slot(const ProgressKey *key)
{
	ProgressEntry *entry;
	ProgressSlot *slot = NULL;

	LWLockAcquire(shared->lock, LW_SHARED);
	entry = hash_search(entries, key, HASH_FIND, NULL);
	if (entry != NULL)
		slot = &shared->slots[entry->slot];
	LWLockRelease(shared->lock);
	return slot;
}

/* The slot of a view, made if need be; NULL if none is free. Takes the lock. */
static ProgressSlot *
make_slot(const ProgressKey *key)
{
	ProgressEntry *entry;
	ProgressSlot *slot = NULL;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	entry = hash_search(entries, key, HASH_FIND, NULL);
	if (entry != NULL)
		slot = &shared->slots[entry->slot];
	else if (shared->free_slots != NO_SLOT &&
			 (entry = hash_search(entries, key, HASH_ENTER_NULL, NULL)) != NULL)
	{
		entry->slot = shared->free_slots;
		slot = &shared->slots[entry->slot];
		shared->free_slots = slot->next_free;
		reset_counters(&slot->progress);
		slot->progress.dboid = key->dboid;
		slot->progress.view = key->view;
	}
	LWLockRelease(shared->lock);
	return slot;
}

/*
 * Frees the slots of this database whose relation is gone. Views that an open transaction has
 * made look the same from here, but nobody who can see them has asked for a slot yet. Needs a
 * transaction. Returns whether there were any.
 */
static bool
free_orphans(void)
{
	Oid *views = palloc(sizeof(Oid) * sx_max_views);
	int nviews = 0;
	bool any = false;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < sx_max_views; i++)
	{
		if (shared->slots[i].progress.dboid == MyDatabaseId)
			views[nviews++] = shared->slots[i].progress.view;
	}
	LWLockRelease(shared->lock);
	for (int i = 0; i < nviews; i++)
	{
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(views[i])))
			continue;
		drop_view(views[i]);
		any = true;
	}
	pfree(views);
	return any;
}

SxProgress *
sx_progress_get(Oid view, bool create)
{
	ProgressKey key = {.dboid = MyDatabaseId, .view = view};
	ProgressSlot *slot;

	if (shared == NULL)
		return NULL;
	slot = find_slot(&key);
	if (slot == NULL && create)
	{
		slot = make_slot(&key);
		if (slot == NULL && IsTransactionState() && free_orphans())
			slot = make_slot(&key);
	}
	return slot != NULL ? &slot->progress : NULL;
}

void
sx_progress_drop_at_commit(Oid view)
{
	MemoryContext oldcxt;
	PendingDrop *drop;

	if (shared == NULL)
		return;
	oldcxt = MemoryContextSwitchTo(TopTransactionContext);
	drop = palloc(sizeof(PendingDrop));
	drop->view = view;
	drop->level = GetCurrentTransactionNestLevel();
	pending_drops = lappend(pending_drops, drop);
	MemoryContextSwitchTo(oldcxt);
}

void
sx_progress_drop_database(Oid dboid)
{
	HASH_SEQ_STATUS status;
	ProgressEntry *entry;

	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	hash_seq_init(&status, entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.dboid == dboid)
			free_entry(entry);
	}
	LWLockRelease(shared->lock);
}

void
sx_progress_detach(void)
{
	if (shared == NULL)
		return;
	for (int i = 0; i < sx_max_views; i++)
	{
		/* a slot without a view has no worker; one that this process has cannot change hands */
		if (pg_atomic_read_u32(&shared->slots[i].progress.worker_pid) == (uint32) MyProcPid)
			pg_atomic_write_u32(&shared->slots[i].progress.worker_pid, 0);
	}
}
