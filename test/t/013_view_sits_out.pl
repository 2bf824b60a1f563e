# What happens to a view that cannot simply go on, and to the others of its worker meanwhile:
#   - its heap is rewritten: its rows never go away for readers, also if the worker ends in between
#   - its source is truncated while the view is locked
#   - its state table is held, as by pg_dump, while it is to be built anew
#   - its label holds a setting that the server does not know any more
#   - the extension is dropped in the middle of a cycle
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');

$node->init;
$node->append_conf('postgresql.conf', q(
shared_preload_libraries = 'stream_ext'
autovacuum = off
fsync = off
));
$node->start;
$node->safe_psql('postgres', q(
	CREATE EXTENSION stream_ext;
	CREATE TABLE s (k int) USING stream;
	CREATE MATERIALIZED VIEW a USING continuous AS SELECT k, count(*) AS n FROM s GROUP BY k;
	INSERT INTO s VALUES (1), (2), (2);
	SELECT stream.wait_all()));

sub set
{
	my ($points) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET stream.stop_points = '$points'");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
}

my $worker = q(SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'stream_ext worker%');
my $stopped = q(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	WHERE l.locktype = 'advisory' AND NOT l.granted AND a.backend_type LIKE 'stream_ext worker%');

# A rewrite: the worker is held when it polls for the view again.
my $holder = $node->background_psql('postgres');

$holder->query_safe(q(SELECT pg_advisory_lock(29560, hashtext('polled'))));
my $before = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
set('polled');
ok($node->poll_query_until('postgres', $stopped), 'the worker is held before the rewrite');
is($node->safe_psql('postgres', "SELECT xact_start > '$before' FROM pg_stat_activity WHERE pid = ($worker)"),
	't', 'its transaction began just now');
my $vacuum = $node->background_psql('postgres');
$vacuum->query_until(qr/started/, "\\echo started\nVACUUM FULL a;\n\\echo done\n");
ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks
	WHERE relation = 'a'::regclass AND mode = 'AccessExclusiveLock')), 'a rewrite of the view waits');
# lets the worker pass once
$holder->query_safe(q(SELECT pg_advisory_unlock(29560, hashtext('polled'));
	SELECT pg_advisory_lock(29560, hashtext('polled'))));
$vacuum->query_until(qr/done/, "\n");
$vacuum->quit;
ok($node->poll_query_until('postgres', $stopped), 'the worker polls after the rewrite');
is($node->safe_psql('postgres', 'SELECT * FROM a ORDER BY k'), "1|1\n2|2", 'the rows of the view are there');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(($worker), 60000)");
set('');
$holder->query_safe(q(SELECT pg_advisory_unlock(29560, hashtext('polled'))));
$holder->quit;
$node->safe_psql('postgres', 'INSERT INTO s VALUES (2), (3)');
is($node->safe_psql('postgres', q(SELECT stream.wait('a', '60 s'))), 't', 'another worker goes on');
is($node->safe_psql('postgres', 'SELECT * FROM a ORDER BY k'), "1|1\n2|3\n3|1", 'with the rows where they are');

# A truncation while the view is locked.
$node->safe_psql('postgres', 'CREATE MATERIALIZED VIEW b USING continuous AS SELECT count(*) AS n FROM s');
my $ddl = $node->background_psql('postgres');

$ddl->query_safe('BEGIN; CREATE INDEX ON a (n)');
$node->safe_psql('postgres', 'INSERT INTO s VALUES (4)');
is($node->safe_psql('postgres', q(SELECT stream.wait('b', '60 s'))), 't', 'a locked view holds up no other');
$ddl->query_safe('TRUNCATE s; COMMIT');
$ddl->quit;
$node->safe_psql('postgres', 'INSERT INTO s VALUES (1)');
is($node->safe_psql('postgres', q(SELECT stream.wait_all('60 s'))), 't', 'after the truncation all go on');
is($node->safe_psql('postgres', 'SELECT * FROM a ORDER BY k'), '1|1', 'the view has forgotten the rows that are gone');
is($node->safe_psql('postgres', 'SELECT n FROM b'), '1', 'so has the other');

# A state table that somebody reads for long.
my $dump = $node->background_psql('postgres');
my $table = $node->safe_psql('postgres',
	q(SELECT relid::regclass FROM stream.catalog_state WHERE view = 'a'::regclass));

$dump->query_safe("BEGIN; LOCK TABLE $table IN ACCESS SHARE MODE");
$node->safe_psql('postgres', 'REFRESH MATERIALIZED VIEW a; INSERT INTO s VALUES (5)');
is($node->safe_psql('postgres', q(SELECT stream.wait('b', '60 s'))), 't', 'a view that waits holds up no other');
is($node->safe_psql('postgres', 'SELECT * FROM a ORDER BY k'), '1|1', 'and keeps its rows');
$dump->query_safe('COMMIT');
$dump->quit;
is($node->safe_psql('postgres', q(SELECT stream.wait('a', '60 s'))), 't', 'it is built then');
is($node->safe_psql('postgres', 'SELECT * FROM a ORDER BY k'), "1|1\n5|1", 'and has all rows');

# A time zone that is gone, as after an update of the system.
$node->safe_psql('postgres', q(SET allow_system_table_mods = on;
	UPDATE pg_seclabel SET label = regexp_replace(label, 'timezone=''[^'']*''', 'timezone=''No/Where''')
	WHERE objoid = 'a'::regclass));
$node->safe_psql('postgres', "SELECT pg_terminate_backend(($worker), 60000)");
$node->safe_psql('postgres', 'INSERT INTO s VALUES (6)');
is($node->safe_psql('postgres', q(SELECT stream.wait('b', '60 s'))), 't', 'a view with a bad label holds up no other');
my ($code, $out, $err) = $node->psql('postgres', q(SELECT stream.wait('a', '60 s')));
like($err, qr/invalid value for parameter "TimeZone": "No\/Where"/, 'it says what is wrong');

# DROP EXTENSION locks what the worker has locked and what it is going to lock.
$holder = $node->background_psql('postgres');
$holder->query_safe(q(SELECT pg_advisory_lock(29560, hashtext('flushed'))));
set('flushed');
$node->safe_psql('postgres', 'INSERT INTO s VALUES (7)');
ok($node->poll_query_until('postgres', $stopped), 'the worker is held in the middle of a cycle');
($code, $out, $err) = $node->psql('postgres', q(SET statement_timeout = '60 s';
	DROP EXTENSION stream_ext CASCADE));
is($code, 0, 'the extension is dropped') or diag($err);
$holder->quit;

$node->stop;
done_testing();
