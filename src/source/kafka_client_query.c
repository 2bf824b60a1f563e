/*
 * kafka_client_query.c
 *		Questions to the brokers of a client.
 *
 * librdkafka's calls wait for the answer, so they are made with short timeouts, again and again, and
 * interrupts are looked at in between. An answer that takes longer than the timeout is lost, so for
 * brokers that are connected but slow the timeout grows to SLICE_MAX_MS; a broker that is known to be
 * away never delays a cancellation by more than CLIENT_SLICE_MS. A broker answers the requests of a
 * connection one after the other, so a fetch that waits for records (fetch.wait.max.ms) delays them.
 *
 * rd_kafka_query_watermark_offsets() is not used: up to 2.0.2 it waits without regard to its timeout
 * until the broker answers or the connection is given up. rd_kafka_offsets_for_times() sends the same
 * request, in which -2 and -1 stand for the beginning and the end; with read_committed the end is
 * the last stable offset. (librdkafka's mock cluster has no times: it finds no record for any.)
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "nodes/pg_list.h"
#include "utils/timestamp.h"

#include "kafka_client_private.h"

#define SLICE_CONNECTED_MS \
	250 /* more than a fetch waits at the broker, with the answer behind it */
#define SLICE_MAX_MS 3000
#define NAP_US       20000L

/* One question; the answer goes to the fields behind the first line. */
typedef struct Question
{
	int32 partition; /* -1: of the topic */
	int64 time;      /* offset to look for, in librdkafka's sense */
	int64 offset;
	const struct rd_kafka_metadata *metadata; /* to be destroyed */
	int npartitions;                          /* of all of these: .. */
	int64 *ends;                              /* .. where they end */
} Question;

typedef rd_kafka_resp_err_t (*AskFunction)(SxKafkaClient *client, Question *question,
										   int timeout_ms);

static rd_kafka_resp_err_t
ask_metadata(SxKafkaClient *client, Question *question, int timeout_ms)
{
	rd_kafka_resp_err_t err = rd_kafka_metadata(client->rk, client->rkt == NULL, client->rkt,
												&question->metadata, timeout_ms);

	if (err != RD_KAFKA_RESP_ERR_NO_ERROR || client->rkt == NULL)
		return err;
	if (question->metadata->topic_cnt == 1)
	{
		err = question->metadata->topics[0].err;
		if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
			return err;
	}
	else
		err = RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
	rd_kafka_metadata_destroy(question->metadata);
	question->metadata = NULL;
	return err;
}

static rd_kafka_resp_err_t
ask_offset(SxKafkaClient *client, Question *question, int timeout_ms)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_t *element =
		rd_kafka_topic_partition_list_add(list, client->topic, question->partition);
	rd_kafka_resp_err_t err;

	element->offset = question->time;
	err = rd_kafka_offsets_for_times(client->rk, list, timeout_ms);
	/* without any leader the reason is with the partition */
	if ((err == RD_KAFKA_RESP_ERR_NO_ERROR || err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION) &&
		element->err != RD_KAFKA_RESP_ERR_NO_ERROR)
		err = element->err;
	question->offset = element->offset;
	rd_kafka_topic_partition_list_destroy(list);
	return err;
}

static rd_kafka_resp_err_t
ask_ends(SxKafkaClient *client, Question *question, int timeout_ms)
{
	rd_kafka_topic_partition_list_t *list =
		rd_kafka_topic_partition_list_new(question->npartitions);
	rd_kafka_resp_err_t err;

	for (int i = 0; i < question->npartitions; i++)
		rd_kafka_topic_partition_list_add(list, client->topic, i)->offset = RD_KAFKA_OFFSET_END;
	err = rd_kafka_offsets_for_times(client->rk, list, timeout_ms);
	for (int i = 0; i < list->cnt; i++)
	{
		const rd_kafka_topic_partition_t *element = &list->elems[i];

		if (element->err != RD_KAFKA_RESP_ERR_NO_ERROR)
			err = element->err;
		question->ends[element->partition] = element->offset;
	}
	rd_kafka_topic_partition_list_destroy(list);
	return err;
}

/* A broker has answered. */
static void
note_answer(SxKafkaClient *client, int32 id)
{
	client->reached = true;
	if (id >= 0 && id < client->npartitions && client->partitions[id].started &&
		client->partitions[id].trouble == SX_KAFKA_OK)
		sx_kafka_client_alive(client, &client->partitions[id]);
	if (client->nstarted == 0 || client->own.trouble == SX_KAFKA_FAILING)
		sx_kafka_client_clear(client);
}

static void
note_failure(SxKafkaClient *client, rd_kafka_resp_err_t err, const Question *question)
{
	char text[200];

	switch (err)
	{
		case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
		case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
			sx_kafka_client_report(client, err, -1, "the topic does not exist");
			break;
		case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
			snprintf(text, sizeof(text), "partition %d does not exist", question->partition);
			sx_kafka_client_report(client, err, question->partition, text);
			break;
		default:
			/* what librdkafka has told of its connections says more */
			if (sx_kafka_client_classify(err) != SX_KAFKA_DEGRADED ||
				(client->own.trouble != SX_KAFKA_CONNECTING &&
				 client->own.trouble != SX_KAFKA_DEGRADED) ||
				client->own.message[0] == '\0')
				sx_kafka_client_report(client, err, question->partition, rd_kafka_err2str(err));
			break;
	}
}

