/*
 * kafka_position.h
 *		Where a reader of a topic stands, as it is saved, and the watermarks of its partitions.
 */
#ifndef STREAM_EXT_SOURCE_KAFKA_POSITION_H
#define STREAM_EXT_SOURCE_KAFKA_POSITION_H

#include "datatype/timestamp.h"

#include "stream_ext/source/kafka_options.h"

/* One partition. Only the first part is saved. */
typedef struct SxKafkaPartition
{
	int64 next;           /* offset to be read next; -1: where it starts is not known yet */
	int64 last;           /* offset of the last record that was read; -1: none */
	int64 last_timestamp; /* of it, ms */
	uint32 last_hash;     /* of its key and value */
	int64 max_time;       /* greatest event time seen, us; PG_INT64_MIN: none */

	TimestampTz last_seen; /* when a row came last, or was known to come: for idleness */
	bool is_started;       /* the client reads it */
	bool is_verified;      /* record 'last' is still the one that was read, or is gone */
	bool is_seen;          /* it has given a record or shown its end */
	int64 mark;            /* end at the last sx_source mark; -1: none */
	int64 limit;           /* do not read this offset or later; -1: none */
} SxKafkaPartition;

typedef struct SxKafkaPosition
{
	uint32 topic_hash;
	int64 watermark; /* of the whole topic, us; PG_INT64_MIN: none. Never goes back */
	int npartitions; /* 0: nothing is known about the topic yet */
	int capacity;
	SxKafkaPartition *partitions;
} SxKafkaPosition;

/* All live in the memory context current at creation. Decode errors: DATA_CORRUPTED. */
extern SxKafkaPosition *sx_kafka_position_create(const char *topic);
extern SxKafkaPosition *sx_kafka_position_decode(const char *data, Size len);
extern bytea *sx_kafka_position_encode(const SxKafkaPosition *position);
extern uint32 sx_kafka_topic_hash(const char *topic);

/* Adds partitions, of which nothing is known, up to a number. */
extern void sx_kafka_position_extend(SxKafkaPosition *position, int npartitions, TimestampTz now);

/*
 * Moves the watermark of the topic: the least of those of its partitions, of which those without a
 * record for idle_timeout do not count. 'now' is the wall clock.
 */
extern void sx_kafka_position_advance(SxKafkaPosition *position, const SxKafkaOptions *options,
									  TimestampTz now);

#endif /* STREAM_EXT_SOURCE_KAFKA_POSITION_H */
