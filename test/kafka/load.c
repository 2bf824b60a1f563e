/*
 * load.c
 *		The command load of sxkafka: writes JSON records with ascending ids, each exactly once, also
 *		over restarts of the broker.
 *
 * A record is {"id":1,"k":17,"x":531.2734,"ts":"2026-01-01T00:00:00.001000Z","s":".."}, 119 bytes
 * long (more only with numbers out of the ordinary), its key is k as text. Seed and id alone decide
 * what it holds (and the clock, with --now), so that a test can compute what it expects. Record i
 * goes to partition i modulo their number.
 *
 * Exactly once: the producer is idempotent and retries for five minutes. With transactions one that
 * cannot be committed is aborted and written again. A commit whose outcome is not known, because the
 * client has given up the producer, ends the program with an error: going on would be a guess.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sxkafka.h"

#define RECORD_SIZE 119
#define EPOCH_US    (INT64_C(1767225600) * 1000000) /* 2026-01-01 */

static int64_t acknowledged = 0;
static int64_t failed = 0;
static int64_t last_printed = 0;

/* A number that looks random, as a function of its argument alone. */
static uint64_t
scramble(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* Event time as ISO 8601 with microseconds. */
static void
format_time(int64_t us, char *to, size_t size)
{
	static int64_t cached_second = -1;
	static char cached[32];
	int64_t second = us / 1000000;

	if (second != cached_second)
	{
		time_t t = second;
		struct tm tm;

		gmtime_r(&t, &tm);
		strftime(cached, sizeof(cached), "%Y-%m-%dT%H:%M:%S", &tm);
		cached_second = second;
	}
	snprintf(to, size, "%s.%06dZ", cached, (int) (us % 1000000));
}

/*
 * Makes a record in the buffer "value", and its key. "id" as it goes into the record may be
 * negative; what else is in there depends on its absolute value. Returns the size of the value.
 */
static size_t
make_record(const SxOptions *options, int64_t id, char *value, size_t value_size, char *key,
			size_t key_size)
{
	static const char filler[] =
		"the quick brown fox jumps over the lazy dog and runs away from it";
	uint64_t random = scramble(scramble((uint64_t) options->seed) + (uint64_t) llabs(id));
	uint64_t k = random % (uint64_t) options->keys;
	uint64_t x = (random >> 20) % 10000000;
	int64_t us;
	char ts[48];
	int size;
	int pad;

	if (options->now)
		us = sx_clock_us(CLOCK_REALTIME);
	else
		us = EPOCH_US + llabs(id) * 1000;
	if (options->jitter > 0)
		us -= (int64_t) (scramble(random) % (uint64_t) (options->jitter * 1000));
	format_time(us, ts, sizeof(ts));
	snprintf(key, key_size, "%" PRIu64, k);
	size = snprintf(value, value_size,
					"{\"id\":%" PRId64 ",\"k\":%" PRIu64 ",\"x\":%" PRIu64 ".%04" PRIu64
					",\"ts\":\"%s\",\"s\":\"",
					id, k, x / 10000, x % 10000, ts);
	pad = RECORD_SIZE - 2 - size;
	if (pad < 0)
		pad = 0;
	memcpy(value + size, filler, (size_t) pad);
	memcpy(value + size + pad, "\"}", 2);
	return (size_t) (size + pad + 2);
}

static void
print_progress(const SxOptions *options)
{
	if (options->progress > 0 && acknowledged >= last_printed + options->progress)
	{
		last_printed = acknowledged - acknowledged % options->progress;
		printf("acknowledged %" PRId64 "\n", acknowledged);
	}
}

/* In transactions records are counted when they are committed. */
static void
count_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	const SxOptions *options = opaque;

	(void) rk;
	if (options->transactional_id)
		return;
	if (message->err)
	{
		failed++;
		return;
	}
	acknowledged++;
	print_progress(options);
}

/* Waits until it is time for the record after "done" ones, or a signal. Serves the client meanwhile. */
static void
keep_rate(rd_kafka_t *rk, const SxOptions *options, int64_t start, int64_t done)
{
	if (options->rate <= 0)
		return;
	while (!sx_stopped)
	{
		int64_t left = start + done * 1000000 / options->rate - sx_clock_us(CLOCK_MONOTONIC);

		if (left <= 0)
			break;
		if (left >= 2000)
			rd_kafka_poll(rk, left < 100000 ? (int) (left / 1000) : 100);
		else
		{
			struct timespec pause = {0, left * 1000};

			nanosleep(&pause, NULL);
		}
	}
}

/*
 * Hands the record to the client, waiting while its queue is full. Returns false if the client does
 * not take it, because the transaction has to be aborted.
 */
