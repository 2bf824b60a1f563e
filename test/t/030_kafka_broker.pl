# The Kafka of the tests itself, without PostgreSQL: what later tests take for granted.
#  - topics are made, listed, grown, truncated and dropped
#  - records keep NULL, empty and text 'null' apart, any bytes, headers and time stamps
#  - aborted and open transactions are not seen by read_committed, and are there for others
#  - compaction runs; a user with a wrong password or without rights is turned away
#  - load over three restarts of the broker, one of them a kill, loses and doubles nothing
#  - the mock cluster gives the errors that it is told to give
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Kafka;
use PostgreSQL::Test::Utils;
use Test::More;

my $kafka = Kafka->new('main');
$kafka->start;

# Fields of records, NULL shown as such.
sub show
{
	my ($fields, @records) = @_;

	return join("\n",
		map { my $r = $_; join('|', map { defined $r->{$_} ? "<$r->{$_}>" : 'NULL' } @$fields) }
		  @records);
}

# Runs a command that has to fail and matches its message.
sub fails_like
{
	my ($pattern, $name, @args) = @_;

	eval { $kafka->run(@args) };
	like($@, $pattern, $name);
	return;
}

# Topics.
$kafka->run('create', 'topic', 2);
is($kafka->run('list'), "topic 2\n", 'a topic is there');
fails_like(qr/already exists/, 'it cannot be made twice', 'create', 'topic', 1);
$kafka->run('grow', 'topic', 3);
is($kafka->run('list'), "topic 3\n", 'it grows');
is_deeply([ $kafka->offsets('topic') ], [ [ 0, 0, 0 ], [ 0, 0, 0 ], [ 0, 0, 0 ] ], 'and is empty');
$kafka->run('delete', 'topic');
is($kafka->run('list'), '', 'it is dropped');
fails_like(qr/"topic" does not exist/, 'and not made by use', 'consume', 'topic');

# Records.
my $bytes = join('', map { chr } 0 .. 255);
$kafka->run('create', 'records', 1);
$kafka->produce('records', [
	{ key => undef, value => 'v', timestamp => 1767225600123 },
	{ key => '', value => '' },
	{ key => 'null', value => 'null' },
	{ key => 'tombstone', value => undef },
	{ partition => 0 },
	{ key => $bytes, value => $bytes },
	{ value => 'h', headers => [ [ a => '1' ], [ a => undef ], [ '' => '' ], [ "b:\n" => $bytes ] ] } ]);
