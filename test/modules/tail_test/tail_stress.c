/*
 * tail_stress.c
 *		Stress test of the tail reader: every committed row is returned exactly once.
 *
 * usage: tail_stress SECONDS SEED
 *		tail_stress virgin
 *
 * Writers insert rows in every way we know, each row also into a ledger in the same transaction.
 * Three readers poll into a table each, with small and large batches, and abort at random. Beside
 * them VACUUM, FREEZE and ANALYZE loop, rows expire, blocks are recycled, and the server is stopped
 * in immediate mode. At the end ledger and what each reader got must be the same set.
 *
 * "virgin" is a directed test of one case instead: blocks at the end of the file that a reader has
 * closed and VACUUM has emptied must not go to a writer after a crash unless the reader opens them.
 *
 * Environment: PGHOST, PGPORT, PGUSER, PGDATABASE of a server with stream_ext preloaded and
 * extension tail_test available; PGDATA and PG_CTL (path of pg_ctl) for the crashes, which are left
 * out without them; TAIL_RETENTION=0 leaves out expiry; TAIL_CUT=1 also cuts the stream's file to a
 * random length not below that at the last checkpoint, as a crash of the machine may. Exit code 0:
 * nothing missing or double.
 */
#include <libpq-fe.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define READERS 3
#define SQL_MAX (4 << 20)

static double deadline;   /* when the workload ends */
static int worker;        /* number of this process */
static long long counter; /* ids of this process */
static char sql[SQL_MAX];
static char payload[100001];

static double
now(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return tv.tv_sec + tv.tv_usec / 1e6;
}

/* 0 .. n - 1 */
static int
draw(int n)
{
	return n > 0 ? (int) (random() % n) : 0;
}

static long long
next_id(void)
{
	return ((long long) worker << 48) | counter++;
}

static void
ignore_notice(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

static PGconn *
connect_wait(void)
{
	for (;;)
	{
		PGconn *conn = PQconnectdb("");

		if (PQstatus(conn) == CONNECTION_OK)
		{
			/* every crash is announced to every session */
			PQsetNoticeProcessor(conn, ignore_notice, NULL);
			return conn;
		}
		PQfinish(conn);
		if (now() > deadline + 60)
		{
			fprintf(stderr, "server does not come back\n");
			exit(1);
		}
		usleep(50000);
	}
}

/* Errors that belong to the test: crashes, aborted and missing (prepared) transactions. */
static bool
is_expected(const char *state)
{
	static const char *expected[] = {"57P01", "57P02", "57P03", "42704", "55000",
									 "25P01", "25P02", "40P01", "57014"};

	for (size_t i = 0; state != NULL && i < sizeof(expected) / sizeof(expected[0]); i++)
		if (strcmp(state, expected[i]) == 0)
			return true;
	return state == NULL;
}

typedef enum Outcome
{
	OUTCOME_OK,
	OUTCOME_ERROR,
	OUTCOME_LOST /* connection lost and made again */
} Outcome;

static Outcome
execute(PGconn **conn, const char *text)
{
	PGresult *result = PQexec(*conn, text);
	ExecStatusType status = PQresultStatus(result);
	bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;

	if (!ok && !is_expected(PQresultErrorField(result, PG_DIAG_SQLSTATE)))
		fprintf(stderr, "[%d] %s: %s", worker, PQresultErrorField(result, PG_DIAG_SQLSTATE),
				PQresultErrorMessage(result));
	PQclear(result);
	if (PQstatus(*conn) == CONNECTION_OK)
		return ok ? OUTCOME_OK : OUTCOME_ERROR;
	PQfinish(*conn);
	*conn = connect_wait();
	return OUTCOME_LOST;
}

static void
make_payload(int len)
{
	for (int i = 0; i < len; i++)
		payload[i] = (char) ('a' + draw(26));
	payload[len] = '\0';
}

/* Mostly short, sometimes TOASTed. */
static int
draw_length(void)
{
	int k = draw(100);

	return k < 80 ? draw(60) : k < 97 ? draw(400) : k < 99 ? draw(3000) : draw(40000);
}

/* INSERT of n rows and of their ids into the ledger, as one statement list. */
static const char *
insert_rows(int n)
{
	char *p = sql;
	long long first = counter;

	p += sprintf(p, "insert into s(id, client, len, payload) values ");
	for (int i = 0; i < n; i++)
	{
		make_payload(n > 20 ? draw(60) : draw_length());
		p += sprintf(p, "%s(%lld,%d,%d,'%s')", i > 0 ? "," : "", next_id(), worker,
					 (int) strlen(payload), payload);
	}
	first |= (long long) worker << 48;
	sprintf(p, "; insert into ledger select generate_series(%lld::bigint, %lld::bigint)", first,
			first + n - 1);
	return sql;
}

static void
end_transaction(PGconn **conn, int commits_of_four)
{
	(void) execute(conn, draw(4) < commits_of_four ? "commit" : "rollback");
}

/* Single rows over a pool of mostly idle connections. */
static void
run_pool(void)
{
	PGconn *conn[10];

	for (int i = 0; i < 10; i++)
		conn[i] = connect_wait();
	while (now() < deadline)
	{
		int k = draw(10);

		(void) execute(&conn[k], insert_rows(1));
		usleep(draw(5) ? draw(20000) : draw(400000));
		if (draw(200) == 0)
		{
			PQfinish(conn[k]);
			conn[k] = connect_wait();
		}
	}
}

static void
run_fast(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		(void) execute(&conn, insert_rows(1));
		if (draw(50) == 0)
			usleep(draw(50000));
	}
}

