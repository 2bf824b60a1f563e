# A worker held at each of its stop points, between poll and commit.
#
# At every point: rows are committed before and while the worker is held there, then the worker
#   - goes on,
#   - is killed, and the server recovers,
#   - gets an error (its query is cancelled);
# afterwards each view equals its SELECT. Then, with three views that stand at different places of
# the stream: a transaction prepared before a restart and committed after it, a load of many rows
# in progress while others insert, and an aborted load whose space is used again.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $scale = $ENV{SCALE} || 1;
my $node = PostgreSQL::Test::Cluster->new('main');

$node->init;
$node->append_conf('postgresql.conf', q(
shared_preload_libraries = 'stream_ext'
max_prepared_transactions = 10
restart_after_crash = on
autovacuum = off
fsync = off
));
$node->start;
$node->safe_psql('postgres', q(
	CREATE EXTENSION stream_ext;
	CREATE TABLE s (id bigint, k int, ts timestamptz NOT NULL) USING stream
		WITH (stream.event_time = 'ts', stream.watermark_delay = '1 s');
	CREATE MATERIALIZED VIEW a USING continuous AS
		SELECT tumble(ts, '1 minute') AS w, k, count(*) AS n, sum(id) AS s, count(DISTINCT id) AS d
		FROM s GROUP BY 1, 2;
	CREATE MATERIALIZED VIEW p USING continuous AS SELECT id, k FROM s WHERE k <> 3;
	CREATE MATERIALIZED VIEW g USING continuous AS SELECT count(*) AS n, max(id) AS m FROM s;
	SELECT stream.wait_all()));

my %select = (
	a => q(SELECT tumble(ts, '1 minute') AS w, k, count(*) AS n, sum(id) AS s, count(DISTINCT id) AS d FROM s GROUP BY 1, 2),
	p => 'SELECT id, k FROM s WHERE k <> 3',
	g => 'SELECT count(*) AS n, max(id) AS m FROM s');
my $id = 0;

sub rows
{
	my ($n) = @_;
	my $sql = "INSERT INTO s SELECT $id + i, i % 5, '2024-01-01'::timestamptz + ($id + i) * interval '1 s'"
	  . " FROM generate_series(1, $n) i";
	$id += $n;
	return $sql;
}

