/*
 * handout.c
 *		Block hand-out: the one rule by which readers know that a block is complete.
 *
 * A block of a stream belongs to at most one process number at a time. A writer that needs room
 * takes the next block of a short free list (else the file is extended) and from then on is the
 * only one that puts rows into it, until it takes another one. Hence
 *
 *		a block below the end of the file that no process owns and that is not in the free list
 *		gets no more rows, and every row that was put into it is physically there.
 *
 * All else follows from that. Two states of a block in the list:
 *
 *		  extend file            take                   take another
 *		-------------> FREE -------------> owned by one ------------> closed for ever, or until
 *		                ^                                             retention has emptied it
 *		                | commit                                         |
 *		                +------------- RESERVED <------------------------+
 *		                                (sx_handout_reserve; abort takes it out of the list again)
 *
 * RESERVED counts as growable for readers but not as takeable for writers: retention first reserves
 * the blocks, then makes every reader's position open them again, and commits. So a reader either
 * copied the list after the reservation, or is seen by the update of the positions.
 *
 * Nothing is released at the end of a transaction or of a session: the slot keeps its block and
 * the next session with this process number goes on filling it. After a crash or restart shared
 * memory is empty, nobody owns a block, and all blocks but the empty tail are closed. The tail
 * (blocks that were never written) goes into the free list; readers never close it (tail.c).
 *
 * An entry must never be freed while its storage lives, for other sessions would go on believing
 * that they own blocks. It is freed when the DROP, TRUNCATE or move of the storage commits, or when
 * its creation aborts; a full registry may drop entries whose file does not exist. Sessions cache a
 * pointer to the entry together with its serial number, which every freeing changes. Whoever uses
 * an entry holds a lock on the relation, and whoever frees it an exclusive one.
 *
 * Locks: the registry lock protects the hash table and which entries are used; an entry's lock its
 * free list and slots. Order: relation extension lock, registry lock, entry's lock. A slot is
 * written only by its owner, under the entry's lock; its owner may read it without.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/shmem.h"
#include "storage/smgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/stop.h"
#include "handout.h"
#include "page.h"

#define TRANCHE_NAME "stream_ext handout"

/* Blocks added to a file at once: a sixteenth of it, at most this. */
#define EXTEND_MAX 32

/* Blocks at the end of the file that are looked at after a restart. */
#define TAIL_MAX 64

/* Hash entry of the registry. */
typedef struct RegistryEntry
{
	RelFileLocator locator; /* key */
	int index;
} RegistryEntry;

typedef enum PendingKind
{
	FREE_AT_COMMIT, /* storage is being dropped */
	FREE_AT_ABORT,  /* storage is being created */
	RESERVATION     /* blocks become free at commit, are taken out at abort */
} PendingKind;

/* What to do at the end of the (sub)transaction. In TopTransactionContext. */
typedef struct Pending
{
	struct Pending *next;
	PendingKind kind;
	int level; /* nest level of the transaction it belongs to */
	RelFileLocator locator;
	SxHandout *handout; /* RESERVATION */
	uint64 serial;      /* of it; another one: the stream was truncated meanwhile */
	int nblocks;
	BlockNumber blocks[FLEXIBLE_ARRAY_MEMBER];
} Pending;

static HTAB *registry = NULL;
static LWLock *registry_lock = NULL;
static char *entries = NULL;

static Pending *pending = NULL;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
entry_size(void)
{
	return CACHELINEALIGN(
		add_size(offsetof(SxHandout, owned), mul_size(sizeof(BlockNumber), MaxBackends)));
}

static SxHandout *
entry_at(int index)
{
	return (SxHandout *) (entries + entry_size() * index);
}

static void
handout_shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(add_size(mul_size(entry_size(), sx_max_streams), PG_CACHE_LINE_SIZE));
	RequestAddinShmemSpace(hash_estimate_size(sx_max_streams, sizeof(RegistryEntry)));
	RequestNamedLWLockTranche(TRANCHE_NAME, 1 + sx_max_streams);
}