static void
run_batches(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		if (execute(&conn, "begin") != OUTCOME_OK)
			continue;
		if (execute(&conn, insert_rows(1 + draw(50))) == OUTCOME_LOST)
			continue;
		usleep(draw(20000));
		end_transaction(&conn, 3);
		usleep(draw(30000));
	}
}

/* One COPY in a transaction of its own; it may be abandoned in the middle or rolled back. */
static void
copy_rows(PGconn **conn, int n)
{
	long long first = ((long long) worker << 48) | counter;
	PGresult *result;
	bool started;

	if (execute(conn, "begin") != OUTCOME_OK)
		return;
	result = PQexec(*conn, "copy s(id, client, len, payload) from stdin");
	started = PQresultStatus(result) == PGRES_COPY_IN;
	PQclear(result);
	for (int i = 0; started && i < n; i++)
	{
		int len;

		make_payload(draw(10) ? draw(50) : draw_length());
		len = sprintf(sql, "%lld\t%d\t%d\t%s\n", next_id(), worker, (int) strlen(payload), payload);
		if (PQputCopyData(*conn, sql, len) != 1)
			break;
		if (draw(2000) == 0)
			usleep(draw(100000));
	}
	if (started)
	{
		PQputCopyEnd(*conn, draw(12) ? NULL : "abandoned");
		while ((result = PQgetResult(*conn)) != NULL)
			PQclear(result);
	}
	if (PQtransactionStatus(*conn) != PQTRANS_INTRANS)
	{
		(void) execute(conn, "rollback");
		return;
	}
	sprintf(sql, "insert into ledger select generate_series(%lld::bigint, %lld::bigint)", first,
			first + n - 1);
	if (execute(conn, sql) != OUTCOME_LOST)
		(void) execute(conn, draw(6) ? "commit" : "rollback");
}

static void
run_copies(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		copy_rows(&conn, 1 + (draw(4) ? draw(300) : draw(10000)));
		usleep(draw(200000));
	}
}

static void
run_savepoints(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		Outcome outcome = execute(&conn, "begin");

		for (int i = draw(20); i > 0 && outcome == OUTCOME_OK; i--)
		{
			outcome = execute(&conn, "savepoint a");
			if (outcome == OUTCOME_OK)
				outcome = execute(&conn, insert_rows(1 + draw(3)));
			if (outcome == OUTCOME_OK)
				outcome = execute(&conn, draw(2) ? "rollback to a" : "release a");
			if (draw(10) == 0)
				usleep(draw(20000));
		}
		if (outcome != OUTCOME_LOST)
			end_transaction(&conn, 3);
		usleep(draw(20000));
	}
}

