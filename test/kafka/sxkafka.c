/*
 * sxkafka.c
 *		A client of Kafka for tests and benchmarks: makes topics, writes and reads records.
 *
 * It uses librdkafka only, nothing of the extension, so that what it reports is an independent word.
 * Everything it prints on standard output is meant to be compared or waited for: one line a thing,
 * written at once. Messages go to standard error.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sxkafka.h"

#define MAX_SETTINGS 64

static const char usage_text[] =
	"usage: sxkafka [-b BROKERS] [-X NAME=VALUE].. COMMAND ..\n"
	"\n"
	"  create TOPIC PARTITIONS [NAME=VALUE]..  makes a topic with that configuration\n"
	"  delete TOPIC\n"
	"  grow TOPIC PARTITIONS                   adds partitions; PARTITIONS is their new number\n"
	"  truncate TOPIC PARTITION OFFSET         deletes the records before OFFSET (\"end\": all)\n"
	"  list                                    prints \"topic partitions\" for each topic\n"
	"  offsets TOPIC                           prints \"partition first stable end\" for each; stable:\n"
	"                                          where read_committed ends\n"
	"  produce TOPIC                           writes the records of standard input\n"
	"    --transaction commit|abort|open       in one transaction; open: leaves it open at the end\n"
	"    --transactional-id ID                 default: sxkafka\n"
	"    --idempotent\n"
	"  load TOPIC RECORDS                      writes JSON records; 0: until SIGTERM or SIGINT, which\n"
	"                                          end it in good order\n"
	"    --partitions P  over that many, in turn (default: all)\n"
	"    --first ID      id of the first record (1); the others count on from there\n"
	"    --seed N        other values (1)\n"
	"    --keys N        number of different values of k (1000)\n"
	"    --rate N        records a second (0: as fast as can be)\n"
	"    --jitter MS     event times up to this far out of order (0)\n"
	"    --now           event times of the clock; otherwise 1 ms apart from 2026-01-01\n"
	"    --transactional-id ID  in transactions\n"
	"    --batch N       of so many records (1000)\n"
	"    --aborted F     and for a fraction F of them one more that is aborted (0), with records whose\n"
	"                    ids are negative\n"
	"    --progress N    prints \"acknowledged COUNT\" about every N records\n"
	"  consume TOPIC                           prints the records that are there\n"
	"    --uncommitted   also those of open and aborted transactions\n"
	"    --partition P   of one partition\n"
	"    --from OFFSET   from there on\n"
	"    --count         only \"partition records\" for each partition\n"
	"\n"
	"A record is a line of fields, separated by tabs, each of them optional:\n"
	"  partition=N  offset=N  timestamp=MS  key=BYTES  value=BYTES  header=NAME:BYTES\n"
	"Without key or value that is NULL, with an empty one it is empty; a header without \":\" is NULL.\n"
	"BYTES may have \\t \\n \\r \\\\ \\xHH; all but printable ASCII is printed so, and \":\" in the name\n"
	"of a header. consume prints fields in this order; produce ignores offset.\n"
	"A line of produce can also be a command:\n"
	"  !flush   waits until all before it is written, then prints \"flushed COUNT\"\n"
	"  !commit  !abort  ends the transaction and prints \"committed\" or \"aborted\"; the next record\n"
	"           begins a new one\n"
	"\n"
	"BROKERS default to the environment's SXKAFKA_BROKERS. NAME=VALUE of -X are properties of\n"
	"librdkafka. Exit codes: 0 done, 1 failed, 2 wrong usage.\n";

volatile sig_atomic_t sx_stopped = 0;

static const char *settings[MAX_SETTINGS]; /* of -X */
static int nsettings = 0;

typedef enum Command
{
	COMMAND_PRODUCE = 1,
	COMMAND_LOAD = 2,
	COMMAND_CONSUME = 4,
	COMMAND_ADMIN = 8
} Command;

static void usage(void) __attribute__((noreturn));

static void
usage(void)
{
	fputs(usage_text, stderr);
	exit(2);
}

