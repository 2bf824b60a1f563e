/*
 * kafka_client_poll.c
 *		A topic as librdkafka reads it: starting partitions and taking in records.
 *
 * Records are copied out of librdkafka's callback into a buffer of ours, one copy, and the callback
 * asks to be left when the buffer is full. Decoding may raise errors and is done by the caller.
 *
 * The fetcher of librdkafka stops when its queue is full, and looks again only once a second,
 * whatever has been taken out meanwhile. A question to the broker wakes it (the "kick"), so one is
 * asked when the queue has been half emptied while more is known to be there. The answer takes a
 * round trip, during which nothing else happens here, so it is asked rarely.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "utils/timestamp.h"

#include "kafka_client_private.h"

/* us between two kicks: while there is something to do meanwhile, and when the queue is empty. */
#define KICK_FULL_US  20000
#define KICK_EMPTY_US 5000

/* ms that a kick may take, and for how many partitions in a row. */
#define KICK_MS         50
#define KICK_PARTITIONS 4

/* ---------------------------------------------------------------- buffer */

SxRecordBuffer *
sx_record_buffer_create(int max_records)
{
	SxRecordBuffer *buffer = calloc(1, sizeof(SxRecordBuffer));

	if (buffer != NULL)
	{
		buffer->max_records = max_records;
		buffer->records = malloc(sizeof(SxRecord) * max_records);
	}
	if (buffer == NULL || buffer->records == NULL)
	{
		free(buffer);
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	return buffer;
}

/* What one large record has needed is given back. */
void
sx_record_buffer_reset(SxRecordBuffer *buffer)
{
	buffer->nrecords = 0;
	buffer->used = 0;
	if (buffer->size > 4 * 1024 * 1024)
	{
		free(buffer->bytes);
		buffer->bytes = NULL;
		buffer->size = 0;
	}
}

void
sx_record_buffer_free(SxRecordBuffer *buffer)
{
	free(buffer->records);
	free(buffer->bytes);
	free(buffer);
}

/* Moves the bytes of a buffer; records point into them. */
static bool
grow_buffer(SxRecordBuffer *buffer, size_t need)
{
	size_t size = Max(buffer->size * 2, 256 * 1024);
	char *old = buffer->bytes;
	char *bytes;

	while (size < need)
		size *= 2;
	bytes = malloc(size);
	if (bytes == NULL)
		return false;
	if (buffer->used > 0)
		memcpy(bytes, old, buffer->used);
	for (int i = 0; i < buffer->nrecords; i++)
	{
		SxRecord *record = &buffer->records[i];

		if (record->key != NULL)
			record->key = bytes + (record->key - old);
		if (record->value != NULL)
			record->value = bytes + (record->value - old);
		if (record->headers != NULL)
			record->headers = bytes + (record->headers - old);
	}
	free(old);
	buffer->bytes = bytes;
	buffer->size = size;
	return true;
}

static char *
copy_bytes(SxRecordBuffer *buffer, const void *bytes, size_t len)
{
	char *copy = buffer->bytes + buffer->used;

	if (len > 0)
		memcpy(copy, bytes, len);
	buffer->used += len;
	return copy;
}

/* ---------------------------------------------------------------- records */

/* Length of the headers as a record has them; their number in *n. */
static size_t
measure_headers(const rd_kafka_headers_t *headers, int *n)
{
	size_t len = 0;
	const char *name;
	const void *value;
	size_t value_len;

	for (*n = 0; rd_kafka_header_get_all(headers, *n, &name, &value, &value_len) ==
				 RD_KAFKA_RESP_ERR_NO_ERROR;
		 (*n)++)
		len += 2 * sizeof(int32) + strlen(name) + (value != NULL ? value_len : 0);
	return len;
}

static void
copy_headers(SxRecordBuffer *buffer, const rd_kafka_headers_t *headers, int n)
{
	for (int i = 0; i < n; i++)
	{
		const char *name = NULL;
		const void *value = NULL;
		size_t value_len = 0;
		int32 len;

		(void) rd_kafka_header_get_all(headers, i, &name, &value, &value_len);
		len = (int32) strlen(name);
		(void) copy_bytes(buffer, &len, sizeof(len));
		(void) copy_bytes(buffer, name, len);
		len = value != NULL ? (int32) value_len : -1;
		(void) copy_bytes(buffer, &len, sizeof(len));
		if (value != NULL)
			(void) copy_bytes(buffer, value, value_len);
	}
}

/* Copies a message into the buffer; false: no memory. */
static bool
add_record(SxKafkaClient *client, const rd_kafka_message_t *message)
{
	SxRecordBuffer *buffer = client->buffer;
	SxRecord *record = &buffer->records[buffer->nrecords];
	rd_kafka_timestamp_type_t type;
	rd_kafka_headers_t *headers = NULL;
	size_t headers_len = 0;
	size_t need;
	int nheaders = 0;

	if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR)
		headers_len = measure_headers(headers, &nheaders);
	need = message->key_len + message->len + headers_len;
	if (buffer->used + need > buffer->size && !grow_buffer(buffer, buffer->used + need))
		return false;

	record->offset = message->offset;
	record->partition = message->partition;
	record->timestamp = rd_kafka_message_timestamp(message, &type);
	if (type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE)
		record->timestamp = -1;
	record->key_len = message->key != NULL ? (int32) message->key_len : -1;
	record->key = message->key != NULL ? copy_bytes(buffer, message->key, message->key_len) : NULL;
	record->value_len = message->payload != NULL ? (int32) message->len : -1;
	record->value =
		message->payload != NULL ? copy_bytes(buffer, message->payload, message->len) : NULL;
	record->nheaders = nheaders;
	record->headers_len = (int32) headers_len;
	record->headers = NULL;
	if (nheaders > 0)
	{
		record->headers = buffer->bytes + buffer->used;
		copy_headers(buffer, headers, nheaders);
	}
	buffer->nrecords++;
	client->bytes += need;
	return true;
}

