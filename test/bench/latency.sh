#!/bin/bash
# latency.sh
#	From a committed INSERT to the row being visible in a view, on an otherwise idle system: percentiles of
#	200 INSERTs a second. See latency.c.
#
#	Environment: the database (PGHOST, PGDATABASE, ..), with the extension
#	             SCALE  seconds are 10 times this (default 1)
set -eu

work=$(mktemp -d)

cleanup() {
	psql -Xq -c "SET client_min_messages = error; DROP TABLE IF EXISTS latency CASCADE"
	rm -rf "$work"
}

trap cleanup EXIT
gcc -O2 -I"$(pg_config --includedir)" "$(dirname "$0")/latency.c" -o "$work/latency" \
	-L"$(pg_config --libdir)" -lpq -lrdkafka
psql -Xq -v ON_ERROR_STOP=1 <<SQL
SET client_min_messages = warning;
CREATE TABLE latency (ts timestamptz NOT NULL, key integer) USING stream;
CREATE MATERIALIZED VIEW latency_view USING continuous AS
	SELECT tumble(ts, '1 hour') AS w, key, count(*) AS n FROM latency GROUP BY w, key;
SQL
psql -XqAt -c "SELECT stream.wait('latency_view')" >/dev/null
"$work/latency" 200 $((10 * ${SCALE:-1}))