static void
handout_shmem_startup(void)
{
	LWLockPadded *locks;
	HASHCTL ctl = {.keysize = sizeof(RelFileLocator), .entrysize = sizeof(RegistryEntry)};
	bool found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	locks = GetNamedLWLockTranche(TRANCHE_NAME);
	registry_lock = &locks[0].lock;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	registry = ShmemInitHash("stream_ext handout registry", sx_max_streams, sx_max_streams, &ctl,
							 HASH_ELEM | HASH_BLOBS);
	entries = ShmemInitStruct("stream_ext handout", mul_size(entry_size(), sx_max_streams), &found);
	if (!found)
	{
		memset(entries, 0, mul_size(entry_size(), sx_max_streams));
		for (int i = 0; i < sx_max_streams; i++)
		{
			pg_atomic_init_u64(&entry_at(i)->serial, 1);
			entry_at(i)->lock = &locks[1 + i].lock;
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

static void
require_shared_memory(Relation rel)
{
	if (likely(entries != NULL))
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("cannot use stream \"%s\" because stream_ext is not preloaded",
						   RelationGetRelationName(rel)),
					errhint("Add stream_ext to shared_preload_libraries and restart the server.")));
}

/* Empties an entry: nobody owns a block. Caller holds the registry lock or the entry's lock. */
static void
empty_entry(SxHandout *handout)
{
	handout->nfree = 0;
	for (int i = 0; i < MaxBackends; i++)
		handout->owned[i] = InvalidBlockNumber;
}

/* Frees an entry. Caller holds the registry lock exclusively. */
static void
free_entry(SxHandout *handout)
{
	(void) hash_search(registry, &handout->locator, HASH_REMOVE, NULL);
	handout->used = false;
	pg_atomic_write_u64(&handout->serial, pg_atomic_read_u64(&handout->serial) + 1);
}

static void
free_locator(const RelFileLocator *locator)
{
	RegistryEntry *found;

	if (entries == NULL)
		return;
	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	found = hash_search(registry, locator, HASH_FIND, NULL);
	if (found != NULL)
		free_entry(entry_at(found->index));
	LWLockRelease(registry_lock);
}

/*
 * Frees the entries whose main fork has no file: left by a prepared transaction or by DROP
 * DATABASE. A relation that anybody could still use, also one whose creation is not committed, has
 * its file. Caller holds the registry lock exclusively.
 */
static void
evict_entries(void)
{
	for (int i = 0; i < sx_max_streams; i++)
	{
		SxHandout *handout = entry_at(i);

		if (handout->used &&
			!smgrexists(smgropen(handout->locator, INVALID_PROC_NUMBER), MAIN_FORKNUM))
			free_entry(handout);
	}
}

static SxHandout *
find_unused(void)
{
	for (int i = 0; i < sx_max_streams; i++)
		if (!entry_at(i)->used)
			return entry_at(i);
	return NULL;
}

/*
 * Puts the empty tail of the file into the free list of a new entry. Only blocks that were never
 * written: one that VACUUM has emptied may have been closed by a reader long ago. Caller holds the
 * entry's lock exclusively.
 */
static void
collect_tail(Relation rel, SxHandout *handout)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BlockNumber first = nblocks;

	while (first > 0 && nblocks - first < TAIL_MAX)
	{
		Buffer buffer = ReadBuffer(rel, first - 1);
		bool virgin;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		virgin = sx_page_is_virgin(BufferGetPage(buffer));
		UnlockReleaseBuffer(buffer);
		if (!virgin)
			break;
		first--;
	}
	for (; first < nblocks; first++)
	{
		handout->free[handout->nfree] = first;
		handout->state[handout->nfree++] = SX_BLOCK_FREE;
	}
}

