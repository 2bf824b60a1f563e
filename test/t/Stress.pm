# Stress: load of all kinds on a stream, with views, for tests in Perl; see test/stress/stress.c.
#
#   my $stress = Stress->new('database');
#   $stress->create($node);                  # tables events and ledger, views windows and copies
#   my $load = $stress->start(7, $primary, $standby);     # 7 s; goes to whichever accepts writes
#   $stress->wait_for_rows($primary, 2000);
#   $stress->finish($load);                  # no error that a crash does not explain
#   $stress->is_exact($primary, 'after the load');
#
# Nothing here sleeps.
package Stress;

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

our %query = (
	windows => <<'SQL',
SELECT tumble(ts, '10 s') AS w, key, count(*) AS n, sum(amount) AS total, min(id) AS first, max(length(payload)) AS longest
FROM events GROUP BY w, key
SQL
	copies => 'SELECT id, ts, key, amount, md5(payload) AS digest FROM events');

my $client;
my $rounds = 0;

# Builds the client once.
sub new
{
	my ($class, $database) = @_;

	if (!defined $client)
	{
		my $include = `pg_config --includedir`;
		my $libdir = `pg_config --libdir`;

		chomp($include, $libdir);
		$client = PostgreSQL::Test::Utils::tempdir . '/stress';
		system_or_bail('gcc', '-O2', "-I$include", abs_path(dirname(__FILE__) . '/../stress/stress.c'),
			'-o', $client, "-L$libdir", '-lpq');
	}
	return bless { database => $database }, $class;
}

# What a server under this load needs to be told.
sub configuration
{
	return <<'CONF';
shared_preload_libraries = 'stream_ext'
max_connections = 80
max_prepared_transactions = 300
max_worker_processes = 16
autovacuum_naptime = 1s
log_statement = none
log_min_messages = warning
log_min_error_statement = panic
CONF
}

sub create
{
	my ($self, $node) = @_;
	my $views = join(';', map { "CREATE MATERIALIZED VIEW $_ USING continuous AS $query{$_}" } sort keys %query);

	$node->safe_psql($self->{database}, <<SQL);
CREATE TABLE ledger (id bigint NOT NULL);
CREATE TABLE events (id bigint PRIMARY KEY, ts timestamptz NOT NULL, key integer, amount numeric, payload text)
	USING stream WITH (stream.event_time = 'ts', stream.watermark_delay = '1 min');
$views
SQL
	return;
}

# Starts the load on the one of the nodes that accepts writes. It follows when that changes.
sub start
{
	my ($self, $seconds, @nodes) = @_;
	my $load = { stdout => '', stderr => '' };

	local $ENV{PGHOST} = join(',', map { $_->host } @nodes);
	local $ENV{PGPORT} = join(',', map { $_->port } @nodes);
	local $ENV{PGDATABASE} = $self->{database};
	local $ENV{PGTARGETSESSIONATTRS} = 'read-write';
	$load->{run} =
	  IPC::Run::start([ $client, $seconds, ++$rounds ], '>', \$load->{stdout}, '2>', \$load->{stderr});
	return $load;
}

sub rows
{
	my ($self, $node) = @_;
	return $node->safe_psql($self->{database}, 'SELECT count(*) FROM ledger');
}

# Waits until there are that many more rows than $before.
sub wait_for_rows
{
	my ($self, $node, $rows, $before) = @_;

	$before //= 0;
	$node->poll_query_until($self->{database}, "SELECT count(*) > $before + $rows FROM ledger")
	  or die 'no load';
	return;
}

sub finish
{
	my ($self, $load, $name) = @_;

	$load->{run}->finish;
	# comes from libpq where a server stops while it is being connected to
	$load->{stderr} =~ s/^WARNING:  terminating connection.*\n((DETAIL|HINT):  .*\n)*//mg;
	is($load->{stderr}, '', "$name: no error that a crash does not explain");
	is($load->{run}->result(0), 0, "$name: all writers went on to the end");
	return;
}

# Are all ids in the stream once, and the views equal to their SELECTs?
sub is_exact
{
	my ($self, $node, $name, %params) = @_;

	foreach my $view (sort keys %query)
	{
		if (!$params{is_standby})
		{
			my ($code, $output, $error) =
			  $node->psql($self->{database}, "SELECT stream.wait('$view', '120 s')");

			is("$output$error", 't', "$name: $view has caught up")
			  or diag($node->safe_psql($self->{database}, 'SELECT * FROM stream.views'));
		}
		is($node->safe_psql($self->{database}, <<SQL), '', "$name: $view has the rows of its SELECT");
WITH expected AS MATERIALIZED ($query{$view})
(SELECT 'missing', x FROM (SELECT * FROM expected EXCEPT ALL SELECT * FROM $view) AS x LIMIT 10)
UNION ALL
(SELECT 'too many', x FROM (SELECT * FROM $view EXCEPT ALL SELECT * FROM expected) AS x LIMIT 10)
SQL
	}
	is($node->safe_psql($self->{database}, <<SQL), '0|0|0', "$name: each id is in the stream once");
SELECT (SELECT count(*) FROM (SELECT id FROM ledger EXCEPT ALL SELECT id FROM events) AS missing),
  (SELECT count(*) FROM (SELECT id FROM events EXCEPT ALL SELECT id FROM ledger) AS extra),
  (SELECT count(*) - count(DISTINCT id) FROM events) AS twice
SQL
	return;
}

# Commits some of what the load has left prepared, rolls others back.
sub end_prepared
{
	my ($self, $node) = @_;
	my $turn = 0;

	foreach my $gid (split /\n/, $node->safe_psql($self->{database}, 'SELECT gid FROM pg_prepared_xacts ORDER BY gid'))
	{
		$node->safe_psql($self->{database}, ($turn++ % 3 ? 'COMMIT' : 'ROLLBACK') . " PREPARED '$gid'");
	}
	return $turn;
}

1;
