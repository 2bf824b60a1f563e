/*
 * kafka_start.c
 *		Where the reader of a topic begins, and what happens when it cannot go on.
 *
 * Nothing here waits for a broker for long: other views of the worker are waiting, too. What a
 * broker has to be asked is asked with a short timeout, if there is one to ask, and when there was no
 * answer not again before a pause (kafka_ask.c). The topic's partitions are asked for every ten
 * seconds.
 *
 * Offsets alone do not say that a topic is still the same. When reading starts at a remembered
 * position, it starts at the last record that was read, and kafka.c compares. What cannot be gone on
 * with is an error of all views that read here: records that were deleted before they were read
 * (unless the table says on_gap 'earliest': then the gap is noted), an end before the position,
 * fewer partitions than there were.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"

#include "kafka_source.h"

/* Partitions are asked for this often; and again after no answer, a pause that doubles. */
#define PARTITIONS_US    (10 * USECS_PER_SEC)
#define FIRST_PAUSE_US   (20 * INT64CONST(1000))
#define LONGEST_PAUSE_US (5 * USECS_PER_SEC)

/* us between two lines in the log about the state of a source. */
#define LOG_PAUSE_US (10 * USECS_PER_SEC)

uint64 sx_kafka_option_changes = 1;

void
sx_kafka_close(SxKafkaSource *source)
{
	if (source->client != NULL)
		sx_kafka_client_close(source->client);
	source->client = NULL;
	source->has_partitions = false;
	/* what has arrived may be another cluster's */
	sx_record_buffer_reset(source->buffer);
	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];

		p->is_started = false;
		p->is_verified = p->last < 0;
	}
}

void
sx_kafka_refuse_topic(SxKafkaSource *source, int partition, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_ERROR),
			 errmsg("topic \"%s\" is not the one that was read before", source->options->topic),
			 errdetail("Partition %d: %s", partition, what),
			 errhint("If it was deleted and made anew, REFRESH MATERIALIZED VIEW builds the view "
					 "from what it holds now.")));
}

static void
refuse_end(SxKafkaSource *source, int partition, int64 end)
{
	sx_kafka_refuse_topic(source, partition,
						  psprintf("It ends at offset " INT64_FORMAT
								   ", but has been read up to offset " INT64_FORMAT ".",
								   end, source->position->partitions[partition].next));
}

/* Records from 'next' up to 'first' were deleted before they were read. */
static void
pass_gap(SxKafkaSource *source, int partition, int64 first)
{
	SxKafkaPartition *p = &source->position->partitions[partition];
	const SxKafkaOptions *options = source->options;
	SxSourceGap *gap;
	MemoryContext old;

	if (!options->skip_gaps)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_ERROR),
				 errmsg("records of topic \"%s\" were deleted before they were read",
						options->topic),
				 errdetail("Partition %d is to be read from offset " INT64_FORMAT
						   ", its oldest record has offset " INT64_FORMAT ".",
						   partition, p->next, first),
				 errhint("ALTER FOREIGN TABLE .. OPTIONS (ADD on_gap 'earliest') goes on with the "
						 "oldest record and notes the gap in stream.gaps. REFRESH MATERIALIZED "
						 "VIEW builds the view from what is left.")));
	ereport(WARNING,
			(errcode(ERRCODE_FDW_ERROR),
			 errmsg("records of topic \"%s\" were deleted before they were read", options->topic),
			 errdetail("Partition %d: offsets " INT64_FORMAT " to " INT64_FORMAT ".", partition,
					   p->next, first - 1)));
	old = MemoryContextSwitchTo(TopTransactionContext);
	gap = palloc(sizeof(SxSourceGap));
	gap->topic = options->topic;
	gap->partition = partition;
	gap->from_offset = p->next;
	gap->to_offset = first;
	source->base.gaps = lappend(source->base.gaps, gap);
	MemoryContextSwitchTo(old);
	p->next = first;
	p->last = -1;
	p->is_verified = true;
}

/* What a partition holds now; false: no answer, it is to be asked again later. */
static bool
ask_range(SxKafkaSource *source, int partition, int64 *first, int64 *end)
{
	bool answered;

	if (!sx_kafka_may_ask(source))
		return false;
	answered = sx_kafka_client_range(source->client, partition, first, end, SX_KAFKA_ANSWER_MS);
	sx_kafka_asked(source, answered);
	return answered;
}

