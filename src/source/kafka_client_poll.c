/*
 * kafka_client_poll.c
 *		Records out of librdkafka.
 *
 * A callback copies records into the buffer of the caller; when that is full it yields, and the rest
 * goes back to the head of the queue. Per partition 'next' is the offset behind the
 * last record that was given out, and nothing before it is ever given out: librdkafka drops what
 * belongs to an earlier start, and what it does not drop (errors without a version) is recognised by
 * its offset.
 *
 * What it cannot read (a batch with a wrong checksum, a codec that it does not have) librdkafka reports,
 * and then reads it again without a pause, or goes on behind it. So the partition is blocked: fetching
 * it is stopped, the rest is thrown away, and it is started again at 'next' every REARM_TIME, until it
 * can be read.
 *
 * Starting again is also the cure where librdkafka would say or do nothing: after trouble with
 * brokers (an end of partition that was reported is not reported again), after the topic was away,
 * and when a late error of an earlier start has stopped the fetcher.
 *
 * Kick: a fetcher that has filled the queue looks again only once a second, however fast the queue
 * is drained. Any request to its broker wakes it. So when half the size of the queue has been given
 * out, the ends of partitions that have more are asked for, without waiting for the answers; and
 * sometimes while the queue is empty although there is more, which should not happen.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "utils/timestamp.h"

#include "kafka_client_private.h"

#define REARM_TIME (5 * USECS_PER_SEC)
#define KICK_TIME  (20 * 1000) /* us between kicks of an empty queue */

static int64
high_watermark(const SxKafkaClient *client, int id)
{
	int64 low = -1;
	int64 high = -1;

	if (rd_kafka_get_watermark_offsets(client->rk, client->topic, id, &low, &high) !=
		RD_KAFKA_RESP_ERR_NO_ERROR)
		return -1;
	return high;
}

/* What is in the place of a record: end of partition, or an error. */
static void
take_event(SxKafkaClient *client, ClientPartition *partition, const rd_kafka_message_t *message)
{
	rd_kafka_resp_err_t err = message->err;

	if (err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
	{
		if (partition->blocked || message->offset < partition->next)
			return;
		partition->next = message->offset;
		partition->end = message->offset;
		partition->end_high = high_watermark(client, message->partition);
		sx_kafka_client_alive(client, partition);
		client->news = true;
		return;
	}
	switch (sx_kafka_client_classify(err))
	{
		case SX_KAFKA_OUT_OF_RANGE:
			/*
			 * The fetcher of the partition has stopped. An error of another offset is of an earlier
			 * start, or of a place that it had got to without giving out records.
			 */
			if (message->offset != partition->next)
			{
				partition->restart = true;
				return;
			}
			partition->blocked = true;
			break;
		case SX_KAFKA_FATAL:
			sx_kafka_client_report(client, err, -1, rd_kafka_message_errstr(message));
			return;
		case SX_KAFKA_DEGRADED:
			if (err != RD_KAFKA_RESP_ERR__BAD_MSG)
			{
				sx_kafka_client_report(client, err, message->partition, rd_kafka_err2str(err));
				return;
			}
			break;
		default:
			break;
	}
	/* errors of librdkafka, not of the broker, that are about what it has read */
	if (err < 0 && err != RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC &&
		err != RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION)
		partition->blocked = true;
	sx_kafka_client_report_partition(client, partition, err, message->offset);
}

/* Callback of librdkafka: takes a record or an event. */
static void
take_message(rd_kafka_message_t *message, void *opaque)
{
	SxKafkaClient *client = opaque;
	ClientPartition *partition;

	if (message->partition < 0 || message->partition >= client->npartitions)
	{
		if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
			sx_kafka_client_report(client, message->err, -1, rd_kafka_message_errstr(message));
		return;
	}
	partition = &client->partitions[message->partition];
	if (!partition->started)
		return;
	if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		take_event(client, partition, message);
		return;
	}
	if (partition->blocked || partition->restart || message->offset < partition->next)
		return;
	if (!sx_record_buffer_append(client->buffer, message))
	{
		/* librdkafka forgets this one now; it is read again */
		client->out_of_memory = true;
		partition->restart = true;
		rd_kafka_yield(client->rk);
		return;
	}
	partition->next = message->offset + 1;
	partition->end = -1;
	client->given++;
	client->given_bytes += message->len;
	if (partition->trouble != SX_KAFKA_OK || partition->alive != client->ntroubles)
		sx_kafka_client_alive(client, partition);
	if (sx_record_buffer_full(client->buffer, client->max_bytes))
		rd_kafka_yield(client->rk);
}

/*
 * Tells librdkafka to read a partition no more. It ends the re-routing of the partition's queue then,
 * but a fetch on its way still puts something into it, which would stay there. That holds the
 * partition, and if the topic loses the partition, rd_kafka_destroy() waits for it for ever. So the
 * queue is routed back to ours, which throws away what is out of date.
 */