static bool
send_record(rd_kafka_t *rk, rd_kafka_topic_t *topic, const SxOptions *options, int64_t partitions,
			int64_t id)
{
	char value[512];
	char key[32];
	size_t size = make_record(options, id, value, sizeof(value), key, sizeof(key));

	while (rd_kafka_produce(topic, (int32_t) (llabs(id) % partitions), RD_KAFKA_MSG_F_COPY, value,
							size, key, strlen(key), NULL) != 0)
	{
		rd_kafka_resp_err_t err = rd_kafka_last_error();

		if (err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
		{
			if (options->transactional_id && !rd_kafka_fatal_error(rk, NULL, 0))
				return false;
			sx_fail("record %" PRId64 ": %s", id, rd_kafka_err2str(err));
		}
		rd_kafka_poll(rk, 100);
	}
	rd_kafka_poll(rk, 0);
	return true;
}

/*
 * Aborts the transaction, with everything it wrote at the broker if all went well. Whatever went
 * wrong before is over after that.
 */
static void
abort_transaction(rd_kafka_t *rk)
{
	rd_kafka_error_t *error;

	while ((error = rd_kafka_abort_transaction(rk, -1)))
	{
		if (!rd_kafka_error_is_retriable(error))
			sx_fail("abort: %s", rd_kafka_error_string(error));
		rd_kafka_error_destroy(error);
	}
}

/* Returns whether the transaction is committed; otherwise it has been aborted. */
static bool
commit_transaction(rd_kafka_t *rk)
{
	rd_kafka_error_t *error;

	while ((error = rd_kafka_commit_transaction(rk, -1)))
	{
		if (rd_kafka_error_txn_requires_abort(error))
		{
			rd_kafka_error_destroy(error);
			abort_transaction(rk);
			return false;
		}
		if (!rd_kafka_error_is_retriable(error))
			sx_fail("commit: %s", rd_kafka_error_string(error));
		rd_kafka_error_destroy(error);
	}
	return true;
}

static void
begin_transaction(rd_kafka_t *rk)
{
	rd_kafka_error_t *error = rd_kafka_begin_transaction(rk);

	if (error)
		sx_fail("begin: %s", rd_kafka_error_string(error));
}

/* Writes the records with the ids from "first" on in one transaction, again until it is committed. */
static void
write_batch(rd_kafka_t *rk, rd_kafka_topic_t *topic, const SxOptions *options, int64_t partitions,
			int64_t first, int64_t count, int64_t start)
{
	uint64_t dice = scramble(scramble((uint64_t) options->seed + 1) + (uint64_t) first);
	bool committed = false;

	if ((double) (dice >> 11) / (double) (UINT64_C(1) << 53) < options->aborted)
	{
		begin_transaction(rk);
		for (int64_t i = 0; i < count; i++)
		{
			if (!send_record(rk, topic, options, partitions, -(first + i)))
				break;
		}
		rd_kafka_flush(rk, SX_TIMEOUT);
		abort_transaction(rk);
	}
	while (!committed)
	{
		bool sent = true;

		begin_transaction(rk);
		for (int64_t i = 0; sent && i < count; i++)
		{
			keep_rate(rk, options, start, first + i - options->first);
			sent = send_record(rk, topic, options, partitions, first + i);
		}
		if (sent)
			committed = commit_transaction(rk);
		else
			abort_transaction(rk);
	}
	acknowledged += count;
	print_progress(options);
}

/* The command load. Returns the exit code. */
int
sx_load(const SxOptions *options)
{
	const char *const defaults[] = {"enable.idempotence", "true", "message.timeout.ms", "300000",
									"queue.buffering.max.messages", "200000",
									options->transactional_id ? "transactional.id" : NULL,
									options->transactional_id,
									/* message.timeout.ms must not be longer than this */
									"transaction.timeout.ms", "300000", NULL};
	int64_t last = options->records > 0 ? options->first + options->records - 1 : INT64_MAX;
	int64_t partitions = options->partitions;
	int64_t start;
	rd_kafka_conf_t *conf;
	rd_kafka_t *rk;
	rd_kafka_topic_t *topic;
	rd_kafka_error_t *error;
	double seconds;

	if (options->first < 1 || options->keys < 1 || options->batch < 1 ||
		(options->aborted > 0 && !options->transactional_id))
		sx_fail(
			"--first, --keys and --batch are at least 1, and --aborted needs --transactional-id");
	conf = sx_conf(defaults);
	rd_kafka_conf_set_dr_msg_cb(conf, count_delivery);
	rd_kafka_conf_set_opaque(conf, (void *) options);
	rk = sx_client(RD_KAFKA_PRODUCER, conf);
	if (partitions <= 0)
		partitions = sx_partition_count(rk, options->topic);
	topic = rd_kafka_topic_new(rk, options->topic, NULL);
	if (options->transactional_id && (error = rd_kafka_init_transactions(rk, SX_TIMEOUT)))
		sx_fail("%s", rd_kafka_error_string(error));

	start = sx_clock_us(CLOCK_MONOTONIC);
	for (int64_t id = options->first; id <= last && !sx_stopped && !failed;)
	{
		int64_t left = last - id + 1;

		if (options->transactional_id)
		{
			int64_t count = left < options->batch ? left : options->batch;

			write_batch(rk, topic, options, partitions, id, count, start);
			id += count;
		}
		else
		{
			keep_rate(rk, options, start, id - options->first);
			send_record(rk, topic, options, partitions, id++);
		}
	}
	while (rd_kafka_outq_len(rk) > 0 && !failed)
		rd_kafka_poll(rk, 100);
	seconds = (double) (sx_clock_us(CLOCK_MONOTONIC) - start) / 1e6;
	printf("done: %" PRId64 " acknowledged, %" PRId64 " failed, %.3f s\n", acknowledged, failed,
		   seconds);
	rd_kafka_topic_destroy(topic);
	rd_kafka_destroy(rk);
	return failed > 0 ? 1 : 0;
}
