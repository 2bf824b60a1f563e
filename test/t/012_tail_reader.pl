# The tail reader alone, through the test module, under all kinds of writers and crashes.
#
# 1. "virgin": blocks at the end of the file that a reader has closed and VACUUM has emptied must not
#    go to a writer after a crash unless the reader opens them.
# 2. Three readers, random aborts and batch sizes, expiry and recycling of blocks, immediate crashes:
#    every committed row is returned exactly once to each.
# 3. The same with the file cut after a crash to a random length not below that at the last
#    checkpoint, as a crash of the machine may leave it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $scale = $ENV{SCALE} || 1;
my $seconds = 10 * $scale;
my $node = PostgreSQL::Test::Cluster->new('main');
my $bindir = $node->config_data('--bindir');
my $stress = "$ENV{TESTDIR}/modules/tail_test/tail_stress";

$node->init;
$node->append_conf('postgresql.conf', q(
shared_preload_libraries = 'stream_ext'
max_connections = 100
max_prepared_transactions = 200
fsync = off
));
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext; CREATE EXTENSION tail_test');

local %ENV = (
	%ENV,
	PGHOST => $node->host,
	PGPORT => $node->port,
	PGDATABASE => 'postgres',
	PGDATA => $node->data_dir,
	PG_CTL => "$bindir/pg_ctl");

command_ok([ $stress, 'virgin' ], 'emptied blocks at the end of the file after a crash');
command_ok([ $stress, $seconds, 1 ], 'every row once to three readers, over crashes');
$ENV{TAIL_CUT} = 1;
command_ok([ $stress, $seconds, 2 ], 'the same with the file cut at each crash');

# the server was stopped and started behind the back of the test's own bookkeeping
system_or_bail("$bindir/pg_ctl", '-D', $node->data_dir, '-m', 'immediate', '-s', 'stop');
$node->_update_pid(0);
done_testing();