/* The broker says that it has no record at the offset that it was asked for. */
static void
resolve_out_of_range(SxKafkaSource *source)
{
	const SxKafkaStatus *status = sx_kafka_client_status(source->client);
	int partition = status->partition;
	SxKafkaPartition *p;
	int64 first;
	int64 end;

	if (partition < 0 || partition >= source->position->npartitions)
		return;
	p = &source->position->partitions[partition];
	if (!ask_range(source, partition, &first, &end))
		return;
	if (p->next > end)
		refuse_end(source, partition, end);
	if (p->next < first)
		pass_gap(source, partition, first);
	/* only the record that was read last is gone, or the range has moved meanwhile */
	p->is_verified = true;
	sx_kafka_client_start(source->client, partition, p->next);
}

/* Would a client be opened in the same way? */
static bool
same_connection(const SxKafkaOptions *a, const SxKafkaOptions *b)
{
	ListCell *lc;
	ListCell *lc2;

	if (strcmp(a->topic, b->topic) != 0 || list_length(a->properties) != list_length(b->properties))
		return false;
	forboth(lc, a->properties, lc2, b->properties)
	{
		SxKafkaProperty *p = lfirst(lc);
		SxKafkaProperty *q = lfirst(lc2);

		if (strcmp(p->name, q->name) != 0 || strcmp(p->value, q->value) != 0)
			return false;
	}
	return true;
}

/*
 * Reads the options, and makes what depends on them. Any foreign table that is made may be what has
 * changed, so the client stays if it is not concerned.
 */
static void
read_options(SxKafkaSource *source, Relation rel)
{
	MemoryContext cxt;
	MemoryContext old;
	bool with_headers;
	SxKafkaOptions *options;

	if (source->options != NULL && source->changes == sx_kafka_option_changes)
		return;
	source->changes = sx_kafka_option_changes;
	cxt = AllocSetContextCreate(source->cxt, "stream_ext kafka options", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(cxt);
	options = sx_kafka_options(rel, source->user);
	if (source->options == NULL || !same_connection(options, source->options))
		sx_kafka_close(source);
	with_headers = sx_format_has(&options->format, SX_FROM_HEADERS);
	/* what has arrived without its headers is read again */
	if (with_headers && !source->buffer->with_headers && source->buffer->nrecords > 0)
		sx_kafka_close(source);
	source->buffer->with_headers = with_headers;
	if (source->decoder != NULL)
		sx_decoder_free(source->decoder);
	source->decoder = NULL;
	source->decoder = sx_decoder_create(rel, &options->format);
	MemoryContextSwitchTo(old);
	source->options = options;
	if (source->options_cxt != NULL)
		MemoryContextDelete(source->options_cxt);
	source->options_cxt = cxt;
}

static void
open_client(SxKafkaSource *source)
{
	const SxKafkaStatus *status;

	if (source->client != NULL)
	{
		status = sx_kafka_client_status(source->client);
		if (status->trouble != SX_KAFKA_FATAL)
			return;
		ereport(LOG, (errmsg("client for topic \"%s\" is opened anew", source->options->topic),
					  errdetail_internal("%s", status->message)));
		sx_kafka_close(source);
	}
	source->client = sx_kafka_client_open(source->options, sx_kafka_queue_bytes);
	source->ask_at = 0;
	source->pause = FIRST_PAUSE_US;
}

/*
 * Finds out where a partition starts; true if it is known now. The ones that the topic has at first
 * start where the table says, those that are added later at their first record, or that of the time
 * which the table says.
 */
static bool
resolve_start(SxKafkaSource *source, int partition, bool is_first)
{
	SxKafkaPartition *p = &source->position->partitions[partition];
	const SxKafkaOptions *options = source->options;
	int64 first;
	int64 end;

	if (!sx_kafka_client_range(source->client, partition, &first, &end, SX_KAFKA_ANSWER_MS))
		return false;
	if (is_first && options->start == SX_START_LATEST)
		first = end;
	else if (options->start == SX_START_TIME &&
			 !sx_kafka_client_offset_at(source->client, partition, options->start_time, &first,
										SX_KAFKA_ANSWER_MS))
		return false;
	p->next = first;
	return true;
}

/* Not now; again after a pause. */
static void
put_off(SxKafkaSource *source)
{
	source->ask_at = GetCurrentTimestamp() + source->pause;
	source->pause = Min(source->pause * 2, LONGEST_PAUSE_US);
}

/*
 * Asks for the number of partitions and takes in new ones. All or none of the first ones: where
 * they start is fixed by the same commit.
 */
static void
look_for_partitions(SxKafkaSource *source, TimestampTz now)
{
	SxKafkaPosition *position = source->position;
	bool is_first = position->npartitions == 0;
	int known = position->npartitions;
	int npartitions;
	int i;

	if (!sx_kafka_may_ask(source))
	{
		put_off(source);
		return;
	}
	npartitions = sx_kafka_client_partitions(source->client, SX_KAFKA_ANSWER_MS);
	if (npartitions < 0)
	{
		sx_kafka_asked(source, false);
		put_off(source);
		return;
	}
	if (npartitions < known)
		sx_kafka_refuse_topic(source, npartitions,
							  psprintf("The topic has %d partitions, but had %d.", npartitions,
									   known));
	sx_kafka_position_extend(position, npartitions, now);
	for (i = known; i < npartitions; i++)
		if (!resolve_start(source, i, is_first))
			break;
	source->has_partitions = i == npartitions;
	sx_kafka_asked(source, i == npartitions);
	if (i < npartitions)
	{
		/* they are asked for again; a part of the first ones must not be taken for all of them */
		position->npartitions = is_first ? 0 : i;
		put_off(source);
		return;
	}
	source->pause = FIRST_PAUSE_US;
	source->ask_at = now + PARTITIONS_US;
}

static void
start_partitions(SxKafkaSource *source)
{
	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];

		if (p->is_started || (p->limit >= 0 && p->next >= p->limit))
			continue;
		p->is_verified = p->is_verified || p->last < 0;
		sx_kafka_client_start(source->client, i, p->is_verified ? p->next : p->last);
		p->is_started = true;
	}
}

