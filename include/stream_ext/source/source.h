/*
 * source.h
 *		Where rows come from: one vtable for streams, and later Kafka, changes and views.
 */
#ifndef STREAM_EXT_SOURCE_SOURCE_H
#define STREAM_EXT_SOURCE_SOURCE_H

#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "stream_ext/batch/batch.h"

typedef struct SxSource SxSource;

/*
 * A source as one poll group of a worker reads it. All calls are made in a transaction; begin ..
 * next .. end belong to one. After an abort the source is thrown away and made anew from the
 * committed position.
 */
typedef struct SxSourceMethods
{
	const char *name;

	/* Starts a poll: fixes what can be seen. 'rel' stays open and locked by the caller. */
	void (*begin)(SxSource *source, Relation rel);

	/* Fills an empty batch; false: drained. See sx_tail_next(). */
	bool (*next)(SxSource *source, SxBatch *batch);

	/* Ends the poll; the position now stands behind the rows that were returned. */
	void (*end)(SxSource *source);

	/* The position as it is saved, palloc'd. */
	bytea *(*position)(SxSource *source);

	/* Watermark in us, PG_INT64_MIN: none. */
	int64 (*watermark)(SxSource *source);

	/* What is left to read, in blocks or records, as of begin(). */
	uint64 (*behind)(SxSource *source);

	/* The snapshot that rows of the poll are judged by. */
	Snapshot (*snapshot)(SxSource *source);
} SxSourceMethods;

struct SxSource
{
	const SxSourceMethods *methods;
	Oid relid;
};

/*
 * Makes a source for a stream table that stands at 'position', or at the beginning of the present
 * generation if that is NULL or of an earlier generation; *restarted tells the latter. Lives in
 * the current memory context.
 */
extern SxSource *sx_source_stream(Relation rel, bytea *position, bool *restarted);

#endif /* STREAM_EXT_SOURCE_SOURCE_H */
