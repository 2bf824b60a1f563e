# A streaming replica: what can be read there, what says why it cannot be done there, and what a
# promotion brings.
#
#  1. streams, views and stream.* are readable, states say that this is a standby, commands point to the primary
#  2. a query on the standby while the primary updates views and runs VACUUM, without feedback:
#     its rows stay as they were, or it is cancelled
#  3. the primary stops in the middle of load, the standby is promoted: load and views go on there
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Stress;
use Test::More;

my $stress = Stress->new('postgres');
my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', Stress->configuration);
$primary->start;
$primary->safe_psql('postgres', <<'SQL');
CREATE EXTENSION stream_ext;
CREATE TABLE s (k int, x int, ts timestamptz) USING stream WITH (stream.event_time = 'ts', stream.watermark_delay = '1 s');
CREATE MATERIALIZED VIEW sums USING continuous AS SELECT k, count(*) AS n, sum(x) AS total FROM s GROUP BY k;
CREATE UNIQUE INDEX ON sums (k);
CREATE MATERIALIZED VIEW positive USING continuous AS SELECT k, x FROM s WHERE x > 0;
CREATE MATERIALIZED VIEW paused USING continuous AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW failed USING continuous AS SELECT sum(1 / x) AS n FROM s;
CREATE MATERIALIZED VIEW stopped USING continuous AS SELECT count(*) AS n FROM s WITH NO DATA;
CREATE TABLE empty (x int) USING stream;
SELECT stream.pause('paused');
INSERT INTO s SELECT g % 10, g - 1, '2024-05-01'::timestamptz + g * interval '1 s' FROM generate_series(1, 1000) g;
SELECT stream.wait('sums'), stream.wait('positive');
SQL
my ($rc, $out, $err) = $primary->psql('postgres', "SELECT stream.wait('failed')");
like($err, qr/division by zero/, 'a view has failed');

$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = off\nmax_standby_streaming_delay = 0\n");
$standby->start;
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

# 1. What a standby shows.
sub same
{
	my ($sql, $name) = @_;

	is($standby->safe_psql('postgres', $sql), $primary->safe_psql('postgres', $sql), $name);
	return;
}
my $sums = 'SELECT * FROM sums ORDER BY k';
same($sums, 'a view is the same');
same('SET enable_seqscan = off; SELECT * FROM sums WHERE k = 3', 'by its index');
same('SELECT * FROM s ORDER BY ts', 'a stream is the same');
same('SELECT count(*), sum(x) FROM positive', 'a view that filters is the same');
is( $standby->safe_psql('postgres', 'SELECT k, count(*), sum(x) FROM s GROUP BY k EXCEPT ALL SELECT * FROM sums'),
	'', 'a view has the rows of its SELECT');
same('SELECT view, source, generation, cursor, open_blocks, running_transactions, watermark FROM stream.positions ORDER BY view::text',
	'stream.positions is the same');
same('SELECT source, view, watermark FROM stream.watermarks ORDER BY view::text', 'stream.watermarks is the same');
same('SELECT count(*) FROM stream.dead_letters', 'stream.dead_letters can be read');
same('SELECT count(*) FROM stream.gaps', 'stream.gaps can be read');
same(q{SELECT id, parent, operator, detail FROM stream.explain('sums')}, 'stream.explain shows the operators');
same('SELECT view, error_code, error_message, failures > 0 FROM stream.views ORDER BY view::text',
	'stream.views shows the errors');
my $primary_reason = 'The server is a standby; workers run on its primary server.';
is($standby->safe_psql('postgres', 'SELECT view, state, reason FROM stream.views ORDER BY view::text'), <<"TEXT" =~ s/\n\z//r, 'states say that this is a standby');
failed|stopped|$primary_reason
paused|paused|Use stream.resume() on the primary server to let it go on.
positive|stopped|$primary_reason
stopped|stopped|Use REFRESH MATERIALIZED VIEW on the primary server to start it.
sums|stopped|$primary_reason
TEXT
is($standby->safe_psql('postgres', 'SELECT count(*) FROM stream.stat_workers'), '0', 'no launcher and no worker in stream.stat_workers');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'stream_ext%'"),
	'0', 'nor among the processes');

