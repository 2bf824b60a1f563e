# Topics read with SELECT, against a real broker.
#
#  1. rows are what was produced: json, csv, raw, all meta columns
#  2. conditions on partition, offset and timestamp: the same rows, fewer records read
#  3. open and aborted transactions, deleted records, start of a table
#  4. records that cannot be rows: left out, one warning, quoted to readers of the table only
#  5. LIMIT, rescans, cursors, prepared statements, plain materialized views, parallel plans
#  6. wide and nested rows (handed case A33); memory stays flat
#  7. IMPORT FOREIGN SCHEMA
#  8. users: mappings, secrets, view owners
#  9. pg_dump and restore
# 10. brokers that are down, before and in the middle of a scan; cancelling
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Kafka;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $kafka = Kafka->new('fdw');
$kafka->start;
my $node = PostgreSQL::Test::Cluster->new('kafka_fdw');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_ext'
timezone = 'UTC'
log_statement = 'none'
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

# The last result of the statements; they must succeed.
sub sql
{
	my ($statements) = @_;
	return $node->safe_psql('postgres', $statements);
}

# Warnings and errors of statements.
sub complaints
{
	my ($statements) = @_;
	my ($code, $stdout, $stderr) = $node->psql('postgres', $statements);
	return $stderr;
}

# Records that the scans of a query have read.
sub records_read
{
	my ($query, $settings) = @_;
	my $plan = sql(($settings || '') . "EXPLAIN (ANALYZE, FORMAT json) $query");
	my $records = 0;

	$records += $_ foreach $plan =~ /"Records Read": (\d+)/g;
	return $records;
}

my $bootstrap = $kafka->servers;
sql("CREATE SERVER broker FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '$bootstrap')");

# ------------------------------------------------------------ 1. rows

$kafka->run('create', 'records', 3, 'retention.ms=-1');
my @records = (
	{ partition => 0, timestamp => 1700000000000, key => 'k1', value => '{"id":1,"v":"one","n":{"x":[10,20]}}',
		headers => [ [ h => 'x' ], [ n => undef ] ] },
	{ partition => 0, timestamp => 1700000000001, key => '', value => '{"id":2,"v":"zw\u00f6lf \"q\""}' },
	{ partition => 1, timestamp => 1700000000002, value => '{"id":9007199254740993,"v":null}' },
	{ partition => 1, timestamp => 1700000000003, key => 'tomb' },
	{ partition => 1, timestamp => 1700000000999, key => "\x00\xff", value => '{"ID":4,"v":"\u20ac"}', headers => [ [ h => 'a' ], [ h => 'b' ] ] },
);
$kafka->produce('records', \@records);
sql(<<'SQL');
CREATE FOREIGN TABLE r_json (
	id bigint, v text, second int OPTIONS (json_path '$.n.x[1]'),
	p int OPTIONS (meta 'partition'), o bigint OPTIONS (meta 'offset'),
	ts timestamptz OPTIONS (meta 'timestamp'), k bytea OPTIONS (meta 'key'), h jsonb OPTIONS (meta 'headers')
) SERVER broker OPTIONS (topic 'records');
CREATE FOREIGN TABLE r_fold (id bigint, "V" text, p bigint OPTIONS (meta 'partition'))
	SERVER broker OPTIONS (topic 'records', "case" 'insensitive');
