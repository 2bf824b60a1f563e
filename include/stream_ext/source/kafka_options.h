/*
 * kafka_options.h
 *		The options of foreign servers, user mappings and foreign tables of wrapper "kafka".
 */
#ifndef STREAM_EXT_SOURCE_KAFKA_OPTIONS_H
#define STREAM_EXT_SOURCE_KAFKA_OPTIONS_H

#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "stream_ext/decode/decode.h"

/* A property of librdkafka, from an option "kafka.<name>", or one of ours that stands for it. */
typedef struct SxKafkaProperty
{
	char *name;
	char *value;
} SxKafkaProperty;

typedef enum SxKafkaStart
{
	SX_START_EARLIEST,
	SX_START_LATEST,
	SX_START_TIME
} SxKafkaStart;

/* All that is needed to read a topic as a certain user. Times are in us unless said. */
typedef struct SxKafkaOptions
{
	Oid relid; /* InvalidOid: of a server only */
	Oid server;
	char *topic;
	List *properties; /* SxKafkaProperty *, user mapping last */
	SxKafkaStart start;
	int64 start_time; /* ms since 1970 */
	bool skip_gaps;   /* on_gap = 'earliest': go on where the topic begins now */
	char *event_time; /* column; NULL: none */
	bool has_watermark_delay;
	int64 watermark_delay;
	int64 idle_timeout;
	int64 max_ahead;
	SxFormat format;
} SxKafkaOptions;

/*
 * Options of a foreign table as 'userid' has them: his user mapping for the server, or that for
 * PUBLIC, or none. palloc'd. Errors: an option that does not fit the columns any more.
 */
extern SxKafkaOptions *sx_kafka_options(Relation rel, Oid userid);

/* The same for a server, without all that belongs to a table. */
extern SxKafkaOptions *sx_kafka_server_options(Oid server, Oid userid);

/*
 * Hash of all options and constraints of a foreign table that decide which rows it has; changes of
 * server and user mapping are not in it.
 */
extern uint32 sx_kafka_shape(Relation rel);

/* Topic of a foreign table, palloc'd. */
extern char *sx_kafka_topic(Oid relid);

/*
 * Checks options of an object of catalog 'catalog' (a foreign server, user mapping, foreign table or
 * column of one), as a validator does. The values of options in messages are only those that hold no
 * secret. Errors: FDW_INVALID_OPTION_NAME, with the nearest or all names as a hint, FDW_*.
 */
extern void sx_kafka_options_check(List *options, Oid catalog);

#endif /* STREAM_EXT_SOURCE_KAFKA_OPTIONS_H */