sub refused
{
	my ($sql, $message) = @_;
	my ($code, $output, $error) = $standby->psql('postgres', $sql);

	like($error, $message, "refused on a standby: $sql");
	return;
}
my $wait = qr/ERROR:  cannot wait for a continuous view during recovery\nHINT:  Wait on the primary server\./;
refused(q{SELECT stream.wait('sums')}, $wait);
refused(q{SELECT stream.wait('paused', '1 s')}, $wait);
refused('SELECT stream.wait_all()', $wait);
refused(q{SELECT stream.pause('sums')}, qr/ERROR:  cannot execute stream\.pause\(\) during recovery/);
refused(q{SELECT stream.resume('paused')}, qr/ERROR:  cannot execute stream\.resume\(\) during recovery/);
refused('REFRESH MATERIALIZED VIEW sums', qr/ERROR:  cannot execute REFRESH MATERIALIZED VIEW/);
refused('REFRESH MATERIALIZED VIEW sums WITH NO DATA', qr/ERROR:  cannot execute REFRESH MATERIALIZED VIEW/);
refused('INSERT INTO s VALUES (1)', qr/ERROR:  cannot execute INSERT in a read-only transaction/);
refused('COPY s FROM STDIN', qr/ERROR:  cannot execute COPY/);
refused('TRUNCATE s', qr/ERROR:  cannot execute TRUNCATE TABLE in a read-only transaction/);
refused('CREATE MATERIALIZED VIEW v USING continuous AS SELECT k FROM s', qr/ERROR:  cannot execute CREATE MATERIALIZED VIEW/);
refused('CREATE TABLE t (k int) USING stream', qr/ERROR:  cannot execute CREATE TABLE/);
refused(q{ALTER TABLE s SET (stream.max_ahead = '1 h')}, qr/ERROR:  cannot execute ALTER TABLE/);
refused(q{ALTER MATERIALIZED VIEW sums SET (stream.emit = 'update')}, qr/ERROR:  cannot execute ALTER MATERIALIZED VIEW/);
refused('CREATE UNIQUE INDEX ON sums (k)', qr/ERROR:  cannot execute CREATE INDEX/);
refused('DROP MATERIALIZED VIEW sums', qr/ERROR:  cannot execute DROP MATERIALIZED VIEW/);
refused('DROP EXTENSION stream_ext', qr/ERROR:  cannot execute DROP EXTENSION/);
refused('DROP DATABASE template1', qr/ERROR:  cannot execute DROP DATABASE/);
refused('VACUUM s', qr/ERROR:  cannot execute VACUUM during recovery/);

# 2. An old snapshot on the standby, which the primary does not know of.
sub old_snapshot
{
	my ($relation, $query, $change) = @_;
	my ($stdin, $stdout, $stderr) = ('', '', '');
	my $session = IPC::Run::start(
		[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $standby->connstr('postgres'), '-f', '-' ],
		'<', \$stdin, '>', \$stdout, '2>', \$stderr, IPC::Run::timeout(60));

	$stdin .= "BEGIN ISOLATION LEVEL REPEATABLE READ;\n$query;\n\\echo read\n";
	$session->pump until $stdout =~ /read\n/;
	my $before = $stdout =~ s/read\n//r;
	is($before, $standby->safe_psql('postgres', $query) . "\n", "$relation: read in a transaction");

	$primary->safe_psql('postgres', $change);
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	$stdout = '';
	$stdin .= "$query;\n\\echo read\n\\q\n";
	$session->finish;
	ok( $stdout eq "${before}read\n" || $stderr =~ /conflict with recovery|server closed the connection/,
		"$relation: the transaction sees the same rows, or is cancelled")
	  or diag("before: $before\nafter: $stdout\nerror: $stderr");
	is($standby->safe_psql('postgres', $query), $primary->safe_psql('postgres', $query), "$relation: the next one sees the new rows");
	return $stderr;
}
my $update = <<'SQL';
INSERT INTO s SELECT g % 10, g, '2024-05-02' FROM generate_series(1, 100) g;
SELECT stream.wait('sums', '60 s');
SQL
like(old_snapshot('view', $sums, $update x 20 . 'VACUUM (FREEZE) sums'), qr/conflict with recovery|server closed/,
	'view: rows that the standby still needs are not taken away in silence');