/* Called by librdkafka for each entry of the queue. */
static void
take_message(rd_kafka_message_t *message, void *opaque)
{
	SxKafkaClient *client = opaque;
	SxClientPartition *partition;

	if (message->rkt == NULL || message->partition < 0 || message->partition >= client->npartitions)
	{
		if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
			sx_kafka_client_error(client, message->err, -1, message->payload);
		return;
	}
	partition = &client->partitions[message->partition];
	if (!partition->is_started)
		return;
	switch (message->err)
	{
		case RD_KAFKA_RESP_ERR_NO_ERROR:
			break;
		case RD_KAFKA_RESP_ERR__PARTITION_EOF:
			partition->next = Max(partition->next, message->offset);
			partition->end = partition->next;
			sx_kafka_client_answered(client);
			return;
		default:
			sx_kafka_client_error(client, message->err, message->partition, message->payload);
			return;
	}
	/* what was read ahead for an earlier start */
	if (message->offset < partition->next)
		return;
	if (!add_record(client, message))
	{
		/* the record is lost to librdkafka, but not to us: it is asked for again */
		client->out_of_memory = true;
		rd_kafka_yield(client->rk);
		return;
	}
	partition->next = message->offset + 1;
	partition->end = -1;
	if (client->buffer->nrecords >= client->buffer->max_records ||
		client->bytes >= client->max_bytes)
		rd_kafka_yield(client->rk);
}

/* ---------------------------------------------------------------- the fetcher */

static int64
backlog(SxKafkaClient *client, int32 partition)
{
	SxClientPartition *p = &client->partitions[partition];
	int64 end;

	if (!p->is_started || p->end >= 0)
		return 0;
	end = sx_kafka_client_known_end(client, partition);
	return end > p->next ? end - p->next : 0;
}

