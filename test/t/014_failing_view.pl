# A view that fails beside healthy ones in the same poll group: the healthy ones go on with the state that they had in
# memory, put back to what is committed for the groups that the failed transaction had touched or made; the sick one
# resumes exactly once when it has been mended.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('failing_view');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_ext'
CONF
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

# transition values by value, by reference, serialized, and a key by reference; and one view without GROUP BY
my %query = (
	simple => 'SELECT k, count(*) AS n, sum(v) AS total, max(v) AS most FROM s GROUP BY k',
	refs => "SELECT 'key ' || k AS key, avg(v::numeric) AS mean, variance(v::numeric) AS var, max(lpad(v::text, 40, '0')) AS longest FROM s GROUP BY 1",
	plain => 'SELECT count(*) AS n, sum(v::numeric) AS total, count(DISTINCT k) AS keys FROM s',
	ordered => 'SELECT k % 7 AS m, string_agg(v::text, \',\' ORDER BY v) AS vs FROM s WHERE v % 50 = 0 GROUP BY 1',
	rows => 'SELECT k, v FROM s WHERE v % 10 = 3',
	sick => 'SELECT k, sum(checked(v)) AS total, count(*) AS n FROM s GROUP BY k');
my @healthy = grep { $_ ne 'sick' } sort keys %query;

sql('CREATE EXTENSION stream_ext; CREATE TABLE s (k integer, v integer) USING stream');

# a function that raises for one value
sub raise_for
{
	my ($value) = @_;
	sql("CREATE OR REPLACE FUNCTION checked(v integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN IF v = $value THEN RAISE 'poison %', v; END IF; RETURN v; END \$\$");
}

sub is_right
{
	my ($view, $test) = @_;

	is(sql("SELECT stream.wait('$view', '60 s')"), 't', "$test: $view has caught up");
	is(sql("($query{$view} EXCEPT ALL TABLE $view) UNION ALL (TABLE $view EXCEPT ALL ($query{$view}))"), '', "$test: $view has the rows of its SELECT");
}

# rows that the first operator has taken since the view was loaded
sub rows_in { return sql("SELECT max(rows_in) FROM stream.explain('$_[0]') WHERE operator = 'project'"); }

raise_for(-1);
# the healthy ones first, so that they have touched their state when the sick one fails
foreach my $view (@healthy, 'sick')
{
	sql("CREATE MATERIALIZED VIEW $view USING continuous AS $query{$view}");
	sql("SELECT stream.wait('$view')");
}
sql('INSERT INTO s SELECT n % 500, n FROM generate_series(1, 20000) AS n');
is_right($_, 'before') foreach @healthy, 'sick';

foreach my $round (1 .. 4)
{
	my $poison = 100000 * $round + 1500;
	my %before = map { $_ => rows_in($_) } @healthy;

	# old groups and new ones in one transaction, the poison in the middle
	raise_for($poison);
	# the view is compiled anew, and then reads with the others again
	sql("SELECT stream.wait_all()") foreach 1 .. 3;
	sql("INSERT INTO s SELECT n % 700 + 100 * $round, n + 100000 * $round FROM generate_series(1, 3000) AS n");
	$node->poll_query_until('postgres', "SELECT error_message IS NOT NULL FROM stream.views WHERE view = 'sick'::regclass");
	is(sql("SELECT state, error_message FROM stream.views WHERE view = 'sick'::regclass"), "failed|poison $poison", "round $round: the sick view has failed");
	is(sql('SELECT sum(n) FROM sick'), 20000 + 3000 * ($round - 1), "round $round: and has nothing of the rows");
	foreach my $view (@healthy)
	{
		is_right($view, "round $round");
		cmp_ok(rows_in($view), '>=', $before{$view} + 3000, "round $round: $view was not loaded anew") if $view ne 'ordered' && $view ne 'plain';
	}
	# a row for groups that were undone and computed again
	sql("INSERT INTO s SELECT n, 7 FROM generate_series(1, 1200) AS n");
	is_right($_, "round $round, further rows") foreach @healthy;
	raise_for(-1);
	sql("SELECT stream.resume('sick')");
	is_right('sick', "round $round, mended");
	# back to a known number of rows
	sql('TRUNCATE s');
	sql('INSERT INTO s SELECT n % 500, n FROM generate_series(1, ' . (20000 + 3000 * $round) . ') AS n');
	is_right($_, "round $round, truncated") foreach @healthy, 'sick';
}

# a view whose function does not come to an end is cancelled; the others go on meanwhile but for that time
$node->append_conf('postgresql.conf', "stream.view_timeout = '200 ms'");
$node->reload;
sql("CREATE OR REPLACE FUNCTION checked(v integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN WHILE v = 5 LOOP NULL; END LOOP; RETURN v; END \$\$");
sql("SELECT stream.wait_all()") foreach 1 .. 3;
sql('INSERT INTO s SELECT n, 5 FROM generate_series(1, 3000) AS n');
$node->poll_query_until('postgres', "SELECT error_message IS NOT NULL FROM stream.views WHERE view = 'sick'::regclass");
is(sql("SELECT state, error_code, error_message FROM stream.views WHERE view = 'sick'::regclass"), 'failed|57014|a step of the view took longer than stream.view_timeout (200 ms)', 'a view that loops is cancelled');
is_right($_, 'beside a view that loops') foreach @healthy;
raise_for(-1);
sql("SELECT stream.resume('sick')");
is_right('sick', 'does not loop any more');
# somebody cancels the worker: no fault of a view
sql("SELECT pg_cancel_backend(worker_pid) FROM stream.views WHERE view = 'sick'::regclass");
sql('INSERT INTO s VALUES (1, 1)');
is_right($_, 'cancelled') foreach @healthy, 'sick';

# what is committed is what is in memory
$node->restart;
is_right($_, 'restarted') foreach @healthy, 'sick';
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing crashed');
done_testing();
