/*
 * mock.c
 *		librdkafka's mock cluster as a process of its own, for the demo and for tests of what a client
 *		does about errors. The usage text below says how to drive it.
 *
 * It is no broker to test results with: it keeps 5 MiB or 100,000 record batches a partition and
 * forgets the rest, and to it a transaction is nothing: open and aborted ones are read like others.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#define MAX_WORDS 64

static const char usage_text[] =
	"usage: mock [-n BROKERS] [-f FILE] TOPIC:PARTITIONS ..\n"
	"\n"
	"Starts a mock cluster on free ports of 127.0.0.1 (one broker unless -n says more), prints its\n"
	"bootstrap servers on a line, also into FILE, and runs until standard input ends or SIGTERM comes.\n"
	"Standard input takes commands; each is answered by a line \"ok\" or \"error: REASON\":\n"
	"\n"
	"  create TOPIC PARTITIONS\n"
	"  errors API ERROR..             the next requests get these answers, one each\n"
	"  clear API                      no more of them\n"
	"  topic-error TOPIC ERROR        all that is asked about the topic gets it; NO_ERROR ends that\n"
	"  down BROKER                    the broker (1, 2, ..) closes connections and takes no new ones\n"
	"  up BROKER\n"
	"  leader TOPIC PARTITION BROKER  moves a partition; -1: no leader\n"
	"  rtt BROKER MS                  every answer of the broker takes so long\n"
	"\n"
	"API is the name of a request of the protocol (Fetch, ..) or its number, ERROR a name as librdkafka\n"
	"has them (NOT_LEADER_FOR_PARTITION, _TRANSPORT, ..; the latter closes the connection) or a number.\n";

static const struct
{
	const char *name;
	int16_t key;
} apis[] = {
	{"Produce", 0},
	{"Fetch", 1},
	{"ListOffsets", 2},
	{"Metadata", 3},
	{"OffsetCommit", 8},
	{"OffsetFetch", 9},
	{"FindCoordinator", 10},
	{"SaslHandshake", 17},
	{"ApiVersions", 18},
	{"InitProducerId", 22},
	{"AddPartitionsToTxn", 24},
	{"AddOffsetsToTxn", 25},
	{"EndTxn", 26},
	{"TxnOffsetCommit", 28},
};

static rd_kafka_mock_cluster_t *cluster;

static void fail(const char *message, const char *detail) __attribute__((noreturn));

static void
fail(const char *message, const char *detail)
{
	fprintf(stderr, "mock: %s: %s\n", message, detail);
	exit(1);
}

static bool
parse_number(const char *text, long *number)
{
	char *end;

	*number = strtol(text, &end, 10);
	return end != text && *end == '\0';
}

static bool
parse_api(const char *text, int16_t *key)
{
	long number;

	for (size_t i = 0; i < sizeof(apis) / sizeof(apis[0]); i++)
	{
		if (strcasecmp(apis[i].name, text) == 0)
		{
			*key = apis[i].key;
			return true;
		}
	}
	if (!parse_number(text, &number))
		return false;
	*key = (int16_t) number;
	return true;
}

static bool
parse_error(const char *text, rd_kafka_resp_err_t *err)
{
	const struct rd_kafka_err_desc *descs;
	size_t count;
	long number;

	rd_kafka_get_err_descs(&descs, &count);
	for (size_t i = 0; i < count; i++)
	{
		if (descs[i].name && strcmp(descs[i].name, text) == 0)
		{
			*err = descs[i].code;
			return true;
		}
	}
	if (!parse_number(text, &number))
		return false;
	*err = (rd_kafka_resp_err_t) number;
	return true;
}

/* Carries out a command. Returns NULL or what is wrong. */
static const char *
execute(char **words, int nwords)
{
	const char *command = words[0];
	rd_kafka_resp_err_t errors[MAX_WORDS];
	rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;
	int16_t api;
	long a, b;

	if (strcmp(command, "create") == 0 && nwords == 3 && parse_number(words[2], &a))
		err = rd_kafka_mock_topic_create(cluster, words[1], (int) a, 1);
	else if (strcmp(command, "errors") == 0 && nwords > 2 && parse_api(words[1], &api))
	{
		for (int i = 2; i < nwords; i++)
		{
			if (!parse_error(words[i], &errors[i - 2]))
				return "unknown error name";
		}
		rd_kafka_mock_push_request_errors_array(cluster, api, (size_t) (nwords - 2), errors);
	}
	else if (strcmp(command, "clear") == 0 && nwords == 2 && parse_api(words[1], &api))
		rd_kafka_mock_clear_request_errors(cluster, api);
	else if (strcmp(command, "topic-error") == 0 && nwords == 3 &&
			 parse_error(words[2], &errors[0]))
		rd_kafka_mock_topic_set_error(cluster, words[1], errors[0]);
	else if (strcmp(command, "down") == 0 && nwords == 2 && parse_number(words[1], &a))
		err = rd_kafka_mock_broker_set_down(cluster, (int32_t) a);
	else if (strcmp(command, "up") == 0 && nwords == 2 && parse_number(words[1], &a))
		err = rd_kafka_mock_broker_set_up(cluster, (int32_t) a);
	else if (strcmp(command, "leader") == 0 && nwords == 4 && parse_number(words[2], &a) &&
			 parse_number(words[3], &b))
		err = rd_kafka_mock_partition_set_leader(cluster, words[1], (int32_t) a, (int32_t) b);
	else if (strcmp(command, "rtt") == 0 && nwords == 3 && parse_number(words[1], &a) &&
			 parse_number(words[2], &b))
		err = rd_kafka_mock_broker_set_rtt(cluster, (int32_t) a, (int) b);
	else
		return "unknown command";
	return err ? rd_kafka_err2str(err) : NULL;
}

