/*
 * kafka_test.c
 *		Drives a client of Kafka from SQL, for tests.
 *
 * Clients live as long as the session, whatever transactions do, as those of a worker.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <poll.h>
#include <unistd.h>

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "stream_ext/source/kafka_client.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(kafka_open);
PG_FUNCTION_INFO_V1(kafka_close);
PG_FUNCTION_INFO_V1(kafka_start);
PG_FUNCTION_INFO_V1(kafka_stop);
PG_FUNCTION_INFO_V1(kafka_poll);
PG_FUNCTION_INFO_V1(kafka_count);
PG_FUNCTION_INFO_V1(kafka_read);
PG_FUNCTION_INFO_V1(kafka_end_reached);
PG_FUNCTION_INFO_V1(kafka_known_end);
PG_FUNCTION_INFO_V1(kafka_partitions);
PG_FUNCTION_INFO_V1(kafka_range);
PG_FUNCTION_INFO_V1(kafka_offset_at);
PG_FUNCTION_INFO_V1(kafka_topics);
PG_FUNCTION_INFO_V1(kafka_status);
PG_FUNCTION_INFO_V1(kafka_wait_status);
PG_FUNCTION_INFO_V1(kafka_wait_event);

#define CLIENTS_MAX    64
#define PARTITIONS_MAX 256

static SxKafkaClient *clients[CLIENTS_MAX];
static bool started[CLIENTS_MAX][PARTITIONS_MAX];
static int64 positions[CLIENTS_MAX][PARTITIONS_MAX]; /* of kafka_count() */

static SxKafkaClient *
get_client(int number)
{
	if (number < 0 || number >= CLIENTS_MAX || clients[number] == NULL)
		elog(ERROR, "no client %d", number);
	return clients[number];
}

static void
add_property(SxKafkaOptions *options, const char *name, const char *value)
{
	SxKafkaProperty *property = palloc(sizeof(SxKafkaProperty));

	property->name = pstrdup(name);
	property->value = pstrdup(value);
	options->properties = lappend(options->properties, property);
}

Datum
kafka_open(PG_FUNCTION_ARGS)
{
	SxKafkaOptions options = {0};
	Datum *words;
	int nwords;
	int number = 0;

	options.topic = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	add_property(&options, "bootstrap.servers", text_to_cstring(PG_GETARG_TEXT_PP(0)));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), TEXTOID, -1, false, TYPALIGN_INT, &words, NULL,
					  &nwords);
	for (int i = 0; i + 1 < nwords; i += 2)
		add_property(&options, TextDatumGetCString(words[i]), TextDatumGetCString(words[i + 1]));
	while (number < CLIENTS_MAX && clients[number] != NULL)
		number++;
	if (number == CLIENTS_MAX)
		elog(ERROR, "too many clients");
	clients[number] = sx_kafka_client_open(&options, PG_GETARG_INT32(3));
	memset(started[number], 0, sizeof(started[number]));
	PG_RETURN_INT32(number);
}

Datum
kafka_close(PG_FUNCTION_ARGS)
{
	SxKafkaClient *client = get_client(PG_GETARG_INT32(0));

	clients[PG_GETARG_INT32(0)] = NULL;
	sx_kafka_client_close(client);
	/* nothing happens the second time */
	sx_kafka_client_close(client);
	PG_RETURN_VOID();
}

Datum
kafka_start(PG_FUNCTION_ARGS)
{
	int partition = PG_GETARG_INT32(1);

	sx_kafka_client_start(get_client(PG_GETARG_INT32(0)), partition, PG_GETARG_INT64(2));
	if (partition < PARTITIONS_MAX)
	{
		started[PG_GETARG_INT32(0)][partition] = true;
		positions[PG_GETARG_INT32(0)][partition] = PG_GETARG_INT64(2);
	}
	PG_RETURN_VOID();
}

Datum
kafka_stop(PG_FUNCTION_ARGS)
{
	int partition = PG_GETARG_INT32(1);

	sx_kafka_client_stop(get_client(PG_GETARG_INT32(0)), partition);
	if (partition >= 0 && partition < PARTITIONS_MAX)
		started[PG_GETARG_INT32(0)][partition] = false;
	PG_RETURN_VOID();
}

/* Bytes that are text in the encoding of the database; others in hexadecimal digits. */
static Datum
bytes_to_text(const char *bytes, int len)
{
	StringInfoData digits;

	if (pg_verify_mbstr(GetDatabaseEncoding(), bytes, len, true))
		return PointerGetDatum(cstring_to_text_with_len(bytes, len));
	initStringInfo(&digits);
	for (int i = 0; i < len; i++)
		appendStringInfo(&digits, "\\x%02x", (unsigned char) bytes[i]);
	return CStringGetTextDatum(digits.data);
}