static void
stop_fetching(SxKafkaClient *client, int id)
{
	ClientPartition *partition = &client->partitions[id];

	if (!partition->fetching)
		return;
	(void) rd_kafka_consume_stop(client->rkt, id);
	if (partition->own_queue != NULL)
	{
		rd_kafka_queue_forward(partition->own_queue, client->queue);
		rd_kafka_queue_destroy(partition->own_queue);
		partition->own_queue = NULL;
	}
	partition->fetching = false;
}

static void
start_fetching(SxKafkaClient *client, int id)
{
	ClientPartition *partition = &client->partitions[id];

	stop_fetching(client, id);
	partition->blocked = false;
	partition->restart = false;
	partition->armed = client->ntroubles;
	partition->when = GetCurrentTimestamp();
	if (rd_kafka_consume_start_queue(client->rkt, id, partition->next, client->queue) != 0)
		elog(ERROR, "could not start reading partition %d: %s", id,
			 rd_kafka_err2str(rd_kafka_last_error()));
	partition->fetching = true;
	/* a queue that was routed by hand once must be again */
	partition->own_queue = rd_kafka_queue_get_partition(client->rk, client->topic, id);
	if (partition->own_queue != NULL)
		rd_kafka_queue_forward(partition->own_queue, client->queue);
}

void
sx_kafka_client_start(SxKafkaClient *client, int32 id, int64 offset)
{
	ClientPartition *partition;

	if (client->rkt == NULL || id < 0 || offset < 0)
		elog(ERROR, "cannot read partition %d from offset " INT64_FORMAT, id, offset);
	sx_kafka_client_stop(client, id);
	if (id >= client->npartitions)
	{
		int n = Max(id + 1, client->npartitions * 2);
		ClientPartition *partitions =
			realloc(client->partitions, sizeof(ClientPartition) * (size_t) n);

		if (partitions == NULL)
			sx_kafka_client_out_of_memory();
		memset(partitions + client->npartitions, 0,
			   sizeof(ClientPartition) * (n - client->npartitions));
		client->partitions = partitions;
		client->npartitions = n;
	}
	partition = &client->partitions[id];
	memset(partition, 0, sizeof(*partition));
	partition->next = offset;
	partition->end = -1;
	partition->started = true;
	client->nstarted++;
	start_fetching(client, id);
}

void
sx_kafka_client_stop(SxKafkaClient *client, int32 id)
{
	ClientPartition *partition;

	if (id < 0 || id >= client->npartitions || !client->partitions[id].started)
		return;
	partition = &client->partitions[id];
	stop_fetching(client, id);
	partition->started = false;
	client->nstarted--;
	sx_kafka_client_settle(client);
}

static void
drop_message(rd_kafka_message_t *message, void *opaque)
{
}

/* Stops all partitions and frees what was read ahead. Raises nothing. */
void
sx_kafka_client_stop_all(SxKafkaClient *client)
{
	for (int id = 0; id < client->npartitions; id++)
		sx_kafka_client_stop(client, id);
	(void) rd_kafka_consume_callback_queue(client->queue, 0, drop_message, NULL);
}

/*
 * Starts partitions again that need it. Called when nothing is left in the queue, so that little is
 * read twice, except for those that cannot wait.
 */
static void
rearm_partitions(SxKafkaClient *client, bool drained)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int id = 0; id < client->npartitions; id++)
	{
		ClientPartition *partition = &client->partitions[id];
		bool needed;

		if (!partition->started)
			continue;
		if (partition->blocked)
			stop_fetching(client, id);
		if (partition->trouble == SX_KAFKA_OUT_OF_RANGE)
			continue;
		if (partition->trouble == SX_KAFKA_OK &&
			(client->own.trouble == SX_KAFKA_OK || partition->alive == client->ntroubles))
			needed = partition->restart;
		else
			/* once for each trouble, and now and then */
			needed = partition->restart ||
					 (drained && ((partition->armed != client->ntroubles && client->reached) ||
								  now - partition->when >= REARM_TIME));
		if (!needed)
			continue;
		start_fetching(client, id);
	}
}

static bool
needs_rearming(const SxKafkaClient *client)
{
	if (client->own.trouble != SX_KAFKA_OK)
		return true;
	for (int id = 0; id < client->npartitions; id++)
		if (client->partitions[id].started &&
			(client->partitions[id].restart || client->partitions[id].trouble != SX_KAFKA_OK))
			return true;
	return false;
}