old_snapshot('stream', 'SELECT count(*), sum(x) FROM s', <<'SQL');
BEGIN; INSERT INTO s SELECT g % 10, g, '2024-05-02' FROM generate_series(1, 1000) g; ROLLBACK;
INSERT INTO s SELECT g % 10, g, '2024-05-02' FROM generate_series(1, 1000) g;
VACUUM (FREEZE) s;
SQL
my $vacuum_state = $primary->safe_psql('postgres', "SELECT string_agg('VACUUM (FREEZE) ' || relid::regclass, ';') FROM stream.catalog_state");
old_snapshot('filtered view', 'SELECT count(*), sum(x) FROM positive',
	"SELECT stream.wait('positive', '60 s'); VACUUM (FREEZE) positive; TRUNCATE empty; VACUUM stream.catalog_position;" . $vacuum_state);
is($standby->safe_psql('postgres', 'SELECT k, count(*), sum(x) FROM s GROUP BY k EXCEPT ALL SELECT * FROM sums'),
	'', 'a view has the rows of its SELECT');

# 3. Failover.
$stress->create($primary);
my $load = $stress->start(10, $primary, $standby);
$stress->wait_for_rows($primary, 3000);
$primary->stop('immediate');
$standby->promote;
my $rows = $stress->rows($standby);
cmp_ok($rows, '>', 0, 'the standby has got rows of the load');
ok( $standby->poll_query_until('postgres', "SELECT count(*) > 0 FROM stream.stat_workers WHERE number IS NOT NULL AND state = 'running'"),
	'promotion starts a worker');
$stress->wait_for_rows($standby, 2000, $rows);
$stress->finish($load, 'failover');
$stress->is_exact($standby, 'failover');
cmp_ok($stress->end_prepared($standby), '>=', 0, 'prepared transactions end');
$stress->is_exact($standby, 'after prepared transactions');

is($standby->safe_psql('postgres', "SELECT stream.wait('sums', '60 s'), stream.wait('positive', '60 s')"), 't|t', 'earlier views are served');
is($standby->safe_psql('postgres', 'SELECT k, count(*), sum(x) FROM s GROUP BY k EXCEPT ALL SELECT * FROM sums'),
	'', 'and have the rows of their SELECT');
is($standby->safe_psql('postgres', q{SELECT stream.resume('paused'); SELECT stream.wait('paused', '60 s'); SELECT n = (SELECT count(*) FROM s) FROM paused}),
	"\nt\nt", 'the paused one goes on where it was');
is($standby->safe_psql('postgres', q{REFRESH MATERIALIZED VIEW stopped; SELECT stream.wait('stopped', '60 s'); SELECT n = (SELECT count(*) FROM s) FROM stopped}),
	"t\nt", 'the stopped one starts');
($rc, $out, $err) = $standby->psql('postgres', "SELECT stream.resume('failed'); SELECT stream.wait('failed', '60 s')");
like($err, qr/division by zero/, 'the failed one fails');

$standby->stop;
for my $log (slurp_file($primary->logfile), slurp_file($standby->logfile))
{
	unlike($log, qr/PANIC:|TRAP:|terminated by signal/, 'nothing crashed');
}
done_testing();
