/*
 * latency.c
 *		How long after its commit a row is visible in a continuous view.
 *
 * Usage: latency RATE SECONDS. One connection inserts a row RATE times a second into "latency"; after
 * each commit another one asks the view in a tight loop until the row is counted there. Prints
 * percentiles of the time from the return of the INSERT to the answer that has the row, so it
 * includes one query, and the time of such a query alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <libpq-fe.h>

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

int
main(int argc, char **argv)
{
	int rate = argc == 3 ? atoi(argv[1]) : 0;
	int rows = argc == 3 ? rate * atoi(argv[2]) : 0;
	double *visible;
	double *commit;
	double *query;
	PGconn *writer;
	PGconn *reader;
	long count;
	double next;

	if (rate <= 0 || rows <= 0)
	{
		fprintf(stderr, "usage: %s RATE SECONDS\n", argv[0]);
		return 2;
	}
	visible = malloc(rows * sizeof(double));
	commit = malloc(rows * sizeof(double));
	query = malloc(rows * sizeof(double));
	writer = connect_server();
	reader = connect_server();
	PQclear(
		PQprepare(writer, "insert", "INSERT INTO latency VALUES (clock_timestamp(), 1)", 0, NULL));
	PQclear(PQprepare(reader, "select", "SELECT sum(n) FROM latency_view", 0, NULL));

	/* the first rows warm up caches and do not count */
	count = run(reader, "select");
	next = now();
	for (int i = -rate / 2; i < rows; i++)
	{
		double start;
		double committed;
		double asked;
		double seen;

		next += 1.0 / rate;
		while (now() < next)
		{
			struct timespec pause = {0, 50000};

			nanosleep(&pause, NULL);
		}
		start = now();
		(void) run(writer, "insert");
		committed = now();
		count++;
		do
		{
			asked = now();
			if (asked > committed + 30)
			{
				fprintf(stderr, "latency: a row is not visible after 30 s\n");
				return 1;
			}
		} while (run(reader, "select") < count);
		seen = now();
		if (i < 0)
			continue;
		visible[i] = seen - committed;
		commit[i] = committed - start;
		query[i] = seen - asked;
		/* a late row must not make the following ones come in a burst */
		if (seen > next)
			next = seen;
	}
	printf("%d rows, at most %d a second\n", rows, rate);
	report("committed INSERT to visible", visible, rows);
	report("of which the last query", query, rows);
	report("the INSERT itself", commit, rows);
	return 0;
}