/* Prints a message and ends the program with code 1. */
void
sx_fail(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("sxkafka: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

/* Microseconds of a clock. */
int64_t
sx_clock_us(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void
set_property(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char error[512];

	if (rd_kafka_conf_set(conf, name, value, error, sizeof(error)) != RD_KAFKA_CONF_OK)
		sx_fail("%s", error);
}

/* Errors of the client as a whole. Most heal by themselves; a refused user does not. */
static void
note_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
	(void) rk;
	(void) opaque;
	if (err == RD_KAFKA_RESP_ERR__AUTHENTICATION)
		sx_fail("authentication failed: %s", reason);
}

/*
 * A configuration: our defaults, then the pairs of name and value in "defaults" (ends with NULL; may
 * be NULL itself), then what the command line says.
 */
rd_kafka_conf_t *
sx_conf(const char *const *defaults)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	set_property(conf, "log_level", "2");
	set_property(conf, "allow.auto.create.topics", "false");
	set_property(conf, "reconnect.backoff.ms", "50");
	set_property(conf, "reconnect.backoff.max.ms", "500");
	for (; defaults && *defaults; defaults += 2)
		set_property(conf, defaults[0], defaults[1]);
	for (int i = 0; i < nsettings; i++)
	{
		char *name = strdup(settings[i]);
		char *value = strchr(name, '=');

		if (!value)
			usage();
		*value++ = '\0';
		set_property(conf, name, value);
		free(name);
	}
	rd_kafka_conf_set_error_cb(conf, note_error);
	return conf;
}

/* Makes a client; "conf" is its own after that. */
rd_kafka_t *
sx_client(rd_kafka_type_t type, rd_kafka_conf_t *conf)
{
	char error[512];
	rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof(error));

	if (!rk)
		sx_fail("%s", error);
	return rk;
}

static const rd_kafka_metadata_t *
read_metadata(rd_kafka_t *rk)
{
	const rd_kafka_metadata_t *metadata;
	rd_kafka_resp_err_t err;
	int64_t end = sx_clock_us(CLOCK_MONOTONIC) + SX_TIMEOUT * INT64_C(1000);

	/* in slices, to hear of errors */
	do
	{
		err = rd_kafka_metadata(rk, 1, NULL, &metadata, 500);
		rd_kafka_poll(rk, 0);
	} while (err && sx_clock_us(CLOCK_MONOTONIC) < end);
	if (err)
		sx_fail("no metadata: %s", rd_kafka_err2str(err));
	return metadata;
}

/* Partitions of a topic that can be used; 0: there is no such topic. */
static int
usable_partitions(rd_kafka_t *rk, const char *topic)
{
	const rd_kafka_metadata_t *metadata = read_metadata(rk);
	int count = 0;

	for (int i = 0; i < metadata->topic_cnt; i++)
	{
		const rd_kafka_metadata_topic_t *t = &metadata->topics[i];

		if (strcmp(t->topic, topic) != 0)
			continue;
		for (int p = 0; p < t->partition_cnt; p++)
			count += t->partitions[p].leader >= 0;
	}
	rd_kafka_metadata_destroy(metadata);
	return count;
}

/* Partitions of a topic, which must exist. */
int
sx_partition_count(rd_kafka_t *rk, const char *topic)
{
	int count = usable_partitions(rk, topic);

	if (count == 0)
		sx_fail("topic \"%s\" does not exist", topic);
	return count;
}

/* Commands of administration take effect a little after their answer: waits for it. */
static void
await_partitions(rd_kafka_t *rk, const char *topic, int expected)
{
	const struct timespec pause = {0, 10 * 1000 * 1000};
	int64_t end = sx_clock_us(CLOCK_MONOTONIC) + SX_TIMEOUT * INT64_C(1000);

	while (usable_partitions(rk, topic) != expected)
	{
		if (sx_clock_us(CLOCK_MONOTONIC) > end)
			sx_fail("topic \"%s\" does not get to %d partitions", topic, expected);
		nanosleep(&pause, NULL);
	}
}

static int64_t
to_number(const char *text)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno || end == text || *end)
		usage();
	return value;
}