/* Makes the entry of 'rel', or finds that another process just did. */
static SxHandout *
create_entry(Relation rel, uint64 *serial)
{
	RegistryEntry *found;
	SxHandout *handout;
	bool exists;

	LWLockAcquire(registry_lock, LW_EXCLUSIVE);
	found = hash_search(registry, &rel->rd_locator, HASH_FIND, NULL);
	if (found != NULL)
	{
		handout = entry_at(found->index);
		*serial = pg_atomic_read_u64(&handout->serial);
		LWLockRelease(registry_lock);
		return handout;
	}
	handout = find_unused();
	if (handout == NULL)
	{
		evict_entries();
		handout = find_unused();
	}
	if (handout == NULL)
	{
		LWLockRelease(registry_lock);
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED), errmsg("too many streams in use"),
				 errhint("Increase \"stream.max_streams\" and restart the server.")));
	}
	found = hash_search(registry, &rel->rd_locator, HASH_ENTER, &exists);
	found->index = (int) (((char *) handout - entries) / entry_size());
	empty_entry(handout);
	handout->locator = rel->rd_locator;
	handout->used = true;
	*serial = pg_atomic_read_u64(&handout->serial);
	/*
	 * The file is read after the registry is let go, but before anybody else gets at the entry. If
	 * that fails, the list stays empty, which costs the tail's few blocks and nothing else.
	 */
	LWLockAcquire(handout->lock, LW_EXCLUSIVE);
	LWLockRelease(registry_lock);
	collect_tail(rel, handout);
	LWLockRelease(handout->lock);
	return handout;
}

/*
 * Returns the entry of a stream, which is made if there is none, and its serial number: while the
 * caller holds a lock on 'rel' and the number stays, the entry is that of 'rel'.
 * Errors: OBJECT_NOT_IN_PREREQUISITE_STATE without shared memory, CONFIGURATION_LIMIT_EXCEEDED.
 */
SxHandout *
sx_handout_get(Relation rel, uint64 *serial)
{
	RegistryEntry *found;
	SxHandout *handout = NULL;

	require_shared_memory(rel);
	LWLockAcquire(registry_lock, LW_SHARED);
	found = hash_search(registry, &rel->rd_locator, HASH_FIND, NULL);
	if (found != NULL)
	{
		handout = entry_at(found->index);
		*serial = pg_atomic_read_u64(&handout->serial);
	}
	LWLockRelease(registry_lock);
	return handout != NULL ? handout : create_entry(rel, serial);
}

/* The block that this process owns, or InvalidBlockNumber. */
BlockNumber
sx_handout_owned(const SxHandout *handout)
{
	return handout->owned[MyProcNumber];
}

/* Takes entry 'i' out of the free list. Caller holds the entry's lock exclusively. */
static void
remove_free(SxHandout *handout, int i)
{
	int rest = handout->nfree - i - 1;

	memmove(&handout->free[i], &handout->free[i + 1], sizeof(BlockNumber) * rest);
	memmove(&handout->state[i], &handout->state[i + 1], rest);
	handout->nfree--;
}

/* Moves this process to the first free block. Caller holds the entry's lock exclusively. */
static bool
take_free(SxHandout *handout)
{
	for (int i = 0; i < handout->nfree; i++)
	{
		if (handout->state[i] != SX_BLOCK_FREE)
			continue;
		handout->owned[MyProcNumber] = handout->free[i];
		remove_free(handout, i);
		return true;
	}
	return false;
}

/*
 * Adds blocks to the file and the free list. They must get into the list before a reader can see
 * the new length, hence under the entry's lock; the lengths are short enough for that.
 */
static void
extend_file(Relation rel, SxHandout *handout, BufferAccessStrategy strategy)
{
	int n = (int) Min(EXTEND_MAX, RelationGetNumberOfBlocks(rel) / 16);

	n = Max(1, Min(n, SX_HANDOUT_FREE - handout->nfree));
	while (n > 0)
	{
		BlockNumber first;
		int added = (int) sx_extend_relation(rel, strategy, (uint32) n, &first);

		for (int i = 0; i < added; i++)
		{
			handout->free[handout->nfree] = first + i;
			handout->state[handout->nfree++] = SX_BLOCK_FREE;
		}
		n -= added;
	}
}

