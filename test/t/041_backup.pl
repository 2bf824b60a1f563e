# Copies of a server under load: what is in them is exact, and goes on.
#
#  1. pg_basebackup in the middle of load
#  2. recovery to a named restore point in the middle of load
#  3. recovery to a point in time in the middle of load
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Stress;
use Test::More;

my $stress = Stress->new('postgres');
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1, has_archiving => 1);
$node->append_conf('postgresql.conf', Stress->configuration);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');
$stress->create($node);

# A base for the recoveries, and one taken while rows come in.
my $load = $stress->start(12, $node);
$stress->wait_for_rows($node, 1000);
$node->backup('under_load');
my $rows = $stress->rows($node);
$stress->wait_for_rows($node, 1000, $rows);
my $named = $stress->rows($node);
$node->safe_psql('postgres', "SELECT pg_create_restore_point('middle')");
$stress->wait_for_rows($node, 1000, $named);
my $timed = $stress->rows($node);
my $time = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$stress->wait_for_rows($node, 1000, $timed);
$stress->finish($load, 'load');
$stress->is_exact($node, 'original');
my $all = $stress->rows($node);
$node->safe_psql('postgres', 'SELECT pg_switch_wal()');
$node->poll_query_until('postgres', 'SELECT last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - 16777216) FROM pg_stat_archiver')
  or die 'WAL is not archived';
$node->stop;

# Starts a copy, and expects it to have at least $least rows, fewer than the original, and to go on.
sub is_copy
{
	my ($name, $least, %params) = @_;
	my $copy = PostgreSQL::Test::Cluster->new($name);

	$copy->init_from_backup($node, 'under_load', standby => 0, has_restoring => $params{recovery} ? 1 : 0);
	$copy->append_conf('postgresql.conf', "archive_mode = off\n");
	$copy->append_conf('postgresql.conf', "$params{recovery}\nrecovery_target_action = 'promote'\n")
	  if $params{recovery};
	$copy->start;
	$copy->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'recovery does not end';

	my $got = $stress->rows($copy);
	cmp_ok($got, '>=', $least, "$name: rows of before are there");
	cmp_ok($got, '<', $all, "$name: rows of after are not");
	$stress->is_exact($copy, $name);
	$copy->safe_psql('postgres', <<'SQL');
INSERT INTO events SELECT -g, '2024-05-01 10:00:00', g % 5, 1, 'x' FROM generate_series(1, 1000) g;
INSERT INTO ledger SELECT -g FROM generate_series(1, 1000) g;
SQL
	$stress->end_prepared($copy);
	$stress->is_exact($copy, "$name, going on");
	$copy->stop('immediate');
	unlike(slurp_file($copy->logfile), qr/PANIC:|TRAP:|terminated by signal/, "$name: nothing crashed");
	return;
}

is_copy('basebackup', 1000);
is_copy('restore_point', $named, recovery => "recovery_target_name = 'middle'");
is_copy('point_in_time', $timed, recovery => "recovery_target_time = '$time'");
done_testing();
