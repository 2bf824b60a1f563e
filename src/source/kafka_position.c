/*
 * kafka_position.c
 *		Where a reader of a topic stands, as it is saved, and the watermarks of its partitions.
 *
 * Saved are, for each partition, the next offset, what the last record was, and the greatest event
 * time, and for the topic its watermark. Two readers that have read the same save the same bytes,
 * which is how the pipeline finds out that they are level.
 *
 * The last record is kept because an offset alone does not tell a topic from another one of the
 * same name: a topic that was deleted and made anew has other records at the same offsets.
 *
 * Format: byte version (1), then integers as variable-length quantities, signed ones in zigzag:
 * topic hash, watermark, number of partitions; for each next, last, timestamp, hash, event time.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "common/hashfn.h"
#include "lib/stringinfo.h"

#include "stream_ext/source/kafka_position.h"

#define POSITION_VERSION 1

typedef struct Cursor
{
	const unsigned char *next;
	const unsigned char *end;
} Cursor;

static void
append_unsigned(StringInfo buf, uint64 value)
{
	while (value >= 0x80)
	{
		appendStringInfoChar(buf, (char) (value | 0x80));
		value >>= 7;
	}
	appendStringInfoChar(buf, (char) value);
}

static void
append_signed(StringInfo buf, int64 value)
{
	append_unsigned(buf, ((uint64) value << 1) ^ (uint64) (value >> 63));
}

static void
report_corruption(void)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("invalid position in a topic"),
					errhint("Use REFRESH MATERIALIZED VIEW to build the view anew.")));
}

static uint64
read_unsigned(Cursor *cursor)
{
	uint64 value = 0;

	for (int shift = 0; shift < 64; shift += 7)
	{
		unsigned char byte;

		if (cursor->next >= cursor->end)
			break;
		byte = *cursor->next++;
		value |= (uint64) (byte & 0x7f) << shift;
		if ((byte & 0x80) == 0)
			return value;
	}
	report_corruption();
	return 0; /* keep compiler quiet */
}

static int64
read_signed(Cursor *cursor)
{
	uint64 value = read_unsigned(cursor);

	return (int64) (value >> 1) ^ -(int64) (value & 1);
}

uint32
sx_kafka_topic_hash(const char *topic)
{
	return hash_bytes((const unsigned char *) topic, strlen(topic));
}

SxKafkaPosition *
sx_kafka_position_create(const char *topic)
{
	SxKafkaPosition *position = palloc0(sizeof(SxKafkaPosition));

	position->topic_hash = sx_kafka_topic_hash(topic);
	position->watermark = PG_INT64_MIN;
	position->capacity = 16;
	position->partitions = palloc(sizeof(SxKafkaPartition) * position->capacity);
	return position;
}

void
sx_kafka_position_extend(SxKafkaPosition *position, int npartitions, TimestampTz now)
{
	if (npartitions > position->capacity)
	{
		position->capacity = Max(npartitions, position->capacity * 2);
		position->partitions = repalloc_huge(position->partitions,
											 sizeof(SxKafkaPartition) * (Size) position->capacity);
	}
	while (position->npartitions < npartitions)
	{
		SxKafkaPartition *partition = &position->partitions[position->npartitions++];

		memset(partition, 0, sizeof(SxKafkaPartition));
		partition->next = -1;
		partition->last = -1;
		partition->max_time = PG_INT64_MIN;
		partition->last_seen = now;
		partition->is_verified = true;
		partition->mark = -1;
		partition->limit = -1;
	}
}

SxKafkaPosition *
sx_kafka_position_decode(const char *data, Size len)
{
	Cursor cursor = {(const unsigned char *) data, (const unsigned char *) data + len};
	SxKafkaPosition *position = palloc0(sizeof(SxKafkaPosition));
	uint64 npartitions;

	if (len == 0 || *cursor.next++ != POSITION_VERSION)
		report_corruption();
	position->topic_hash = (uint32) read_unsigned(&cursor);
	position->watermark = read_signed(&cursor);
	npartitions = read_unsigned(&cursor);
	/* each takes five bytes at least */
	if (npartitions > len / 5)
		report_corruption();
	position->capacity = Max((int) npartitions, 1);
	position->partitions = palloc(sizeof(SxKafkaPartition) * position->capacity);
	sx_kafka_position_extend(position, (int) npartitions, 0);
	for (int i = 0; i < position->npartitions; i++)
	{
		SxKafkaPartition *partition = &position->partitions[i];

		partition->next = read_signed(&cursor);
		partition->last = read_signed(&cursor);
		partition->last_timestamp = read_signed(&cursor);
		partition->last_hash = (uint32) read_unsigned(&cursor);
		partition->max_time = read_signed(&cursor);
		partition->is_verified = partition->last < 0;
	}
	if (cursor.next != cursor.end)
		report_corruption();
	return position;
}

bytea *
sx_kafka_position_encode(const SxKafkaPosition *position)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoSpaces(&buf, VARHDRSZ);
	appendStringInfoChar(&buf, POSITION_VERSION);
	append_unsigned(&buf, position->topic_hash);
	append_signed(&buf, position->watermark);
	append_unsigned(&buf, (uint64) position->npartitions);
	for (int i = 0; i < position->npartitions; i++)
	{
		SxKafkaPartition *partition = &position->partitions[i];

		append_signed(&buf, partition->next);
		append_signed(&buf, partition->last);
		append_signed(&buf, partition->last_timestamp);
		append_unsigned(&buf, partition->last_hash);
		append_signed(&buf, partition->max_time);
	}
	SET_VARSIZE(buf.data, buf.len);
	return (bytea *) buf.data;
}

void
sx_kafka_position_advance(SxKafkaPosition *position, const SxKafkaOptions *options, TimestampTz now)
{
	int64 least = PG_INT64_MAX;
	bool has_active = false;

	if (options->event_time == NULL || !options->has_watermark_delay)
		return;
	for (int i = 0; i < position->npartitions; i++)
	{
		SxKafkaPartition *partition = &position->partitions[i];

		if (now - partition->last_seen >= options->idle_timeout)
			continue;
		has_active = true;
		least = Min(least, partition->max_time);
	}
	/* when all are idle it stands still: rows that come late must not be judged by silence */
	if (!has_active || least == PG_INT64_MIN || least < PG_INT64_MIN + 1 + options->watermark_delay)
		return;
	position->watermark = Max(position->watermark, least - options->watermark_delay);
}