/*
 * Lets go of this process's block and takes the next one. 'bistate' may be NULL; its strategy is
 * used for extending the file. Locks: takes the extension lock if the free list is empty.
 */
BlockNumber
sx_handout_take(Relation rel, SxHandout *handout, BulkInsertState bistate)
{
	bool extend;

	LWLockAcquire(handout->lock, LW_EXCLUSIVE);
	extend = !take_free(handout);
	LWLockRelease(handout->lock);
	if (extend)
	{
		LockRelationForExtension(rel, ExclusiveLock);
		LWLockAcquire(handout->lock, LW_EXCLUSIVE);
		if (!take_free(handout))
		{
			extend_file(rel, handout, bistate != NULL ? bistate->strategy : NULL);
			if (!take_free(handout))
				elog(ERROR, "no free block after extending stream \"%s\"",
					 RelationGetRelationName(rel));
		}
		LWLockRelease(handout->lock);
		UnlockRelationForExtension(rel, ExclusiveLock);
	}
	SX_STOP_POINT("handout_taken");
	return handout->owned[MyProcNumber];
}

static int
compare_blocks(const void *a, const void *b)
{
	BlockNumber x = *(const BlockNumber *) a;
	BlockNumber y = *(const BlockNumber *) b;

	return x < y ? -1 : x > y;
}

/*
 * Copies the length of the file and the blocks that can still get rows. A snapshot that is taken
 * later sees every committed row of all other blocks below that length, now and for ever.
 * Makes the entry if there is none: a reader that found "no entry, so nothing grows" would race
 * with the first writer.
 */
void
sx_handout_growable(Relation rel, SxGrowable *growable)
{
	uint64 serial;
	SxHandout *handout = sx_handout_get(rel, &serial);

	growable->blocks = palloc(sizeof(BlockNumber) * (MaxBackends + SX_HANDOUT_FREE));
	growable->n = 0;
	LWLockAcquire(handout->lock, LW_SHARED);
	growable->nblocks = RelationGetNumberOfBlocks(rel);
	for (int i = 0; i < MaxBackends; i++)
		if (handout->owned[i] != InvalidBlockNumber)
			growable->blocks[growable->n++] = handout->owned[i];
	for (int i = 0; i < handout->nfree; i++)
		growable->blocks[growable->n++] = handout->free[i];
	LWLockRelease(handout->lock);
	qsort(growable->blocks, growable->n, sizeof(BlockNumber), compare_blocks);
}

static Pending *
add_pending(PendingKind kind, const RelFileLocator *locator, int nblocks)
{
	Pending *p = MemoryContextAlloc(TopTransactionContext,
									offsetof(Pending, blocks) + sizeof(BlockNumber) * nblocks);

	p->next = pending;
	p->kind = kind;
	p->level = GetCurrentTransactionNestLevel();
	p->locator = *locator;
	p->handout = NULL;
	p->serial = 0;
	p->nblocks = nblocks;
	pending = p;
	return p;
}

/*
 * Reserves closed, empty blocks for reuse: growable from now on, free once this transaction
 * commits. Returns how many of the first 'n' were taken; the list has room for only so many. The
 * caller then opens them in the position of every reader before it commits, and holds 'rel' in
 * RowExclusiveLock until then. Not possible in a transaction that is prepared.
 */