CREATE FOREIGN TABLE r_raw (
	value bytea, p int OPTIONS (meta 'partition'), o bigint OPTIONS (meta 'offset'),
	ms bigint OPTIONS (meta 'timestamp'), k bytea OPTIONS (meta 'key'), h jsonb OPTIONS (meta 'headers')
) SERVER broker OPTIONS (topic 'records', format 'raw');
CREATE FOREIGN TABLE r_local (ts timestamp OPTIONS (meta 'timestamp'), id bigint) SERVER broker OPTIONS (topic 'records');
SQL
is(sql(q(SELECT p, o, id, v, second, ts, k, h FROM r_json ORDER BY p, o)), <<'ROWS' =~ s/\n$//r, 'json with all meta columns');
0|0|1|one|20|2023-11-14 22:13:20+00|\x6b31|{"h": "x", "n": null}
0|1|2|zwölf "q"||2023-11-14 22:13:20.001+00|\x|{}
1|0|9007199254740993|||2023-11-14 22:13:20.002+00||{}
1|2||€||2023-11-14 22:13:20.999+00|\x00ff|{"h": "b"}
ROWS
is(sql('SELECT id, "V", p FROM r_fold ORDER BY p, id'), "1|one|0\n2|zwölf \"q\"|0\n4|€|1\n9007199254740993||1", 'json without regard to case');
is(sql(q(SELECT ts, id FROM r_local ORDER BY ts DESC LIMIT 1)), '2023-11-14 22:13:20.999|', 'timestamp without time zone is in UTC');

# raw shows the bytes, as the client of the tests sees them
my @expected = map { join '|', $_->{partition}, $_->{offset}, $_->{timestamp}, map { defined $_ ? '\\x' . unpack('H*', $_) : '' } $_->{key}, $_->{value} } $kafka->consume('records');
is(scalar @expected, 5, 'all records are there');
is(sql('SELECT p, o, ms, k, value FROM r_raw ORDER BY p, o'), join("\n", @expected), 'raw is what a client reads');

$kafka->run('create', 'lines', 1);
$kafka->produce('lines', [ '1;its;\\N', q(2;|a;"||q|;x), '3;;' ]);
sql(<<'SQL');
CREATE FOREIGN TABLE r_csv (id int, o bigint OPTIONS (meta 'offset'), a text, b text)
	SERVER broker OPTIONS (topic 'lines', format 'csv', delimiter ';', quote '|', null '\N');
SQL
is(sql(q(SELECT o, id, a, coalesce(b, '-') FROM r_csv ORDER BY o)), qq(0|1|its|-\n1|2|a;"|q|x\n2|3||), 'csv');

# ------------------------------------------------------------ 2. conditions

# 20,000 records in two partitions; times are 1 s apart and go back by 1 s at every tenth
$kafka->run('create', 'many', 2, 'retention.ms=-1');
$kafka->produce('many', [ map { { partition => $_ % 2, timestamp => 1700000000000 + 1000 * ($_ % 10 ? $_ : $_ - 1), value => qq({"v":$_}) } } 0 .. 19999 ]);
sql(<<'SQL');
CREATE FOREIGN TABLE many (
	v int, p int OPTIONS (meta 'partition'), o bigint OPTIONS (meta 'offset'), ts timestamptz OPTIONS (meta 'timestamp')
) SERVER broker OPTIONS (topic 'many');
CREATE FOREIGN TABLE many_ms (v int, p bigint OPTIONS (meta 'partition'), o bigint OPTIONS (meta 'offset'), ms bigint OPTIONS (meta 'timestamp'))
	SERVER broker OPTIONS (topic 'many');
CREATE FOREIGN TABLE many_local (v int, ts timestamp OPTIONS (meta 'timestamp')) SERVER broker OPTIONS (topic 'many');
CREATE TABLE copy AS SELECT *, (extract(epoch FROM ts) * 1000)::bigint AS ms FROM many;
CREATE TABLE keys (p int, n bigint);
INSERT INTO keys VALUES (0, 3), (1, 5);
SQL
is(sql('SELECT count(*), sum(v), count(DISTINCT (p, o)) FROM copy'), '20000|199990000|20000', 'all records, once');

my $time = '2023-11-15 00:00:00+00';    # of record 6400
foreach my $case (
	[ 'p = 1', 10000 ], [ 'p IN (0, 7)', 10000 ], [ "p = ANY ('{1,NULL}')", 10000 ], [ 'p = ANY (NULL)', 0 ], [ '1 > p', 10000 ],
	[ 'p >= 1', 10000 ], [ 'p < 0', 0 ], [ 'p = 1 AND p = 0', 0 ], [ 'p <> 1', 20000 ], [ 'p = 1::smallint', 10000 ], [ 'p = 1::bigint', 10000 ],
	[ 'o = 7', 2 ], [ 'o < 10', 20 ], [ 'o <= 10', 22 ], [ '9990 <= o', 20 ], [ 'o > 9990', 18 ], [ 'o BETWEEN 5 AND 9', 10 ], [ 'o BETWEEN 9 AND 5', 0 ],
	[ 'o = 3 AND p = 1', 1 ], [ 'o > 1000000', 0 ], [ 'o < -1', 0 ], [ 'o >= 9223372036854775807', 0 ], [ 'o <= 9223372036854775807', 20000 ],
	[ 'o > NULL', 0 ], [ 'o IN (1, 2)', 20000 ], [ 'o < 10 OR p = 1', 20000 ], [ 'o = (SELECT n FROM keys WHERE p = 1)', 2 ],
	[ 'o < (SELECT max(n) FROM keys k WHERE k.p = f.p)', 20000 ],
	[ "ts >= '$time'", 13599 ], [ "ts > '$time'", 13599 ], [ "'$time' < ts", 13599 ], [ "ts = '$time'", 13599 ], [ "ts < '$time'", 20000 ], [ "ts >= 'infinity'", 0 ],
	[ "ts >= '-infinity'", 20000 ], [ "ts >= '1900-01-01'", 20000 ], [ "ts >= now() - interval '500 years'", 20000 ], [ 'ts > now()', 0 ],
	[ "ts >= '$time' AND p = 0 AND o < 4000", 799 ], [ "ts BETWEEN '2023-11-15 03:46:30' AND '2023-11-15 03:46:40'", undef ])
{
	my ($condition, $records) = @$case;

	is(sql("SELECT count(*), sum(v) FROM many f WHERE $condition"), sql("SELECT count(*), sum(v) FROM copy f WHERE $condition"), "rows where $condition");
	is(records_read("SELECT FROM many f WHERE $condition"), $records, "records read where $condition") if defined $records;
}
is(sql("SELECT count(*), sum(v) FROM many_ms WHERE ms >= 1700006400000 AND p = 1"), sql("SELECT count(*), sum(v) FROM copy WHERE ms >= 1700006400000 AND p = 1"), 'a time in ms');
is(records_read('SELECT FROM many_ms WHERE ms >= 1700006400000'), 13599, 'bounds a scan as well');
is(records_read("SELECT FROM many_local WHERE ts >= '2023-11-15 00:00:00'"), 13599, 'so does one without a zone, which is in UTC');
is(sql("SET timezone = 'Asia/Tokyo'; SELECT count(*) FROM many_local WHERE ts >= '2023-11-15 00:00:00'"), sql("SELECT count(*) FROM copy WHERE ts >= '2023-11-15 00:00:00+00'"), 'wherever the session is');
is(sql('EXPLAIN (COSTS OFF) SELECT v FROM many WHERE p = 1 AND o < 10 AND v > 0'), <<'PLAN' =~ s/\n$//r, 'EXPLAIN');
Foreign Scan on many
  Filter: ((o < 10) AND (v > 0) AND (p = 1))
  Topic: many
  Bounds: offset <, partition =
PLAN

# prepared statements, with custom and generic plans
foreach my $mode ('force_custom_plan', 'force_generic_plan')
{
	my $prepare = "SET plan_cache_mode = $mode; PREPARE q (int, bigint, int[]) AS SELECT string_agg(p || ':' || o, ',' ORDER BY p, o) FROM many WHERE p = \$1 AND o >= \$2 AND p = ANY (\$3);";

	is(sql("$prepare EXECUTE q (1, 9998, '{0,1}')"), '1:9998,1:9999', "$mode: parameters");
	is(sql("$prepare EXECUTE q (1, 9998, '{0,1}'); EXECUTE q (0, 9999, '{0,1}')"), "1:9998,1:9999\n0:9999", "$mode: others");
	is(sql("$prepare EXECUTE q (1, NULL, '{0,1}')"), '', "$mode: NULL");
	is(records_read("EXECUTE q (1, 9998, '{0,1}')", $prepare), 2, "$mode: records read");
}

# ------------------------------------------------------------ 3. what is there

$kafka->run('create', 'tx', 1);
sql(q(CREATE FOREIGN TABLE tx (v int, o bigint OPTIONS (meta 'offset')) SERVER broker OPTIONS (topic 'tx')));
is(sql('SELECT count(*) FROM tx'), '0', 'an empty topic');
$kafka->produce('tx', [ '{"v":1}', '{"v":2}' ], '--transaction', 'commit');
$kafka->produce('tx', [ '{"v":3}', '{"v":4}' ], '--transaction', 'abort');
is(sql('SELECT v, o FROM tx ORDER BY o'), "1|0\n2|1", 'aborted records are not seen, and a marker at the end is no wait');
my $open = $kafka->start_transaction('tx', ['{"v":5}'], '--transactional-id', 'open');
$kafka->produce('tx', ['{"v":6}']);
is(sql('SELECT v FROM tx ORDER BY o'), "1\n2", 'an open transaction holds back what comes later');
$open->commit;
is(sql('SELECT v FROM tx ORDER BY o'), "1\n2\n5\n6", 'until it is committed');
is(sql('SELECT v FROM tx WHERE o >= 2 AND o < 6'), '', 'offsets of markers and aborted records only');

$kafka->run('create', 'cut', 1);
$kafka->produce('cut', [ map { qq({"v":$_}) } 0 .. 9 ]);
sql(q(CREATE FOREIGN TABLE cut (v int, o bigint OPTIONS (meta 'offset')) SERVER broker OPTIONS (topic 'cut')));
$kafka->run('truncate', 'cut', 0, 6);
is(sql('SELECT min(o), count(*) FROM cut'), '6|4', 'deleted records are not there');
is(sql('SELECT count(*) FROM cut WHERE o < 3'), '0', 'nor where they are asked for');
is(sql('SELECT count(*) FROM cut WHERE o >= 3'), '4', 'a bound before the first record');
$kafka->run('truncate', 'cut', 0, 'end');
is(sql('SELECT count(*) FROM cut'), '0', 'all deleted');

sql(<<'SQL');
CREATE FOREIGN TABLE later (v int) SERVER broker OPTIONS (topic 'many', start '2023-11-15T01:00:00+01:00');
CREATE FOREIGN TABLE latest (v int) SERVER broker OPTIONS (topic 'many', start 'latest');
CREATE FOREIGN TABLE never (v int) SERVER broker OPTIONS (topic 'many', start '2100-01-01 00:00:00Z');
SQL
is(sql('SELECT count(*) FROM later'), '13599', 'the table begins at a time');
is(sql('SELECT count(*) FROM latest'), '20000', 'for SELECT latest is no start');
is(sql('SELECT count(*) FROM never'), '0', 'a time later than all records');

# records are deleted while a scan is under way: it goes on behind them
$kafka->run('create', 'big', 1, 'segment.bytes=1048576');
$kafka->start_load('big', 150_000)->finish;
sql(<<'SQL');
CREATE FOREIGN TABLE big (id bigint, x numeric, o bigint OPTIONS (meta 'offset'), s text) SERVER broker OPTIONS (topic 'big');
SQL
is(sql('SELECT count(*), count(DISTINCT id), max(o) FROM big'), '150000|150000|149999', '150,000 records');
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT id, o FROM big; CREATE TEMP TABLE seen (id bigint, o bigint)');
$session->query_safe(q(DO $$ DECLARE c CONSTANT refcursor := 'c'; r record; BEGIN FETCH c INTO r; INSERT INTO seen VALUES (r.id, r.o); END $$));
$kafka->run('truncate', 'big', 0, 140000);
$session->query_safe(q(DO $$ DECLARE c CONSTANT refcursor := 'c'; r record; BEGIN LOOP FETCH c INTO r; EXIT WHEN NOT FOUND; INSERT INTO seen VALUES (r.id, r.o); END LOOP; END $$));
is($session->query_safe('SELECT count(*) FILTER (WHERE o >= 140000), count(*) < 150000, count(*) = count(DISTINCT o), max(o) FROM seen'), '10000|t|t|149999', 'deleted in the middle of a scan');
$session->quit;

# ------------------------------------------------------------ 4. records that cannot be rows

$kafka->run('create', 'bad', 2);
$kafka->produce('bad', [ map { { partition => $_ % 2, value => $_ == 5 ? '{"v":"wrong 5"}' : $_ == 8 ? 'no json' : qq({"v":$_}) } } 0 .. 9 ]);
sql(<<'SQL');
CREATE FOREIGN TABLE bad (v int CHECK (v <> 3), p int OPTIONS (meta 'partition'), o bigint OPTIONS (meta 'offset'))
	SERVER broker OPTIONS (topic 'bad');
CREATE VIEW bad_view AS SELECT v FROM bad;
CREATE ROLE through_view;
GRANT SELECT ON bad_view TO through_view;
SQL
is(sql('SELECT array_agg(v ORDER BY v) FROM bad'), '{0,1,2,4,6,7,9}', 'what cannot be a row is left out');
like(complaints('SELECT v FROM bad'), qr/\A(psql:<stdin>:1: )?WARNING:  3 records of topic "bad" could not be decoded and were left out\nDETAIL:  The first one, in partition [01] at offset \d+: .+ \([0-9A-Z]{5}\)\.?\z/, 'with one warning');
like(complaints('SELECT v FROM bad WHERE p = 0'), qr/1 record of topic "bad" could not be decoded and was left out\nDETAIL:  The first one, in partition 0 at offset 4: .*22P02/, 'of what was read');
is(complaints('SELECT v FROM bad WHERE o < 1'), '', 'or none');
is(complaints('SET client_min_messages = error; SELECT v FROM bad'), '', 'that can be turned off');
like(complaints('SET ROLE through_view; SELECT v FROM bad_view'), qr/WARNING:  3 records of topic "bad" could not be decoded and were left out\Z/, 'records are not quoted to who cannot read the table');
is(() = complaints('SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SELECT count(*) FROM keys, bad') =~ /3 records/g, 1, 'one warning for several passes');

# ------------------------------------------------------------ 5. executor

cmp_ok(records_read('SELECT v FROM many LIMIT 5'), '<=', 2048, 'LIMIT ends reading');
is(sql('SELECT p, o FROM many WHERE p = 0 LIMIT 3 OFFSET 1000'), "0|1000\n0|1001\n0|1002", 'the order of a partition');

# rescans, with and without other parameters
my $loop = 'SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off;';
is(sql("$loop SELECT k.p, count(*), sum(v) FROM keys k JOIN many m ON k.p = m.p AND m.o < 10 GROUP BY 1 ORDER BY 1"), "0|10|90\n1|10|100", 'rescan');
my $lateral = 'SELECT k.p, l.v FROM keys k, LATERAL (SELECT v FROM many m WHERE m.p = k.p AND m.o >= k.n LIMIT 2) l ORDER BY 1, 2';
is(sql($lateral), "0|6\n0|8\n1|11\n1|13", 'rescan with parameters');
is(sql('SELECT n, (SELECT v FROM many WHERE p = 1 AND o = n) FROM keys ORDER BY 1'), "3|7\n5|11", 'subquery');
is(sql('SELECT count(*) FROM many a JOIN many b USING (p, o)'), '20000', 'a table twice');
is(sql('SELECT m FROM many m WHERE p = 0 AND o = 1'), '(2,0,1,"2023-11-14 22:13:22+00")', 'whole rows');
is(sql('SELECT tableoid::regclass FROM many WHERE p = 0 AND o = 1'), 'many', 'tableoid');
is(sql('SELECT v FROM many WHERE p = 0 AND o = 1 FOR UPDATE'), '2', 'FOR UPDATE');

# a cursor sees what there was when it was first read from; savepoints and ends
is(sql(<<'SQL'), "2\n4\n6\n8", 'cursor');
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT v FROM many WHERE p = 0 AND o BETWEEN 1 AND 4;
FETCH 2 FROM c;
SAVEPOINT s;
COMMIT;
FETCH ALL FROM c;
CLOSE c;
SQL
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT v FROM tx');
is($session->query_safe('FETCH 1 FROM c'), '1', 'the first row of a cursor');
$kafka->produce('tx', ['{"v":7}']);
is($session->query_safe('FETCH ALL FROM c'), "2\n5\n6", 'it ends where the topic ended');
$session->query_safe('SAVEPOINT s; DECLARE d CURSOR FOR SELECT v FROM tx');
is($session->query_safe('FETCH 1 FROM d'), '1', 'a cursor in a subtransaction');
$session->query_safe('ROLLBACK TO s');
is($session->query_safe('SELECT count(*) FROM tx'), '5', 'that is rolled back');
$session->query_safe('DECLARE e CURSOR FOR SELECT v FROM tx; FETCH 1 FROM e; ROLLBACK');
is($session->query_safe('SELECT count(*) FROM tx'), '5', 'a transaction that ends with an open cursor');
$session->quit;

sql('CREATE MATERIALIZED VIEW plain AS SELECT * FROM bad; REFRESH MATERIALIZED VIEW plain; CREATE TABLE target AS SELECT * FROM bad LIMIT 0; INSERT INTO target SELECT * FROM bad');
is(sql('SELECT count(*) FROM plain'), '7', 'a plain materialized view');
is(sql(q(DO $$ BEGIN PERFORM 1 / (v - 2) FROM bad; EXCEPTION WHEN division_by_zero THEN NULL; END $$; SELECT count(*) FROM bad)), '7', 'an error in a block with an exception handler');
is(sql(q(COPY (SELECT v FROM bad WHERE o = 0 ORDER BY v) TO STDOUT)), "0\n1", 'COPY');

# nothing runs in parallel mode, wherever the topic is in the query
my $parallel = 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET client_min_messages = error;';
sql('CREATE TABLE wide AS SELECT g AS i FROM generate_series(1, 200000) g; ANALYZE wide');
like(sql("$parallel EXPLAIN SELECT count(*) FROM wide"), qr/Gather/, 'a query that would be parallel');
unlike(sql("$parallel EXPLAIN SELECT count(*) FROM wide JOIN bad ON i = v"), qr/Gather/, 'is not with a topic');
foreach my $query (
	'SELECT count(*) FROM wide JOIN bad ON i = v', 'SELECT count(*) FROM bad JOIN wide ON i = v',
	'SELECT (SELECT count(*) FROM wide) - 200000 + (SELECT count(*) FROM bad) - 1',
	'WITH w AS MATERIALIZED (SELECT count(*) AS n FROM wide) SELECT count(*) - 1 FROM w, bad WHERE n = 200000',
	'SELECT count(*) FROM (SELECT max(i) AS m FROM wide UNION ALL SELECT v FROM bad) s WHERE m BETWEEN 1 AND 199999',
	'SELECT count(*) FROM wide, (SELECT v FROM bad OFFSET 0) b WHERE i = v')
{
	is(sql("$parallel $query"), '6', $query);
	is(sql("$parallel PREPARE q AS $query; EXECUTE q; EXECUTE q"), "6\n6", 'prepared');
}

# ------------------------------------------------------------ 6. wide and nested rows

sql('CREATE TYPE abc AS (a int, b text, c timestamptz)');
my @names = map { sprintf('c%03d_%s', $_, 'x' x 35) } 1 .. 294;
sql(q{CREATE FOREIGN TABLE wide_rows (comp abc, arr int[], doc jsonb, "UpperCase" int, "with.dot" int, o bigint OPTIONS (meta 'offset'), }
	  . join(', ', map { "$_ text" } @names) . q{) SERVER broker OPTIONS (topic 'wide_rows')});
$kafka->run('create', 'wide_rows', 1);
my $wide_row = '{"comp":{"b":"x","a":1},"arr":[1,null,3],"doc":{"k":[1,2]},"UpperCase":1,"uppercase":2,"with.dot":3,'
  . join(',', map { qq("$_":"value of ) . substr($_, 0, 4) . '"' } @names) . '}';
$kafka->produce('wide_rows', [ ($wide_row) x 2000 ]);
is(sql('SELECT comp, arr, doc, "UpperCase", "with.dot", count(*) FROM wide_rows GROUP BY 1, 2, 3, 4, 5'), '(1,x,)|{1,NULL,3}|{"k": [1, 2]}|1|3|2000', 'A33: nested values');
is(sql(q(SELECT count(*), sum((SELECT count(*) FROM jsonb_each_text(to_jsonb(w)) WHERE value = 'value of ' || left(key, 4))) FROM wide_rows w WHERE o < 100)), '100|29400', 'A33: all columns');
$session = $node->background_psql('postgres');
my $pid = $session->query_safe('SELECT pg_backend_pid()');
my @rss;
foreach (1 .. 4)
{
	$session->query_safe('SELECT count(*) FROM wide_rows w WHERE w IS NOT NULL');
	push @rss, slurp_file("/proc/$pid/status") =~ /VmRSS:\s+(\d+) kB/;
}
$session->quit;
cmp_ok($rss[3] - $rss[1], '<', 8192, "A33: memory does not grow (@rss kB)");

# ------------------------------------------------------------ 7. IMPORT FOREIGN SCHEMA

my $long = 'long_' . 'n' x 70;
$kafka->run('create', $_, 1) foreach ('With.Dots-1', '__hidden', "${long}1");
$kafka->produce("${long}1", [ { key => 'k', value => 'text' } ]);
sql('CREATE SCHEMA imported; IMPORT FOREIGN SCHEMA topics FROM SERVER broker INTO imported');
is(sql(q(SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'imported'::regnamespace AND relkind = 'f')),
	join(',', sort 'With.Dots-1', 'bad', 'big', 'cut', 'lines', substr($long, 0, 63), 'many', 'records', 'tx', 'wide_rows'), 'IMPORT: all topics that are not internal');
is(sql(qq(SELECT partition, "offset", "timestamp" > now() - interval '1 hour', key, headers, value FROM imported.@{[substr($long, 0, 63)]})), '0|0|t|\x6b|{}|\x74657874', 'IMPORT: rows of a topic with a long name');
is(sql(qq(SELECT array_agg(attname || ' ' || format_type(atttypid, atttypmod) || coalesce(attfdwoptions::text, '') ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'imported."With.Dots-1"'::regclass AND attnum > 0)),
	'{"partition integer{meta=partition}","offset bigint{meta=offset}","timestamp timestamp with time zone{meta=timestamp}","key bytea{meta=key}","headers jsonb{meta=headers}","value bytea"}', 'IMPORT: columns');
sql('DROP SCHEMA imported CASCADE; CREATE SCHEMA imported');
sql(qq(IMPORT FOREIGN SCHEMA topics LIMIT TO (bad, __hidden, ${long}1, absent) FROM SERVER broker INTO imported));
is(sql(q(SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'imported'::regnamespace)), "__hidden,bad,@{[substr($long, 0, 63)]}", 'IMPORT: LIMIT TO');
sql('DROP SCHEMA imported CASCADE; CREATE SCHEMA imported');
$kafka->run('create', "${long}2", 1);
like(complaints('IMPORT FOREIGN SCHEMA topics FROM SERVER broker INTO imported'), qr/ERROR:  topics "${long}[12]" and "${long}[12]" would be the same table "long_n{58}"\nHINT: /, 'IMPORT: names that clash');
sql(qq(IMPORT FOREIGN SCHEMA topics EXCEPT (${long}2, many, "With.Dots-1") FROM SERVER broker INTO imported));
is(sql(q(SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'imported'::regnamespace)), 'bad,big,cut,lines,records,tx,wide_rows', 'IMPORT: EXCEPT');
like(complaints(q(IMPORT FOREIGN SCHEMA topics FROM SERVER broker INTO imported OPTIONS (format 'json'))), qr/ERROR:  IMPORT FOREIGN SCHEMA has no options for wrapper kafka/, 'IMPORT: no options');

# ------------------------------------------------------------ 8. users

my $sasl = $kafka->sasl_servers;
sql(<<SQL);
CREATE SERVER sasl FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '$sasl', "kafka.security.protocol" 'sasl_plaintext', "kafka.sasl.mechanism" 'PLAIN');
CREATE FOREIGN TABLE guarded (v int, o bigint OPTIONS (meta 'offset')) SERVER sasl OPTIONS (topic 'tx');
CREATE ROLE alice; CREATE ROLE bob;
GRANT SELECT ON guarded TO alice, bob;
CREATE VIEW guarded_view AS SELECT * FROM guarded;
ALTER VIEW guarded_view OWNER TO alice;
GRANT SELECT ON guarded_view TO bob;
SQL
like(complaints('SET ROLE alice; SELECT * FROM guarded'), qr/ERROR:  could not make a Kafka client\nDETAIL:  sasl.username and sasl.password must be set/, 'no mapping');
sql(q(CREATE USER MAPPING FOR alice SERVER sasl OPTIONS ("user" 'reader', password 'wrong-hunter2')));
my $error = complaints('SET ROLE alice; SELECT * FROM guarded');
like($error, qr/ERROR:  could not read topic "tx"\nDETAIL: .*[Aa]uthentication/, 'wrong password');
unlike($error, qr/hunter2/, 'is not shown');
sql(q(ALTER USER MAPPING FOR alice SERVER sasl OPTIONS (SET password 'reader-secret')));
is(sql('SET ROLE alice; SELECT count(*) FROM guarded'), '5', 'right password');
is(sql('SET ROLE bob; SELECT count(*) FROM guarded_view'), '5', 'the mapping of the owner of a view');
like(complaints('SET ROLE bob; SELECT * FROM guarded'), qr/must be set/, 'is not that of its reader');
sql(q(CREATE USER MAPPING FOR bob SERVER sasl OPTIONS ("kafka.sasl.username" 'stranger', "kafka.sasl.password" 'stranger-secret')));
like(complaints('SET ROLE bob; SELECT * FROM guarded'), qr/ERROR:  could not read topic "tx"\nDETAIL: .*[Aa]uthoriz/, 'a user who is not authorized');
sql(q(DROP USER MAPPING FOR bob SERVER sasl; CREATE USER MAPPING FOR PUBLIC SERVER sasl OPTIONS ("user" 'reader', password 'reader-secret')));
is(sql('SET ROLE bob; SELECT count(*) FROM guarded'), '5', 'the mapping for PUBLIC');
is(sql(q(SET ROLE alice; SELECT count(*) FROM pg_user_mappings WHERE umoptions IS NOT NULL)), '0', 'mappings are not shown to users of the server');
is(sql(q(SET ROLE alice; SELECT count(*) FROM pg_foreign_server WHERE srvoptions::text LIKE '%secret%')), '0', 'servers hold no secrets');
like(complaints('SELECT 1 FROM many, nonexistent'), qr/does not exist/, 'another error');
sql(q(CREATE FOREIGN TABLE no_topic (v int) SERVER broker OPTIONS (topic 'no_topic')));
like(complaints('SELECT * FROM no_topic'), qr/ERROR:  could not read topic "no_topic"\nDETAIL: .*does not exist/, 'a topic that does not exist');
unlike(slurp_file($node->logfile), qr/^.*(DETAIL|ERROR|WARNING|LOG):.*(hunter2|secret)/m, 'no secret in the log');

# ------------------------------------------------------------ 9. dump and restore

sql(<<'SQL');
CREATE SCHEMA dumped;
CREATE SERVER "Ser""v'er ü" FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '[::1]:9092,b:1', "kafka.client.id" 'it''s "me" \ ü');
CREATE USER MAPPING FOR alice SERVER "Ser""v'er ü" OPTIONS ("user" 'u''"\ü', password 'p''"\ü');
CREATE FOREIGN TABLE dumped."Ta""b'le ü" ("Co""l'ü" timestamptz OPTIONS (name 'k"e''y \ ü'), p int OPTIONS (meta 'partition'), j text OPTIONS (json_path '$["a b"].c'))
	SERVER "Ser""v'er ü" OPTIONS (topic 'x.y_z-1', start '2026-01-31T12:00:00+01:30', event_time 'Co"l''ü', watermark_delay '2 min', "case" 'insensitive');
CREATE FOREIGN TABLE dumped.lines (a text) SERVER "Ser""v'er ü" OPTIONS (topic 't', format 'csv', delimiter '|', quote '''', escape '\', "null" '\N');
SQL
my $options = q(SELECT name, array(SELECT unnest(options) ORDER BY 1) FROM (
	SELECT srvname, srvoptions FROM pg_foreign_server UNION ALL SELECT 'mapping', umoptions FROM pg_user_mapping
	UNION ALL SELECT ftrelid::regclass::text, ftoptions FROM pg_foreign_table
	UNION ALL SELECT attrelid::regclass || '.' || attname, attfdwoptions FROM pg_attribute WHERE attfdwoptions IS NOT NULL) o (name, options) ORDER BY 1, 2);
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '--schema-only', '-f', $dump ], 'pg_dump asks no broker');
$node->safe_psql('postgres', 'CREATE DATABASE restored TEMPLATE template0');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ], 'restore');
is($node->safe_psql('restored', $options), sql($options), 'options are the same after dump and restore');

# ------------------------------------------------------------ 10. brokers that are down

$session = $node->background_psql('postgres', on_error_stop => 0);
$kafka->start_load('big', 100_000)->finish;
$session->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT o FROM big');
is($session->query_safe('FETCH 1 FROM c'), '140000', 'a scan that has begun');
$kafka->restart;
$session->query_safe('MOVE 100000 FROM c');
is($session->query_safe('FETCH ALL FROM c'), join("\n", 240001 .. 249999), 'goes on when the broker is back');
$session->query_safe('ROLLBACK; BEGIN; DECLARE c CURSOR FOR SELECT o FROM big');
is($session->query_safe('FETCH 1 FROM c'), '140000', 'another one');
$kafka->kill;
$session->query_safe(q(SET LOCAL statement_timeout = '1 s'));
$session->query('MOVE ALL FROM c');
like($session->{stderr}, qr/canceling statement due to statement timeout/, 'a scan that waits for records can be cancelled');
$session->{stderr} = '';
$session->query_safe('ROLLBACK');

my $start = time();
like(complaints(q(SET statement_timeout = '500 ms'; SELECT * FROM many)), qr/canceling statement due to statement timeout/, 'a scan that waits for a broker can be cancelled');
cmp_ok(time() - $start, '<', 8, 'at once');
like(complaints('SELECT * FROM many'), qr/ERROR:  could not read topic "many"\nDETAIL: .*(refused|down|Disconnected)/, 'without a broker a scan ends with an error');
like(complaints('CREATE SCHEMA nothing; IMPORT FOREIGN SCHEMA topics FROM SERVER broker INTO nothing'), qr/ERROR:  could not list the topics of server "broker"\nDETAIL: .*(refused|down|Disconnected)/, 'so does IMPORT');
like(sql('EXPLAIN SELECT * FROM many WHERE p = 1'), qr/Foreign Scan/, 'plans need none');
$kafka->start;
is($session->query_safe('SELECT count(*) FROM many'), '20000', 'when it is back the same session reads on');
$session->quit;

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing crashed');
done_testing();
