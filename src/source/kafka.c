/*
 * kafka.c
 *		The source for topics: foreign tables of wrapper "kafka".
 *
 * Offsets are kept in the pipeline's commit and nowhere else; consumer groups are not used. The
 * position moves over a record when the record is decoded, whatever became of it: a row, a dead
 * letter (written into the catalog in the same transaction), or a tombstone, which is only counted.
 *
 * Memory: lives in the memory context that is current at creation; the client is closed when that
 * is reset. Crash behaviour: nothing but the position outlives the process.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "common/int.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/catalog/records.h"

#include "kafka_source.h"

/* ms that next() waits for records that are known to be on their way. */
#define FETCH_MS 5

static bool callbacks_registered = false;

static void
options_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	sx_kafka_option_changes++;
}

/* The memory context goes: the client, and what malloc() has given, must not stay. */
static void
release_source(void *arg)
{
	SxKafkaSource *source = arg;

	if (source->client != NULL)
		sx_kafka_client_close(source->client);
	if (source->buffer != NULL)
		sx_record_buffer_free(source->buffer);
}

static void
kafka_begin(SxSource *base, Relation rel)
{
	SxKafkaSource *source = (SxKafkaSource *) base;

	PushActiveSnapshot(GetTransactionSnapshot());
	sx_kafka_start(source, rel);
	/* a state of the client shows only after events have been taken in */
	if (source->buffer->nrecords == 0)
		(void) sx_kafka_client_poll(source->client, source->buffer, (size_t) sx_batch_bytes * 1024,
									0);
	sx_kafka_check_status(source);
	PopActiveSnapshot();
}

/* ---------------------------------------------------------------- next */

static uint32
hash_record(const SxRecord *record)
{
	uint32 hash = 0;

	if (record->key_len > 0)
		hash = hash_bytes((const unsigned char *) record->key, record->key_len);
	if (record->value_len > 0)
		hash = hash_combine(hash,
							hash_bytes((const unsigned char *) record->value, record->value_len));
	return hash_combine(hash, (uint32) record->value_len);
}

/* The first record after a start at a remembered position: is it the one that was read last? */
static void
verify_record(SxKafkaSource *source, SxKafkaPartition *p, const SxRecord *record)
{
	/* an earlier one than was asked for comes in no order of events */
	if (record->offset < p->last)
		return;
	/* compaction or retention has taken it */
	if (record->offset == p->last &&
		(record->timestamp != p->last_timestamp || hash_record(record) != p->last_hash))
		sx_kafka_refuse_topic(source, record->partition,
							  psprintf("The record at offset " INT64_FORMAT " has changed.",
									   p->last));
	p->is_verified = true;
}

/*
 * Leaves those records in the buffer that are to be decoded: not what was read before, and nothing
 * past a limit. The place of the last one of each partition goes to 'highest'.
 */
static void
select_records(SxKafkaSource *source)
{
	SxRecordBuffer *buffer = source->buffer;
	SxKafkaPosition *position = source->position;
	int kept = 0;

	if (source->nhighest < position->npartitions)
	{
		source->nhighest = position->capacity;
		if (source->highest != NULL)
			pfree(source->highest);
		source->highest =
			MemoryContextAllocHuge(source->cxt, sizeof(int64) * (Size) source->nhighest);
	}
	for (int i = 0; i < position->npartitions; i++)
		source->highest[i] = -1;
	for (int i = 0; i < buffer->nrecords; i++)
	{
		SxRecord *record = &buffer->records[i];
		SxKafkaPartition *p;

		if (record->partition < 0 || record->partition >= position->npartitions)
			continue;
		p = &position->partitions[record->partition];
		if (unlikely(!p->is_verified))
			verify_record(source, p, record);
		if (record->offset < p->next)
			continue;
		if (unlikely(p->limit >= 0 && record->offset >= p->limit))
		{
			/* it is read again when the limit is gone */
			if (p->is_started)
				sx_kafka_client_stop(source->client, record->partition);
			p->is_started = false;
			/* it may stand further on already, behind a gap */
			p->next = Max(p->next, p->limit);
			continue;
		}
		p->next = record->offset + 1;
		p->is_seen = true;
		source->highest[record->partition] = kept;
		buffer->records[kept++] = *record;
	}
	buffer->nrecords = kept;
}

