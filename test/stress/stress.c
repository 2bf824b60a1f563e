/*
 * stress.c
 *		Writes into stream "events" in every way a client can, until time is up.
 *
 * Usage: stress SECONDS ROUND, with the server in PGHOST, PGPORT and so on. Every process of it is one kind
 * of writer. Each row has an id that is never used again, and the same transaction notes the id in
 * table "ledger". So whatever crashes and whichever commits get lost, ledger and stream must hold
 * the same ids, and it does not matter that a client cannot know whether its last commit was done.
 *
 * Writers connect again after a crash. Errors that come with a crash are expected; any other is
 * printed and makes the program end with code 1.
 *
 * All choices come from a generator seeded by round and process, so runs differ only by timing.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libpq-fe.h>

#define MAX_ROWS    64    /* of one INSERT */
#define MAX_PAYLOAD 40000 /* bytes; enough for TOAST out of line */
#define POOL        10    /* idle connections of one process */

static double deadline;
static int failures = 0;
static int kind;
static long long next_id;
static char payload[MAX_PAYLOAD + 1];
static char sql[MAX_ROWS * (MAX_PAYLOAD + 200)];

static double
now(void)
{
	struct timeval t;

	gettimeofday(&t, NULL);
	return t.tv_sec + t.tv_usec / 1e6;
}

/* 0 to n - 1 */
static int
choose(int n)
{
	return rand() % n;
}

static void
nap(int max_ms)
{
	usleep(choose(max_ms * 1000));
}

static bool
is_running(void)
{
	return now() < deadline;
}

/* Crashes come with warnings on every connection. */
static void
ignore_notice(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

/* Connects, waiting for a server that is starting up. Ends the process when time is up. */
static PGconn *
connect_server(void)
{
	for (;;)
	{
		PGconn *conn = PQconnectdb("");

		if (PQstatus(conn) == CONNECTION_OK)
		{
			(void) PQsetNoticeProcessor(conn, ignore_notice, NULL);
			return conn;
		}
		PQfinish(conn);
		if (now() > deadline + 5)
			exit(failures > 0);
		usleep(50000);
	}
}

/* What a crash or our own rollback can cause. */
static bool
is_expected(const PGresult *result)
{
	static const char *const expected[] = {
		"57P01", "57P02", "57P03", /* the server stops, crashed, starts */
		"25P01", "25P02",          /* no transaction, or a failed one */
		"57014",                   /* COPY given up by the client */
		"42704",                   /* a prepared transaction is not there any more */
	};
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (state == NULL)
		return true; /* lost connection */
	for (int i = 0; i < (int) (sizeof(expected) / sizeof(expected[0])); i++)
	{
		if (strcmp(state, expected[i]) == 0)
			return true;
	}
	/* somebody else ends the same prepared transaction */
	return strcmp(state, "55000") == 0 && strstr(PQresultErrorMessage(result), "is busy") != NULL;
}

static void
check_result(PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_COPY_IN &&
		!is_expected(result))
	{
		fprintf(stderr, "writer %d: %s: %s", kind, PQresultErrorField(result, PG_DIAG_SQLSTATE),
				PQresultErrorMessage(result));
		failures++;
	}
}

/* True if the statements succeeded. Connects again if the connection is lost. */
static bool
execute(PGconn **conn, const char *statements)
{
	PGresult *result = PQexec(*conn, statements);
	bool done =
		PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;

	check_result(result);
	PQclear(result);
	if (PQstatus(*conn) != CONNECTION_OK)
	{
		PQfinish(*conn);
		*conn = connect_server();
		return false;
	}
	return done;
}

static bool
in_transaction(PGconn *conn)
{
	return PQtransactionStatus(conn) == PQTRANS_INTRANS;
}

/* Mostly short, a few that are compressed or stored out of line. */
static void
make_payload(int max)
{
	int k = choose(100);
	int len = choose(k < 80 ? 60 : k < 97 ? 400 : k < 99 ? 3000 : MAX_PAYLOAD);

	if (len > max)
		len = max;
	for (int i = 0; i < len; i++)
		payload[i] = 'a' + choose(26);
	payload[len] = '\0';
}

/* The fields of the next row after the id: seconds, key, amount, payload. */
#define ROW_FORMAT "2024-05-01 10:%02d:%02d.%03d+00%s%d%s%d.%02d%s"
#define ROW_FIELDS(sep) \
	choose(10), choose(60), choose(1000), sep, choose(20), sep, choose(1000), choose(100), sep

