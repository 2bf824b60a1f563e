# Topics into views exactly once, under load and crashes. While a producer writes into a topic, in half of the
# rounds in transactions of which some are aborted, one of these happens:
#  - the worker is killed (and with it, by the postmaster, all backends);
#  - PostgreSQL is stopped without warning;
#  - the broker is killed, or stopped and started;
#  - a view is created, or paused and resumed, so that it reads on its own until it is level.
# After each round the view of each kind (windows, plain rows, all at once) has, row for row, what SELECT from the
# foreign table returns, and that is each record that the producer was told to be written, once.
#
# Environment: SCALE   1: 20 rounds with 5 broker restarts; n: n times as many
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use Kafka;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $scale = $ENV{SCALE} || 1;
my $records = 40_000;
my $round = 0;

my %query = (
	windows => "SELECT tumble(ts, '10 s') AS w, k, count(*) AS n, sum(x::numeric) AS total, min(id) AS first, max(id) AS last FROM events GROUP BY w, k",
	copies => 'SELECT id, k, x, ts, part, pos FROM events',
	late => 'SELECT part, count(*) AS n, sum(id) AS ids, max(pos) AS last FROM events GROUP BY part');

my $kafka = Kafka->new('exactly_once');
$kafka->start;

my $node = PostgreSQL::Test::Cluster->new('kafka_exactly_once');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_ext'
restart_after_crash = on
max_worker_processes = 16
autovacuum_naptime = 1s
log_min_messages = warning
CONF
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');
$node->safe_psql('postgres', "CREATE SERVER broker FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '" . $kafka->servers . "')");

sub create_view
{
	my ($name) = @_;
	$node->safe_psql('postgres', "CREATE MATERIALIZED VIEW $name USING continuous AS $query{$name}");
}

sub kill_worker
{
	my $pid = $node->safe_psql('postgres', 'SELECT worker_pid FROM stream.views WHERE worker_pid <> 0 LIMIT 1');

	ok($pid, "round $round: there is a worker to kill");
	kill 'KILL', $pid if $pid;
	# psql may be refused before it has read the query, which ends the poll with a broken pipe
	my $found;
	$found = eval { $node->poll_query_until('postgres', "SELECT coalesce(max(worker_pid), 0) NOT IN (0, $pid) FROM stream.views") }
	  until defined $found;
	ok($found, "round $round: another worker runs");
}

sub stop_immediately
{
	$node->stop('immediate');
	$node->start;
}

# One view stands still while the other one reads on, and then reads alone until it is level.
sub pause_and_resume
{
	$node->safe_psql('postgres', "SELECT stream.pause('windows')");
	$node->safe_psql('postgres', "SELECT stream.wait('copies')");
	$node->safe_psql('postgres', "SELECT stream.resume('windows')");
}

my @disturbances = (
	\&kill_worker,
	\&stop_immediately,
	sub { $kafka->kill; $kafka->start; },
	\&kill_worker,
	\&pause_and_resume,
	sub { stop_immediately(); $kafka->restart; },
	\&stop_immediately,
	sub { kill_worker(); stop_immediately(); });

sub compare
{
	my ($name) = @_;
	my ($code, $output, $error) = $node->psql('postgres', "SELECT stream.wait('$name', '120 s')");

	is("$output$error", 't', "round $round: view $name has caught up")
	  or diag($node->safe_psql('postgres', 'SELECT * FROM stream.views'));
	is($node->safe_psql('postgres', <<SQL), '', "round $round: view $name has the rows of its SELECT");
WITH expected AS MATERIALIZED ($query{$name})
(SELECT 'missing', x FROM (SELECT * FROM expected EXCEPT ALL SELECT * FROM $name) AS x LIMIT 10)
UNION ALL
(SELECT 'too many', x FROM (SELECT * FROM $name EXCEPT ALL SELECT * FROM expected) AS x LIMIT 10)
SQL
}

foreach my $set (1 .. 4 * $scale)
{
	my $topic = "events$set";
	my $written = 0;
	my @views = ('windows', 'copies');

	$kafka->run('create', $topic, 4);
	$node->safe_psql('postgres', <<SQL);
CREATE FOREIGN TABLE events (id bigint, k bigint, x float8, ts timestamptz,
	part integer OPTIONS (meta 'partition'), pos bigint OPTIONS (meta 'offset'))
SERVER broker OPTIONS (topic '$topic', event_time 'ts', watermark_delay '1 min')
SQL
	create_view($_) foreach @views;

	foreach my $n (1 .. 5)
	{
		$round++;
		my @transactions = $round % 2 ? () : ('--transactional-id', "t$set", '--batch', 500, '--aborted', '0.2');
		my $load = $kafka->start_load($topic, $records, '--first', $written + 1, '--seed', $round,
			'--rate', 20_000, '--progress', 2000, @transactions);

		$load->wait_for(10_000);
		if ($n == 3)
		{
			create_view('late');
			push @views, 'late';
		}
		$disturbances[ ($round * 5 + $set) % @disturbances ]->() if $n != 3 || $round % 2;
		is($load->finish, $records, "round $round: all records are written");
		$written += $records;
		is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), min(id), max(id) FROM events'),
			"$written|$written|1|$written", "round $round: each record is in the topic once");
		compare($_) foreach @views;
		is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id), min(id), max(id) FROM copies'),
			"$written|$written|1|$written", "round $round: each record is in the view once");
	}
	is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.dead_letters'), '0', "set $set: no dead letters");
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE events CASCADE');
	$kafka->run('delete', $topic);
}

$node->stop;
$kafka->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal (4|6|7|8|11):/, 'nothing crashed but what was killed');
done_testing();
