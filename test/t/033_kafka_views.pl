# Topics as sources of continuous views, against a real broker: records that are no rows, where reading starts,
# troubles with brokers and topics, and what a view shows meanwhile. Handed cases A08, A26 (append half) and A29-A32.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Kafka;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $kafka = Kafka->new('views');
$kafka->start;

my $node = PostgreSQL::Test::Cluster->new('kafka_views');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_ext'
max_worker_processes = 16
log_statement = none
log_min_error_statement = panic
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');
$node->safe_psql('postgres', "CREATE SERVER broker FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '" . $kafka->servers . "')");

sub sql { return $node->safe_psql('postgres', $_[0]); }

# A topic, its foreign table of the same name, and a view NAME_v of all its rows.
sub make
{
	my ($name, $columns, $options, $partitions, $query) = @_;

	$kafka->run('create', $name, $partitions || 1);
	table($name, $columns, $options, $query);
}

sub table
{
	my ($name, $columns, $options, $query) = @_;

	sql("CREATE FOREIGN TABLE $name ($columns) SERVER broker OPTIONS (topic '$name'" . ($options ? ", $options" : '') . ')');
	sql("CREATE MATERIALIZED VIEW ${name}_v USING continuous AS " . ($query || "SELECT * FROM $name"));
}

# All there is now is in the view.
sub caught_up
{
	my ($name, $test) = @_;
	my ($code, $output, $error) = $node->psql('postgres', "SELECT stream.wait('${name}_v', '60 s')");

	is("$output$error", 't', "$test: the view has caught up") or diag(sql('SELECT * FROM stream.views'));
}

sub is_state
{
	my ($name, $state, $test) = @_;
	ok($node->poll_query_until('postgres', "SELECT state = '$state' FROM stream.views WHERE view = '${name}_v'::regclass"), "$test: state $state")
	  or diag(sql('SELECT view, state, reason, error_message, error_detail FROM stream.views'));
}

# The error of the view, once it has one.
sub error_of
{
	my ($name) = @_;
	$node->poll_query_until('postgres', "SELECT error_message IS NOT NULL FROM stream.views WHERE view = '${name}_v'::regclass");
	return sql("SELECT error_message || '; ' || error_detail FROM stream.views WHERE view = '${name}_v'::regclass");
}

my $dead = q(SELECT partition, "offset", error_code, coalesce(convert_from(value, 'UTF8'), '-') FROM stream.dead_letters WHERE source = '%s'::regclass ORDER BY 1, 2);

# ------------------------------------------------------------ records

# A26: tombstones and keys
make('a26', q(x int, key text OPTIONS (meta 'key'), pos bigint OPTIONS (meta 'offset')));
$kafka->produce('a26', [ {key => 'a', value => '{"x":1}'}, {key => 'a'}, {value => '{"x":2}'}, {key => '', value => 'null'}, {key => 'null', value => ''} ]);
$kafka->produce('a26', [ {key => '', value => '{"x":3}'}, {key => 'null', value => '{"x":4}'} ]);
caught_up('a26', 'A26');
is(sql("SELECT pos, x, coalesce(key, '-') FROM a26_v ORDER BY pos"), "0|1|a\n2|2|-\n5|3|\n6|4|null", 'A26: rows and keys');
is(sql(sprintf($dead, 'a26')), "0|3|2203C|null\n0|4|22P02|", 'A26: dead letters');
is(sql("SELECT tombstones, dead_letters FROM stream.views WHERE view = 'a26_v'::regclass"), '1|2', 'A26: counters');
is(sql(q(SELECT "offset" FROM stream.positions WHERE view = 'a26_v'::regclass)), '7', 'A26: position');

# A08: NULL event time
make('a08', 'ts timestamptz, v int', "event_time 'ts', watermark_delay '1 s'");
$kafka->produce('a08', [ '{"ts":null,"v":1}', '{"v":2}', '{"ts":"soon","v":3}', '{"ts":"2024-05-01T10:00:03Z","v":4}', '{"ts":"infinity","v":5}' ]);
caught_up('a08', 'A08');
is(sql('SELECT v FROM a08_v'), '4', 'A08: only rows with an event time');
is(sql(q(SELECT "offset", error_code FROM stream.dead_letters WHERE source = 'a08'::regclass ORDER BY 1)), "0|22004\n1|22004\n2|22007\n4|22008", 'A08: dead letters');
is(sql(q(SELECT watermark = '2024-05-01 10:00:02+00' FROM stream.views WHERE view = 'a08_v'::regclass)), 't', 'A08: the watermark follows rows only');

