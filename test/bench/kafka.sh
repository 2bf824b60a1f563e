#!/bin/bash
# kafka.sh
#	How fast a continuous view reads a topic that is already there, of 1 and of 8 partitions: JSON records
#	of 119 bytes with 1000 keys, per second of CPU time (user and system, from /proc) of the worker with all
#	its threads. Once as it comes, with the threads of the client on other cores, and once with all of them
#	on one core, which is what a worker has on a busy machine. Beside it the CPU time of the broker meanwhile,
#	that of the same SELECT as plain SQL on the foreign table, and the most memory that the worker had.
#
#	Environment: the database (PGHOST, PGDATABASE, ..), with the extension, on this machine, as a superuser
#	             SCALE   millions of records are 5 times this (default 1); 0.7 GB of disk a million
#	             RUNS    how often each is measured (default 3)
#	Needs what `make -C test/kafka` builds, and the jars that test/kafka/broker fetches.
set -eu

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
scale=${SCALE:-1}
rows=$((5000000 * scale))
runs=${RUNS:-3}
hertz=$(getconf CLK_TCK)
work=$(mktemp -d)

cleanup() {
	sql -c "SET client_min_messages = error; DROP SERVER IF EXISTS kafka_bench CASCADE; DROP TABLE IF EXISTS kafka_none CASCADE" || true
	broker_end
	rm -rf "$work"
}

# report NAME TICKS MILLISECONDS REST
report() {
	awk -v name="$1" -v rows="$rows" -v cpu="$2" -v hertz="$hertz" -v ms="$3" -v rest="$4" 'BEGIN {
		cpu = cpu > 0 ? cpu / hertz : 1 / hertz
		printf "  %-15s %6.2f s CPU  %6.2f s elapsed  %5.2f M records/s a core%s\n", name, cpu, ms / 1000, rows / cpu / 1e6, rest
	}'
}

worker_pid() {
	sql -c "SELECT worker_pid FROM stream.views WHERE view = '$1'::regclass"
}

query() {
	echo "SELECT tumble(ts, '15 minutes') AS w, k, count(*) AS n, sum(x) AS total, avg(x) AS mean, max(x) AS most
		FROM kafka_$1 WHERE x > 100 GROUP BY w, k"
}

trap cleanup EXIT
broker_start "$work/broker"
broker=$(cat "$work/broker/pid")
sql <<SQL
SET client_min_messages = warning;
CREATE TABLE kafka_none (ts timestamptz NOT NULL) USING stream;
CREATE MATERIALIZED VIEW kafka_none_view USING continuous AS SELECT ts FROM kafka_none;
CREATE SERVER kafka_bench FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '$SXKAFKA_BROKERS');
SQL
sql -c "SELECT stream.wait('kafka_none_view')" >/dev/null

for partitions in 1 8; do
	topic=bench_$partitions
	# records of old times must not be deleted as such
	"$kafka/sxkafka" create $topic $partitions retention.ms=-1
	"$kafka/sxkafka" load $topic $rows >"$work/load"
	sql -c "CREATE FOREIGN TABLE kafka_$partitions (id bigint, k integer, x double precision, ts timestamptz, s text)
		SERVER kafka_bench OPTIONS (topic '$topic', event_time 'ts', watermark_delay '5 s')"
	# memory is that of a new process
	sql -c "SELECT pg_terminate_backend($(worker_pid kafka_none_view), 30000)" \
		-c "SELECT stream.wait('kafka_none_view')" >/dev/null
	worker=$(worker_pid kafka_none_view)
	echo "$rows records in $partitions partitions (written: $(sed 's/.*, //' "$work/load"))"
	for _ in $(seq "$runs"); do
		for cores in one any; do
			sql -c "SET client_min_messages = error; DROP MATERIALIZED VIEW IF EXISTS kafka_view"
			mask=$(taskset -p $$ | sed 's/.* //')
			[ $cores = any ] || mask=1
			# threads to come inherit it
			taskset -a -p "$mask" "$worker" >/dev/null
			before=$(cpu "$worker")
			broker_before=$(cpu "$broker")
			start=$(date +%s%3N)
			sql -c "SET client_min_messages = warning" \
				-c "CREATE MATERIALIZED VIEW kafka_view USING continuous AS $(query $partitions)" \
				-c "SELECT stream.wait('kafka_view')" >/dev/null
			end=$(date +%s%3N)
			report "view, $cores core" $(($(cpu "$worker") - before)) $((end - start)) \
				"; broker $(awk "BEGIN { printf \"%.2f\", ($(cpu "$broker") - $broker_before) / $hertz }") s"
			if [ "$(worker_pid kafka_view)" != "$worker" ]; then
				echo "another worker than expected" >&2
				exit 1
			fi
		done

		# both readings of the same backend, by psql itself
		read -r before after start end differ < <(sql <<SQL
SET max_parallel_workers_per_gather = 0;
SET jit = off;
SELECT pg_backend_pid() AS pid \gset
\set before \`awk '{ print \$14 + \$15 }' /proc/:pid/stat\`
\set start \`date +%s%3N\`
CREATE TEMP TABLE expected AS $(query $partitions);
\set end \`date +%s%3N\`
\set after \`awk '{ print \$14 + \$15 }' /proc/:pid/stat\`
SELECT count(*) AS differ FROM (
	(SELECT w, k, n, most FROM kafka_view EXCEPT ALL SELECT w, k, n, most FROM expected)
	UNION ALL (SELECT w, k, n, most FROM expected EXCEPT ALL SELECT w, k, n, most FROM kafka_view)) AS d \gset
\echo :before :after :start :end :differ
SQL
		)
		report SELECT $((after - before)) $((end - start)) ""
		[ "$differ" = 0 ] || { echo "view and SELECT differ in $differ rows" >&2; exit 1; }
		sql -c "DROP MATERIALIZED VIEW kafka_view"
	done
	awk '/^VmHWM/ { most = $2 } /^RssShmem/ { shared = $2 } END {
		printf "  memory of the worker at most %.1f MB, of which %.1f MB are shared buffers\n", most / 1024, shared / 1024
	}' "/proc/$worker/status"
	sql -c "DROP FOREIGN TABLE kafka_$partitions"
	"$kafka/sxkafka" delete $topic
done
