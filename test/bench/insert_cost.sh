#!/bin/bash
# insert_cost.sh
#	What it costs to write a row: instructions (callgrind) of INSERT, COPY and INSERT .. SELECT, into a
#	heap table and into a stream. Counts instructions because wall time is too noisy to show 1 %.
#	A server in single-user mode runs the statements, twice as many in a second run; the difference
#	of the two runs is that of the rows alone. Makes a cluster of its own; takes a few minutes.
#
#	Environment: SCALE  rows are 1000 (INSERT) or 20000 (others) times this (default 1)
#	Needs valgrind, and initdb and postgres with stream_ext in PATH (or beside pg_config). Not as root.
set -eu

PATH=$PATH:$(pg_config --bindir)
scale=${SCALE:-1}
command -v valgrind >/dev/null || { echo "insert_cost: valgrind is needed: apt-get install valgrind" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

server() {
	"$@" --single -D "$work/data" -F -c shared_preload_libraries=stream_ext -c log_min_messages=error \
		-c autovacuum=off -c checkpoint_timeout=1d -c max_wal_size=10GB postgres
}

# names of the same length: longer text costs more to parse
columns="(id bigint, ts timestamptz, key integer, payload text)"
initdb -D "$work/data" -U postgres -A trust -N --locale=C -E UTF8 >"$work/log"
server postgres >>"$work/log" 2>&1 <<SQL
CREATE EXTENSION stream_ext
CREATE TABLE in_a_heap $columns
CREATE TABLE in_stream $columns USING stream
SQL

# statements TABLE KIND ROWS: what is run, one statement a line.
statements() {
	echo "TRUNCATE $1"
	case $2 in
		insert) awk -v table="$1" -v rows="$3" 'BEGIN { for (i = 1; i <= rows; i++)
			printf "INSERT INTO %s VALUES (%d, '\''2024-05-01 10:00:00+00'\'', %d, '\''some text of a click'\'')\n", table, i, i % 1000 }' ;;
		copy)
			awk -v rows="$3" 'BEGIN { for (i = 1; i <= rows; i++)
				printf "%d\t2024-05-01 10:00:00+00\t%d\tsome text of a click\n", i, i % 1000 }' >"$work/rows"
			echo "COPY $1 FROM '$work/rows'"
			;;
		select) echo "INSERT INTO $1 SELECT n, '2024-05-01 10:00:00+00', n % 1000, 'some text of a click' FROM generate_series(1, $3) AS n" ;;
	esac
}

# instructions TABLE KIND ROWS
instructions() {
	statements "$1" "$2" "$3" >"$work/statements"
	server valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file="$work/callgrind" \
		"$(command -v postgres)" >"$work/out" 2>&1 <"$work/statements" || { cat "$work/out" >&2; exit 1; }
	if grep -q ERROR "$work/out"; then
		grep ERROR "$work/out" | head -n 3 >&2
		exit 1
	fi
	awk '/Collected/ { print $NF }' "$work/callgrind"
}

# cost TABLE KIND ROWS: instructions a row
cost() {
	local one two

	one=$(instructions "$1" "$2" "$3")
	two=$(instructions "$1" "$2" $((2 * $3)))
	echo $(((two - one) / $3))
}

echo "instructions a row                heap     stream"
for kind in insert copy select; do
	rows=$((20000 * scale))
	[ $kind != insert ] || rows=$((1000 * scale))
	heap=$(cost in_a_heap $kind $rows)
	stream=$(cost in_stream $kind $rows)
	case $kind in
		insert) name="INSERT, one row a statement" ;;
		copy) name="COPY" ;;
		select) name="INSERT .. SELECT" ;;
	esac
	awk -v name="$name" -v heap="$heap" -v stream="$stream" 'BEGIN {
		printf "%-28s %9d  %9d  %+.2f %%\n", name, heap, stream, 100 * (stream - heap) / heap }'
done