/* Notes what the last record of each partition was. */
static void
remember_last(SxKafkaSource *source)
{
	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];
		SxRecord *record;

		if (source->highest[i] < 0)
			continue;
		record = &source->buffer->records[source->highest[i]];
		p->last = record->offset;
		p->last_timestamp = record->timestamp;
		p->last_hash = hash_record(record);
	}
}

/* Takes in the event times of rows that were just decoded; their partitions are not idle. */
static void
observe_times(SxKafkaSource *source, const SxDecodeResult *result, int nrows, TimestampTz now)
{
	const SxKafkaOptions *options = source->options;
	int64 limit = options->max_ahead > PG_INT64_MAX - now ? PG_INT64_MAX : now + options->max_ahead;

	if (options->event_time == NULL)
		return;
	for (int row = 0; row < nrows; row++)
	{
		SxRecord *record = &source->buffer->records[result->record[row]];
		SxKafkaPartition *p = &source->position->partitions[record->partition];

		p->last_seen = now;
		if (result->event_time[row] > p->max_time && result->event_time[row] <= limit)
			p->max_time = result->event_time[row];
	}
}

/* Time of a record; false: it has none, or one that is no timestamp: its producer may set any. */
static bool
record_time(const SxRecord *record, TimestampTz *time)
{
	*time = 0;
	return record->timestamp >= 0 && !pg_mul_s64_overflow(record->timestamp, 1000, time) &&
		   !pg_sub_s64_overflow(*time,
								(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY,
								time) &&
		   IS_VALID_TIMESTAMP(*time);
}

static void
note_dead_records(SxKafkaSource *source, List *dead)
{
	ListCell *lc;

	foreach(lc, dead)
	{
		SxDeadRecord *dead_record = lfirst(lc);
		const SxRecord *record = dead_record->record;
		SxDeadLetter letter = {
			.source = source->base.relid,
			.topic = source->options->topic,
			.partition = record->partition,
			.offset = record->offset,
			.sqlerrcode = dead_record->sqlerrcode,
			.message = dead_record->message,
			.key = record->key_len < 0 ? NULL : record->key,
			.key_len = record->key_len,
			.value = record->value_len < 0 ? NULL : record->value,
			.value_len = record->value_len,
		};

		letter.has_timestamp = record_time(record, &letter.timestamp);
		if (sx_catalog_dead_letter_add(&letter) && source->base.dead_letters == 0)
			ereport(LOG,
					(errcode(dead_record->sqlerrcode),
					 errmsg("a record of topic \"%s\" could not be decoded: %s",
							source->options->topic, dead_record->message),
					 errdetail(
						 "It is in stream.dead_letters, with partition %d and offset " INT64_FORMAT
						 ". No more of them are logged for now.",
						 record->partition, (int64) record->offset)));
		source->base.dead_letters++;
	}
}

/* After all records of a buffer: partitions at whose end the client is stand behind markers, too. */
static void
pass_ends(SxKafkaSource *source)
{
	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];
		int64 end = p->is_started ? sx_kafka_client_end_reached(source->client, i) : -1;

		if (end < 0)
			continue;
		if (end < p->next && !p->is_verified)
			sx_kafka_check_end(source, i);
		/* if the record that was read last did not come it is gone */
		if (end >= p->next)
			p->is_verified = true;
		p->is_seen |= p->is_verified;
		if (p->limit >= 0)
			end = Min(end, p->limit);
		if (end <= p->next)
			continue;
		p->next = end;
	}
}

/* Is nothing known of this partition that was not read? */
static bool
partition_is_level(SxKafkaSource *source, int partition)
{
	SxKafkaPartition *p = &source->position->partitions[partition];
	int64 end;

	if (p->limit >= 0 && p->next >= p->limit)
		return true;
	if (!p->is_started || !p->is_verified)
		return false;
	if (sx_kafka_client_end_reached(source->client, partition) >= 0)
		return true;
	end = sx_kafka_client_known_end(source->client, partition);
	return end >= 0 && p->next >= end;
}

static bool
kafka_is_level(SxSource *base)
{
	SxKafkaSource *source = (SxKafkaSource *) base;

	if (source->client == NULL || !source->has_partitions)
		return false;
	for (int i = 0; i < source->position->npartitions; i++)
		if (!partition_is_level(source, i))
			return false;
	return true;
}

