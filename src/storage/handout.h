/*
 * handout.h
 *		Which process may put rows into which block of a stream.
 */
#ifndef STREAM_EXT_STORAGE_HANDOUT_H
#define STREAM_EXT_STORAGE_HANDOUT_H

#include "port/atomics.h"
#include "storage/block.h"
#include "storage/lwlock.h"
#include "utils/relcache.h"

/* Blocks that nobody owns and that are ready, or about to be ready, for a writer. */
#define SX_HANDOUT_FREE 1024

/* Most of them that sx_handout_reserve() may take, so that extending the file always finds room. */
#define SX_HANDOUT_RESERVED (SX_HANDOUT_FREE / 2)

typedef enum SxFreeState
{
	SX_BLOCK_FREE,    /* the next writer that needs room takes it */
	SX_BLOCK_RESERVED /* becomes free when the transaction that recycled it commits */
} SxFreeState;

/* One stream in shared memory. */
typedef struct SxHandout
{
	pg_atomic_uint64 serial; /* changes whenever the entry is freed or emptied */
	bool used;               /* under the registry lock */
	RelFileLocator locator;  /* under the registry lock */
	LWLock *lock;            /* protects all below */
	int nfree;
	BlockNumber free[SX_HANDOUT_FREE];
	uint8 state[SX_HANDOUT_FREE]; /* SxFreeState */
	/* the block of each process number, or InvalidBlockNumber; [MaxBackends] */
	BlockNumber owned[FLEXIBLE_ARRAY_MEMBER];
} SxHandout;

/* What could still grow at one moment. */
typedef struct SxGrowable
{
	BlockNumber nblocks; /* length of the file */
	int n;
	BlockNumber *blocks; /* sorted; palloc'd */
} SxGrowable;

extern void sx_handout_init(void);
extern SxHandout *sx_handout_get(Relation rel, uint64 *serial);
extern BlockNumber sx_handout_owned(const SxHandout *handout);
extern BlockNumber sx_handout_take(Relation rel, SxHandout *handout, BulkInsertState bistate);
extern PGDLLEXPORT void sx_handout_growable(Relation rel, SxGrowable *growable);
extern PGDLLEXPORT int sx_handout_reserve(Relation rel, const BlockNumber *blocks, int n);
extern void sx_handout_reset(Relation rel);
extern void sx_handout_created(const RelFileLocator *locator);
extern void sx_handout_dropped(const RelFileLocator *locator);

#endif /* STREAM_EXT_STORAGE_HANDOUT_H */
