/*
 * source.h
 *		Where rows come from: one vtable for streams, and later Kafka, changes and views.
 */
#ifndef STREAM_EXT_SOURCE_SOURCE_H
#define STREAM_EXT_SOURCE_SOURCE_H

#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/batch/batch.h"

typedef struct SxSource SxSource;

/* What keeps a source from giving rows, as users see it. */
typedef struct SxSourceStatus
{
	SxSourceHealth health;
	TimestampTz since;   /* of anything but SX_SOURCE_OK */
	const char *message; /* a full sentence or what a library said; "" if there is nothing to say */
} SxSourceStatus;

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

	/*
	 * The rest is for sources outside of this server, NULL for others. After next() has said that
	 * nothing is there: has all been read that was there? (It may be on its way.)
	 */
	bool (*is_level)(SxSource *source);

	/*
	 * Has every part of it given rows or shown its end since the source was made? Until then that a
	 * poll went well does not mean that the source can be read.
	 */
	bool (*is_sound)(SxSource *source);

	/*
	 * Between begin() and next(): notes where the source ends at this moment; false: it cannot be
	 * found out. reached(): has all before that been read?
	 */
	bool (*mark)(SxSource *source);
	bool (*reached)(SxSource *source);

	/*
	 * Do not read past where 'leader', another reader of the same source, stands, so that both come
	 * to stand at the same place; false: it is not ahead. NULL: read on. Outside of a poll.
	 */
	bool (*follow)(SxSource *source, SxSource *leader);

	/* What is wrong with it. */
	void (*status)(SxSource *source, SxSourceStatus *status);
} SxSourceMethods;

/* Records that were gone before they were read; noted for each view that reads here. */
typedef struct SxSourceGap
{
	const char *topic;
	int32 partition;
	int64 from_offset;
	int64 to_offset; /* the first one that is there */
} SxSourceGap;

struct SxSource
{
	const SxSourceMethods *methods;
	Oid relid;
	List *gaps; /* SxSourceGap *, of this poll; in memory of the transaction */
	/* since the source was made: */
	uint64 dead_letters; /* records that could not be decoded */
	uint64 tombstones;   /* records without a value that were left out */
};

/*
 * Makes a source for a relation that stands at 'position', or at the beginning if that is NULL or
 * does not belong to what the relation is now; *restarted tells the latter. It reads as 'user' has
 * the right to. Lives in the current memory context, with what it opens.
 */
extern SxSource *sx_source_create(Relation rel, Oid user, bytea *position, bool *restarted);

/* Of the kinds of relations, for sx_source_create(). */
extern SxSource *sx_source_stream(Relation rel, bytea *position, bool *restarted);
extern SxSource *sx_source_kafka(Relation rel, Oid user, bytea *position, bool *restarted);

#endif /* STREAM_EXT_SOURCE_SOURCE_H */
