#!/bin/bash
# replay.sh
#	How fast a continuous view reads a stream that is already there: rows per second of CPU time of the
#	worker (user and system, from /proc), by window and key, for 1000 and for 100000 keys. Beside it the
#	CPU time of the same SELECT as plain SQL, in one process.
#
#	Environment: the database (PGHOST, PGDATABASE, ..), with the extension, on this machine
#	             SCALE   millions of rows are 5 times this (default 1)
#	             RUNS    how often each is measured (default 3)
set -eu

scale=${SCALE:-1}
rows=$((5000000 * scale))
runs=${RUNS:-3}
hertz=$(getconf CLK_TCK)

sql() {
	psql -XqAt -v ON_ERROR_STOP=1 "$@"
}

cleanup() {
	sql -c "SET client_min_messages = error; DROP TABLE IF EXISTS replay CASCADE; DROP TABLE IF EXISTS replay_none CASCADE"
}

# cpu PID: ticks of CPU time that a process has used.
cpu() {
	awk '{ print $14 + $15 }' "/proc/$1/stat"
}

# report NAME TICKS MILLISECONDS
report() {
	awk -v name="$1" -v rows="$rows" -v cpu="$2" -v hertz="$hertz" -v ms="$3" 'BEGIN {
		cpu = cpu > 0 ? cpu / hertz : 1 / hertz
		printf "  %-28s %6.2f s CPU  %6.2f s elapsed  %6.2f M rows/s a core\n", name, cpu, ms / 1000, rows / cpu / 1e6
	}'
}

query() {
	echo "SELECT tumble(ts, '1 minute') AS w, $1 AS key, count(*) AS n, sum(x) AS total, avg(x) AS mean, max(x) AS most
		FROM replay WHERE x > 0.1 GROUP BY w, $1"
}

trap cleanup EXIT
cleanup
# the worker must run before the clock does: a view of a stream without rows sees to that
sql <<SQL
SET client_min_messages = warning;
CREATE TABLE replay_none (ts timestamptz NOT NULL) USING stream;
CREATE MATERIALIZED VIEW replay_none_view USING continuous AS SELECT ts FROM replay_none;
CREATE TABLE replay (ts timestamptz NOT NULL, few integer, many integer, x double precision)
	USING stream WITH (stream.event_time = 'ts', stream.watermark_delay = '5 s');
INSERT INTO replay
	SELECT timestamptz '2024-05-01 00:00+00' + n * interval '300 s' / $rows,
		(hashint8(n) & 2147483647) % 1000, (hashint8(n) & 2147483647) % 100000,
		(hashint8(-n) & 65535) / 65536.0
	FROM generate_series(1, $rows) AS n;
VACUUM ANALYZE replay;
CHECKPOINT;
SQL
sql -c "SELECT stream.wait('replay_none_view')" >/dev/null
worker=$(sql -c "SELECT worker_pid FROM stream.views WHERE view = 'replay_none_view'::regclass")
# once through the buffer cache, for all alike
sql -c "SELECT count(x) FROM replay" >/dev/null

echo "replay of $rows rows, $(sql -c "SELECT pg_size_pretty(pg_relation_size('replay'))")"
for key in few many; do
	groups=$(sql -c "SELECT count(*) FROM ($(query $key)) AS q")
	for _ in $(seq "$runs"); do
		before=$(cpu "$worker")
		start=$(date +%s%3N)
		sql -c "SET client_min_messages = warning" \
			-c "CREATE MATERIALIZED VIEW replay_view USING continuous AS $(query $key)" \
			-c "SELECT stream.wait('replay_view')" >/dev/null
		report "view, $groups groups" $(($(cpu "$worker") - before)) $(($(date +%s%3N) - start))
		differ=$(sql -c "SELECT count(*) FROM (SELECT w, key, n, most FROM replay_view EXCEPT ALL
			SELECT w, key, n, most FROM ($(query $key)) AS q) AS d")
		[ "$differ" = 0 ] || { echo "view and SELECT differ in $differ rows"; exit 1; }
		sql -c "DROP MATERIALIZED VIEW replay_view"

		# both readings of the same backend, by psql itself
		read -r before after start end < <(sql <<SQL
SET max_parallel_workers_per_gather = 0;
SET work_mem = '1GB';
SET jit = off;
SELECT pg_backend_pid() AS pid \gset
\set before \`awk '{ print \$14 + \$15 }' /proc/:pid/stat\`
\set start \`date +%s%3N\`
SELECT count(*) AS groups, sum(n) AS n FROM ($(query $key)) AS q \gset
\set end \`date +%s%3N\`
\set after \`awk '{ print \$14 + \$15 }' /proc/:pid/stat\`
\echo :before :after :start :end
SQL
		)
		report "plain SQL, $groups groups" $((after - before)) $((end - start))
	done
done