/* Puts a question until there is an answer. False: there is none, and the status says why. */
static bool
ask(SxKafkaClient *client, AskFunction function, Question *question, int timeout_ms)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);
	uint64 ntroubles = client->ntroubles;
	int slice = client->own.trouble == SX_KAFKA_OK ? SLICE_CONNECTED_MS : CLIENT_SLICE_MS;

	sx_kafka_client_forget_idle();
	for (;;)
	{
		int64 left = (end - GetCurrentTimestamp() + 999) / 1000;
		rd_kafka_resp_err_t err;

		CHECK_FOR_INTERRUPTS();
		err = function(client, question, (int) Max(0, Min(slice, left)));
		if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
		{
			note_answer(client, question->partition);
			return true;
		}
		sx_kafka_client_serve(client);
		if (sx_kafka_client_classify(err) != SX_KAFKA_DEGRADED || left <= slice)
		{
			note_failure(client, err, question);
			return false;
		}
		/* refused passwords and certificates do not become better while we wait */
		if (client->own.trouble == SX_KAFKA_FATAL ||
			(client->own.trouble == SX_KAFKA_FAILING && client->ntroubles != ntroubles))
			return false;
		if (err == RD_KAFKA_RESP_ERR__TIMED_OUT)
			slice = Min(slice * 2, SLICE_MAX_MS);
		else
			pg_usleep(NAP_US);
	}
}

bool
sx_kafka_client_connected(SxKafkaClient *client)
{
	Question question = {.partition = -1};
	rd_kafka_resp_err_t err = ask_metadata(client, &question, 0);

	if (question.metadata != NULL)
		rd_kafka_metadata_destroy(question.metadata);
	/* without time for an answer, what there is to learn is whether the question could be sent */
	return err != RD_KAFKA_RESP_ERR__TRANSPORT;
}

int
sx_kafka_client_partitions(SxKafkaClient *client, int timeout_ms)
{
	Question question = {.partition = -1};
	int n;

	if (client->rkt == NULL)
		elog(ERROR, "a client without a topic has no partitions");
	if (!ask(client, ask_metadata, &question, timeout_ms))
		return -1;
	n = question.metadata->topics[0].partition_cnt;
	rd_kafka_metadata_destroy(question.metadata);
	/* librdkafka waits for such in silence */
	for (int id = n; id < client->npartitions; id++)
		if (client->partitions[id].started)
			sx_kafka_client_report_partition(client, &client->partitions[id],
											 RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, 0);
	return n;
}

/* What is left of a time limit. */
static int
time_left(TimestampTz end)
{
	return (int) Max(0, (end - GetCurrentTimestamp()) / 1000);
}

bool
sx_kafka_client_range(SxKafkaClient *client, int32 partition, int64 *first, int64 *end,
					  int timeout_ms)
{
	TimestampTz limit = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);
	Question question = {.partition = partition, .time = RD_KAFKA_OFFSET_BEGINNING};

	if (!ask(client, ask_offset, &question, timeout_ms))
		return false;
	*first = question.offset;
	question.time = RD_KAFKA_OFFSET_END;
	if (!ask(client, ask_offset, &question, time_left(limit)))
		return false;
	/* the beginning may have moved past an end that no transaction lets move */
	*end = Max(question.offset, *first);
	return true;
}

bool
sx_kafka_client_ends(SxKafkaClient *client, int npartitions, int64 *ends, int timeout_ms)
{
	Question question = {.partition = -1, .npartitions = npartitions, .ends = ends};

	return npartitions == 0 || ask(client, ask_ends, &question, timeout_ms);
}

bool
sx_kafka_client_offset_at(SxKafkaClient *client, int32 partition, int64 time, int64 *offset,
						  int timeout_ms)
{
	TimestampTz limit = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);
	Question end = {.partition = partition, .time = RD_KAFKA_OFFSET_END};
	Question question = {.partition = partition, .time = Max(time, 0)};

	/* the end first: a record that arrives between the two questions must not be passed over */
	if (!ask(client, ask_offset, &end, timeout_ms) ||
		!ask(client, ask_offset, &question, time_left(limit)))
		return false;
	*offset = question.offset >= 0 ? question.offset : end.offset;
	return true;
}

/* Lists in the current memory context, from metadata, which is destroyed. */
static List *
list_topics(const struct rd_kafka_metadata *metadata, List **npartitions)
{
	List *names = NIL;

	*npartitions = NIL;
	PG_TRY();
	{
		for (int i = 0; i < metadata->topic_cnt; i++)
		{
			names = lappend(names, pstrdup(metadata->topics[i].topic));
			*npartitions = lappend_int(*npartitions, metadata->topics[i].partition_cnt);
		}
	}
	PG_FINALLY();
	{
		rd_kafka_metadata_destroy(metadata);
	}
	PG_END_TRY();
	return names;
}

List *
sx_kafka_client_topics(SxKafkaClient *client, List **npartitions, bool *ok, int timeout_ms)
{
	Question question = {.partition = -1};

	if (client->rkt != NULL)
		elog(ERROR, "a client with a topic cannot list topics");
	*npartitions = NIL;
	*ok = ask(client, ask_metadata, &question, timeout_ms);
	return *ok ? list_topics(question.metadata, npartitions) : NIL;
}