static void
execute_line(char *line)
{
	char *words[MAX_WORDS];
	int nwords = 0;
	const char *problem;

	for (char *word = strtok(line, " \t\n"); word && nwords < MAX_WORDS;
		 word = strtok(NULL, " \t\n"))
		words[nwords++] = word;
	if (nwords == 0)
		return;
	problem = execute(words, nwords);
	if (problem)
		printf("error: %s\n", problem);
	else
		printf("ok\n");
}

/* The file appears with its content. */
static void
write_file(const char *name, const char *text)
{
	char temporary[4096];
	FILE *file;

	snprintf(temporary, sizeof(temporary), "%s.new", name);
	file = fopen(temporary, "w");
	if (!file || fprintf(file, "%s\n", text) < 0 || fclose(file) != 0 ||
		rename(temporary, name) != 0)
		fail(name, strerror(errno));
}

static void
create_topic(char *argument)
{
	char *colon = strrchr(argument, ':');
	rd_kafka_resp_err_t err;
	long partitions;

	if (!colon || !parse_number(colon + 1, &partitions))
		fail("not TOPIC:PARTITIONS", argument);
	*colon = '\0';
	err = rd_kafka_mock_topic_create(cluster, argument, (int) partitions, 1);
	if (err)
		fail(argument, rd_kafka_err2str(err));
}

static void
ignore(int signal_number)
{
	(void) signal_number;
}

int
main(int argc, char **argv)
{
	/* no SA_RESTART: a signal ends the reading of standard input */
	struct sigaction action = {.sa_handler = ignore};
	char error[512];
	const char *file = NULL;
	const char *bootstrap;
	rd_kafka_conf_t *conf;
	rd_kafka_t *rk;
	long brokers = 1;
	char *line = NULL;
	size_t allocated = 0;
	int c;

	while ((c = getopt(argc, argv, "n:f:")) != -1)
	{
		if (c == 'f')
			file = optarg;
		else if (c != 'n' || !parse_number(optarg, &brokers))
		{
			fputs(usage_text, stderr);
			return 2;
		}
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);

	/* this client only lends its thread to the cluster; that it knows no servers is not worth a word */
	conf = rd_kafka_conf_new();
	rd_kafka_conf_set(conf, "log_level", "2", NULL, 0);
	rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
	if (!rk)
		fail("librdkafka", error);
	cluster = rd_kafka_mock_cluster_new(rk, (int) brokers);
	if (!cluster)
		fail("librdkafka", "no mock cluster");
	for (int i = optind; i < argc; i++)
		create_topic(argv[i]);
	bootstrap = rd_kafka_mock_cluster_bootstraps(cluster);
	printf("%s\n", bootstrap);
	if (file)
		write_file(file, bootstrap);

	while (getline(&line, &allocated, stdin) > 0)
		execute_line(line);
	free(line);
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(rk);
	return 0;
}