int
sx_handout_reserve(Relation rel, const BlockNumber *blocks, int n)
{
	uint64 serial;
	SxHandout *handout = sx_handout_get(rel, &serial);
	Pending *p = add_pending(RESERVATION, &rel->rd_locator, n);

	p->handout = handout;
	p->serial = serial;
	p->nblocks = 0;
	LWLockAcquire(handout->lock, LW_EXCLUSIVE);
	for (int i = 0; i < n && handout->nfree < SX_HANDOUT_RESERVED; i++)
	{
		handout->free[handout->nfree] = blocks[i];
		handout->state[handout->nfree++] = SX_BLOCK_RESERVED;
		p->blocks[p->nblocks++] = blocks[i];
	}
	LWLockRelease(handout->lock);
	return p->nblocks;
}

/* Ends a reservation: the blocks become free, or leave the list. */
static void
end_reservation(const Pending *p, bool commit)
{
	SxHandout *handout = p->handout;

	if (pg_atomic_read_u64(&handout->serial) != p->serial)
		return;
	LWLockAcquire(handout->lock, LW_EXCLUSIVE);
	for (int i = 0; i < p->nblocks; i++)
	{
		for (int k = 0; k < handout->nfree; k++)
		{
			if (handout->free[k] != p->blocks[i] || handout->state[k] != SX_BLOCK_RESERVED)
				continue;
			if (commit)
				handout->state[k] = SX_BLOCK_FREE;
			else
				remove_free(handout, k);
			break;
		}
	}
	LWLockRelease(handout->lock);
}

/*
 * Forgets all blocks of a stream whose file was cut to length 0 in place, which happens only in
 * the transaction that created the file. Other sessions cannot have seen it.
 */
void
sx_handout_reset(Relation rel)
{
	free_locator(&rel->rd_locator);
}

/*
 * Storage was created: frees its entry if the transaction aborts, and at once if a file of this
 * number left one behind.
 */
void
sx_handout_created(const RelFileLocator *locator)
{
	if (entries == NULL)
		return;
	free_locator(locator);
	(void) add_pending(FREE_AT_ABORT, locator, 0);
}

/* Storage will be gone when this transaction commits, and its entry with it. */
void
sx_handout_dropped(const RelFileLocator *locator)
{
	if (entries != NULL)
		(void) add_pending(FREE_AT_COMMIT, locator, 0);
}

static void
finish_pending(const Pending *p, bool commit)
{
	switch (p->kind)
	{
		case FREE_AT_COMMIT:
			if (commit)
				free_locator(&p->locator);
			break;
		case FREE_AT_ABORT:
			if (!commit)
				free_locator(&p->locator);
			break;
		case RESERVATION:
			end_reservation(p, commit);
			break;
	}
}

static void
handout_xact_callback(XactEvent event, void *arg)
{
	if (likely(pending == NULL))
		return;
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			for (Pending *p = pending; p != NULL; p = p->next)
				finish_pending(p, event == XACT_EVENT_COMMIT);
			pending = NULL;
			break;
		case XACT_EVENT_PRE_PREPARE:
			for (Pending *p = pending; p != NULL; p = p->next)
				if (p->kind == RESERVATION)
					ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
									errmsg("cannot PREPARE a transaction that has recycled blocks "
										   "of a stream")));
			break;
		case XACT_EVENT_PREPARE:
			/* the entries are found to be without a file when the registry is full */
			pending = NULL;
			break;
		default:
			break;
	}
}

static void
handout_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
						 void *arg)
{
	int level;
	Pending **link = &pending;

	if (likely(pending == NULL) ||
		(event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB))
		return;
	level = GetCurrentTransactionNestLevel();
	while (*link != NULL)
	{
		Pending *p = *link;

		if (p->level < level)
			link = &p->next;
		else if (event == SUBXACT_EVENT_COMMIT_SUB)
		{
			p->level = level - 1;
			link = &p->next;
		}
		else
		{
			finish_pending(p, false);
			*link = p->next;
		}
	}
}

/* Called by sx_storage_init(). */
void
sx_handout_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = handout_shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = handout_shmem_startup;
	RegisterXactCallback(handout_xact_callback, NULL);
	RegisterSubXactCallback(handout_subxact_callback, NULL);
}
