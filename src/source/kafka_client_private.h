/*
 * kafka_client_private.h
 *		Inside of source/kafka_client*.c, the only files that know librdkafka.
 */
#ifndef SX_KAFKA_CLIENT_PRIVATE_H
#define SX_KAFKA_CLIENT_PRIVATE_H

#include <librdkafka/rdkafka.h>

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "stream_ext/source/kafka_client.h"

/* A partition as the client reads it. */
typedef struct SxClientPartition
{
	bool is_started;
	int64 next; /* offset after the last record that was given out */
	int64 end;  /* offset of the last end of partition, if nothing came since; else -1 */
} SxClientPartition;

/*
 * All of it is malloc'd: a client outlives transactions, and librdkafka's callbacks write into it,
 * where nothing may longjmp.
 */
struct SxKafkaClient
{
	uint64 fingerprint; /* of what it was opened with */
	rd_kafka_t *rk;
	rd_kafka_topic_t *topic; /* NULL: of a server only */
	rd_kafka_queue_t *queue; /* of the partitions: records, their ends and errors */
	rd_kafka_queue_t *main;  /* errors of the client, and logs */
	int peak;                /* most entries in 'queue' since the last kick */
	int kick_next;           /* partition that is next to be asked for */
	int npartitions;
	SxClientPartition *partitions;
	SxKafkaStatus status;
	bool was_connected; /* a broker has answered once */
	bool is_open;       /* false: kept for the next one */
	TimestampTz closed_at;
	TimestampTz kicked_at;
	TimestampTz logged_at;
	int suppressed; /* lines of the log since then */
	/* for the time of one poll: */
	SxRecordBuffer *buffer;
	size_t max_bytes;
	size_t bytes;
	bool out_of_memory;
};

/* Sets the status, unless it is that already. */
extern void sx_kafka_client_trouble(SxKafkaClient *client, SxKafkaTrouble trouble, int32 partition,
									int64 offset, const char *message);

/* A broker has answered: nothing is wrong, but for what an answer does not mend. */
extern void sx_kafka_client_answered(SxKafkaClient *client);

/* Takes in an error that librdkafka has told, of a partition (-1: of none). */
extern void sx_kafka_client_error(SxKafkaClient *client, rd_kafka_resp_err_t err, int32 partition,
								  const char *message);

/* Makes room for a partition; false: no memory. */
extern bool sx_kafka_client_reserve(SxKafkaClient *client, int32 partition);

#endif /* SX_KAFKA_CLIENT_PRIVATE_H */