/* Fails unless all topics in a result of administration are well. */
static void
check_topics(const rd_kafka_topic_result_t **results, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		if (rd_kafka_topic_result_error(results[i]))
			sx_fail("topic \"%s\": %s", rd_kafka_topic_result_name(results[i]),
					rd_kafka_topic_result_error_string(results[i]));
	}
}

/* Waits for the result of a command of administration; fails if it failed. */
static void
check_result(rd_kafka_queue_t *queue)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(queue, SX_TIMEOUT * 2);
	const rd_kafka_topic_partition_list_t *list;
	const rd_kafka_topic_result_t **results;
	size_t count;

	if (!event)
		sx_fail("no answer");
	if (rd_kafka_event_error(event))
		sx_fail("%s", rd_kafka_event_error_string(event));
	switch (rd_kafka_event_type(event))
	{
		case RD_KAFKA_EVENT_CREATETOPICS_RESULT:
			results = rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event),
														  &count);
			check_topics(results, count);
			break;
		case RD_KAFKA_EVENT_DELETETOPICS_RESULT:
			results = rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event),
														  &count);
			check_topics(results, count);
			break;
		case RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT:
			results = rd_kafka_CreatePartitions_result_topics(
				rd_kafka_event_CreatePartitions_result(event), &count);
			check_topics(results, count);
			break;
		case RD_KAFKA_EVENT_DELETERECORDS_RESULT:
			list =
				rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event));
			for (int i = 0; i < list->cnt; i++)
			{
				if (list->elems[i].err)
					sx_fail("partition %d: %s", list->elems[i].partition,
							rd_kafka_err2str(list->elems[i].err));
			}
			break;
		default:
			sx_fail("unexpected event %s", rd_kafka_event_name(event));
	}
	rd_kafka_event_destroy(event);
}

static void
create(rd_kafka_t *rk, rd_kafka_queue_t *queue, const char *name, int partitions, char **config)
{
	char error[512];
	rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(name, partitions, 1, error, sizeof(error));

	if (!topic)
		sx_fail("%s", error);
	for (; *config; config++)
	{
		char *value = strchr(*config, '=');

		if (!value)
			usage();
		*value++ = '\0';
		rd_kafka_NewTopic_set_config(topic, *config, value);
	}
	rd_kafka_CreateTopics(rk, &topic, 1, NULL, queue);
	check_result(queue);
	rd_kafka_NewTopic_destroy(topic);
	await_partitions(rk, name, partitions);
}

static void
drop(rd_kafka_t *rk, rd_kafka_queue_t *queue, const char *name)
{
	rd_kafka_DeleteTopic_t *topic = rd_kafka_DeleteTopic_new(name);

	rd_kafka_DeleteTopics(rk, &topic, 1, NULL, queue);
	check_result(queue);
	rd_kafka_DeleteTopic_destroy(topic);
	await_partitions(rk, name, 0);
}

static void
grow(rd_kafka_t *rk, rd_kafka_queue_t *queue, const char *name, int partitions)
{
	char error[512];
	rd_kafka_NewPartitions_t *topic =
		rd_kafka_NewPartitions_new(name, partitions, error, sizeof(error));

	if (!topic)
		sx_fail("%s", error);
	rd_kafka_CreatePartitions(rk, &topic, 1, NULL, queue);
	check_result(queue);
	rd_kafka_NewPartitions_destroy(topic);
	await_partitions(rk, name, partitions);
}

static void
truncate_partition(rd_kafka_t *rk, rd_kafka_queue_t *queue, const char *name, int partition,
				   int64_t offset)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_DeleteRecords_t *request;

	rd_kafka_topic_partition_list_add(list, name, partition)->offset = offset;
	request = rd_kafka_DeleteRecords_new(list);
	rd_kafka_DeleteRecords(rk, &request, 1, NULL, queue);
	check_result(queue);
	rd_kafka_DeleteRecords_destroy(request);
	rd_kafka_topic_partition_list_destroy(list);
}

