/*
 * kafka_client_private.h
 *		A client of librdkafka as the files kafka_client*.c share it.
 *
 * All memory here is malloc'd: callbacks of librdkafka, which must neither palloc nor raise errors,
 * write to it, and it outlives transactions.
 */
#ifndef KAFKA_CLIENT_PRIVATE_H
#define KAFKA_CLIENT_PRIVATE_H

#include <librdkafka/rdkafka.h>

#include "stream_ext/source/kafka_client.h"

#define CLIENT_LOG_LINES 8
#define CLIENT_LOG_SIZE  400
#define CLIENT_SLICE_MS  100 /* longest wait without a look at interrupts */

/* A partition that is read, or was. */
typedef struct ClientPartition
{
	bool started;                /* somebody wants its records */
	bool fetching;               /* librdkafka has been told to read it */
	rd_kafka_queue_t *own_queue; /* that is re-routed to the client's; while fetching */
	/*
	 * Records are thrown away until the partition is started again: one was not understood, and
	 * librdkafka would go on behind it; or the offset is out of range.
	 */
	bool blocked;
	bool restart;     /* start it again at 'next' at once */
	int64 next;       /* offset behind the last record that was given out */
	int64 end;        /* 'next', if it is at the end of the partition; else -1 */
	int64 end_high;   /* high watermark when 'end' was set */
	uint64 alive;     /* troubles of the client when it last gave a sign of life .. */
	uint64 armed;     /* .. and when it was last started */
	TimestampTz when; /* of the last start */
	/* Its own trouble; SX_KAFKA_OK if 'error' is 0. */
	SxKafkaTrouble trouble;
	rd_kafka_resp_err_t error;
	int64 wanted; /* offset, of SX_KAFKA_OUT_OF_RANGE */
	TimestampTz since;
} ClientPartition;

typedef struct ClientLogLine
{
	int level;
	char text[CLIENT_LOG_SIZE];
} ClientLogLine;

struct SxKafkaClient
{
	SxKafkaClient *next; /* in the list of open or of idle ones */
	uint8 fingerprint[32];
	TimestampTz idle_since;

	rd_kafka_t *rk;
	rd_kafka_topic_t *rkt;        /* NULL: only for topics */
	rd_kafka_queue_t *queue;      /* records and errors of all partitions */
	rd_kafka_queue_t *main_queue; /* errors of brokers, log */
	char *topic;                  /* NULL: none */
	char **secrets;               /* values of properties that must not be shown; NULL at the end */

	int npartitions; /* length of the array, not the number that the topic has */
	ClientPartition *partitions;
	int nstarted;

	/*
	 * Trouble of the client as a whole. It is over when every partition that is read, and has no
	 * trouble of its own, has given a sign of life (record or end) since it was last reported:
	 * 'ntroubles' counts reports.
	 */
	SxKafkaStatus own;
	TimestampTz reported; /* last report */
	uint64 ntroubles;
	bool reached;         /* a broker has answered */
	SxKafkaStatus status; /* what sx_kafka_client_status() returns */

	/* Of the poll that is being made. */
	SxRecordBuffer *buffer;
	size_t max_bytes;
	bool out_of_memory;
	bool news; /* end of a partition, or trouble */

	uint64 queue_bytes; /* size of librdkafka's queue */
	uint64 queue_records;
	uint64 given;       /* records given out since the last kick .. */
	uint64 given_bytes; /* .. and their values */
	TimestampTz kicked;

	int nlines;
	ClientLogLine lines[CLIENT_LOG_LINES];
	uint64 lost_lines;  /* for which there was no room */
	uint64 quiet_lines; /* not written to the server log since 'logged' */
	TimestampTz logged;
};

/* kafka_client.c */
extern void sx_kafka_client_forget_idle(void);
extern void sx_kafka_client_signal(void);

/* kafka_client_destroy.c */
extern void sx_kafka_client_reserve_fds(void);
extern void sx_kafka_client_release_fds(void);
extern void sx_kafka_client_destroy_handle(rd_kafka_t *rk);
extern void sx_kafka_client_await_destroyed(void);

/* kafka_client_buffer.c */
extern void sx_kafka_client_out_of_memory(void);
extern bool sx_record_buffer_append(SxRecordBuffer *buffer, rd_kafka_message_t *message);
extern bool sx_record_buffer_full(const SxRecordBuffer *buffer, size_t max_bytes);

/* kafka_client_status.c */
extern void sx_kafka_client_error_cb(rd_kafka_t *rk, int err, const char *reason, void *opaque);
extern void sx_kafka_client_log_cb(const rd_kafka_t *rk, int level, const char *fac,
								   const char *buf);
extern void sx_kafka_client_serve(SxKafkaClient *client);
extern void sx_kafka_client_report(SxKafkaClient *client, rd_kafka_resp_err_t err, int32 partition,
								   const char *reason);
extern void sx_kafka_client_report_partition(SxKafkaClient *client, ClientPartition *partition,
											 rd_kafka_resp_err_t err, int64 wanted);
extern void sx_kafka_client_clear(SxKafkaClient *client);
extern void sx_kafka_client_settle(SxKafkaClient *client);
extern void sx_kafka_client_alive(SxKafkaClient *client, ClientPartition *partition);
extern SxKafkaTrouble sx_kafka_client_classify(rd_kafka_resp_err_t err);
extern void sx_kafka_client_scrub(char *text, char **secrets);

/* kafka_client_poll.c */
extern void sx_kafka_client_stop_all(SxKafkaClient *client);

#endif /* KAFKA_CLIENT_PRIVATE_H */
