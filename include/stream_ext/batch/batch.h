/*
 * batch.h
 *		The column batch that travels from a source through the operators.
 */
#ifndef STREAM_EXT_BATCH_BATCH_H
#define STREAM_EXT_BATCH_BATCH_H

#include "access/tupdesc.h"
#include "nodes/bitmapset.h"

/* Rows of one batch. Enough to hide cache misses by prefetching, few enough to stay in L2. */
#define SX_BATCH_ROWS 1024

/*
 * A batch of rows as columns. values[i] and nulls[i] are the column of attribute i + 1, or NULL
 * where the reader of the batch does not need it. By-reference values live in 'cxt' until
 * sx_batch_reset(); a varlena is never an external TOAST pointer (the source fetches those), but
 * may be compressed or have a short header.
 */
typedef struct SxBatch
{
	MemoryContext cxt; /* values; reset with the batch */
	TupleDesc desc;    /* owned by whoever made the batch */
	int natts;
	int nrows;
	Size bytes;     /* of the rows as the source counts them, for the limit of a commit */
	Datum **values; /* [natts][SX_BATCH_ROWS] or NULL */
	bool **nulls;
	int32 *weight; /* +1 insert, -1 retract; NULL: all +1 */
} SxBatch;

/*
 * Makes an empty batch for rows of 'desc', in the current memory context. 'needed' holds the
 * attribute numbers (from 1) of the columns to be filled; NULL: all.
 */
extern PGDLLEXPORT SxBatch *sx_batch_create(TupleDesc desc, const Bitmapset *needed);

/* Empties the batch and frees the values of its rows. */
extern PGDLLEXPORT void sx_batch_reset(SxBatch *batch);

/* Frees the batch and all in it. */
extern PGDLLEXPORT void sx_batch_free(SxBatch *batch);

#endif /* STREAM_EXT_BATCH_BATCH_H */
