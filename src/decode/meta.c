/*
 * meta.c
 *		Columns from what comes with a record: partition, offset, time, headers.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "decode_internal.h"

/* Longer ones might be too large for jsonb. */
#define MAX_HEADERS_LEN (32 * 1024 * 1024)

#define UNIX_EPOCH_USECS ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

static void
set_time(SxDecoder *decoder, const SxColumn *column, int64 ms)
{
	int i = column->attno - 1;
	int64 usecs;

	decoder->nulls[i] = ms == -1;
	if (decoder->nulls[i])
		return;
	if (column->type == INT8OID)
	{
		decoder->values[i] = Int64GetDatum(ms);
		return;
	}
	if (pg_mul_s64_overflow(ms, 1000, &usecs) ||
		pg_sub_s64_overflow(usecs, UNIX_EPOCH_USECS, &usecs) || !IS_VALID_TIMESTAMP(usecs))
	{
		sx_kill(decoder, ERRCODE_DATETIME_VALUE_OUT_OF_RANGE,
				"column \"%s\": time of the record is out of range: %lld ms", column->name,
				(long long) ms);
		return;
	}
	decoder->values[i] = TimestampTzGetDatum(usecs);
}

/* Bytes as text, if they are text of the server, else as bytea is written. */
static void
set_text(const SxDecoder *decoder, JsonbValue *value, const char *bytes, int32 len)
{
	value->type = jbvString;
	if (memchr(bytes, '\0', len) == NULL &&
		(sx_ascii(bytes, len) || (decoder->takes_utf8 && sx_utf8_valid(bytes, len))))
	{
		value->val.string.val = unconstify(char *, bytes);
		value->val.string.len = len;
		return;
	}
	value->val.string.val = palloc((Size) len * 2 + 3);
	value->val.string.len = len * 2 + 2;
	memcpy(value->val.string.val, "\\x", 2);
	for (int32 i = 0; i < len; i++)
		snprintf(value->val.string.val + 2 + i * 2, 3, "%02x", (unsigned char) bytes[i]);
}

/* An object; of headers with the same name the last one counts. */
static void
set_headers(SxDecoder *decoder, SxColumn *column)
{
	const SxRecord *record = decoder->record;
	const char *p = record->headers;
	JsonbParseState *state = NULL;

	if (record->headers_len > MAX_HEADERS_LEN)
	{
		sx_kill(decoder, ERRCODE_PROGRAM_LIMIT_EXCEEDED, "column \"%s\": headers are too long: %d",
				column->name, record->headers_len);
		return;
	}
	if (column->target == NULL)
		return;
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < record->nheaders; i++)
	{
		JsonbValue item;
		int32 len;

		memcpy(&len, p, sizeof(len));
		p += sizeof(len);
		set_text(decoder, &item, p, len);
		p += len;
		pushJsonbValue(&state, WJB_KEY, &item);
		memcpy(&len, p, sizeof(len));
		p += sizeof(len);
		if (len < 0)
			item.type = jbvNull;
		else
		{
			set_text(decoder, &item, p, len);
			p += len;
		}
		pushJsonbValue(&state, WJB_VALUE, &item);
	}
	Assert(p == record->headers + record->headers_len);
	decoder->values[column->attno - 1] =
		JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	decoder->nulls[column->attno - 1] = false;
	column->in_scratch = true;
}

void
sx_meta_value(SxDecoder *decoder, SxColumn *column)
{
	int i = column->attno - 1;

	decoder->nulls[i] = false;
	switch (column->origin)
	{
		case SX_FROM_PARTITION:
			decoder->values[i] = column->type == INT4OID
									 ? Int32GetDatum(decoder->record->partition)
									 : Int64GetDatum(decoder->record->partition);
			break;
		case SX_FROM_OFFSET:
			decoder->values[i] = Int64GetDatum(decoder->record->offset);
			break;
		case SX_FROM_TIMESTAMP:
			set_time(decoder, column, decoder->record->timestamp);
			break;
		case SX_FROM_HEADERS:
			set_headers(decoder, column);
			break;
		default:
			elog(ERROR, "unexpected origin of column: %d", (int) column->origin);
	}
}