# A29: poison in the middle, another one against a constraint, one that only a view's expression cannot take
make('a29', q(n int CHECK (n <> 700), pos bigint OPTIONS (meta 'offset')));
sql('CREATE MATERIALIZED VIEW a29_sum USING continuous AS SELECT count(*) AS n FROM a29');
sql('CREATE MATERIALIZED VIEW a29_div USING continuous AS SELECT 1 / (n - 600) AS d FROM a29');
$kafka->produce('a29', [ map { $_ == 500 ? '{oops' : qq({"n":$_}) } 0 .. 999 ]);
caught_up('a29', 'A29');
is(sql('SELECT count(*), min(n), max(n) FROM a29_v'), '998|0|999', 'A29: all but the poison');
is(sql(q(SELECT topic, partition, "offset", error_code FROM stream.dead_letters WHERE source = 'a29'::regclass ORDER BY 3)), "a29|0|500|22P02\na29|0|700|23514", 'A29: dead letters, once for three views');
sql("SELECT stream.wait('a29_sum')");
is(sql('SELECT n FROM a29_sum'), '998', 'A29: another view');
$node->poll_query_until('postgres', "SELECT error_code IS NOT NULL FROM stream.views WHERE view = 'a29_div'::regclass");
is(sql("SELECT state, error_code FROM stream.views WHERE view = 'a29_div'::regclass"), 'failed|22012', 'A29: the view that divides by zero fails alone');
is(sql('SELECT count(*) FROM a29_div'), '0', 'A29: and has nothing of it');
$kafka->produce('a29', [ ('{bad') x 3000 ]);
caught_up('a29', 'A29, all bad');
is(sql(q(SELECT count(*), min("offset"), max("offset") FROM stream.dead_letters WHERE source = 'a29'::regclass AND "offset" >= 1000)), '3000|1000|3999', 'A29: nothing but poison');
is(sql(q(SELECT stream.discard_dead_letters('a29'))), '3002', 'dead letters can be discarded');
sql('DROP MATERIALIZED VIEW a29_div');

# SELECT leaves out the same records, and the view equals it
$kafka->produce('a29', [ '{"n":1}', 'x', '{"n":2}', '{"n":null}' ]);
caught_up('a29', 'select');
is(sql('(TABLE a29 EXCEPT ALL TABLE a29_v) UNION ALL (TABLE a29_v EXCEPT ALL TABLE a29)'), '', 'a view equals SELECT from the table');
my ($code, $output, $error) = $node->psql('postgres', 'SELECT count(*) FROM a29');
like($error, qr/^(psql:<stdin>:1: )?WARNING:  3003 records of topic "a29" could not be decoded and were left out\n[^\n]*partition 0 at offset 500[^\n]*$/, 'SELECT says once how many it left out');

# parts of a plan that were planned before the table was seen would run in parallel, where no record can be left out
sql('CREATE TABLE big AS SELECT i FROM generate_series(1, 100000) i; ALTER TABLE big SET (parallel_workers = 2)');
($code, $output, $error) = $node->psql('postgres', <<SQL);
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SELECT (SELECT count(*) FROM big), count(*) FROM a29;
WITH x AS MATERIALIZED (SELECT count(*) FROM big) SELECT x.count, (SELECT count(*) FROM a29) FROM x;
SELECT count(*) FROM big UNION ALL SELECT count(*) FROM a29;
SQL
is($output, "100000|1001\n100000|1001\n100000\n1001", 'SELECT leaves out bad records beside a parallel part of the plan');
unlike($error, qr/ERROR/, 'and does not fail');

# dead letters are for those who may read the source
sql('CREATE ROLE nobody_special; CREATE ROLE reader; GRANT SELECT ON a26 TO reader');
is(sql('SET ROLE nobody_special; SELECT count(*) FROM stream.dead_letters'), '0', 'dead letters are hidden from others');
is(sql('SET ROLE reader; SELECT count(*) FROM stream.dead_letters'), '2', 'dead letters are shown to readers of the source');