/* INSERT of some rows, and of their ids into the ledger, as one string. */
static const char *
insert_rows(int rows)
{
	char *out = sql;
	long long first = next_id;

	out += sprintf(out, "INSERT INTO events VALUES ");
	for (int i = 0; i < rows; i++)
	{
		make_payload(rows > 20 ? 100 : MAX_PAYLOAD);
		out += sprintf(out, "%s(%lld, '" ROW_FORMAT "%s')", i > 0 ? ", " : "", next_id++,
					   ROW_FIELDS("', '"), payload);
	}
	sprintf(out, "; INSERT INTO ledger SELECT generate_series(%lld::bigint, %lld)", first,
			next_id - 1);
	return sql;
}

/* Single rows on connections that are idle in between, as a pool does it. */
static void
write_pooled(void)
{
	PGconn *pool[POOL];

	for (int i = 0; i < POOL; i++)
		pool[i] = connect_server();
	while (is_running())
	{
		int i = choose(POOL);

		(void) execute(&pool[i], insert_rows(1));
		nap(choose(5) > 0 ? 10 : 300);
		if (choose(200) == 0)
		{
			PQfinish(pool[i]);
			pool[i] = connect_server();
		}
	}
}

static void
write_fast(void)
{
	PGconn *conn = connect_server();

	while (is_running())
	{
		(void) execute(&conn, insert_rows(1));
		if (choose(20) == 0)
			nap(20);
	}
}

static void
write_copies(void)
{
	PGconn *conn = connect_server();

	while (is_running())
	{
		int rows = 1 + choose(choose(4) > 0 ? 300 : 5000);
		long long first = next_id;
		PGresult *result;
		char note[200];

		if (!execute(&conn, "BEGIN"))
			continue;
		result = PQexec(conn, "COPY events FROM STDIN");
		check_result(result);
		if (PQresultStatus(result) == PGRES_COPY_IN)
		{
			for (int i = 0; i < rows; i++)
			{
				make_payload(choose(50) > 0 ? 50 : MAX_PAYLOAD);
				sprintf(sql, "%lld\t" ROW_FORMAT "%s\n", next_id++, ROW_FIELDS("\t"), payload);
				if (PQputCopyData(conn, sql, (int) strlen(sql)) != 1)
					break;
				if (choose(2000) == 0)
					nap(100);
			}
			(void) PQputCopyEnd(conn, choose(10) > 0 ? NULL : "given up");
		}
		PQclear(result);
		while ((result = PQgetResult(conn)) != NULL)
		{
			check_result(result);
			PQclear(result);
		}
		sprintf(note, "INSERT INTO ledger SELECT generate_series(%lld::bigint, %lld)", first,
				next_id - 1);
		/* a failed transaction is rolled back by COMMIT, too */
		if (in_transaction(conn))
			(void) execute(&conn, note);
		(void) execute(&conn, choose(6) > 0 ? "COMMIT" : "ROLLBACK");
		nap(150);
	}
}

static void
write_batches(void)
{
	PGconn *conn = connect_server();

	while (is_running())
	{
		if (!execute(&conn, "BEGIN"))
			continue;
		(void) execute(&conn, insert_rows(1 + choose(50)));
		nap(20);
		(void) execute(&conn, choose(3) > 0 ? "COMMIT" : "ROLLBACK");
		nap(30);
	}
}

/* Nested savepoints, released and rolled back at random. */
static void
write_savepoints(void)
{
	PGconn *conn = connect_server();

	while (is_running())
	{
		int depth = 0;

		if (!execute(&conn, "BEGIN"))
			continue;
		for (int i = choose(40); i > 0 && in_transaction(conn); i--)
		{
			char command[64];

			switch (choose(4))
			{
				case 0:
					sprintf(command, "SAVEPOINT s%d", depth++);
					(void) execute(&conn, command);
					break;
				case 1:
					if (depth == 0)
						break;
					depth = choose(depth);
					/* ROLLBACK TO keeps the savepoint itself, RELEASE drops it */
					sprintf(command, choose(2) > 0 ? "ROLLBACK TO s%d; RELEASE s%d" : "RELEASE s%d",
							depth, depth);
					(void) execute(&conn, command);
					break;
				default:
					(void) execute(&conn, insert_rows(1 + choose(3)));
			}
			if (choose(10) == 0)
				nap(20);
		}
		(void) execute(&conn, choose(4) > 0 ? "COMMIT" : "ROLLBACK");
		nap(20);
	}
}