my @records = $kafka->consume('records');
is(show([ 'offset', 'key', 'value' ], @records[ 0 .. 4 ]), <<'END' =~ s/\n\z//r, 'NULL, empty and null');
<0>|NULL|<v>
<1>|<>|<>
<2>|<null>|<null>
<3>|<tombstone>|NULL
<4>|NULL|NULL
END
is($records[0]{timestamp}, 1767225600123, 'a time stamp');
ok($records[5]{key} eq $bytes && $records[5]{value} eq $bytes, 'all bytes in key and value');
is_deeply(
	$records[6]{headers},
	[ [ a => '1' ], [ a => undef ], [ '' => '' ], [ "b:\n" => $bytes ] ],
	'headers: the same name twice, NULL, empty, all bytes');
is(scalar @records, 7, 'and no more');
$kafka->run('truncate', 'records', 0, 3);
is_deeply([ $kafka->offsets('records') ], [ [ 3, 7, 7 ] ], 'truncated');
is(show(['offset'], $kafka->consume('records')), "<3>\n<4>\n<5>\n<6>", 'what is left');

# Transactions.
$kafka->run('create', 'transactions', 1);
$kafka->produce('transactions', ['plain']);
$kafka->produce('transactions', [ 'aborted 1', 'aborted 2' ], '--transaction', 'abort');
$kafka->produce('transactions', ['committed'], '--transaction', 'commit');
my $open = $kafka->start_transaction('transactions', ['open']);
$kafka->produce('transactions', ['after']);
is( show([ 'offset', 'value' ], $kafka->consume('transactions')),
	"<0>|<plain>\n<4>|<committed>",
	'read_committed sees nothing aborted and nothing from an open transaction on');
is( show([ 'offset', 'value' ], $kafka->consume('transactions', '--uncommitted')),
	"<0>|<plain>\n<1>|<aborted 1>\n<2>|<aborted 2>\n<4>|<committed>\n<6>|<open>\n<7>|<after>",
	'all of it is there');
is_deeply([ $kafka->offsets('transactions') ], [ [ 0, 6, 8 ] ], 'the stable offset is the open one');
$open->commit;
is( show(['value'], $kafka->consume('transactions', '--from', 5)), "<open>\n<after>", 'committed');
$open = $kafka->start_transaction('transactions', ['open']);
$open->abort;
is_deeply([ $kafka->offsets('transactions') ], [ [ 0, 11, 11 ] ],
	'a control record is at the end');
is(show(['value'], $kafka->consume('transactions', '--from', 9)), '', 'aborted');
$open = $kafka->start_transaction('transactions', ['left'], '-X', 'transaction.timeout.ms=60000');
$open->leave;
is_deeply([ $kafka->offsets('transactions') ], [ [ 0, 11, 12 ] ], 'a producer is gone, its transaction is not');
# (whoever begins with the same id ends it)
$kafka->produce('transactions', ['next'], '--transaction', 'commit');
is(show(['value'], $kafka->consume('transactions', '--from', 9)), '<next>', 'its successor aborts it');

# Compaction. The active segment is left alone, so every record gets one of its own.
$kafka->run('create', 'compacted', 1, 'cleanup.policy=compact', 'segment.ms=1',
	'min.cleanable.dirty.ratio=0.01', 'max.compaction.lag.ms=1');
my $count = 0;
foreach my $round (1 .. 200)
{
	$kafka->produce('compacted', [ { key => 'a', value => $round } ]);
	$count = () = $kafka->consume('compacted');
	last if $count < $round;
}
cmp_ok($count, '<', 200, 'compaction leaves gaps in the offsets');
my ($last) = reverse $kafka->consume('compacted');
cmp_ok($last->{offset}, '>=', $count, 'and keeps the last record');

# Who may do what.
my @sasl = (
	'-b', $kafka->sasl_servers,
	'-X', 'security.protocol=SASL_PLAINTEXT', '-X', 'sasl.mechanism=PLAIN');
is( $kafka->run(@sasl, '-X', 'sasl.username=reader', '-X', 'sasl.password=reader-secret', 'consume', 'transactions', '--count'),
	"0 5\n", 'a user with a password reads');
fails_like(
	qr/"transactions" does not exist/, 'one without rights does not', @sasl,
	'-X', 'sasl.username=stranger', '-X', 'sasl.password=stranger-secret', 'consume', 'transactions');
fails_like(
	qr/authentication failed/, 'one with a wrong password does not', @sasl,
	'-X', 'sasl.username=reader', '-X', 'sasl.password=stranger-secret', 'consume', 'transactions');

# Load over restarts, by an idempotent producer and in transactions, of which some are aborted.
$kafka->run('create', 'idempotent', 2);
$kafka->run('create', 'transactional', 2);
my $total = 60_000;
my @loads = (
	$kafka->start_load('idempotent', $total, '--rate', 6000),
	$kafka->start_load('transactional', $total, '--rate', 6000, '--transactional-id', 'load', '--aborted', '0.2'));
foreach my $n (1 .. 3)
{
	$_->wait_for($n * 12_000) foreach @loads;
	if ($n == 2)
	{
		$kafka->kill;
		$kafka->start;
	}
	else
	{
		$kafka->restart;
	}
}
foreach my $topic ('idempotent', 'transactional')
{
	is((shift @loads)->finish, $total, "$topic: all records are acknowledged");

	my (%seen, $records, $order);
	my %last = (0 => 0, 1 => 0);
	foreach my $record ($kafka->consume($topic))
	{
		my ($id) = $record->{value} =~ /^\{"id":(-?\d+),/;
		$seen{$id}++;
		$records++;
		$order++ if $id <= $last{ $record->{partition} };
		$last{ $record->{partition} } = $id;
	}
	is($records, $total, "$topic: as many are there");
	is(scalar(grep { $_ >= 1 && $_ <= $total } keys %seen), $total, "$topic: each id once");
	is($order, undef, "$topic: in the order of their ids");
}
my $extra = () = $kafka->consume('transactional', '--uncommitted');
cmp_ok($extra, '>', $total, 'transactional: there are aborted records');

# What load is told to stop ends in good order.
$kafka->run('create', 'stopped', 1);
my $load = $kafka->start_load('stopped', 0, '--rate', 2000);
$load->wait_for(1000);
my $acknowledged = $load->stop;
is_deeply([ $kafka->offsets('stopped') ], [ [ 0, $acknowledged, $acknowledged ] ],
	'load that is stopped has written what it says');

# The mock cluster.
my $mock = Kafka->start_mock('m:2');
is($kafka->run('-b', $mock->servers, 'list'), "m 2\n", 'mock: topics');
is( $kafka->run('-b', $mock->servers, 'load', 'm', 100) =~ s/,.*//sr,
	'done: 100 acknowledged', 'mock: records are written');
$mock->command('topic-error m TOPIC_AUTHORIZATION_FAILED');
fails_like(
	qr/Unknown partition/, 'mock: an error that was ordered',
	'-b', $mock->servers, 'consume', 'm');
eval { $mock->command('errors Fetch NO_SUCH_ERROR') };
like($@, qr/unknown error name/, 'mock: a wrong command is refused');
$mock->finish;

done_testing();