# a producer may set any time, also one that is no timestamp
$kafka->run('create', 'far', 1, 'message.timestamp.after.max.ms=9223372036854775807');
table('far', q(v int, at timestamptz OPTIONS (meta 'timestamp')));
$kafka->produce('far', [ {timestamp => '9000000000000000000', value => '{"v":1}'}, {timestamp => '1700000000000', value => '{"v":"x"}'} ]);
caught_up('far', 'times');
is(sql(q(SELECT "offset", error_code, coalesce(extract(epoch FROM "timestamp")::text, '-') FROM stream.dead_letters WHERE source = 'far'::regclass ORDER BY 1)), "0|22008|-\n1|22P02|1700000000.000000", 'dead letters of any time can be read');

# and are discarded by the owner of the source
($code, $output, $error) = $node->psql('postgres', "SET ROLE reader; SELECT stream.discard_dead_letters('a26')");
like($error, qr/must be owner of foreign table a26/, 'a reader cannot discard dead letters');
($code, $output, $error) = $node->psql('postgres', "BEGIN READ ONLY; SELECT stream.discard_dead_letters('a26')");
like($error, qr/cannot execute stream.discard_dead_letters\(\) in a read-only transaction/, 'nor can a read-only transaction');

# A33: many columns, composites, arrays
sql('CREATE TYPE abc AS (a int, b text, c timestamptz)');
my $wide = join(', ', map { sprintf('c%03d_%s text', $_, 'x' x 35) } 1 .. 290);
make('a33', qq(comp abc, arr int[], doc jsonb, "UpperCase" int, "with.dot" int, $wide));
my $object = '{"comp":{"b":"x","a":1},"arr":[1,null,3],"doc":{"k":[1,2]},"UpperCase":1,"uppercase":2,"with.dot":3,'
  . join(',', map { sprintf('"c%03d_%s":"v%d"', $_, 'x' x 35, $_) } 1 .. 290) . '}';
$kafka->produce('a33', [ ($object) x 1000 ]);
caught_up('a33', 'A33');
is(sql('SELECT DISTINCT comp, arr, doc, "UpperCase", "with.dot" FROM a33_v'), '(1,x,)|{1,NULL,3}|{"k": [1, 2]}|1|3', 'A33: nested values');
is(sql(q(SELECT count(*), count(*) FILTER (WHERE to_jsonb(v) ->> ('c290_' || repeat('x', 35)) = 'v290' AND (SELECT count(*) FROM jsonb_each_text(to_jsonb(v)) WHERE value LIKE 'v%') = 290) FROM a33_v v)), '1000|1000', 'A33: all columns');
sql('DROP FOREIGN TABLE a33 CASCADE');

# ------------------------------------------------------------ waiting

