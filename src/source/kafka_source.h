/*
 * kafka_source.h
 *		Inside of source/kafka*.c: a reader of a topic.
 */
#ifndef SX_KAFKA_SOURCE_H
#define SX_KAFKA_SOURCE_H

#include "stream_ext/decode/decode.h"
#include "stream_ext/source/kafka_client.h"
#include "stream_ext/source/kafka_position.h"
#include "stream_ext/source/source.h"

/* ms that a broker which was there a moment ago is given to answer. */
#define SX_KAFKA_ANSWER_MS 500

typedef struct SxKafkaSource
{
	SxSource base;
	MemoryContext cxt; /* all of this */
	Oid user;
	uint64 changes; /* 'option_changes' when the options were read */
	MemoryContext options_cxt;
	SxKafkaOptions *options;
	SxDecoder *decoder;
	SxKafkaClient *client; /* NULL: not open */
	SxKafkaPosition *position;
	SxRecordBuffer *buffer;
	int64 *highest; /* scratch of next(): last record of each partition, as its index */
	int nhighest;
	TimestampTz ask_at;    /* not before, for the partitions */
	int64 pause;           /* us until the next try after no answer */
	bool has_failed;       /* the topic was refused or unknown, and has not been read since */
	bool has_partitions;   /* the topic has answered since the client was opened */
	SxKafkaTrouble logged; /* the state that the log knows of */
	TimestampTz logged_at;
	MemoryContextCallback callback;
} SxKafkaSource;

/* Counts changes of foreign servers, user mappings and tables in this process. */
extern uint64 sx_kafka_option_changes;

/* ---- kafka_ask.c */

/*
 * May the brokers of the source be asked something now? If so, the caller asks, with a timeout of
 * SX_KAFKA_ANSWER_MS at most for each question, and then tells whether all was answered.
 */
extern bool sx_kafka_may_ask(SxKafkaSource *source);
extern void sx_kafka_asked(SxKafkaSource *source, bool answered);

/* ---- kafka_start.c */

/* Closes the client, if one is open; all partitions have to be started again. */
extern void sx_kafka_close(SxKafkaSource *source);

/*
 * Brings the source up to date with its options, opens a client if there is none, looks for
 * partitions when it is time, and starts those that are not being read. In a transaction.
 */
extern void sx_kafka_start(SxKafkaSource *source, Relation rel);

/* After events have been taken in: acts on an offset out of range, and logs what is wrong. */
extern void sx_kafka_check_status(SxKafkaSource *source);

/* At the end of a partition that comes before its position: is that the end of the topic? */
extern void sx_kafka_check_end(SxKafkaSource *source, int partition);

/* Raises that the topic has other contents than what was read before; 'what' is a sentence. */
extern void sx_kafka_refuse_topic(SxKafkaSource *source, int partition, const char *what);

#endif /* SX_KAFKA_SOURCE_H */