/* Asks the brokers of partitions that have more than what is in the queue, which wakes the fetcher. */
static void
kick(SxKafkaClient *client, TimestampTz now, int queued)
{
	int asked = 0;

	for (int n = 0; n < client->npartitions && asked < KICK_PARTITIONS; n++)
	{
		int partition = client->kick_next++ % client->npartitions;
		int64 first;
		int64 end;

		client->kick_next %= client->npartitions;
		if (backlog(client, partition) <= queued)
			continue;
		asked++;
		if (rd_kafka_query_watermark_offsets(client->rk, rd_kafka_topic_name(client->topic),
											 partition, &first, &end,
											 KICK_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
			break;
	}
	if (asked > 0)
	{
		client->kicked_at = now;
		client->peak = queued;
	}
}

static void
watch_fetcher(SxKafkaClient *client)
{
	int queued;
	TimestampTz now;

	if (client->npartitions == 0 || client->status.trouble != SX_KAFKA_OK)
		return;
	queued = (int) rd_kafka_queue_length(client->queue);
	client->peak = Max(client->peak, queued);
	if (queued > client->peak / 2)
		return;
	now = GetCurrentTimestamp();
	if (now - client->kicked_at >= (queued == 0 ? KICK_EMPTY_US : KICK_FULL_US))
		kick(client, now, queued);
}

int
sx_kafka_client_poll(SxKafkaClient *client, SxRecordBuffer *buffer, size_t max_bytes,
					 int timeout_ms)
{
	int before = buffer->nrecords;

	(void) rd_kafka_poll(client->rk, 0);
	if (client->topic == NULL || buffer->nrecords >= buffer->max_records)
		return 0;
	client->buffer = buffer;
	client->max_bytes = max_bytes;
	client->bytes = 0;
	client->out_of_memory = false;
	(void) rd_kafka_consume_callback_queue(client->queue, timeout_ms, take_message, client);
	client->buffer = NULL;
	if (client->out_of_memory)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
						errdetail("A record of a topic could not be copied.")));
	if (buffer->nrecords > before)
		sx_kafka_client_answered(client);
	watch_fetcher(client);
	return buffer->nrecords - before;
}

/* ---------------------------------------------------------------- partitions */

bool
sx_kafka_client_reserve(SxKafkaClient *client, int32 partition)
{
	SxClientPartition *partitions;

	if (partition < client->npartitions)
		return true;
	partitions = realloc(client->partitions, sizeof(SxClientPartition) * (partition + 1));
	if (partitions == NULL)
		return false;
	client->partitions = partitions;
	for (; client->npartitions <= partition; client->npartitions++)
	{
		partitions[client->npartitions].is_started = false;
		partitions[client->npartitions].next = 0;
		partitions[client->npartitions].end = -1;
	}
	return true;
}

void
sx_kafka_client_stop(SxKafkaClient *client, int32 partition)
{
	if (partition >= client->npartitions || !client->partitions[partition].is_started)
		return;
	client->partitions[partition].is_started = false;
	client->partitions[partition].end = -1;
	(void) rd_kafka_consume_stop(client->topic, partition);
}

void
sx_kafka_client_start(SxKafkaClient *client, int32 partition, int64 offset)
{
	SxClientPartition *p;

	if (!sx_kafka_client_reserve(client, partition))
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	sx_kafka_client_stop(client, partition);
	p = &client->partitions[partition];
	if (rd_kafka_consume_start_queue(client->topic, partition, offset, client->queue) != 0)
		ereport(ERROR, (errcode(ERRCODE_FDW_ERROR),
						errmsg("could not read partition %d of topic \"%s\": %s", partition,
							   rd_kafka_topic_name(client->topic),
							   rd_kafka_err2str(rd_kafka_last_error()))));
	p->is_started = true;
	p->next = offset;
	p->end = -1;
	/* it was about the offset that was asked for before */
	if (client->status.trouble == SX_KAFKA_OUT_OF_RANGE && client->status.partition == partition)
		sx_kafka_client_trouble(client, SX_KAFKA_OK, -1, 0, "");
}

int64
sx_kafka_client_end_reached(SxKafkaClient *client, int32 partition)
{
	if (partition >= client->npartitions || !client->partitions[partition].is_started)
		return -1;
	return client->partitions[partition].end;
}

int64
sx_kafka_client_known_end(SxKafkaClient *client, int32 partition)
{
	int64 first;
	int64 end;

	if (client->topic == NULL ||
		rd_kafka_get_watermark_offsets(client->rk, rd_kafka_topic_name(client->topic), partition,
									   &first, &end) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return -1;
	return end >= 0 ? end : -1;
}
