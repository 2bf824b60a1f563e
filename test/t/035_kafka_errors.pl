# What brokers answer when something is wrong, injected into librdkafka's mock cluster of two brokers: whatever it is,
# a view shows it, goes on by itself when it is over, and has each record once. (The mock cluster has no transactions and
# forgets old records; results under load are tested against a real broker in 034.)
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use Kafka;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $mock = Kafka->start_mock('-n', 2, 'events:4');

my $node = PostgreSQL::Test::Cluster->new('kafka_errors');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_ext'
log_statement = none
CONF
$node->start;

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql('CREATE EXTENSION stream_ext');
sql("CREATE SERVER mock FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '" . $mock->servers . "')");
sql("CREATE FOREIGN TABLE events (v int, part int OPTIONS (meta 'partition'), pos bigint OPTIONS (meta 'offset')) SERVER mock OPTIONS (topic 'events')");
sql('CREATE MATERIALIZED VIEW events_v USING continuous AS SELECT * FROM events');
sql('CREATE MATERIALIZED VIEW sums USING continuous AS SELECT part, count(*) AS n, sum(v) AS v FROM events GROUP BY part');
# a neighbour that nothing of this concerns
sql("CREATE TABLE local (v int) USING stream; CREATE MATERIALIZED VIEW local_v USING continuous AS SELECT sum(v) AS v FROM local");

my $programs = "$FindBin::RealBin/../kafka";
my $written = 0;

sub produce
{
	my ($n) = @_;
	my $input = join('', map { sprintf("partition=%d\tvalue={\"v\":%d}\n", $_ % 4, $_) } $written + 1 .. $written + $n);
	my ($output, $error) = ('', '');

	IPC::Run::run([ "$programs/sxkafka", '-b', $mock->servers, 'produce', 'events' ], '<', \$input, '>', \$output, '2>', \$error)
	  or die "produce failed: $error";
	$written += $n;
}

# The view gets to hold all that was written.
sub complete
{
	my ($test) = @_;

	ok($node->poll_query_until('postgres', "SELECT count(*) >= $written FROM events_v"), "$test: the view has got all")
	  or diag(sql('SELECT view, state, reason, error_message, error_detail FROM stream.views'));
	is(sql('SELECT count(*), count(DISTINCT v), min(v), max(v) FROM events_v'), "$written|$written|1|$written", "$test: each record once");
	is(sql('SELECT sum(n), sum(v) FROM sums'), $written . '|' . ($written * ($written + 1) / 2), "$test: another view as well") if sql("SELECT stream.wait('sums', '30 s')") eq 't';
	is(sql('(TABLE events EXCEPT ALL TABLE events_v) UNION ALL (TABLE events_v EXCEPT ALL TABLE events)'), '', "$test: the view equals its SELECT");
}

produce(1000);
complete('no errors');

foreach my $case (
	[ Fetch => 'NOT_LEADER_FOR_PARTITION' ],
	[ Fetch => 'UNKNOWN_TOPIC_OR_PART' ],
	[ Fetch => 'REPLICA_NOT_AVAILABLE' ],
	[ Fetch => 'OFFSET_NOT_AVAILABLE' ],
	[ Fetch => 'FENCED_LEADER_EPOCH' ],
	[ Fetch => 'KAFKA_STORAGE_ERROR' ],
	[ Fetch => 'REQUEST_TIMED_OUT' ],
	[ Fetch => 'INVALID_MSG' ],
	[ Fetch => '_TRANSPORT' ],
	[ Metadata => 'LEADER_NOT_AVAILABLE' ],
	[ Metadata => 'UNKNOWN_TOPIC_OR_PART' ],
	[ Metadata => '_TRANSPORT' ],
	[ ListOffsets => 'NOT_LEADER_FOR_PARTITION' ],
	[ ListOffsets => '_TRANSPORT' ],
	[ ApiVersions => '_TRANSPORT' ])
{
	my ($api, $error) = @$case;

	$mock->command("errors $api" . " $error" x 4);
	produce(200);
	$mock->command("clear $api");
	complete("$api: $error");
}

# partitions move, brokers go and come
foreach my $partition (0 .. 3) { $mock->command("leader events $partition " . (1 + $partition % 2)); }
produce(200);
complete('leaders have moved');
$mock->command("leader events $_ 2") foreach 0 .. 3;
$mock->command('down 1');
produce(200);
complete('one broker is down');
$mock->command('down 2');
ok($node->poll_query_until('postgres', "SELECT bool_and(state = 'degraded') FROM stream.views WHERE view <> 'local_v'::regclass"), 'all brokers are down: the views say so');
sql('INSERT INTO local VALUES (1), (2)');
is(sql("SELECT stream.wait('local_v', '10 s')"), 't', 'a view of a stream goes on meanwhile');
$mock->command('up 1');
$mock->command('up 2');
produce(200);
complete('brokers are back');
ok($node->poll_query_until('postgres', "SELECT bool_and(state = 'running') FROM stream.views"), 'all views run');

# an answer that nothing heals by itself: the source says which, and gets over it when it is over
$mock->command('topic-error events TOPIC_AUTHORIZATION_FAILED');
$mock->command('down 1');
$mock->command('up 1');
$mock->command('down 2');
$mock->command('up 2');
ok($node->poll_query_until('postgres', "SELECT state = 'failing' AND reason ~ 'authorization' FROM stream.views WHERE view = 'events_v'::regclass"), 'not authorized: state failing')
  or diag(sql('SELECT view, state, reason, error_message, error_detail FROM stream.views'));
$mock->command('topic-error events NO_ERROR');
produce(200);
complete('authorized again');

# a slow broker holds up its own views only
$mock->command('rtt 1 300');
$mock->command('rtt 2 300');
produce(100);
sql('INSERT INTO local VALUES (3)');
is(sql("SELECT stream.wait('local_v', '10 s')"), 't', 'a view of a stream does not wait for slow brokers');
complete('slow brokers');

is(sql('SELECT count(*) FROM stream.dead_letters'), '0', 'no dead letters');
is(sql('SELECT count(*) FROM stream.gaps'), '0', 'no gaps');
$node->stop;
my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC:|TRAP:|terminated by signal/, 'nothing crashed');
cmp_ok(() = $log =~ /\n/g, '<', 1000, 'the log is not flooded');
done_testing();
