# Launcher and workers: a server stays operable whatever the extension does (handed case A43).
#
#  1. library loaded, extension nowhere: no worker stays
#  2. CREATE EXTENSION starts a worker; DROP EXTENSION ends it; both at commit only
#  3. pg_terminate_backend of worker and launcher; kill -9 of a worker, five times
#  4. stream.workers 1 -> 2 -> 0 -> 1
#  5. DROP DATABASE, RENAME, CREATE DATABASE TEMPLATE, ALLOW_CONNECTIONS false with a live worker
#  6. too few worker slots: reported, and healed when one becomes free
#  7. standby: no worker; promotion starts one
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Number of workers that run, in a database or in all.
sub workers
{
	my ($database) = @_;
	my $where = defined $database ? "AND database = '$database'" : 'AND number IS NOT NULL';
	return "SELECT count(*) FROM stream.stat_workers WHERE state = 'running' $where";
}

# Number of worker processes as the server itself knows them, also without the extension.
sub processes
{
	my ($type) = @_;
	return "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'stream_ext $type'";
}

# Makes a stream and a continuous view of its rows in a database.
sub create_view
{
	my ($node, $database) = @_;
	$node->safe_psql($database,
		'CREATE TABLE s (v int) USING stream;'
		  . 'CREATE MATERIALIZED VIEW mv USING continuous AS SELECT count(*) AS n FROM s');
	return;
}