# Two views that are read together, of a broker that keeps records back: each wait is for what was there at its call.
sql("CREATE SERVER slow FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '" . $kafka->servers . q{', "kafka.fetch.min.bytes" '100000', "kafka.fetch.wait.max.ms" '150')});
$kafka->run('create', 'waits', 1);
sql(<<SQL);
BEGIN;
CREATE FOREIGN TABLE waits (v int) SERVER slow OPTIONS (topic 'waits');
CREATE MATERIALIZED VIEW waits_v USING continuous AS SELECT v FROM waits;
CREATE MATERIALIZED VIEW waits2_v USING continuous AS SELECT v FROM waits;
COMMIT;
SQL
foreach my $count (1 .. 6)
{
	my $name = $count % 2 ? 'waits' : 'waits2';

	$kafka->produce('waits', [qq({"v":$count})]);
	caught_up($name, "wait $count");
	is(sql("SELECT count(*) FROM ${name}_v"), $count, "wait $count covers all before it");
}

# ------------------------------------------------------------ transactions

make('tx', 'v int', '', 2);
$kafka->produce('tx', [ map { {partition => $_ % 2, value => qq({"v":$_})} } 1 .. 10 ], '--transaction', 'commit');
$kafka->produce('tx', [ map { {partition => $_ % 2, value => qq({"v":$_})} } 11 .. 20 ], '--transaction', 'abort');
caught_up('tx', 'transactions');
is(sql('SELECT count(*), sum(v) FROM tx_v'), '10|55', 'aborted records are not seen');
is(sql(q(SELECT partition, "offset" FROM stream.positions WHERE view = 'tx_v'::regclass ORDER BY 1)), "0|12\n1|12", 'the position is behind the markers');
my $open = $kafka->start_transaction('tx', [ {partition => 0, value => '{"v":100}'} ], '--transactional-id', 'open');
$kafka->produce('tx', [ {partition => 1, value => '{"v":200}'}, {partition => 0, value => '{"v":300}'} ]);
caught_up('tx', 'open transaction');
is(sql('SELECT count(*), sum(v) FROM tx_v'), '11|255', 'an open transaction holds back what is behind it in its partition');
is(sql('SELECT count(*), sum(v) FROM tx'), '11|255', 'SELECT sees the same');
$open->commit;
caught_up('tx', 'committed');
is(sql('SELECT count(*), sum(v) FROM tx_v'), '13|655', 'it is seen once it is committed');

# ------------------------------------------------------------ watermarks

my $watermark = "SELECT coalesce(to_char(watermark AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), 'none') FROM stream.views WHERE view = '%s_v'::regclass";

# writes rows into partitions and returns the watermark of the view
sub mark
{
	my ($name, @rows) = @_;

	$kafka->produce($name, [ map { {partition => $_->[0], value => qq({"ts":"$_->[1]"})} } @rows ]);
	sql("SELECT stream.wait('${name}_v', '60 s')");
	return sql(sprintf($watermark, $name));
}

make('marks', 'ts timestamptz', "event_time 'ts', watermark_delay '1 s', idle_timeout '1 day'", 3);
is(mark('marks', [ 0, '2026-01-01T10:00:10Z' ], [ 1, '2026-01-01T10:00:20Z' ]), 'none', 'a partition not seen yet holds the watermark');
is(mark('marks', [ 2, '2026-01-01T10:00:05Z' ]), '2026-01-01 10:00:04', 'the least of the partitions, less the delay');
is(mark('marks', [ 2, '2026-01-01T10:00:30Z' ], [ 0, '2026-01-01T10:00:08Z' ]), '2026-01-01 10:00:09', 'a row out of order does not take it back');
is(mark('marks', [ 0, '2999-01-01T00:00:00Z' ], [ 0, '2026-01-01T10:00:15Z' ]), '2026-01-01 10:00:14', 'a row of the future does not move it');
$node->restart;
is(mark('marks', [ 0, '2026-01-01T10:00:25Z' ]), '2026-01-01 10:00:19', 'a restart changes nothing');
$kafka->run('grow', 'marks', 4);
ok($node->poll_query_until('postgres', "SELECT count(*) = 4 FROM stream.positions WHERE view = 'marks_v'::regclass"), 'a partition is added');
is(mark('marks', [ 1, '2026-01-01T10:00:40Z' ]), '2026-01-01 10:00:19', 'which holds the watermark, too');
is(sql("SELECT string_agg(coalesce(to_char(max_event_time AT TIME ZONE 'UTC', 'MI:SS'), '-'), ',' ORDER BY partition) FROM stream.watermarks WHERE view = 'marks_v'::regclass"), '00:25,00:40,00:30,-', 'the greatest event times by partition');

make('idle', 'ts timestamptz', "event_time 'ts', watermark_delay '1 s', idle_timeout '300 ms'", 2);
mark('idle', [ 0, '2026-01-01T10:00:10Z' ]);
$kafka->produce('idle', [ {partition => 0, value => '{"ts":"2026-01-01T10:00:11Z"}'} ])
  until sql(sprintf($watermark, 'idle')) ne 'none';
like(sql(sprintf($watermark, 'idle')), qr/^2026-01-01 10:00:(09|10)$/, 'an idle partition does not hold it');
is(mark('idle', [ 1, '2026-01-01T09:00:00Z' ]), sql(sprintf($watermark, 'idle')), 'and does not take it back when it is back');

# ------------------------------------------------------------ where reading starts

# A31: latest, restarts before the first row, new partitions
$kafka->run('create', 'a31', 1);
$kafka->produce('a31', [ map { qq({"v":$_}) } 1 .. 3 ]);
table('a31', q(v int, part int OPTIONS (meta 'partition')), "start 'latest'");
caught_up('a31', 'A31');
$node->restart;
$kafka->produce('a31', ['{"v":4}']);
caught_up('a31', 'A31, restarted');
$node->restart;
$kafka->produce('a31', ['{"v":5}']);
caught_up('a31', 'A31, restarted again');
is(sql('SELECT v FROM a31_v ORDER BY v'), "4\n5", 'A31: start is fixed when the view is made');
$kafka->run('grow', 'a31', 3);
$kafka->produce('a31', [ map { {partition => 2, value => qq({"v":$_})} } 6, 7 ]);
ok($node->poll_query_until('postgres', 'SELECT count(*) = 4 FROM a31_v'), 'A31: new partitions are found');
is(sql('SELECT v, part FROM a31_v ORDER BY v'), "4|0\n5|0\n6|2\n7|2", 'A31: and read from their start');

# start at a time: later than all, and in the middle
$kafka->run('create', 'times', 2, 'retention.ms=-1');
$kafka->produce('times', [ map { {partition => $_ % 2, timestamp => 1700000000000 + $_ * 1000, value => qq({"v":$_})} } 0 .. 9 ]);
table('times', 'v int', "start '2023-11-14 22:13:25+00'");
caught_up('times', 'start at a time');
is(sql("SELECT string_agg(v::text, ',' ORDER BY v) FROM times_v"), '5,6,7,8,9', 'a view starts at a time');
is(sql("SELECT string_agg(v::text, ',' ORDER BY v) FROM times"), '5,6,7,8,9', 'the table does, too');
sql("CREATE FOREIGN TABLE times2 (v int) SERVER broker OPTIONS (topic 'times', start '2100-01-01 00:00:00Z'); CREATE MATERIALIZED VIEW times2_v USING continuous AS SELECT * FROM times2");
caught_up('times2', 'start later than all');
$kafka->produce('times', ['{"v":99}']);
caught_up('times2', 'start later than all, new record');
is(sql('SELECT v FROM times2_v'), '99', 'a start later than all records gives all new ones');

# another topic: the views begin anew
$kafka->run('create', 'other', 1);
$kafka->produce('other', [ '{"v":1000}' ]);
sql("ALTER FOREIGN TABLE times OPTIONS (SET topic 'other', DROP start)");
ok($node->poll_query_until('postgres', 'SELECT sum(v) = 1000 FROM times_v'), 'another topic builds the view anew');

# ------------------------------------------------------------ what is gone

# A30: retention passed us by
make('a30', q(pos bigint OPTIONS (meta 'offset'), v int));
$kafka->produce('a30', [ map { qq({"v":$_}) } 0 .. 99 ]);
caught_up('a30', 'A30');
sql("SELECT stream.pause('a30_v')");
$kafka->produce('a30', [ map { qq({"v":$_}) } 100 .. 199 ]);
$kafka->run('truncate', 'a30', 0, 150);
sql("SELECT stream.resume('a30_v')");
is(error_of('a30'), 'records of topic "a30" were deleted before they were read; Partition 0 is to be read from offset 100, its oldest record has offset 150.', 'A30: the view stops and says why');
is(sql('SELECT count(*) FROM a30_v'), '100', 'A30: nothing is skipped');
sql("ALTER FOREIGN TABLE a30 OPTIONS (ADD on_gap 'earliest'); SELECT stream.resume('a30_v')");
caught_up('a30', 'A30, on_gap');
is(sql('SELECT count(*), max(pos) FROM a30_v'), '150|199', 'A30: it goes on with what is left');
is(sql('SELECT view, source, topic, partition, from_offset, to_offset FROM stream.gaps'), 'a30_v|a30|a30|0|100|150', 'A30: the gap is noted');
$kafka->run('truncate', 'a30', 0, 'end');
sql("SELECT stream.pause('a30_v'); SELECT stream.resume('a30_v')");
$kafka->produce('a30', ['{"v":200}']);
caught_up('a30', 'A30, all expired');
is(sql('SELECT count(*) FROM stream.gaps'), '1', 'A30: what had been read may go');

# A30: compaction leaves holes
make('compacted', q(pos bigint OPTIONS (meta 'offset'), v int));
$kafka->run('create', 'holes', 1, 'cleanup.policy=compact', 'segment.ms=100', 'min.cleanable.dirty.ratio=0.01', 'max.compaction.lag.ms=100', 'delete.retention.ms=0');
sql("CREATE FOREIGN TABLE holes (pos bigint OPTIONS (meta 'offset'), v int) SERVER broker OPTIONS (topic 'holes')");
my $n = 0;
do
{
	$kafka->produce('holes', [ map { {key => 'k' . ($_ % 3), value => qq({"v":$_})} } 1 .. 30 ]);
	$n++;
} until $n > 200 || sql('SELECT count(*) < max(pos) FROM holes') eq 't';
sql('CREATE MATERIALIZED VIEW holes_v USING continuous AS SELECT * FROM holes');
caught_up('holes', 'A30, compacted');
cmp_ok($n, '<=', 200, 'A30: the topic was compacted');
is(sql(q(SELECT (SELECT "offset" FROM stream.positions WHERE view = 'holes_v'::regclass) = 30 * ) . $n . q(, (SELECT count(*) FROM stream.gaps WHERE source = 'holes'::regclass))), 't|0', 'A30: holes are no gaps');

# a topic that was made anew: with fewer records, with as many, with more
foreach my $count (2, 5, 9)
{
	my $name = "again$count";

	make($name, 'v int');
	$kafka->produce($name, [ map { qq({"v":$_}) } 1 .. 5 ]);
	caught_up($name, "again $count");
	sql("SELECT stream.pause('${name}_v')");
	$kafka->run('delete', $name);
	my $tries = 0;
	$tries++ until $kafka->run('list') !~ /^$name /m || $tries > 1000;
	$kafka->run('create', $name, 1);
	$kafka->produce($name, [ map { qq({"v":10$_}) } 1 .. $count ]);
	sql("SELECT stream.resume('${name}_v')");
	like(error_of($name), qr/^topic "$name" is not the one that was read before; Partition 0: /, "a topic made anew with $count records is recognised");
	is(sql("SELECT sum(v) FROM ${name}_v"), '15', 'nothing of it is counted');
	# what is wrong is found only after the brokers have been asked, in a later transaction than the start
	ok($node->poll_query_until('postgres', "SELECT failures > 1 FROM stream.views WHERE view = '${name}_v'::regclass"), 'failures are counted') if $count == 2;
	sql("REFRESH MATERIALIZED VIEW ${name}_v");
	caught_up($name, "again $count, refreshed");
	is(sql("SELECT (SELECT array_agg(v ORDER BY v) FROM ${name}_v) = (SELECT array_agg(v ORDER BY v) FROM $name)"), 't', 'REFRESH reads the new topic');
}

# ------------------------------------------------------------ brokers

# A32: broker down when the view is made, and in the middle
$kafka->stop;
sql("CREATE FOREIGN TABLE a32 (v int) SERVER broker OPTIONS (topic 'a32'); CREATE MATERIALIZED VIEW a32_v USING continuous AS SELECT * FROM a32");
is_state('a32', 'connecting', 'A32, no broker');
is_state('a26', 'degraded', 'A32, broker went away');
($code, $output, $error) = $node->psql('postgres', "SELECT stream.wait('a26_v', '1 s')");
is($output, 'f', 'A32: a wait without a broker ends with its timeout');

# views that read nothing of the broker are not held up, neither by its topics nor by who waits for them
sql('CREATE TABLE local (v int) USING stream; CREATE MATERIALIZED VIEW local_v USING continuous AS SELECT count(*) AS n FROM local');
my @waiters;
foreach my $view ('a26_v', 'tx_v')
{
	push @waiters, $node->background_psql('postgres');
	$waiters[-1]->query_until(qr/waits/, "\\echo waits\nSELECT stream.wait('$view', '120 s');\n");
}
my $begin = time;
sql("INSERT INTO local VALUES ($_); SELECT stream.wait('local_v', '60 s')") foreach 1 .. 30;
cmp_ok(time - $begin, '<', 10, 'A32: other views go on without a broker');
is(sql('SELECT n FROM local_v'), '30', 'A32: and have all rows');
$kafka->start;
is_state('a32', 'failing', 'A32, no such topic');
like(sql("SELECT reason FROM stream.views WHERE view = 'a32_v'::regclass"), qr/topic does not exist/, 'A32: and says so');
$kafka->run('create', 'a32', 1);
$kafka->produce('a32', ['{"v":1}']);
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM a32_v'), 'A32: the topic is found when it is made');
$kafka->produce('a26', ['{"x":5}']);
caught_up('a26', 'A32, broker is back');
is(sql('SELECT count(*), sum(x) FROM a26_v'), '5|15', 'A32: it goes on by itself');
is_state('a26', 'running', 'A32, broker is back');
$_->quit foreach @waiters;

# A32: wrong password, corrected; no secret anywhere
my $sasl = $kafka->sasl_servers;
sql(<<SQL);
CREATE SERVER sasl FOREIGN DATA WRAPPER kafka
	OPTIONS (bootstrap_servers '$sasl', "kafka.security.protocol" 'sasl_plaintext', "kafka.sasl.mechanism" 'PLAIN');
CREATE USER MAPPING FOR CURRENT_USER SERVER sasl OPTIONS ("user" 'reader', password 'hunter2');
CREATE FOREIGN TABLE guarded (x int) SERVER sasl OPTIONS (topic 'a26');
CREATE MATERIALIZED VIEW guarded_v USING continuous AS SELECT x FROM guarded
SQL
is_state('guarded', 'failing', 'A32, wrong password');
like(sql("SELECT reason FROM stream.views WHERE view = 'guarded_v'::regclass"), qr/[Aa]uthentication/, 'A32: authentication is what fails');
($code, $output, $error) = $node->psql('postgres', 'SELECT * FROM guarded');
like($error, qr/could not read topic "a26"\nDETAIL: .*[Aa]uthentication/, 'A32: SELECT says so, too');
($code, $output, $error) = $node->psql('postgres', "SELECT stream.wait('guarded_v', '60 s')");
like($error, qr/the source of continuous view "guarded_v" cannot be read/, 'A32: a wait ends with an error');
caught_up('a26', 'A32, another view meanwhile');
sql("ALTER USER MAPPING FOR CURRENT_USER SERVER sasl OPTIONS (SET password 'reader-secret')");
ok($node->poll_query_until('postgres', 'SELECT count(*) = 5 FROM guarded_v'), 'A32: the right password is taken up');
sql("ALTER USER MAPPING FOR CURRENT_USER SERVER sasl OPTIONS (SET \"user\" 'stranger', SET password 'stranger-secret')");
is_state('guarded', 'failing', 'not authorized');
my $log = slurp_file($node->logfile);
unlike($log, qr/hunter2|reader-secret|stranger-secret/, 'no secret in the log');
cmp_ok(() = $log =~ /\n/g, '<', 2000, 'the log is not flooded');

# the server's address moves to another cluster, which has a topic of that name: nothing of it is taken for the old one
my $other = Kafka->new('other');
$other->start;
$other->run('create', 'a26', 1);
$other->produce('a26', [ map { qq({"x":10$_}) } 1 .. 9 ]);
sql("ALTER SERVER broker OPTIONS (SET bootstrap_servers '" . $other->servers . "')");
like(error_of('a26'), qr/^topic "a26" is not the one that was read before; Partition 0: /, 'another cluster is recognised');
sql("ALTER SERVER broker OPTIONS (SET bootstrap_servers '" . $kafka->servers . "'); SELECT stream.resume('a26_v')");
$other->stop;
caught_up('a26', 'back at the old cluster');
is(sql('SELECT count(*), sum(x) FROM a26_v'), '5|15', 'and nothing was lost or taken');

# A32: a second worker takes over, and the groups of brokers do not matter
$node->append_conf('postgresql.conf', 'stream.workers = 3');
$node->reload;
$kafka->produce('a26', ['{"x":6}']);
caught_up('a26', 'other workers');
is(sql('SELECT count(*), sum(x) FROM a26_v'), '6|21', 'each record once, whoever reads');

$node->stop;
$kafka->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing crashed');
done_testing();