static Datum
headers_to_array(const SxRecord *record)
{
	Datum *words = palloc(sizeof(Datum) * record->nheaders * 2);
	bool *nulls = palloc0(sizeof(bool) * record->nheaders * 2);
	const char *next = record->headers;
	int dims[1] = {record->nheaders * 2};
	int lower[1] = {1};

	for (int i = 0; i < record->nheaders * 2; i++)
	{
		int32 len;

		memcpy(&len, next, sizeof(len));
		next += sizeof(len);
		nulls[i] = len < 0;
		if (len < 0)
			continue;
		words[i] = bytes_to_text(next, len);
		next += len;
	}
	if (next != record->headers + record->headers_len)
		elog(ERROR, "headers do not have the length that the record says");
	return PointerGetDatum(
		construct_md_array(words, nulls, 1, dims, lower, TEXTOID, -1, false, TYPALIGN_INT));
}

/* Makes rows of all records of the buffer, and empties it. */
static void
put_records(ReturnSetInfo *result, SxRecordBuffer *buffer)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "kafka_test", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < buffer->nrecords; i++)
	{
		const SxRecord *record = &buffer->records[i];
		Datum values[6];
		bool nulls[6] = {false};

		values[0] = Int32GetDatum(record->partition);
		values[1] = Int64GetDatum(record->offset);
		values[2] = Int64GetDatum(record->timestamp);
		nulls[3] = record->key_len < 0;
		if (!nulls[3])
			values[3] = bytes_to_text(record->key, record->key_len);
		nulls[4] = record->value_len < 0;
		if (!nulls[4])
			values[4] = bytes_to_text(record->value, record->value_len);
		nulls[5] = record->nheaders == 0;
		if (!nulls[5])
			values[5] = headers_to_array(record);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		MemoryContextReset(cxt);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	sx_record_buffer_reset(buffer);
}

Datum
kafka_poll(PG_FUNCTION_ARGS)
{
	SxKafkaClient *client = get_client(PG_GETARG_INT32(0));
	SxRecordBuffer *buffer;

	InitMaterializedSRF(fcinfo, 0);
	buffer = sx_record_buffer_create(PG_GETARG_INT32(1), true);
	PG_TRY();
	{
		(void) sx_kafka_client_poll(client, buffer, PG_GETARG_INT64(2), PG_GETARG_INT32(3));
		put_records((ReturnSetInfo *) fcinfo->resultinfo, buffer);
	}
	PG_FINALLY();
	{
		sx_record_buffer_free(buffer);
	}
	PG_END_TRY();
	return (Datum) 0;
}

/* Are all partitions that are read at their ends? */
static bool
at_end(SxKafkaClient *client, int number)
{
	for (int i = 0; i < PARTITIONS_MAX; i++)
		if (started[number][i] && sx_kafka_client_end_reached(client, i) < 0)
			return false;
	return true;
}

Datum
kafka_read(PG_FUNCTION_ARGS)
{
	SxKafkaClient *client = get_client(PG_GETARG_INT32(0));
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), PG_GETARG_INT32(1));
	SxRecordBuffer *buffer;

	InitMaterializedSRF(fcinfo, 0);
	buffer = sx_record_buffer_create(PG_GETARG_INT32(2), true);
	PG_TRY();
	{
		do
		{
			(void) sx_kafka_client_poll(client, buffer, 1024 * 1024, 100);
			put_records((ReturnSetInfo *) fcinfo->resultinfo, buffer);
		} while (!at_end(client, PG_GETARG_INT32(0)) && GetCurrentTimestamp() < end);
		if (!at_end(client, PG_GETARG_INT32(0)))
			elog(ERROR, "no end within %d ms: %s", PG_GETARG_INT32(1),
				 sx_kafka_client_status(client)->message);
	}
	PG_FINALLY();
	{
		sx_record_buffer_free(buffer);
	}
	PG_END_TRY();
	return (Datum) 0;
}

static Datum
return_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/*
 * Adds to *holes the offsets that are missing between the records and those that came before, and
 * notes which partitions have records.
 */
static void
check_records(int number, const SxRecordBuffer *buffer, int64 *holes, bool *seen)
{
	for (int i = 0; i < buffer->nrecords; i++)
	{
		const SxRecord *record = &buffer->records[i];
		int64 *position = &positions[number][record->partition];

		if (record->offset < *position)
			elog(ERROR, "offset %lld of partition %d comes after %lld", (long long) record->offset,
				 record->partition, (long long) *position - 1);
		*holes += record->offset - *position;
		*position = record->offset + 1;
		seen[record->partition] = true;
	}
}