/* Leaves transactions prepared, ends others, also those of before a crash. */
static void
run_prepared(void)
{
	PGconn *conn = connect_wait();
	char text[200];

	while (now() < deadline)
	{
		PGresult *result;

		if (execute(&conn, "begin") != OUTCOME_OK ||
			(draw(2) && execute(&conn, "savepoint a") != OUTCOME_OK) ||
			execute(&conn, insert_rows(1 + draw(20))) != OUTCOME_OK)
			continue;
		sprintf(text, "prepare transaction 'stress %d %lld'", worker, counter);
		(void) execute(&conn, text);
		usleep(draw(200000));
		result = PQexec(conn, "select gid from pg_prepared_xacts where "
							  "prepared < now() - interval '3 s' or random() < 0.1 limit 1");
		text[0] = '\0';
		if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1)
			sprintf(text, "%s prepared '%s'", draw(3) ? "commit" : "rollback",
					PQgetvalue(result, 0, 0));
		PQclear(result);
		if (text[0] != '\0' || PQstatus(conn) != CONNECTION_OK)
			(void) execute(&conn, text);
	}
}

/* Transactions that stay open for seconds and insert now and then. */
static void
run_long(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		double end = now() + draw(10);
		Outcome outcome = execute(&conn, "begin");

		while (outcome == OUTCOME_OK && now() < end && now() < deadline)
		{
			outcome = execute(&conn, insert_rows(1 + draw(3)));
			usleep(draw(500000));
		}
		if (outcome != OUTCOME_LOST)
			end_transaction(&conn, 3);
	}
}

/* Speculative insertions, some of which lose against themselves. */
static void
run_conflicts(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		make_payload(draw(200));
		sprintf(sql,
				"with new as (insert into s(id, client, len, payload) select %lld, %d, %d, '%s' "
				"from generate_series(1, %d) on conflict (id) do nothing returning id) "
				"insert into ledger select id from new",
				next_id(), worker, (int) strlen(payload), payload, draw(4) ? 1 : 2);
		(void) execute(&conn, sql);
		usleep(draw(20000));
	}
}

static void
run_vacuum(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		(void) execute(&conn, draw(5) ? "vacuum (index_cleanup on) s"
									  : "vacuum (freeze, index_cleanup on) s");
		usleep(draw(400000));
		if (draw(6) == 0)
			(void) execute(&conn, "analyze s");
	}
}

static void
run_retention(void)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		(void) execute(&conn, "select tail_test.tail_expire('s', 'at', "
							  "clock_timestamp() - interval '4 s', 500)");
		usleep(draw(100000));
		for (int i = 0; i < 4; i++)
		{
			if (execute(&conn, "begin") != OUTCOME_OK ||
				execute(&conn, "select tail_test.tail_recycle('s', 128)") == OUTCOME_LOST)
				break;
			(void) execute(&conn, draw(8) ? "commit" : "rollback");
			usleep(draw(60000));
		}
	}
}

/* Polls as reader 'n'. */
static void
run_reader(int n)
{
	PGconn *conn = connect_wait();

	while (now() < deadline)
	{
		if (execute(&conn, "begin") != OUTCOME_OK)
			continue;
		sprintf(sql, "insert into got%d select tail_test.tail_poll('r%d', 's', %d)", n, n,
				draw(3) ? 0 : 1 + draw(4));
		if (execute(&conn, sql) == OUTCOME_LOST)
			continue;
		(void) execute(&conn, draw(7) ? "commit" : "rollback");
		usleep(draw(n * 4000));
		if (draw(500) == 0)
		{
			PQfinish(conn);
			conn = connect_wait();
		}
	}
}

static void
fork_worker(int number, long seed, void (*body)(void), int reader)
{
	if (fork() != 0)
		return;
	worker = number;
	/* above what earlier runs and restarts have used */
	counter = (long long) ((now() - 1.7e9) * 1e4);
	srandom((unsigned) (seed * 7919 + number));
	if (body != NULL)
		body();
	else
		run_reader(reader);
	exit(0);
}

