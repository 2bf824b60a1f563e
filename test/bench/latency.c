/*
 * latency.c
 *		How long it takes until a row or a record is visible in a continuous view.
 *
 * Usage: latency RATE SECONDS [BROKERS TOPIC]. One connection inserts a row RATE times a second into
 * "latency"; after each commit another one asks the view in a tight loop until the row is counted
 * there. Prints percentiles of the time from the return of the INSERT to the answer that has the row,
 * so it includes one query, and the time of such a query alone. With a topic a producer that waits for
 * no other records writes {"ts":.., "key":1} to it instead, and time counts from the call that hands
 * the record to the client, for librdkafka and the broker are part of the way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static PGconn *
connect_server(void)
{
	PGconn *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
	{
		fprintf(stderr, "latency: %s", PQerrorMessage(conn));
		exit(1);
	}
	return conn;
}

/* The number in the first field of the result of a prepared statement; 0: none. */
static long
run(PGconn *conn, const char *name)
{
	PGresult *result = PQexecPrepared(conn, name, 0, NULL, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);
	long value = 0;

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
	{
		fprintf(stderr, "latency: %s", PQerrorMessage(conn));
		exit(1);
	}
	if (PQntuples(result) > 0)
		value = atol(PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *) a;
	double y = *(const double *) b;

	return (x > y) - (x < y);
}

static void
report(const char *name, double *values, int n)
{
	qsort(values, n, sizeof(double), compare);
	printf("%-32s p50 %7.3f  p90 %7.3f  p99 %7.3f  max %7.3f ms\n", name, values[n / 2] * 1e3,
		   values[(int) (n * 0.9)] * 1e3, values[(int) (n * 0.99)] * 1e3, values[n - 1] * 1e3);
}

static void
fail_producer(const char *message)
{
	fprintf(stderr, "latency: %s\n", message);
	exit(1);
}

/* Callback of librdkafka: the broker has a record, or will never have it. */
static void
note_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	(void) rk;
	(void) opaque;
	if (message->err)
		fail_producer(rd_kafka_err2str(message->err));
	*(double *) message->_private = now();
}

static rd_kafka_topic_t *
open_topic(rd_kafka_t **rk, const char *brokers, const char *topic)
{
	const char *const settings[] = {"bootstrap.servers", brokers, "linger.ms", "0"};
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char message[512];

	for (int i = 0; i < 4; i += 2)
	{
		if (rd_kafka_conf_set(conf, settings[i], settings[i + 1], message, sizeof(message)) !=
			RD_KAFKA_CONF_OK)
			fail_producer(message);
	}
	rd_kafka_conf_set_dr_msg_cb(conf, note_delivery);
	*rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, message, sizeof(message));
	if (*rk == NULL)
		fail_producer(message);
	return rd_kafka_topic_new(*rk, topic, NULL);
}

/* Hands a record to the client; the time at which it is acknowledged goes to 'delivered'. */
static void
produce(rd_kafka_topic_t *topic, double *delivered)
{
	char value[128];
	char second[32];
	struct timespec t;
	struct tm tm;
	int size;

	clock_gettime(CLOCK_REALTIME, &t);
	strftime(second, sizeof(second), "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
	size = snprintf(value, sizeof(value), "{\"ts\":\"%s.%06ldZ\",\"key\":1}", second,
					t.tv_nsec / 1000);
	if (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, value, size, NULL, 0,
						 delivered) != 0)
		fail_producer(rd_kafka_err2str(rd_kafka_last_error()));
}

int
main(int argc, char **argv)
{
	int rate = argc == 3 || argc == 5 ? atoi(argv[1]) : 0;
	int rows = rate > 0 ? rate * atoi(argv[2]) : 0;
	double *visible;
	double *commit;
	double *query;
	rd_kafka_t *rk = NULL;
	rd_kafka_topic_t *topic = NULL;
	PGconn *writer = NULL;
	PGconn *reader;
	long count;
	double next;

	if (rate <= 0 || rows <= 0)
	{
		fprintf(stderr, "usage: %s RATE SECONDS [BROKERS TOPIC]\n", argv[0]);
		return 2;
	}
	visible = malloc(rows * sizeof(double));
	commit = malloc(rows * sizeof(double));
	query = malloc(rows * sizeof(double));
	reader = connect_server();
	if (argc == 5)
		topic = open_topic(&rk, argv[3], argv[4]);
	else
	{
		writer = connect_server();
		PQclear(PQprepare(writer, "insert", "INSERT INTO latency VALUES (clock_timestamp(), 1)", 0,
						  NULL));
	}
	PQclear(PQprepare(reader, "select", "SELECT sum(n) FROM latency_view", 0, NULL));

	/* the first rows warm up caches and do not count */
	count = run(reader, "select");
	next = now();
	for (int i = -rate / 2; i < rows; i++)
	{
		double start;
		double committed = 0;
		double asked;
		double seen;

		next += 1.0 / rate;
		while (now() < next)
		{
			struct timespec pause = {0, 50000};

			nanosleep(&pause, NULL);
		}
		start = now();
		if (topic != NULL)
			produce(topic, &committed);
		else
		{
			(void) run(writer, "insert");
			committed = now();
		}
		count++;
		do
		{
			asked = now();
			if (asked > start + 30)
			{
				fprintf(stderr, "latency: a row is not visible after 30 s\n");
				return 1;
			}
			/* takes in that the record is acknowledged */
			if (rk != NULL)
				rd_kafka_poll(rk, 0);
		} while (run(reader, "select") < count);
		seen = now();
		while (committed == 0)
			rd_kafka_poll(rk, 100);
		if (i < 0)
			continue;
		visible[i] = seen - (topic != NULL ? start : committed);
		commit[i] = committed - start;
		query[i] = seen - asked;
		/* a late row must not make the following ones come in a burst */
		if (seen > next)
			next = seen;
	}
	printf("%d rows, at most %d a second\n", rows, rate);
	report(topic != NULL ? "produce to visible" : "committed INSERT to visible", visible, rows);
	report("of which the last query", query, rows);
	report(topic != NULL ? "produce to acknowledged" : "the INSERT itself", commit, rows);
	if (topic != NULL)
	{
		rd_kafka_topic_destroy(topic);
		rd_kafka_destroy(rk);
	}
	return 0;
}
