# Exactly once under load and crashes: writers of all kinds (test/stress/stress.c) write into a stream, and in the
# middle of it the worker is killed or the whole server is stopped without warning. After each round
#  - the stream holds the ids that the ledger, an ordinary table, holds, each once;
#  - each continuous view has the rows of its SELECT: an aggregate by window and key, the plain
#    rows with a digest of each, and a view that was created while the load was on;
#  - the writers saw no error that a crash does not explain.
#
# Environment: SCALE   1: 4 rounds; n: n times 4 rounds, each time with new tables
#              STRESS_SELFTEST=1  an ordinary table and materialized views refreshed by hand take the
#                      place of stream and continuous views: tests the test
use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $scale = $ENV{SCALE} || 1;
my $selftest = $ENV{STRESS_SELFTEST};
my $seconds = 7;
my $round = 0;

my %query = (
	windows => <<'SQL',
SELECT tumble(ts, '10 s') AS w, key, count(*) AS n, sum(amount) AS total, min(id) AS first, max(length(payload)) AS longest
FROM events GROUP BY w, key
SQL
	copies => 'SELECT id, ts, key, amount, md5(payload) AS digest FROM events',
	late => 'SELECT key, count(*) AS n, sum(amount) AS total, avg(amount) AS mean FROM events WHERE key <> 3 GROUP BY key');

my $node = PostgreSQL::Test::Cluster->new('exactly_once');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_ext'
restart_after_crash = on
max_connections = 80
max_prepared_transactions = 300
max_worker_processes = 16
autovacuum_naptime = 1s
log_statement = none
log_min_messages = warning
log_min_error_statement = panic
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

my $client = PostgreSQL::Test::Utils::tempdir . '/stress';
my $include = `pg_config --includedir`;
my $libdir = `pg_config --libdir`;
chomp($include, $libdir);
system_or_bail('gcc', '-O2', "-I$include", "$FindBin::RealBin/../stress/stress.c", '-o', $client, "-L$libdir", '-lpq');

sub create_view
{
	my ($name) = @_;
	$node->safe_psql('postgres', "CREATE MATERIALIZED VIEW $name " . ($selftest ? '' : 'USING continuous ') . "AS $query{$name}");
}

# Process id of the worker, or of something else that may be killed.
sub worker_pid
{
	return $node->safe_psql('postgres',
		$selftest
		? "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'"
		: "SELECT worker_pid FROM stream.views WHERE worker_pid <> 0 LIMIT 1");
}

# Crashes the server in the middle of a round and returns when it accepts connections again.
sub crash
{
	if ($round % 2 == 1)
	{
		my $pid = worker_pid();

		ok($pid, "round $round: there is a worker to kill");
		kill 'KILL', $pid if $pid;
		# all other processes are then stopped by the postmaster, and recovery runs
		# psql may be refused before it has read the query, which ends the poll with a broken pipe
		my $found;
		$found = eval { $node->poll_query_until('postgres', $selftest ? 'SELECT true' : "SELECT coalesce(max(worker_pid), 0) NOT IN (0, $pid) FROM stream.views") }
		  until defined $found;
		ok($found, "round $round: another worker runs");
	}
	else
	{
		$node->stop('immediate');
		$node->start;
	}
}

sub compare
{
	my ($name) = @_;

	if ($selftest)
	{
		$node->safe_psql('postgres', "REFRESH MATERIALIZED VIEW $name");
	}
	else
	{
		my ($code, $output, $error) = $node->psql('postgres', "SELECT stream.wait('$name', '120 s')");

		is("$output$error", 't', "round $round: view $name has caught up")
		  or diag($node->safe_psql('postgres', 'SELECT * FROM stream.views'));
	}
	is($node->safe_psql('postgres', <<SQL), '', "round $round: view $name has the rows of its SELECT");
WITH expected AS MATERIALIZED ($query{$name})
(SELECT 'missing', x FROM (SELECT * FROM expected EXCEPT ALL SELECT * FROM $name) AS x LIMIT 10)
UNION ALL
(SELECT 'too many', x FROM (SELECT * FROM $name EXCEPT ALL SELECT * FROM expected) AS x LIMIT 10)
SQL
}

foreach my $table_set (1 .. $scale)
{
	my $rows = 0;

	$node->safe_psql('postgres',
		'CREATE TABLE ledger (id bigint NOT NULL);'
		  . 'CREATE TABLE events (id bigint PRIMARY KEY, ts timestamptz NOT NULL, key integer, amount numeric, payload text)'
		  . ($selftest ? '' : " USING stream WITH (stream.event_time = 'ts', stream.watermark_delay = '1 min')"));
	create_view('windows');
	create_view('copies');
	my @views = ('windows', 'copies');

	foreach my $n (1 .. 4)
	{
		my $stderr = '';
		my $output = '';

		$round++;
		local $ENV{PGHOST} = $node->host;
		local $ENV{PGPORT} = $node->port;
		local $ENV{PGDATABASE} = 'postgres';
		my $load = IPC::Run::start([ $client, $seconds, $round ], '>', \$output, '2>', \$stderr);

		# as soon as this round's rows come in
		$node->poll_query_until('postgres', "SELECT count(*) > $rows + 2000 FROM ledger");
		if ($n == 2)
		{
			create_view('late');
			push @views, 'late';
		}
		crash();
		$load->finish;
		is($stderr, '', "round $round: no error that a crash does not explain");
		is($load->result(0), 0, "round $round: all writers went on to the end");

		my $before = $rows;
		$rows = $node->safe_psql('postgres', 'SELECT count(*) FROM ledger');
		cmp_ok($rows, '>', $before + 4000, "round $round: there were rows after the crash, too");
		is($node->safe_psql('postgres', <<SQL), '0|0|0', "round $round: each id is in the stream once");
SELECT (SELECT count(*) FROM (SELECT id FROM ledger EXCEPT ALL SELECT id FROM events) AS missing),
  (SELECT count(*) FROM (SELECT id FROM events EXCEPT ALL SELECT id FROM ledger) AS extra),
  (SELECT count(*) - count(DISTINCT id) FROM events) AS twice
SQL
		compare($_) foreach @views;
		is($node->safe_psql('postgres', <<SQL), '0|0|0', "round $round: each id is in the view once");
SELECT (SELECT count(*) FROM (SELECT id FROM ledger EXCEPT ALL SELECT id FROM copies) AS missing),
  (SELECT count(*) FROM (SELECT id FROM copies EXCEPT ALL SELECT id FROM ledger) AS extra),
  (SELECT count(*) - count(DISTINCT id) FROM copies) AS twice
SQL
		note("round $round: $rows rows, "
			  . $node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts') . ' transactions left prepared');
	}

	# what was prepared, before the last crash or before an earlier one, ends now
	my $turn = 0;
	foreach my $gid (split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts ORDER BY gid'))
	{
		$node->safe_psql('postgres', ($turn++ % 3 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
	}
	compare($_) foreach @views;
	$node->safe_psql('postgres', 'DROP TABLE events CASCADE; DROP TABLE ledger');
}

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal (4|6|7|8|11):/, 'nothing crashed but what was killed');
done_testing();