static int
run_pg_ctl(const char *pg_ctl, const char *data, const char *how)
{
	char command[2000];

	snprintf(command, sizeof(command), "'%s' -D '%s' -l '%s.log' -w -t 120 %s >/dev/null", pg_ctl,
			 data, data, how);
	return system(command);
}

static int
crash_server(const char *pg_ctl, const char *data)
{
	(void) run_pg_ctl(pg_ctl, data, "-m immediate stop");
	return run_pg_ctl(pg_ctl, data, "start");
}

/* Checkpoint, work, crash, and some of what was not yet logged by then is gone from the file. */
static int
crash_machine(const char *pg_ctl, const char *data)
{
	PGconn *conn = connect_wait();
	char path[1000] = "";
	struct stat before;
	struct stat after;
	PGresult *result;

	(void) execute(&conn, "checkpoint");
	result = PQexec(conn, "select pg_relation_filepath('s')");
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		snprintf(path, sizeof(path), "%s/%s", data, PQgetvalue(result, 0, 0));
	PQclear(result);
	PQfinish(conn);
	if (stat(path, &before) != 0)
		return 1;
	usleep(1000000 + draw(5000000));
	(void) run_pg_ctl(pg_ctl, data, "-m immediate stop");
	if (stat(path, &after) != 0)
		return 1;
	if (after.st_size > before.st_size)
	{
		off_t blocks = (after.st_size - before.st_size) / 8192;

		if (truncate(path, before.st_size + (off_t) draw((int) blocks + 1) * 8192) != 0)
			return 1;
	}
	return run_pg_ctl(pg_ctl, data, "start");
}

static void
must(PGconn **conn, const char *text)
{
	if (execute(conn, text) != OUTCOME_OK)
	{
		fprintf(stderr, "failed: %s\n", text);
		exit(1);
	}
}