sub views_are_right
{
	my ($name) = @_;
	$node->poll_query_until('postgres', 'SELECT true') or die 'no server';
	is($node->safe_psql('postgres', 'SELECT stream.wait_all()'), 't', "$name: all is applied");
	for my $view (sort keys %select)
	{
		is($node->safe_psql('postgres', "SELECT count(*) FROM ((TABLE $view EXCEPT ALL $select{$view})
			UNION ALL ($select{$view} EXCEPT ALL TABLE $view)) d"), '0', "$name: $view equals its SELECT");
	}
}

sub worker_pid
{
	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'stream_ext worker%'");
}

sub hold
{
	my ($points) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET stream.stop_points = '$points'");
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
}

my $stopped = q(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	WHERE l.locktype = 'advisory' AND NOT l.granted AND a.backend_type LIKE 'stream_ext worker%');

for my $point (qw(tail_growable tail_snapshot tail_block polled flushed before_commit))
{
	for my $end (qw(release cancel kill))
	{
		my $name = "$point, $end";
		my $holder = $node->background_psql('postgres');

		$holder->query_safe("SELECT pg_advisory_lock(29560, hashtext('$point'))");
		hold($point);
		$node->safe_psql('postgres', rows(50));
		ok($node->poll_query_until('postgres', $stopped), "$name: the worker is held");
		$node->safe_psql('postgres', rows(50));
		hold('');
		my $pid = worker_pid();
		if ($end eq 'release')
		{
			$holder->quit;
		}
		elsif ($end eq 'cancel')
		{
			$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
			$holder->quit;
		}
		else
		{
			kill 'KILL', $pid;
			$holder->{run}->finish;
			ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity
				WHERE backend_type LIKE 'stream_ext worker%' AND pid <> $pid"), "$name: there is a new worker");
		}
		views_are_right($name);
	}
}

# Three readers at different places: a goes on, p is paused early, g later.
$node->safe_psql('postgres', "SELECT stream.pause('p')");
$node->safe_psql('postgres', rows(3000));
$node->safe_psql('postgres', "SELECT stream.wait('g')");
$node->safe_psql('postgres', "SELECT stream.pause('g')");

# A prepared transaction, rows after it, a restart.
$node->safe_psql('postgres', 'BEGIN; ' . rows(10) . "; PREPARE TRANSACTION 'one'");
$node->safe_psql('postgres', rows(3000));
$node->safe_psql('postgres', "SELECT stream.wait('a')");
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', rows(10));
$node->safe_psql('postgres', "SELECT stream.wait('a')");
is($node->safe_psql('postgres', "SELECT count(*) FROM ((TABLE a EXCEPT ALL $select{a}) UNION ALL ($select{a} EXCEPT ALL TABLE a)) d"),
	'0', 'prepared: not counted before it is committed');
$node->safe_psql('postgres', "COMMIT PREPARED 'one'");
$node->safe_psql('postgres', "SELECT stream.wait('a')");
is($node->safe_psql('postgres', "SELECT count(*) FROM ((TABLE a EXCEPT ALL $select{a}) UNION ALL ($select{a} EXCEPT ALL TABLE a)) d"),
	'0', 'prepared: counted once it is committed, after a restart');

# A load in progress while others insert.
my $load = $node->background_psql('postgres');
$load->query_safe('BEGIN');
$load->query_safe(rows(1000000 * ($scale > 1 ? 2 : 1)));
$node->safe_psql('postgres', rows(500)) for 1 .. 10;
$node->safe_psql('postgres', "SELECT stream.wait('a')");
is($node->safe_psql('postgres', "SELECT count(*) FROM ((TABLE a EXCEPT ALL $select{a}) UNION ALL ($select{a} EXCEPT ALL TABLE a)) d"),
	'0', 'load in progress: a equals its SELECT without it');
cmp_ok($node->safe_psql('postgres', "SELECT running_transactions FROM stream.positions WHERE view = 'a'::regclass"),
	'<=', 4, 'load in progress: the position remembers it as a few ranges');
cmp_ok($node->safe_psql('postgres', "SELECT max(length(position)) FROM stream.catalog_position"), '<', 1000,
	'load in progress: the position is small');
$node->safe_psql('postgres', "SELECT stream.resume('g')");
$node->safe_psql('postgres', "SELECT stream.wait('g')");
$load->query_safe('COMMIT');
$load->quit;
$node->safe_psql('postgres', "SELECT stream.resume('p')");
views_are_right('load committed');

# An aborted load, VACUUM, new rows in its place.
$node->safe_psql('postgres', "SELECT stream.pause('p')");
$load = $node->background_psql('postgres');
$load->query_safe('BEGIN');
$load->query_safe(rows(20000));
$node->safe_psql('postgres', rows(100));
$node->safe_psql('postgres', "SELECT stream.wait('a')");
$load->query_safe('ROLLBACK');
$node->safe_psql('postgres', 'VACUUM s');
$node->safe_psql('postgres', rows(100)) for 1 .. 5;
$load->query_safe(rows(5000));
$load->quit;
$node->safe_psql('postgres', "SELECT stream.resume('p')");
views_are_right('aborted load');

# TRUNCATE rolled back, then committed.
$node->safe_psql('postgres', 'BEGIN; TRUNCATE s; ' . rows(5) . '; ROLLBACK');
$node->safe_psql('postgres', rows(5));
views_are_right('TRUNCATE rolled back');
$node->safe_psql('postgres', 'BEGIN; TRUNCATE s; ' . rows(5) . '; COMMIT');
$node->safe_psql('postgres', rows(5));
views_are_right('TRUNCATE committed');

$node->stop;
done_testing();