Datum
kafka_count(PG_FUNCTION_ARGS)
{
	SxKafkaClient *client = get_client(PG_GETARG_INT32(0));
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), PG_GETARG_INT32(2));
	SxRecordBuffer *buffer = sx_record_buffer_create(PG_GETARG_INT32(3), true);
	bool seen[PARTITIONS_MAX] = {false};
	int64 nrecords = 0;
	int64 bytes = 0;
	int64 polls = 0;
	int64 holes = 0;
	int partitions = 0;
	Datum values[5];
	bool nulls[5] = {false};

	PG_TRY();
	{
		while (nrecords < PG_GETARG_INT64(1) && GetCurrentTimestamp() < end)
		{
			int n = sx_kafka_client_poll(client, buffer, PG_GETARG_INT64(4), 100);

			nrecords += n;
			bytes += buffer->used;
			polls += n > 0;
			check_records(PG_GETARG_INT32(0), buffer, &holes, seen);
			sx_record_buffer_reset(buffer);
			CHECK_FOR_INTERRUPTS();
		}
	}
	PG_FINALLY();
	{
		sx_record_buffer_free(buffer);
	}
	PG_END_TRY();
	for (int i = 0; i < PARTITIONS_MAX; i++)
		partitions += seen[i];
	values[0] = Int64GetDatum(nrecords);
	values[1] = Int64GetDatum(bytes);
	values[2] = Int64GetDatum(polls);
	values[3] = Int64GetDatum(holes);
	values[4] = Int32GetDatum(partitions);
	PG_RETURN_DATUM(return_row(fcinfo, values, nulls));
}

Datum
kafka_end_reached(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(
		sx_kafka_client_end_reached(get_client(PG_GETARG_INT32(0)), PG_GETARG_INT32(1)));
}

Datum
kafka_known_end(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(sx_kafka_client_known_end(get_client(PG_GETARG_INT32(0)), PG_GETARG_INT32(1)));
}

Datum
kafka_partitions(PG_FUNCTION_ARGS)
{
	int n = sx_kafka_client_partitions(get_client(PG_GETARG_INT32(0)), PG_GETARG_INT32(1));

	if (n < 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(n);
}

Datum
kafka_range(PG_FUNCTION_ARGS)
{
	int64 first;
	int64 end;
	Datum values[2];
	bool nulls[2] = {false};

	if (!sx_kafka_client_range(get_client(PG_GETARG_INT32(0)), PG_GETARG_INT32(1), &first, &end,
							   PG_GETARG_INT32(2)))
		PG_RETURN_NULL();
	values[0] = Int64GetDatum(first);
	values[1] = Int64GetDatum(end);
	PG_RETURN_DATUM(return_row(fcinfo, values, nulls));
}

Datum
kafka_offset_at(PG_FUNCTION_ARGS)
{
	int64 offset;

	if (!sx_kafka_client_offset_at(get_client(PG_GETARG_INT32(0)), PG_GETARG_INT32(1),
								   PG_GETARG_INT64(2), &offset, PG_GETARG_INT32(3)))
		PG_RETURN_NULL();
	PG_RETURN_INT64(offset);
}

Datum
kafka_topics(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	List *npartitions;
	ListCell *name;
	ListCell *number;
	List *names;
	bool ok;

	InitMaterializedSRF(fcinfo, 0);
	names = sx_kafka_client_topics(get_client(PG_GETARG_INT32(0)), &npartitions, &ok,
								   PG_GETARG_INT32(1));
	if (!ok)
		elog(ERROR, "no answer");
	forboth(name, names, number, npartitions)
	{
		Datum values[2] = {CStringGetTextDatum(lfirst(name)), Int32GetDatum(lfirst_int(number))};
		bool nulls[2] = {false};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

static const char *
name_trouble(SxKafkaTrouble trouble)
{
	static const char *const names[] = {"ok",      "connecting",   "degraded",
										"failing", "out of range", "fatal"};

	return names[trouble];
}

Datum
kafka_status(PG_FUNCTION_ARGS)
{
	const SxKafkaStatus *status = sx_kafka_client_status(get_client(PG_GETARG_INT32(0)));
	Datum values[5];
	bool nulls[5] = {false};

	values[0] = CStringGetTextDatum(name_trouble(status->trouble));
	values[1] = Int32GetDatum(status->partition);
	values[2] = Int64GetDatum(status->offset);
	values[3] = TimestampTzGetDatum(status->since);
	values[4] = CStringGetTextDatum(status->message);
	PG_RETURN_DATUM(return_row(fcinfo, values, nulls));
}

Datum
kafka_wait_status(PG_FUNCTION_ARGS)
{
	SxKafkaClient *client = get_client(PG_GETARG_INT32(0));
	char *wanted = text_to_cstring(PG_GETARG_TEXT_PP(1));
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), PG_GETARG_INT32(2));
	SxRecordBuffer *buffer = sx_record_buffer_create(1000, true);
	bool found;

	PG_TRY();
	{
		for (;;)
		{
			found = strcmp(name_trouble(sx_kafka_client_status(client)->trouble), wanted) == 0;
			if (found || GetCurrentTimestamp() >= end)
				break;
			(void) sx_kafka_client_poll(client, buffer, 1024 * 1024, 100);
			sx_record_buffer_reset(buffer);
		}
	}
	PG_FINALLY();
	{
		sx_record_buffer_free(buffer);
	}
	PG_END_TRY();
	PG_RETURN_BOOL(found);
}

Datum
kafka_wait_event(PG_FUNCTION_ARGS)
{
	struct pollfd fd = {.fd = sx_kafka_event_fd(), .events = POLLIN};
	uint64 count;

	if (poll(&fd, 1, PG_GETARG_INT32(0)) <= 0)
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(read(fd.fd, &count, sizeof(count)) == sizeof(count));
}