static long long
ask(PGconn *conn, const char *text)
{
	PGresult *result = PQexec(conn, text);
	long long value;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		fprintf(stderr, "%s: %s", text, PQresultErrorMessage(result));
		exit(1);
	}
	value = atoll(PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

static void
set_up(PGconn **conn)
{
	must(conn, "set client_min_messages = warning; drop table if exists s, ledger cascade; "
			   "drop extension if exists tail_test cascade");
	must(conn, "create extension if not exists stream_ext; create schema if not exists tail_test; "
			   "create extension tail_test");
	must(conn, "create table s (id bigint primary key, client int, len int, payload text, "
			   "at timestamptz default clock_timestamp()) using stream; "
			   "alter table s set (autovacuum_enabled = off); create table ledger (id bigint)");
	for (int i = 1; i <= READERS; i++)
	{
		char text[200];

		sprintf(text, "drop table if exists got%d; create table got%d (id bigint)", i, i);
		must(conn, text);
		/* committed before the first poll, so that recycling sees it */
		sprintf(text, "select tail_test.tail_summary('r%d', 's')", i);
		must(conn, text);
	}
}

/* Ends what is prepared, polls all, compares. Returns the number of wrong rows. */
static long long
verify(void)
{
	PGconn *conn = connect_wait();
	long long wrong = 0;
	PGresult *prepared = PQexec(conn, "select gid from pg_prepared_xacts");
	long long committed;

	for (int i = 0; i < PQntuples(prepared); i++)
	{
		sprintf(sql, "%s prepared '%s'", draw(2) ? "commit" : "rollback",
				PQgetvalue(prepared, i, 0));
		must(&conn, sql);
	}
	PQclear(prepared);
	committed = ask(conn, "select count(*) from ledger");
	printf("rows committed %lld, file %lld blocks\n", committed,
		   ask(conn, "select pg_relation_size('s') / 8192"));
	for (int i = 1; i <= READERS; i++)
	{
		long long missing;
		long long extra;
		long long twice;

		sprintf(sql, "insert into got%d select tail_test.tail_poll('r%d', 's')", i, i);
		must(&conn, sql);
		sprintf(sql, "select count(*) from (select id from ledger except select id from got%d) t",
				i);
		missing = ask(conn, sql);
		sprintf(sql, "select count(*) from (select id from got%d except select id from ledger) t",
				i);
		extra = ask(conn, sql);
		sprintf(sql, "select count(*) - count(distinct id) from got%d", i);
		twice = ask(conn, sql);
		sprintf(sql, "select count(*) from got%d", i);
		printf("reader %d: returned %lld, missing %lld, double %lld, extra %lld\n", i,
			   ask(conn, sql), missing, twice, extra);
		wrong += missing + extra + twice;
	}
	PQfinish(conn);
	return wrong;
}

/* Fill, read, crash, expire all, vacuum, crash, insert, read. Returns the number of wrong rows. */
static long long
run_virgin(const char *pg_ctl, const char *data)
{
	PGconn *conn = connect_wait();

	must(&conn, "insert into s(id) select generate_series(1, 30000); "
				"insert into ledger select generate_series(1, 30000)");
	for (int i = 1; i <= READERS; i++)
	{
		sprintf(sql, "insert into got%d select tail_test.tail_poll('r%d', 's')", i, i);
		must(&conn, sql);
	}
	must(&conn, "checkpoint");
	for (int round = 0; round < 2; round++)
	{
		PQfinish(conn);
		if (crash_server(pg_ctl, data) != 0)
			exit(1);
		conn = connect_wait();
		for (int i = 1; i <= READERS; i++)
		{
			sprintf(sql, "insert into got%d select tail_test.tail_poll('r%d', 's')", i, i);
			must(&conn, sql);
		}
		if (round == 0)
		{
			if (ask(conn, "select tail_test.tail_expire('s', 'at', 'infinity', 100000)") == 0)
			{
				fprintf(stderr, "nothing expired\n");
				exit(1);
			}
			must(&conn, "vacuum (index_cleanup on) s");
		}
	}
	must(&conn, "insert into s(id) select generate_series(30001, 60000); "
				"insert into ledger select generate_series(30001, 60000)");
	PQfinish(conn);
	return verify();
}

int
main(int argc, char **argv)
{
	void (*bodies[])(void) = {run_pool,    run_pool,       run_fast,     run_copies,
							  run_batches, run_savepoints, run_prepared, run_long,
							  run_long,    run_conflicts,  run_vacuum};
	const char *pg_ctl = getenv("PG_CTL");
	const char *data = getenv("PGDATA");
	const char *retention = getenv("TAIL_RETENTION");
	bool cut = getenv("TAIL_CUT") != NULL;
	int number = 1;
	int crashes = 0;
	long seed;
	PGconn *conn;
	long long wrong;

	if (argc != 3 && !(argc == 2 && strcmp(argv[1], "virgin") == 0 && pg_ctl && data))
	{
		fprintf(stderr, "usage: %s SECONDS SEED\n       %s virgin (needs PG_CTL, PGDATA)\n",
				argv[0], argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	signal(SIGPIPE, SIG_IGN);
	seed = argc == 3 ? atol(argv[2]) : 0;
	srandom((unsigned) seed);
	deadline = now() + 60;
	conn = connect_wait();
	set_up(&conn);
	PQfinish(conn);
	if (argc == 2)
		return run_virgin(pg_ctl, data) == 0 ? 0 : 1;
	deadline = now() + atof(argv[1]);
	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		fork_worker(number++, seed, bodies[i], 0);
	if (retention == NULL || strcmp(retention, "0") != 0)
		fork_worker(number++, seed, run_retention, 0);
	for (int i = 1; i <= READERS; i++)
		fork_worker(number++, seed, NULL, i);
	while (pg_ctl != NULL && data != NULL && now() + 8 < deadline)
	{
		int failed;

		usleep(2000000 + draw(4000000));
		failed = cut ? crash_machine(pg_ctl, data) : crash_server(pg_ctl, data);
		if (failed)
		{
			fprintf(stderr, "server did not restart\n");
			return 1;
		}
		crashes++;
	}
	while (wait(NULL) > 0)
		;
	printf("crashes %d, ", crashes);
	wrong = verify();
	return wrong == 0 ? 0 : 1;
}
