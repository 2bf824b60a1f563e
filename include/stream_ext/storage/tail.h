/*
 * tail.h
 *		Reads a stream from a remembered position on: every committed row exactly once.
 */
#ifndef STREAM_EXT_STORAGE_TAIL_H
#define STREAM_EXT_STORAGE_TAIL_H

#include "access/attnum.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "stream_ext/batch/batch.h"

/*
 * Where a reader of a stream stands: generation, cursor, open blocks, transactions in progress,
 * and the watermark (design in src/storage/README.md). Saved as bytea in the reader's commit.
 */
typedef struct SxTailPosition SxTailPosition;

/* How the reader moves the watermark; attno 0: the stream has no event time. */
typedef struct SxTailTime
{
	AttrNumber attno;   /* event time column: timestamptz or timestamp, both int64 us */
	bool has_watermark; /* watermark_delay is set */
	int64 delay;        /* us */
	int64 max_ahead;    /* us past the wall clock from where a row does not move W */
} SxTailTime;

/* For stream.positions. */
typedef struct SxTailSummary
{
	uint64 generation;
	BlockNumber cursor;       /* blocks below it are closed, or open and remembered */
	int open_blocks;          /* blocks that may still get rows */
	int running_transactions; /* remembered transactions whose rows are not final */
	int64 watermark;          /* us; PG_INT64_MIN: none yet */
} SxTailSummary;

/* Positions live in the memory context current at creation. Decode errors: DATA_CORRUPTED. */
extern PGDLLEXPORT SxTailPosition *sx_tail_position_create(uint64 generation);
extern PGDLLEXPORT SxTailPosition *sx_tail_position_decode(const char *data, Size len);
extern PGDLLEXPORT SxTailPosition *sx_tail_position_copy(const SxTailPosition *position);
extern PGDLLEXPORT bytea *sx_tail_position_encode(const SxTailPosition *position);
extern PGDLLEXPORT void sx_tail_position_summary(const SxTailPosition *position,
												 SxTailSummary *summary);

typedef struct SxTailReader SxTailReader;

/*
 * Starts reading in the current transaction: copies the set of blocks that can grow, then takes a
 * snapshot. 'rel' is held in AccessShareLock. The position is changed in place as rows are
 * returned; if the transaction aborts the caller throws it away. The caller has checked the
 * generation. Lives in the current memory context, until sx_tail_end().
 */
extern PGDLLEXPORT SxTailReader *sx_tail_begin(Relation rel, SxTailPosition *position,
											   const SxTailTime *time);

/* The snapshot rows are judged by; registered until sx_tail_end(). */
extern Snapshot sx_tail_snapshot(SxTailReader *reader);

/*
 * Fills an empty batch with whole blocks of rows (fetching external TOAST values of the columns
 * the batch wants). False: drained; all rows visible in the snapshot have been returned, and the
 * batch is empty. May return true with an empty batch. After every call the position stands
 * exactly behind the rows returned so far, so that the caller can stop and commit after any.
 */
extern PGDLLEXPORT bool sx_tail_next(SxTailReader *reader, SxBatch *batch);

/* Blocks between the cursor and the end of the file, as of sx_tail_begin(). */
extern BlockNumber sx_tail_blocks_behind(SxTailReader *reader);

extern PGDLLEXPORT void sx_tail_end(SxTailReader *reader);

#endif /* STREAM_EXT_STORAGE_TAIL_H */