static bool
kafka_is_sound(SxSource *base)
{
	SxKafkaSource *source = (SxKafkaSource *) base;

	if (source->client == NULL || !source->has_partitions)
		return false;
	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];

		if (!p->is_seen && (p->limit < 0 || p->next < p->limit))
			return false;
	}
	return true;
}

/* Gets records into the empty buffer; false: none are there now. */
static bool
fetch_records(SxKafkaSource *source)
{
	size_t max_bytes = (size_t) sx_batch_bytes * 1024;

	if (source->position->npartitions == 0)
		return false;
	(void) sx_kafka_client_poll(source->client, source->buffer, max_bytes, 0);
	sx_kafka_check_status(source);
	if (source->buffer->nrecords > 0)
		return true;
	pass_ends(source);
	if (sx_kafka_client_status(source->client)->trouble != SX_KAFKA_OK ||
		kafka_is_level(&source->base))
		return false;
	(void) sx_kafka_client_poll(source->client, source->buffer, max_bytes, FETCH_MS);
	sx_kafka_check_status(source);
	return source->buffer->nrecords > 0;
}

static bool
kafka_next(SxSource *base, SxBatch *batch)
{
	SxKafkaSource *source = (SxKafkaSource *) base;
	SxRecordBuffer *buffer = source->buffer;
	SxDecodeResult result;
	TimestampTz now;

	if (buffer->nrecords == 0 && !fetch_records(source))
	{
		pass_ends(source);
		return false;
	}
	now = GetCurrentTimestamp();
	select_records(source);
	result.ntombstones = 0;
	result.dead = NIL;
	if (buffer->nrecords > 0)
		sx_decode(source->decoder, buffer->records, buffer->nrecords, batch, &result);
	remember_last(source);
	observe_times(source, &result, batch->nrows, now);
	note_dead_records(source, result.dead);
	source->base.tombstones += result.ntombstones;
	sx_record_buffer_reset(buffer);
	pass_ends(source);
	return true;
}

/* ---------------------------------------------------------------- the rest */

static void
kafka_end(SxSource *base)
{
	SxKafkaSource *source = (SxKafkaSource *) base;
	TimestampTz now = GetCurrentTimestamp();

	/* a partition is not idle because nobody has read what is in it */
	for (int i = 0; i < source->position->npartitions; i++)
		if (sx_kafka_client_status(source->client)->trouble != SX_KAFKA_OK ||
			!partition_is_level(source, i))
			source->position->partitions[i].last_seen = now;
	sx_kafka_position_advance(source->position, source->options, now);
}

static bytea *
kafka_position(SxSource *base)
{
	return sx_kafka_position_encode(((SxKafkaSource *) base)->position);
}

static int64
kafka_watermark(SxSource *base)
{
	return ((SxKafkaSource *) base)->position->watermark;
}

static uint64
kafka_behind(SxSource *base)
{
	SxKafkaSource *source = (SxKafkaSource *) base;
	uint64 behind = 0;

	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];
		int64 end = sx_kafka_client_known_end(source->client, i);

		if (end > p->next && sx_kafka_client_end_reached(source->client, i) < 0)
			behind += end - p->next;
	}
	return behind;
}

static Snapshot
kafka_snapshot(SxSource *base)
{
	return GetTransactionSnapshot();
}

static bool
kafka_mark(SxSource *base)
{
	SxKafkaSource *source = (SxKafkaSource *) base;
	bool answered;
	int npartitions;
	int64 *ends;

	if (source->client == NULL || !source->has_partitions || !sx_kafka_may_ask(source))
		return false;
	npartitions = sx_kafka_client_partitions(source->client, SX_KAFKA_ANSWER_MS);
	if (npartitions < 0)
	{
		sx_kafka_asked(source, false);
		return false;
	}
	if (npartitions != source->position->npartitions)
	{
		source->ask_at = 0;
		return false;
	}
	ends = palloc(sizeof(int64) * npartitions);
	answered = sx_kafka_client_ends(source->client, npartitions, ends, SX_KAFKA_ANSWER_MS);
	sx_kafka_asked(source, answered);
	if (!answered)
		return false;
	for (int i = 0; i < npartitions; i++)
		source->position->partitions[i].mark = ends[i];
	return true;
}

