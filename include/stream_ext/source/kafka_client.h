/*
 * kafka_client.h
 *		A topic as librdkafka reads it. The only interface to librdkafka for reading.
 */
#ifndef STREAM_EXT_SOURCE_KAFKA_CLIENT_H
#define STREAM_EXT_SOURCE_KAFKA_CLIENT_H

#include "datatype/timestamp.h"

#include "stream_ext/decode/record.h"
#include "stream_ext/source/kafka_options.h"

typedef struct SxKafkaClient SxKafkaClient;

/* What is wrong with a client. */
typedef enum SxKafkaTrouble
{
	SX_KAFKA_OK,
	SX_KAFKA_CONNECTING, /* no broker has answered yet */
	SX_KAFKA_DEGRADED,   /* brokers went away; heals by itself when they come back */
	SX_KAFKA_FAILING,    /* authentication, TLS, authorization, unknown topic: somebody must act */
	SX_KAFKA_OUT_OF_RANGE, /* 'partition' has no record at 'offset' any more, or not yet */
	SX_KAFKA_FATAL         /* the client cannot go on and must be closed */
} SxKafkaTrouble;

typedef struct SxKafkaStatus
{
	SxKafkaTrouble trouble;
	int32 partition; /* -1: none in particular */
	int64 offset;    /* of SX_KAFKA_OUT_OF_RANGE */
	TimestampTz since;
	char message[256]; /* of librdkafka or the broker; never a secret; "" if SX_KAFKA_OK */
} SxKafkaStatus;

/* Records that have been read, with their bytes; malloc'd, so that librdkafka's callbacks may. */
typedef struct SxRecordBuffer
{
	int nrecords;
	int max_records;
	bool with_headers; /* otherwise records have none, which saves a tenth of the time */
	SxRecord *records;
	char *bytes;
	size_t used;
	size_t size;
} SxRecordBuffer;

extern PGDLLEXPORT SxRecordBuffer *sx_record_buffer_create(int max_records, bool with_headers);
extern PGDLLEXPORT void sx_record_buffer_reset(SxRecordBuffer *buffer);
extern PGDLLEXPORT void sx_record_buffer_free(SxRecordBuffer *buffer);

/* Non-blocking eventfd of this process that becomes readable when any client has news; made once. */
extern PGDLLEXPORT int sx_kafka_event_fd(void);

/*
 * What librdkafka has against a value of a property, palloc'd; it may have the value in it. NULL:
 * nothing. Whether values fit together shows only when a client is opened.
 */
extern char *sx_kafka_client_complaint(const char *name, const char *value);

/*
 * Opens a client for the topic of the options; does not wait for a broker. At most 'queue_kb' of
 * records are read ahead. Errors: a property that librdkafka refuses (without its value).
 */
extern PGDLLEXPORT SxKafkaClient *sx_kafka_client_open(const SxKafkaOptions *options, int queue_kb);

/*
 * Closes it. Connection and threads are kept for some seconds for the next sx_kafka_client_open()
 * with equal options. Safe after an error and outside of transactions.
 */
extern PGDLLEXPORT void sx_kafka_client_close(SxKafkaClient *client);

/* How things are, as far as events were taken in by the calls below. */
extern PGDLLEXPORT const SxKafkaStatus *sx_kafka_client_status(SxKafkaClient *client);

/* Is any broker connected, so that a question makes sense? Does not wait. */
extern PGDLLEXPORT bool sx_kafka_client_connected(SxKafkaClient *client);

/*
 * These wait for an answer of a broker, at most 'timeout_ms', and check for interrupts meanwhile.
 * False, or -1: no answer; the status says why.
 */
extern PGDLLEXPORT int sx_kafka_client_partitions(SxKafkaClient *client, int timeout_ms);
extern PGDLLEXPORT bool sx_kafka_client_range(SxKafkaClient *client, int32 partition, int64 *first,
											  int64 *end, int timeout_ms);
/* Where partitions 0 up to, without, 'npartitions' end, with one question to each broker. */
extern PGDLLEXPORT bool sx_kafka_client_ends(SxKafkaClient *client, int npartitions, int64 *ends,
											 int timeout_ms);
/* Offset of the first record at or after a time (ms since 1970), the end if there is none. */
extern PGDLLEXPORT bool sx_kafka_client_offset_at(SxKafkaClient *client, int32 partition,
												  int64 time, int64 *offset, int timeout_ms);
/* Names of all topics (char *) and their numbers of partitions; *ok false: no answer. */
extern PGDLLEXPORT List *sx_kafka_client_topics(SxKafkaClient *client, List **npartitions, bool *ok,
												int timeout_ms);

/* Starts or stops reading a partition; starting it again elsewhere forgets what was read ahead. */
extern PGDLLEXPORT void sx_kafka_client_start(SxKafkaClient *client, int32 partition, int64 offset);
extern PGDLLEXPORT void sx_kafka_client_stop(SxKafkaClient *client, int32 partition);

/*
 * Adds records that have arrived to the buffer until it is full or holds 'max_bytes', waiting at
 * most 'timeout_ms' for the first one; takes in errors, logs and ends of partitions. Returns the
 * number added. Records of a partition come in order; offsets may have holes (compaction, markers of
 * transactions). Wakes the fetcher when it sleeps although more is there ("kick").
 */
extern PGDLLEXPORT int sx_kafka_client_poll(SxKafkaClient *client, SxRecordBuffer *buffer,
											size_t max_bytes, int timeout_ms);

/*
 * If all there was of a partition has been given out by sx_kafka_client_poll(): the offset at which
 * it goes on, behind markers of transactions too. Else -1.
 */
extern PGDLLEXPORT int64 sx_kafka_client_end_reached(SxKafkaClient *client, int32 partition);

/* End of a partition as the last answer of its broker had it, without asking; -1: unknown. */
extern PGDLLEXPORT int64 sx_kafka_client_known_end(SxKafkaClient *client, int32 partition);

#endif /* STREAM_EXT_SOURCE_KAFKA_CLIENT_H */
