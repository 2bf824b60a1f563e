/*
 * kafka_client_buffer.c
 *		Records that have been read, with their bytes.
 *
 * Filled in callbacks of librdkafka, so nothing here but sx_record_buffer_create() raises errors or
 * uses palloc. A record always fits: the bytes grow, and the records that point to them move with
 * them. So the size is bounded by the limit of the poll and the largest record, doubled.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "kafka_client_private.h"

#define BUFFER_BYTES  (64 * 1024)
#define BUFFER_SHRINK (8 * 1024 * 1024) /* more is given back when it was not needed */

void
sx_kafka_client_out_of_memory(void)
{
	ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"),
					errdetail("A client of Kafka needs more.")));
}

SxRecordBuffer *
sx_record_buffer_create(int max_records, bool with_headers)
{
	SxRecordBuffer *buffer = calloc(1, sizeof(SxRecordBuffer));

	if (buffer != NULL)
	{
		buffer->max_records = max_records;
		buffer->with_headers = with_headers;
		buffer->records = malloc(sizeof(SxRecord) * max_records);
		buffer->size = BUFFER_BYTES;
		buffer->bytes = malloc(buffer->size);
	}
	if (buffer == NULL || buffer->records == NULL || buffer->bytes == NULL)
	{
		sx_record_buffer_free(buffer);
		sx_kafka_client_out_of_memory();
	}
	return buffer;
}

/* Empties it. One that was made large by a few records becomes small again. */
void
sx_record_buffer_reset(SxRecordBuffer *buffer)
{
	if (buffer->size > BUFFER_SHRINK && buffer->used < buffer->size / 8)
	{
		char *bytes = realloc(buffer->bytes, BUFFER_BYTES);

		if (bytes != NULL)
		{
			buffer->bytes = bytes;
			buffer->size = BUFFER_BYTES;
		}
	}
	buffer->nrecords = 0;
	buffer->used = 0;
}

void
sx_record_buffer_free(SxRecordBuffer *buffer)
{
	if (buffer == NULL)
		return;
	free(buffer->records);
	free(buffer->bytes);
	free(buffer);
}

static const char *
move_pointer(const char *pointer, const char *from, const char *to)
{
	return pointer != NULL ? to + (pointer - from) : NULL;
}

/* Makes room for 'len' more bytes; false: out of memory. Records move with the bytes. */
static bool
reserve_bytes(SxRecordBuffer *buffer, size_t len)
{
	size_t size = buffer->size;
	char *bytes;

	if (len <= size - buffer->used)
		return true;
	while (len > size - buffer->used)
		size *= 2;
	bytes = malloc(size);
	if (bytes == NULL)
		return false;
	memcpy(bytes, buffer->bytes, buffer->used);
	for (int i = 0; i < buffer->nrecords; i++)
	{
		SxRecord *record = &buffer->records[i];

		record->headers = move_pointer(record->headers, buffer->bytes, bytes);
		record->key = move_pointer(record->key, buffer->bytes, bytes);
		record->value = move_pointer(record->value, buffer->bytes, bytes);
	}
	free(buffer->bytes);
	buffer->bytes = bytes;
	buffer->size = size;
	return true;
}

/* Appends bytes for which there is room. */
static const char *
append_bytes(SxRecordBuffer *buffer, const void *data, size_t len)
{
	char *start = buffer->bytes + buffer->used;

	memcpy(start, data, len);
	buffer->used += len;
	return start;
}

/* Appends the headers of a message as decode/record.h describes them; false: out of memory. */
static bool
append_headers(SxRecordBuffer *buffer, rd_kafka_message_t *message, SxRecord *record)
{
	rd_kafka_headers_t *headers;
	size_t begin = buffer->used;
	const char *name;
	const void *value;
	size_t value_len;

	record->nheaders = 0;
	record->headers_len = 0;
	record->headers = NULL;
	if (!buffer->with_headers ||
		rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return true;
	while (rd_kafka_header_get_all(headers, record->nheaders, &name, &value, &value_len) ==
		   RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		int32 lengths[2] = {(int32) strlen(name), value != NULL ? (int32) value_len : -1};

		if (!reserve_bytes(buffer, sizeof(lengths) + lengths[0] + Max(lengths[1], 0)))
			return false;
		(void) append_bytes(buffer, &lengths[0], sizeof(int32));
		(void) append_bytes(buffer, name, lengths[0]);
		(void) append_bytes(buffer, &lengths[1], sizeof(int32));
		if (value != NULL)
			(void) append_bytes(buffer, value, value_len);
		record->nheaders++;
	}
	record->headers_len = (int32) (buffer->used - begin);
	/* only now, as the bytes may have moved */
	record->headers = buffer->bytes + begin;
	return true;
}

/* False: out of memory, and the buffer is as it was. */
bool
sx_record_buffer_append(SxRecordBuffer *buffer, rd_kafka_message_t *message)
{
	SxRecord *record = &buffer->records[buffer->nrecords];
	rd_kafka_timestamp_type_t type;
	size_t used = buffer->used;

	if (!append_headers(buffer, message, record) ||
		!reserve_bytes(buffer, message->key_len + message->len))
	{
		buffer->used = used;
		return false;
	}
	/* the last reserve_bytes() did not know this record */
	if (record->headers != NULL)
		record->headers = buffer->bytes + used;
	record->offset = message->offset;
	record->partition = message->partition;
	record->timestamp = rd_kafka_message_timestamp(message, &type);
	record->key_len = message->key != NULL ? (int32) message->key_len : -1;
	record->value_len = message->payload != NULL ? (int32) message->len : -1;
	record->key =
		message->key != NULL ? append_bytes(buffer, message->key, message->key_len) : NULL;
	record->value =
		message->payload != NULL ? append_bytes(buffer, message->payload, message->len) : NULL;
	buffer->nrecords++;
	return true;
}

bool
sx_record_buffer_full(const SxRecordBuffer *buffer, size_t max_bytes)
{
	return buffer->nrecords >= buffer->max_records ||
		   (buffer->nrecords > 0 && buffer->used >= max_bytes);
}