# Inserts a row and expects the view to have as many as the stream.
sub view_is_served
{
	my ($node, $database, $name) = @_;
	$node->safe_psql($database, 'INSERT INTO s VALUES (1)');
	$node->poll_query_until($database, workers($database) . ' AND number = 0', '1')
	  or die "no worker in $database";
	is( $node->safe_psql($database, "SELECT stream.wait('mv', '30 s')"),
		't', "$name: wait");
	is( $node->safe_psql($database, 'SELECT n = (SELECT count(*) FROM s) FROM mv'),
		't', "$name: view equals its SELECT");
	return;
}

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(allows_streaming => 1, extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf('postgresql.conf',
	"shared_preload_libraries = 'stream_ext'\nrestart_after_crash = on\n");
$node->start;

# 1. Nobody has the extension.
ok($node->poll_query_until('postgres', processes('launcher'), '1'),
	'the launcher runs');
$node->safe_psql('postgres', 'CREATE DATABASE empty');
ok($node->poll_query_until('postgres', processes('worker'), '0'),
	'without the extension no worker stays');

# 2. Start and end of the extension.
$node->safe_psql('postgres', 'CREATE DATABASE d');
$node->safe_psql('d', 'BEGIN; CREATE EXTENSION stream_ext; ROLLBACK');
$node->safe_psql('d', 'CREATE EXTENSION stream_ext');
ok($node->poll_query_until('d', workers('d'), '1'), 'CREATE EXTENSION starts a worker');
is($node->safe_psql('d', workers()), '1', 'and only in its database');
create_view($node, 'd');
view_is_served($node, 'd', 'new view');

$node->safe_psql('postgres', 'CREATE DATABASE gone');
$node->safe_psql('gone', 'CREATE EXTENSION stream_ext');
ok($node->poll_query_until('gone', workers('gone'), '1'), 'worker in a second database');
$node->safe_psql('gone', 'DROP EXTENSION stream_ext');
ok($node->poll_query_until('d', workers('gone'), '0'), 'DROP EXTENSION ends it');
$node->safe_psql('gone', 'CREATE EXTENSION stream_ext');
ok($node->poll_query_until('gone', workers('gone'), '1'), 'CREATE EXTENSION again');
$node->safe_psql('postgres', 'DROP DATABASE gone');

# 3. Processes end.
my $pid_query = "SELECT pid FROM stream.stat_workers WHERE database = 'd' AND state = 'running'";
my $pid = $node->safe_psql('d', $pid_query);
$node->safe_psql('d', "SELECT pg_terminate_backend($pid)");
ok($node->poll_query_until('d', "SELECT ($pid_query) <> $pid"), 'a terminated worker comes back');
view_is_served($node, 'd', 'worker terminated');

$pid = $node->safe_psql('d', 'SELECT pid FROM stream.stat_workers WHERE number IS NULL');
$node->safe_psql('d', "SELECT pg_terminate_backend($pid)");
ok( $node->poll_query_until('d',
		"SELECT pid <> $pid FROM stream.stat_workers WHERE number IS NULL"),
	'a terminated launcher comes back');
ok( $node->poll_query_until('d',
		workers('d') . ' AND since > (SELECT since FROM stream.stat_workers WHERE number IS NULL)',
		'1'),
	'and starts a worker of its own');
ok($node->poll_query_until('d', processes('worker'), '1'), 'of the earlier one none is left');
view_is_served($node, 'd', 'launcher terminated');

for my $round (1 .. 5)
{
	my $started = $node->safe_psql('d', 'SELECT pg_postmaster_start_time()');
	$pid = $node->safe_psql('d', $pid_query);
	kill 'KILL', $pid;

	# the server resets itself; every session of before is gone
	$node->poll_query_until('d', "SELECT coalesce(($pid_query), $pid) <> $pid")
	  or die "no new worker after kill -9";
	is($node->safe_psql('d', 'SELECT pg_postmaster_start_time()'),
		$started, "kill -9 of the worker, round $round: the postmaster lives");
	view_is_served($node, 'd', "kill -9, round $round");
}

# 4. stream.workers.
$node->safe_psql('d', 'ALTER SYSTEM SET stream.workers = 2');
$node->reload;
ok($node->poll_query_until('d', workers('d'), '2'), 'stream.workers = 2');
is( $node->safe_psql('d',
		"SELECT string_agg(number::text, ' ' ORDER BY number) FROM stream.stat_workers WHERE database = 'd'"
	),
	'0 1', 'they are numbered from 0');
view_is_served($node, 'd', 'two workers');
$node->safe_psql('d', 'ALTER SYSTEM SET stream.workers = 0');
$node->reload;
ok($node->poll_query_until('d', processes('worker'), '0'), 'stream.workers = 0');
is( $node->safe_psql('d', 'SELECT state, reason FROM stream.views'),
	'stopped|stream.workers is 0.', 'stream.views tells why nothing moves');
my ($rc, $out, $err) = $node->psql('d', "SELECT stream.wait('mv')");
like($err, qr/stream\.workers is 0/, 'stream.wait does not wait in vain');
$node->safe_psql('d', 'ALTER SYSTEM RESET stream.workers');
$node->reload;
ok($node->poll_query_until('d', workers('d'), '1'), 'stream.workers = 1');
view_is_served($node, 'd', 'one worker again');

# 5. Commands that need the database for themselves.
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE d');
ok($node->poll_query_until('copy', workers('copy'), '1'), 'a copy gets a worker');
view_is_served($node, 'copy', 'copied database');
view_is_served($node, 'd', 'template');
$node->safe_psql('postgres', 'ALTER DATABASE copy RENAME TO copy2');
view_is_served($node, 'copy2', 'renamed database');
$node->safe_psql('postgres', 'ALTER DATABASE copy2 ALLOW_CONNECTIONS false');
ok($node->poll_query_until('d', workers('copy2'), '0'), 'ALLOW_CONNECTIONS false ends the worker');
$node->safe_psql('postgres', 'ALTER DATABASE copy2 ALLOW_CONNECTIONS true');
ok($node->poll_query_until('d', workers('copy2'), '1'), 'and true starts it');
$node->safe_psql('postgres', 'DROP DATABASE copy2');
is( $node->safe_psql('d', "SELECT count(*) FROM stream.stat_workers WHERE number IS NOT NULL AND database IS DISTINCT FROM 'd'"),
	'0', 'DROP DATABASE with a live worker');
($rc, $out, $err) = $node->psql('postgres', 'CREATE DATABASE copy TEMPLATE d ENCODING sql_ascii');
isnt($rc, 0, 'CREATE DATABASE that fails');
view_is_served($node, 'd', 'template of a failed copy');

# 6. Worker slots: the launcher of logical replication and ours leave one.
$node->append_conf('postgresql.conf', "max_worker_processes = 3\n");
$node->restart;
$node->safe_psql('postgres', 'CREATE DATABASE d2');
$node->safe_psql('d2', 'CREATE EXTENSION stream_ext');
my $no_slot = "SELECT count(*) FROM stream.stat_workers WHERE database = 'd2' AND state = 'waiting for a worker slot'";
ok($node->poll_query_until('d', $no_slot, '1'), 'a database without a slot is shown');
is( $node->safe_psql('d', "SELECT DISTINCT reason ~ 'max_worker_processes' FROM stream.stat_workers WHERE state ~ 'slot'"),
	't', 'with a hint');
$node->wait_for_log(qr/WARNING:  no background worker slot is free for a worker of stream_ext/);
$node->safe_psql('d', 'DROP EXTENSION stream_ext CASCADE');
ok($node->poll_query_until('d2', workers('d2'), '1'), 'it gets the slot that becomes free');
is(scalar(() = slurp_file($node->logfile) =~ /WARNING:  no background worker slot is free/g),
	1, 'the log has one warning');
$node->append_conf('postgresql.conf', "max_worker_processes = 8\n");
$node->restart;
create_view($node, 'd2');
view_is_served($node, 'd2', 'enough slots');

# 7. Standby.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is($standby->safe_psql('d2', processes('worker')), '0', 'a standby has no worker');
is($standby->safe_psql('d2', processes('launcher')), '0', 'and no launcher');
($rc, $out, $err) = $standby->psql('d2', "SELECT stream.wait('mv')");
like($err, qr/cannot wait for a continuous view during recovery/, 'stream.wait on a standby');
is($standby->safe_psql('d2', "SELECT state, reason ~ 'standby' FROM stream.views"), 'stopped|t', 'state of a view on a standby');
$node->stop;
$standby->promote;
ok($standby->poll_query_until('d2', workers('d2'), '1'), 'promotion starts a worker');
view_is_served($standby, 'd2', 'promoted standby');

# No process may have ended otherwise than by order: signal 9 was ours.
$standby->stop;
for my $log (slurp_file($node->logfile), slurp_file($standby->logfile))
{
	unlike($log, qr/terminated by signal (?!9)/, 'no crash');
	unlike($log, qr/TRAP:/, 'no failed assertion');
}

done_testing();