static bool
kafka_reached(SxSource *base)
{
	SxKafkaSource *source = (SxKafkaSource *) base;

	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];

		/* the mark of another topic of this name says nothing */
		if (p->next < p->mark || !p->is_verified)
			return false;
	}
	return true;
}

/* Records that a reader has passed, in sum: tells which of two is ahead. */
static int64
sum_offsets(const SxKafkaPosition *position)
{
	int64 sum = 0;

	for (int i = 0; i < position->npartitions; i++)
		sum += position->partitions[i].next;
	return sum;
}

static bool
kafka_follow(SxSource *base, SxSource *base_leader)
{
	SxKafkaPosition *position = ((SxKafkaSource *) base)->position;
	SxKafkaPosition *leader =
		base_leader != NULL ? ((SxKafkaSource *) base_leader)->position : NULL;
	bool is_ahead = leader != NULL && leader->npartitions == position->npartitions &&
					sum_offsets(leader) > sum_offsets(position);

	for (int i = 0; i < position->npartitions; i++)
	{
		SxKafkaPartition *p = &position->partitions[i];

		p->limit = is_ahead ? Max(p->next, leader->partitions[i].next) : -1;
	}
	return is_ahead;
}

static void
kafka_status(SxSource *base, SxSourceStatus *result)
{
	static const SxSourceHealth health[] = {
		[SX_KAFKA_OK] = SX_SOURCE_OK,
		[SX_KAFKA_CONNECTING] = SX_SOURCE_CONNECTING,
		[SX_KAFKA_DEGRADED] = SX_SOURCE_DEGRADED,
		[SX_KAFKA_FAILING] = SX_SOURCE_FAILING,
		[SX_KAFKA_OUT_OF_RANGE] = SX_SOURCE_DEGRADED,
		[SX_KAFKA_FATAL] = SX_SOURCE_DEGRADED,
	};
	SxKafkaSource *source = (SxKafkaSource *) base;
	const SxKafkaStatus *status;

	if (source->client == NULL)
	{
		result->health = SX_SOURCE_CONNECTING;
		result->since = 0;
		result->message = "";
		return;
	}
	status = sx_kafka_client_status(source->client);
	result->health = health[status->trouble];
	result->since = status->since;
	result->message = status->message;
}

static const SxSourceMethods kafka_methods = {
	.name = "kafka",
	.begin = kafka_begin,
	.next = kafka_next,
	.end = kafka_end,
	.position = kafka_position,
	.watermark = kafka_watermark,
	.behind = kafka_behind,
	.snapshot = kafka_snapshot,
	.is_level = kafka_is_level,
	.is_sound = kafka_is_sound,
	.mark = kafka_mark,
	.reached = kafka_reached,
	.follow = kafka_follow,
	.status = kafka_status,
};

static void
register_callbacks(void)
{
	if (callbacks_registered)
		return;
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, options_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, options_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNTABLEREL, options_changed, (Datum) 0);
	callbacks_registered = true;
}

SxSource *
sx_source_kafka(Relation rel, Oid user, bytea *position, bool *restarted)
{
	SxKafkaSource *source = palloc0(sizeof(SxKafkaSource));
	char *topic = sx_kafka_topic(RelationGetRelid(rel));
	TimestampTz now = GetCurrentTimestamp();

	register_callbacks();
	source->base.methods = &kafka_methods;
	source->base.relid = RelationGetRelid(rel);
	source->cxt = CurrentMemoryContext;
	source->user = user;
	*restarted = false;
	if (position != NULL)
	{
		source->position =
			sx_kafka_position_decode(VARDATA_ANY(position), VARSIZE_ANY_EXHDR(position));
		*restarted = source->position->topic_hash != sx_kafka_topic_hash(topic);
	}
	if (position == NULL || *restarted)
		source->position = sx_kafka_position_create(topic);
	for (int i = 0; i < source->position->npartitions; i++)
		source->position->partitions[i].last_seen = now;
	source->callback.func = release_source;
	source->callback.arg = source;
	MemoryContextRegisterResetCallback(source->cxt, &source->callback);
	source->buffer = sx_record_buffer_create(SX_BATCH_ROWS, false);
	return &source->base;
}