static void
list_topics(rd_kafka_t *rk)
{
	const rd_kafka_metadata_t *metadata = read_metadata(rk);

	for (int i = 0; i < metadata->topic_cnt; i++)
		printf("%s %d\n", metadata->topics[i].topic, metadata->topics[i].partition_cnt);
	rd_kafka_metadata_destroy(metadata);
}

static void
print_offsets(rd_kafka_t *rk, const char *topic)
{
	static const char *const committed[] = {"isolation.level", "read_committed", NULL};
	rd_kafka_t *reader = sx_client(RD_KAFKA_CONSUMER, sx_conf(committed));
	int count = sx_partition_count(rk, topic);

	for (int partition = 0; partition < count; partition++)
	{
		int64_t first, stable, end;
		rd_kafka_resp_err_t err;

		err =
			rd_kafka_query_watermark_offsets(reader, topic, partition, &first, &stable, SX_TIMEOUT);
		if (!err)
			err = rd_kafka_query_watermark_offsets(rk, topic, partition, &first, &end, SX_TIMEOUT);
		if (err)
			sx_fail("partition %d: %s", partition, rd_kafka_err2str(err));
		printf("%d %" PRId64 " %" PRId64 " %" PRId64 "\n", partition, first, stable, end);
	}
	rd_kafka_destroy(reader);
}

/* Runs a command of administration. Returns the exit code. */
static int
administrate(const char *command, char **args, int nargs)
{
	static const char *const uncommitted[] = {"isolation.level", "read_uncommitted", NULL};
	rd_kafka_t *rk = sx_client(RD_KAFKA_CONSUMER, sx_conf(uncommitted));
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);

	if (strcmp(command, "create") == 0 && nargs >= 2)
		create(rk, queue, args[0], to_number(args[1]), args + 2);
	else if (strcmp(command, "delete") == 0 && nargs == 1)
		drop(rk, queue, args[0]);
	else if (strcmp(command, "grow") == 0 && nargs == 2)
		grow(rk, queue, args[0], to_number(args[1]));
	else if (strcmp(command, "truncate") == 0 && nargs == 3)
		truncate_partition(rk, queue, args[0], to_number(args[1]),
						   strcmp(args[2], "end") == 0 ? RD_KAFKA_OFFSET_END : to_number(args[2]));
	else if (strcmp(command, "list") == 0 && nargs == 0)
		list_topics(rk);
	else if (strcmp(command, "offsets") == 0 && nargs == 1)
		print_offsets(rk, args[0]);
	else
		usage();
	rd_kafka_queue_destroy(queue);
	rd_kafka_destroy(rk);
	return 0;
}

static void
stop(int signal_number)
{
	(void) signal_number;
	sx_stopped = 1;
}

static SxEnding
to_ending(const char *text)
{
	if (strcmp(text, "commit") == 0)
		return SX_ENDING_COMMIT;
	if (strcmp(text, "abort") == 0)
		return SX_ENDING_ABORT;
	if (strcmp(text, "open") == 0)
		return SX_ENDING_OPEN;
	usage();
}

typedef enum Type
{
	TYPE_NUMBER,
	TYPE_FRACTION,
	TYPE_FLAG,
	TYPE_TEXT,
	TYPE_ENDING
} Type;