/* Prepares transactions, and ends others that were prepared before, also before a crash. */
static void
write_prepared(void)
{
	PGconn *conn = connect_server();

	while (is_running())
	{
		char command[200];
		PGresult *result;

		if (!execute(&conn, "BEGIN"))
			continue;
		if (choose(2) > 0)
			(void) execute(&conn, "SAVEPOINT a");
		(void) execute(&conn, insert_rows(1 + choose(20)));
		sprintf(command, "PREPARE TRANSACTION 'stress %lld'", next_id);
		(void) execute(&conn, command);
		nap(200);

		result =
			PQexec(conn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() "
						 "ORDER BY random() LIMIT 1");
		check_result(result);
		command[0] = '\0';
		if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0 && choose(10) > 0)
			snprintf(command, sizeof(command), "%s PREPARED '%s'",
					 choose(3) > 0 ? "COMMIT" : "ROLLBACK", PQgetvalue(result, 0, 0));
		PQclear(result);
		/* also notices that the connection is lost */
		(void) execute(&conn, command);
	}
}

/* A row now and then in one transaction that lasts for seconds. */
static void
write_long(void)
{
	PGconn *conn = connect_server();

	while (is_running())
	{
		double end = now() + choose(5);

		if (!execute(&conn, "BEGIN"))
			continue;
		while (is_running() && now() < end && in_transaction(conn))
		{
			(void) execute(&conn, insert_rows(1 + choose(3)));
			nap(500);
		}
		(void) execute(&conn, choose(4) > 0 ? "COMMIT" : "ROLLBACK");
	}
}

/* ON CONFLICT DO NOTHING: twice in one statement, and in two transactions at the same time. */
static void
write_conflicts(void)
{
	PGconn *conn = connect_server();
	PGconn *other = connect_server();

	while (is_running())
	{
		PGresult *result;

		make_payload(MAX_PAYLOAD);
		sprintf(
			sql,
			"WITH new AS (INSERT INTO events SELECT %lld, '2024-05-01 10:%02d:00+00', %d, 1, '%s' "
			"FROM generate_series(1, %d) ON CONFLICT (id) DO NOTHING RETURNING id) "
			"INSERT INTO ledger SELECT id FROM new",
			next_id++, choose(60), choose(20), payload, 1 + choose(2));
		if (choose(2) > 0)
		{
			(void) execute(&conn, sql);
			nap(20);
			continue;
		}
		if (!execute(&conn, "BEGIN"))
			continue;
		(void) execute(&conn, sql);
		/* waits for the first, then inserts if that was rolled back */
		(void) PQsendQuery(other, sql);
		nap(20);
		(void) execute(&conn, choose(2) > 0 ? "COMMIT" : "ROLLBACK");
		while ((result = PQgetResult(other)) != NULL)
		{
			check_result(result);
			PQclear(result);
		}
		if (PQstatus(other) != CONNECTION_OK)
		{
			PQfinish(other);
			other = connect_server();
		}
	}
}

static void
run_vacuum(void)
{
	static const char *const commands[] = {"VACUUM (INDEX_CLEANUP ON) events",
										   "VACUUM (FREEZE) events", "VACUUM events",
										   "ANALYZE events", "CHECKPOINT"};
	PGconn *conn = connect_server();

	while (is_running())
	{
		(void) execute(&conn, commands[choose(5)]);
		nap(300);
	}
}

int
main(int argc, char **argv)
{
	static void (*const writers[])(
		void) = {write_pooled,  write_pooled,     write_fast,       write_copies,   write_copies,
				 write_batches, write_savepoints, write_savepoints, write_prepared, write_long,
				 write_long,    write_conflicts,  run_vacuum};
	int status;
	bool failed = false;
	int round;

	if (argc != 3)
	{
		fprintf(stderr, "usage: %s SECONDS ROUND\n", argv[0]);
		return 2;
	}
	deadline = now() + atof(argv[1]);
	round = atoi(argv[2]);

	for (kind = 0; kind < (int) (sizeof(writers) / sizeof(writers[0])); kind++)
	{
		if (fork() == 0)
		{
			next_id = ((long long) round << 44) | ((long long) kind << 36);
			srand(round * 1000 + kind);
			writers[kind]();
			exit(failures > 0);
		}
	}
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