static void
log_trouble(SxKafkaSource *source, TimestampTz now)
{
	const SxKafkaStatus *status = sx_kafka_client_status(source->client);

	if (status->trouble == source->logged || now - source->logged_at < LOG_PAUSE_US)
		return;
	/* a client that has just been opened has not been refused */
	if (status->trouble == SX_KAFKA_CONNECTING && now - status->since < LOG_PAUSE_US)
		return;
	if (status->trouble == SX_KAFKA_OK)
		ereport(LOG, (errmsg("topic \"%s\" is being read again", source->options->topic)));
	else
		ereport(LOG, (errmsg("topic \"%s\" cannot be read", source->options->topic),
					  status->message[0] != '\0' ? errdetail_internal("%s", status->message) : 0));
	source->logged = status->trouble;
	source->logged_at = now;
}

void
sx_kafka_start(SxKafkaSource *source, Relation rel)
{
	TimestampTz now = GetCurrentTimestamp();

	read_options(source, rel);
	open_client(source);
	if (source->ask_at <= now)
		look_for_partitions(source, now);
	start_partitions(source);
}

/*
 * The topic is back after it was refused or unknown. It may be another one by now, so what has
 * arrived is thrown away, and reading starts again with the comparison.
 */
static void
start_again(SxKafkaSource *source)
{
	sx_record_buffer_reset(source->buffer);
	for (int i = 0; i < source->position->npartitions; i++)
	{
		SxKafkaPartition *p = &source->position->partitions[i];

		if (p->is_started)
			sx_kafka_client_stop(source->client, i);
		p->is_started = false;
		p->is_verified = p->last < 0;
	}
	source->ask_at = 0;
}

void
sx_kafka_check_status(SxKafkaSource *source)
{
	SxKafkaTrouble trouble = sx_kafka_client_status(source->client)->trouble;

	if (trouble == SX_KAFKA_OUT_OF_RANGE)
		resolve_out_of_range(source);
	else if (trouble == SX_KAFKA_FAILING)
		source->has_failed = true;
	else if (trouble == SX_KAFKA_OK && source->has_failed)
	{
		source->has_failed = false;
		start_again(source);
	}
	log_trouble(source, GetCurrentTimestamp());
}

/* At the end of a partition that was started at its last record, without having seen that. */
void
sx_kafka_check_end(SxKafkaSource *source, int partition)
{
	SxKafkaPartition *p = &source->position->partitions[partition];
	int64 first;
	int64 end;

	if (!ask_range(source, partition, &first, &end))
		return;
	if (end < p->next)
		refuse_end(source, partition, end);
	p->is_verified = true;
	sx_kafka_client_start(source->client, partition, p->next);
}
