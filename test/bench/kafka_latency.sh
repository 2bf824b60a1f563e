#!/bin/bash
# kafka_latency.sh
#	From handing a record to a producer, which sends it at once, to its being visible in a view, on an
#	otherwise idle system: percentiles of 50 records a second. See latency.c.
#
#	Environment: the database (PGHOST, PGDATABASE, ..), with the extension, as a superuser
#	             SCALE  seconds are 10 times this (default 1)
#	Needs what `make -C test/kafka` builds, and the jars that test/kafka/broker fetches.
set -eu

# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
work=$(mktemp -d)

cleanup() {
	sql -c "SET client_min_messages = error; DROP SERVER IF EXISTS kafka_bench CASCADE" || true
	broker_end
	rm -rf "$work"
}

trap cleanup EXIT
gcc -O2 -I"$(pg_config --includedir)" "$(dirname "$0")/latency.c" -o "$work/latency" \
	-L"$(pg_config --libdir)" -lpq -lrdkafka
broker_start "$work/broker"
"$kafka/sxkafka" create latency 1
sql <<SQL
SET client_min_messages = warning;
CREATE SERVER kafka_bench FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '$SXKAFKA_BROKERS');
CREATE FOREIGN TABLE latency (ts timestamptz, key integer)
	SERVER kafka_bench OPTIONS (topic 'latency', event_time 'ts');
CREATE MATERIALIZED VIEW latency_view USING continuous AS
	SELECT tumble(ts, '1 hour') AS w, key, count(*) AS n FROM latency GROUP BY w, key;
SQL
# the broker's JVM compiles what runs often
"$kafka/sxkafka" -X linger.ms=0 load latency 20000 --rate 4000 --now >/dev/null
sql -c "SELECT stream.wait('latency_view')" >/dev/null
"$work/latency" 50 $((10 * ${SCALE:-1})) "$SXKAFKA_BROKERS" latency
