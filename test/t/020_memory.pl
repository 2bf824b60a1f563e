# Memory and work under load (handed case A44).
#
# 1. A view whose groups need more than stream.state_memory stops with 53200 and a hint, in one
#    transaction of many rows; the other views of the worker go on; the memory is given back.
# 2. Many small transactions: the worker's memory and the sizes of view, state and catalog stay
#    bounded.
# 3. An old snapshot is held while a hot view is updated: results stay right, no commit looks its
#    position up among all the dead versions, and after the snapshot the heaps can be vacuumed back
#    to what is alive.
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
stream.state_memory = '32MB'
autovacuum = off
fsync = off
));
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION stream_ext');

# Anonymous memory of the worker in kB: without shared buffers.
sub worker_memory
{
	my $pid = $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'stream_ext worker%'");
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;

	return $kb;
}

sub is_equal
{
	my ($view, $select, $name) = @_;

	is($node->safe_psql('postgres', "SELECT count(*) FROM ((TABLE $view EXCEPT ALL $select)
		UNION ALL ($select EXCEPT ALL TABLE $view)) d"), '0', $name);
}

my $few = 'SELECT id % 10 AS k, count(*) AS n, sum(id) AS s FROM m GROUP BY 1';

$node->safe_psql('postgres', qq(
	CREATE TABLE m (id bigint, t text) USING stream;
	CREATE MATERIALIZED VIEW few USING continuous AS $few;
	CREATE MATERIALIZED VIEW many USING continuous AS SELECT id, t, count(*) FROM m GROUP BY 1, 2;
	SELECT stream.wait_all();));
my $before = worker_memory();

my $rows = 1000000 * ($scale > 5 ? 5 : $scale);
$node->safe_psql('postgres', "INSERT INTO m SELECT i, 'row ' || i FROM generate_series(1, $rows) i");
my ($rc, $out, $err) = $node->psql('postgres', "SELECT stream.wait('many')", extra_params => ['-v', 'VERBOSITY=verbose']);
like($err, qr/ERROR:  53200: .*stream\.state_memory/, 'a view over the limit stops with 53200');
like($err, qr/HINT:  Raise stream\.state_memory/, 'and says what to do');
is($node->safe_psql('postgres', "SELECT stream.wait('few')"), 't', 'the other view goes on');
is_equal('few', $few, 'and equals its SELECT');
is($node->safe_psql('postgres', "SELECT state FROM stream.views WHERE view = 'many'::regclass"), 'failed', 'the first one shows that it failed');
$node->safe_psql('postgres', 'DROP MATERIALIZED VIEW many');
$node->safe_psql('postgres', "INSERT INTO m VALUES (1, 'x')");
$node->safe_psql('postgres', "SELECT stream.wait('few')");
my $after = worker_memory();
cmp_ok($after, '<', $before + 32 * 1024 * 1.25, "memory is bounded by the limit and a quarter ($before kB, then $after kB)");

# With a higher limit the same view works.
$node->append_conf('postgresql.conf', "stream.state_memory = '4GB'");
$node->reload;
my $many = 'SELECT id % 1000 AS k, count(*) AS n FROM m GROUP BY 1';
$node->safe_psql('postgres', "CREATE MATERIALIZED VIEW many USING continuous AS $many");
is($node->safe_psql('postgres', "SELECT stream.wait('many')"), 't', 'a raised limit holds without a restart');
is_equal('many', $many, 'and the view equals its SELECT');

# Small transactions.
my $sizes = q(SELECT pg_relation_size('many') + pg_relation_size('few') +
	(SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relnamespace = 'stream_state'::regnamespace AND relkind = 'r') +
	pg_relation_size('stream.catalog_position') + pg_relation_size('stream.catalog_view'));
my $transactions = 20000 * $scale;
my $run = sub {
	$node->pgbench("--no-vacuum --client=2 --transactions=$transactions", 0, [qr{processed: }], [qr{^$}],
		'small transactions', { 'small_' . int(rand(1e9)) => "\\set i random(1, 1000000)\nINSERT INTO m VALUES (:i, 'y');" });
	$node->safe_psql('postgres', 'SELECT stream.wait_all()');
};
$run->();
my $size1 = $node->safe_psql('postgres', $sizes);
my $memory1 = worker_memory();
$run->();
$run->();
my $size2 = $node->safe_psql('postgres', $sizes);
my $memory2 = worker_memory();
cmp_ok($memory2, '<', $memory1 + 1024, "memory does not grow with transactions ($memory1 kB, then $memory2 kB)");
cmp_ok($size2, '<', 2 * $size1, "nor do the tables, without any vacuum ($size1, then $size2)");
is_equal('few', $few, 'view equals its SELECT');
is_equal('many', $many, 'the other one, too');

# An old snapshot.
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $seen = $old->query_safe('SELECT sum(n) FROM few');
my $counters = "FROM pg_stat_all_tables WHERE relid = 'stream.catalog_position'::regclass";
my ($scans, $updates) = split(/\|/, $node->safe_psql('postgres', "SELECT idx_scan, n_tup_upd $counters"));
for my $i (1 .. 300 * $scale)
{
	$node->safe_psql('postgres', "INSERT INTO m SELECT i, 'z' FROM generate_series(1, 1000) i; SELECT stream.wait_all()")
	  if $i % 30 == 0;
	$node->safe_psql('postgres', "INSERT INTO m SELECT i, 'z' FROM generate_series(1, 10) i") if $i % 30 != 0;
}
$node->safe_psql('postgres', 'SELECT stream.wait_all()');
is($old->query_safe('SELECT sum(n) FROM few'), $seen, 'an old snapshot sees what it saw');
ok($node->poll_query_until('postgres', "SELECT n_tup_upd >= $updates + 100 $counters"), 'positions were committed');
is($node->safe_psql('postgres', "SELECT idx_scan - $scans < (n_tup_upd - $updates) / 10 $counters"), 't',
	'and not looked up by key for it');
$old->query_safe('COMMIT');
$old->quit;
is_equal('few', $few, 'view equals its SELECT after an old snapshot');
is_equal('many', $many, 'the other one, too');
$node->safe_psql('postgres', 'VACUUM few; VACUUM many');
cmp_ok($node->safe_psql('postgres', "SELECT pg_relation_size('few') + pg_relation_size('many')"), '<', 1024 * 1024 * $scale,
	'the heaps of the views are small again');

$node->stop;
done_testing();
