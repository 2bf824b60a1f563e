/*
 * rows.h
 *		Writes rows of our own tables and views by remembered TID.
 */
#ifndef STREAM_EXT_BASE_ROWS_H
#define STREAM_EXT_BASE_ROWS_H

#include "storage/itemptr.h"
#include "utils/relcache.h"

typedef struct SxRowWriter SxRowWriter;

/*
 * Opens 'rel' (held by the caller in RowExclusiveLock) and its indexes for writing. The writer
 * lives in the current memory context, at most until the end of the transaction.
 */
extern SxRowWriter *sx_rows_open(Relation rel);

/*
 * Replaces the row at *tid by values and sets *tid to the new row. Cheapest when called in the
 * order of TIDs. Errors: the row is not there or was changed by somebody else.
 */
extern void sx_rows_update(SxRowWriter *writer, ItemPointer tid, const Datum *values,
						   const bool *nulls);

/*
 * Adds a row. It is written by the next sx_rows_flush() at the latest, which sets *tid; the tid
 * must stay where it is until then, and may be NULL. Values are copied.
 */
extern void sx_rows_insert(SxRowWriter *writer, const Datum *values, const bool *nulls,
						   ItemPointer tid);

/* Deletes the row at *tid and makes *tid invalid. */
extern void sx_rows_delete(SxRowWriter *writer, ItemPointer tid);

/* Writes what sx_rows_insert() has collected. */
extern void sx_rows_flush(SxRowWriter *writer);

/* Flushes, closes the indexes and frees the writer. */
extern void sx_rows_close(SxRowWriter *writer);

#endif /* STREAM_EXT_BASE_ROWS_H */
