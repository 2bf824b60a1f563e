/*
 * position.h
 *		What a reader of a stream remembers between two transactions.
 */
#ifndef STREAM_EXT_STORAGE_POSITION_H
#define STREAM_EXT_STORAGE_POSITION_H

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xlogdefs.h"

#include "stream_ext/storage/tail.h"

#define SX_DONE_BYTES ((MaxHeapTuplesPerPage + 8) / 8) /* bit n: line pointer n; bit 0 unused */

/* Pending transactions of an open block that are remembered in memory. */
#define SX_PENDING_MAX 4

/* Above this many ranges, blocks stay open instead of adding another one. */
#define SX_RUNNING_MAX 4096

/* Ranges of one transaction are merged when closer than this. */
#define SX_RUNNING_GAP 64

/* A block below the cursor that may still get rows. */
typedef struct SxOpenBlock
{
	BlockNumber block;
	/* not saved: what the last scan found, so that an unchanged page is not scanned again */
	XLogRecPtr lsn;                        /* 0: scan it */
	int npending;                          /* transactions in progress; more than MAX: scan it */
	TransactionId pending[SX_PENDING_MAX]; /* their xids as on the page */
	uint8 done[SX_DONE_BYTES];             /* line pointers of rows that were returned */
} SxOpenBlock;

/* A transaction that was in progress when blocks with rows of it were closed. */
typedef struct SxRunning
{
	uint64 xid; /* FullTransactionId of the (sub)transaction */
	BlockNumber lo;
	BlockNumber hi;
} SxRunning;

struct SxTailPosition
{
	MemoryContext cxt; /* of the arrays */
	uint64 generation;
	int64 watermark;      /* us; PG_INT64_MIN: none yet */
	bool in_poll;         /* a poll has begun and not reached its end */
	BlockNumber poll_end; /* length of the file when it began */
	int64 poll_time;      /* greatest event time returned in it; PG_INT64_MIN: none */
	BlockNumber cursor;   /* blocks below are closed or in 'open' */
	BlockNumber written;  /* one more than the highest block seen that was ever written */
	int nopen;
	int open_size;
	SxOpenBlock *open; /* by block; all below the cursor */
	int nrunning;
	int running_size;
	SxRunning *running; /* in the order in which they were added */
};

static inline bool
sx_open_is_done(const SxOpenBlock *open, OffsetNumber off)
{
	return (open->done[off >> 3] & (1 << (off & 7))) != 0;
}

static inline void
sx_open_set_done(SxOpenBlock *open, OffsetNumber off)
{
	open->done[off >> 3] |= 1 << (off & 7);
}

extern SxOpenBlock *sx_position_find_open(const SxTailPosition *position, BlockNumber block);
extern SxOpenBlock *sx_position_add_open(SxTailPosition *position, BlockNumber block);
extern void sx_position_add_running(SxTailPosition *position, uint64 xid, BlockNumber block);
extern PGDLLEXPORT bool sx_position_reopen(SxTailPosition *position, BlockNumber block);
extern PGDLLEXPORT bool sx_position_passed(const SxTailPosition *position, BlockNumber block);

#endif /* STREAM_EXT_STORAGE_POSITION_H */