/* Wakes fetchers of partitions that have more. */
static void
kick_fetchers(SxKafkaClient *client, TimestampTz now)
{
	rd_kafka_topic_partition_list_t *list = NULL;

	client->given = 0;
	client->given_bytes = 0;
	client->kicked = now;
	for (int id = 0; id < client->npartitions; id++)
	{
		const ClientPartition *partition = &client->partitions[id];

		/* at its end the fetcher is awake, and what is beyond belongs to open transactions */
		if (!partition->started || partition->trouble != SX_KAFKA_OK || partition->end >= 0 ||
			high_watermark(client, id) <= partition->next)
			continue;
		if (list == NULL)
			list = rd_kafka_topic_partition_list_new(1);
		rd_kafka_topic_partition_list_add(list, client->topic, id)->offset = RD_KAFKA_OFFSET_END;
	}
	if (list == NULL)
		return;
	(void) rd_kafka_offsets_for_times(client->rk, list, 0);
	rd_kafka_topic_partition_list_destroy(list);
}

/* After records have been taken. */
static void
tend_fetchers(SxKafkaClient *client, bool drained)
{
	TimestampTz now = GetCurrentTimestamp();

	if (needs_rearming(client))
		rearm_partitions(client, drained);
	if (client->given_bytes >= client->queue_bytes / 2 ||
		client->given >= client->queue_records / 2 ||
		(drained && client->own.trouble == SX_KAFKA_OK && now - client->kicked >= KICK_TIME))
		kick_fetchers(client, now);
}

/*
 * Takes in at most consume.callback.max.messages records and events, waiting for the first one. 0:
 * there are none. The queue of each partition that is fetched is re-routed to the common one, so any of
 * these will do. (rd_kafka_consume_callback_queue() would have no limit: it takes all there is off the queue
 * before the first callback, so a fetcher that looks at it meanwhile finds it empty and goes on
 * fetching. Polled without pause such a queue grew to 15 times its limit.)
 */
static int
take_messages(SxKafkaClient *client, int wait_ms)
{
	for (int id = 0; id < client->npartitions; id++)
		if (client->partitions[id].fetching)
			return rd_kafka_consume_callback(client->rkt, id, wait_ms, take_message, client);
	return rd_kafka_consume_callback_queue(client->queue, wait_ms, take_message, client);
}

/* Takes in what is there, up to the limits, waiting for the first thing. */
static void
fill_buffer(SxKafkaClient *client, SxRecordBuffer *buffer, int wait_ms)
{
	bool more = !sx_record_buffer_full(buffer, client->max_bytes);

	while (more)
	{
		int before = buffer->nrecords;

		more = take_messages(client, wait_ms) > 0 && !client->out_of_memory &&
			   !sx_record_buffer_full(buffer, client->max_bytes) &&
			   /* news that may call for something to be done, or go on for ever */
			   (buffer->nrecords > before || !client->news);
		wait_ms = 0;
	}
	if (client->out_of_memory)
	{
		client->out_of_memory = false;
		rearm_partitions(client, false);
		sx_kafka_client_out_of_memory();
	}
}

int
sx_kafka_client_poll(SxKafkaClient *client, SxRecordBuffer *buffer, size_t max_bytes,
					 int timeout_ms)
{
	int before = buffer->nrecords;
	TimestampTz end = 0;
	int wait = 0;
	bool drained;

	sx_kafka_client_forget_idle();
	client->buffer = buffer;
	client->max_bytes = max_bytes;
	client->news = false;
	for (;;)
	{
		sx_kafka_client_serve(client);
		fill_buffer(client, buffer, wait);
		drained = rd_kafka_queue_length(client->queue) == 0;
		tend_fetchers(client, drained);
		if (buffer->nrecords > before || client->news || !drained || timeout_ms <= 0)
			break;
		CHECK_FOR_INTERRUPTS();
		if (end == 0)
			end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);
		wait = (int) Min(CLIENT_SLICE_MS, (end - GetCurrentTimestamp() + 999) / 1000);
		if (wait <= 0)
			break;
	}
	client->buffer = NULL;
	/* librdkafka signals only what comes to an empty queue */
	if (!drained)
		sx_kafka_client_signal();
	return buffer->nrecords - before;
}

int64
sx_kafka_client_end_reached(SxKafkaClient *client, int32 id)
{
	if (id < 0 || id >= client->npartitions || !client->partitions[id].started)
		return -1;
	return client->partitions[id].end;
}

int64
sx_kafka_client_known_end(SxKafkaClient *client, int32 id)
{
	const ClientPartition *partition;
	int64 high;

	if (id < 0 || id >= client->npartitions || !client->partitions[id].started)
		return -1;
	partition = &client->partitions[id];
	high = high_watermark(client, id);
	/* at the end, what is above it belongs to transactions that are open */
	if (partition->end >= 0 && high <= partition->end_high)
		return partition->end;
	return high >= 0 ? high : -1;
}