/* Options, the commands that know them and where their values go. getopt returns BASE + index. */
#define BASE 256
static const struct
{
	const char *name;
	int commands;
	Type type;
	size_t field;
} known[] = {
	{"transaction", COMMAND_PRODUCE, TYPE_ENDING, offsetof(SxOptions, ending)},
	{"transactional-id", COMMAND_PRODUCE | COMMAND_LOAD, TYPE_TEXT,
	 offsetof(SxOptions, transactional_id)},
	{"idempotent", COMMAND_PRODUCE, TYPE_FLAG, offsetof(SxOptions, idempotent)},
	{"partitions", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, partitions)},
	{"first", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, first)},
	{"seed", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, seed)},
	{"keys", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, keys)},
	{"rate", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, rate)},
	{"jitter", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, jitter)},
	{"now", COMMAND_LOAD, TYPE_FLAG, offsetof(SxOptions, now)},
	{"batch", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, batch)},
	{"aborted", COMMAND_LOAD, TYPE_FRACTION, offsetof(SxOptions, aborted)},
	{"progress", COMMAND_LOAD, TYPE_NUMBER, offsetof(SxOptions, progress)},
	{"uncommitted", COMMAND_CONSUME, TYPE_FLAG, offsetof(SxOptions, uncommitted)},
	{"partition", COMMAND_CONSUME, TYPE_NUMBER, offsetof(SxOptions, partition)},
	{"from", COMMAND_CONSUME, TYPE_NUMBER, offsetof(SxOptions, from)},
	{"count", COMMAND_CONSUME, TYPE_FLAG, offsetof(SxOptions, count)},
};
#define NKNOWN ((int) (sizeof(known) / sizeof(known[0])))

/* Sets the option known[i]. */
static void
set_option(SxOptions *options, int i, const char *value)
{
	void *field = (char *) options + known[i].field;
	char *end;

	switch (known[i].type)
	{
		case TYPE_NUMBER:
			*(int64_t *) field = to_number(value);
			break;
		case TYPE_FRACTION:
			*(double *) field = strtod(value, &end);
			if (end == value || *end)
				usage();
			break;
		case TYPE_FLAG:
			*(bool *) field = true;
			break;
		case TYPE_TEXT:
			*(const char **) field = value;
			break;
		case TYPE_ENDING:
			*(SxEnding *) field = to_ending(value);
			break;
	}
}

int
main(int argc, char **argv)
{
	/* no SA_RESTART: a signal ends the reading of standard input */
	struct sigaction action = {.sa_handler = stop};
	static char brokers_setting[1024];
	struct option longopts[NKNOWN + 1] = {0};
	SxOptions options = {
		.first = 1, .seed = 1, .keys = 1000, .batch = 1000, .partition = -1, .from = -1};
	const char *brokers = getenv("SXKAFKA_BROKERS");
	const char *command;
	int used = 0;
	int kind;
	int c;
	char **args;
	int nargs;

	for (int i = 0; i < NKNOWN; i++)
		longopts[i] = (struct option){known[i].name,
									  known[i].type == TYPE_FLAG ? no_argument : required_argument,
									  NULL, BASE + i};
	while ((c = getopt_long(argc, argv, "b:X:", longopts, NULL)) != -1)
	{
		if (c == 'b')
			brokers = optarg;
		else if (c == 'X' && nsettings < MAX_SETTINGS - 1)
			settings[nsettings++] = optarg;
		else if (c >= BASE)
		{
			used |= 1 << (c - BASE);
			set_option(&options, c - BASE, optarg);
		}
		else
			usage();
	}
	if (optind == argc || !brokers)
		usage();
	snprintf(brokers_setting, sizeof(brokers_setting), "bootstrap.servers=%s", brokers);
	settings[nsettings++] = brokers_setting;
	command = argv[optind++];
	args = argv + optind;
	nargs = argc - optind;

	if (strcmp(command, "produce") == 0 && nargs == 1)
		kind = COMMAND_PRODUCE;
	else if (strcmp(command, "load") == 0 && nargs == 2)
		kind = COMMAND_LOAD;
	else if (strcmp(command, "consume") == 0 && nargs == 1)
		kind = COMMAND_CONSUME;
	else
		kind = COMMAND_ADMIN;
	for (int i = 0; i < NKNOWN; i++)
	{
		if ((used & 1 << i) && !(known[i].commands & kind))
			usage();
	}

	setvbuf(stdout, NULL, kind == COMMAND_CONSUME ? _IOFBF : _IOLBF, 1 << 16);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	options.topic = args[0];
	switch (kind)
	{
		case COMMAND_PRODUCE:
			return sx_produce(&options);
		case COMMAND_LOAD:
			options.records = to_number(args[1]);
			return sx_load(&options);
		case COMMAND_CONSUME:
			return sx_consume(&options);
		default:
			return administrate(command, args, nargs);
	}
}
