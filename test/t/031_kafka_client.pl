# The client of Kafka alone, driven from SQL by the test module kafka_test, against a real broker.
#  - records: NULL and empty, headers, time stamps, one that is larger than any buffer
#  - order, starting elsewhere, stopping; nothing of an earlier start is given out
#  - questions: partitions, range, offset at a time, topics
#  - aborted and open transactions are not seen; the end moves over their markers
#  - a small queue is refilled at once and stays small
#  - records deleted, topics missing, grown, deleted and made again
#  - the broker down at the beginning and later; refused users; what is said, and what is not
#  - a record that cannot be read is not passed over
#  - slow brokers, and one of several that is away (librdkafka's mock cluster)
#  - handles are used again, queries can be cancelled, sessions end
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Kafka;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $kafka = Kafka->new('main');
$kafka->start;
my $servers = $kafka->servers;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q(
shared_preload_libraries = 'stream_ext'
fsync = off
log_statement = none
));
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION kafka_test CASCADE');

my $session;

sub new_session
{
	$session->quit if $session;
	$session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('SET search_path = kafka_test, pg_catalog');
	return;
}

# Result of a query in the session, where clients live.
sub sql
{
	return $session->query_safe($_[0]);
}

# Opens a client and returns its number.
sub client
{
	my ($topic, %args) = @_;
	my $address = $args{servers} || $servers;
	my $properties = join(',', map { "'$_'" } @{ $args{properties} || [] });
	my $queue = $args{queue_kb} || 16384;

	return sql("SELECT kafka_open('$address', '$topic', ARRAY[$properties]::text[], $queue)");
}

sub start
{
	my ($client, $partition, $offset) = @_;

	sql("SELECT kafka_start($client, $partition, $offset)");
	return;
}

# All that is there, as partition@offset=value.
sub rest
{
	my ($client) = @_;

	return sql("SELECT string_agg(concat(partition, '\@', \"offset\", '=', value), ' ' "
		  . "ORDER BY partition, \"offset\") FROM kafka_read($client)");
}

# Where a partition goes on after a poll that found nothing.
sub end_reached
{
	my ($client, $partition) = @_;

	return sql("SELECT kafka_end_reached($client, $partition)");
}

sub becomes
{
	my ($client, $trouble, $name) = @_;

	is(sql("SELECT kafka_wait_status($client, '$trouble')"), 't', $name)
	  or diag(sql("SELECT * FROM kafka_status($client)"));
	return;
}

# The next records of a partition each, as value value ..; a poll may return for other news.
sub following
{
	my ($client, $n) = @_;
	my @got;

	foreach (1 .. 600)
	{
		push @got, split /\n/, sql("SELECT value FROM kafka_poll($client, timeout_ms => 100)");
		last if @got >= $n;
	}
	return "@got";
}

sub message
{
	my ($client) = @_;

	return sql("SELECT message FROM kafka_status($client)");
}

# Polls until the end of the partition is there; polls that find nothing wait.
sub wait_end
{
	my ($client, $partition, $offset) = @_;

	foreach (1 .. 600)
	{
		return 1 if end_reached($client, $partition) == $offset;
		sql("SELECT count(*) FROM kafka_poll($client, timeout_ms => 100)");
	}
	return 0;
}

# Writes records: hashes, or values for partition 0.
sub put
{
	my ($topic, $records, @options) = @_;

	$kafka->produce($topic, [ map { ref $_ ? $_ : { partition => 0, value => $_ } } @$records ], @options);
	return unless grep { /^--transaction$/ } @options;
	# the markers come after the answer to the commit
	until (grep { $_->[1] == $_->[2] } $kafka->offsets($topic)) { }
	return;
}

new_session();

# Records.
$kafka->run('create', 'records', 1, 'max.message.bytes=10000000', 'retention.ms=-1');
put(
	'records',
	[ { value => 'first', timestamp => 1767225600123 },
	{ key => '', value => '', timestamp => 1767225600124 },
	{ key => 'tombstone', timestamp => 1767225600125 },
	{ key => 'k', value => "a\xffb", timestamp => 1767225600126,
		headers => [ [ h => 'one' ], [ n => undef ], [ e => '' ], [ h => 'two' ] ] },
	{ key => 'large', value => 'x' x 3_000_000, timestamp => 1767225600127,
		headers => [ [ l => 'y' x 100_000 ] ] },
	{ value => 'last', timestamp => 1767225600128 } ],
	'-X', 'message.max.bytes=10000000');
my $c = client('records');
start($c, 0, 0);
is(sql(qq(
	SELECT string_agg(format('%s %s %s %s %s', "offset", "timestamp" - 1767225600000,
							 coalesce('<' || key || '>', 'null'),
							 CASE WHEN length(value) > 100 THEN length(value) || ' x ' || rtrim(value, 'x')
								  ELSE coalesce('<' || value || '>', 'null') END,
							 CASE WHEN length(headers[2]) > 100
								  THEN headers[1] || ' ' || length(headers[2]) || ' ' || rtrim(headers[2], 'y')
								  ELSE coalesce(array_to_string(headers, ',', 'null'), '-') END),
					  E'\\n' ORDER BY "offset")
	FROM kafka_read($c))),
	join("\n",
		'0 123 null <first> -',
		'1 124 <> <> -',
		'2 125 <tombstone> null -',
		'3 126 <k> <\\x61\\xff\\x62> h,one,n,null,e,,h,two',
		'4 127 <large> 3000000 x  l 100000 ',
		'5 128 null <last> -'),
	'NULL, empty, bytes, headers and a large record');

# Order and places.
$kafka->run('create', 'three', 3);
put('three', [ map { { partition => $_ % 3, value => "v$_" } } 0 .. 2999 ]);
$c = client('three');
is(sql("SELECT kafka_partitions($c)"), 3, 'number of partitions');
is(sql("SELECT string_agg(r::text, ' ') FROM generate_series(0, 2) p, kafka_range($c, p) r"),
	'(0,1000) (0,1000) (0,1000)', 'ranges');
start($c, $_, 0) foreach 0 .. 2;
is(sql(qq(
	WITH r AS (SELECT *, row_number() OVER () AS n FROM kafka_read($c, max_records => 7))
	SELECT count(*), count(DISTINCT (partition, "offset")), bool_and(value = 'v' || "offset" * 3 + partition),
		   bool_and(before IS NULL OR before = "offset" - 1)
	FROM (SELECT *, lag("offset") OVER (PARTITION BY partition ORDER BY n) AS before FROM r) r)),
	'3000|3000|t|t', 'every record once, in order, by small polls');
is(sql("SELECT string_agg(concat(kafka_end_reached($c, p), ' ', kafka_known_end($c, p)), ',') "
	  . 'FROM generate_series(0, 3) p'),
	'1000 1000,1000 1000,1000 1000,-1 -1', 'the ends are known');
is(sql("SELECT count(*) FROM kafka_poll($c)"), 0, 'and there is nothing more');
start($c, 0, 0);
is(sql("SELECT count(*) FROM kafka_poll($c, 3, timeout_ms => 10000)"), 3, 'started again');
is(end_reached($c, 0), -1, 'it is not at its end then');
start($c, 0, 500);
is(sql(qq(SELECT count(*), min("offset"), max("offset"), count(DISTINCT partition) FROM kafka_read($c))),
	'500|500|999|1', 'started elsewhere, nothing of what was read ahead comes');
start($c, 0, 100);
start($c, 1, 990);
sql("SELECT count(*) FROM kafka_poll($c, 5, timeout_ms => 10000)");
sql("SELECT kafka_stop($c, 0)");
is(sql(qq(SELECT count(*) FROM kafka_read($c) WHERE partition = 0)), 0,
	'nothing comes of a partition that was stopped');
is(end_reached($c, 1), 1000, 'another goes on');
is(sql("SELECT count(*) FROM kafka_poll($c, 1000, 10, 200)"), 0, 'all was read');
start($c, 1, 0);
is(sql("SELECT count(*) BETWEEN 1 AND 10 FROM kafka_poll($c, 1000, 10, 10000)"), 't',
	'a poll is bounded by bytes');

# Times.
$c = client('records');
is(sql("SELECT string_agg(kafka_offset_at($c, 0, 1767225600000 + t)::text, ' ' ORDER BY t) "
	  . 'FROM unnest(ARRAY[0, 123, 124, 127, 128, 129, 1000000]) t'),
	'0 0 1 4 5 6 6', 'the first record at or after a time, or the end');
is(sql("SELECT string_agg(t::text, ' ' ORDER BY t) FROM kafka_topics(kafka_open('$servers', NULL)) t "
	  . "WHERE topic !~ '^__'"),
	'(records,1) (three,3)', 'all topics');

# Transactions.
$kafka->run('create', 'transactions', 1);
put('transactions', [ 'a', 'b' ], '--transaction', 'commit');
$c = client('transactions');
start($c, 0, 0);
is(rest($c), '0@0=a 0@1=b', 'a committed transaction');
ok(wait_end($c, 0, 3), 'the end is behind its marker');
put('transactions', [ 'no', 'no' ], '--transaction', 'abort');
is(sql("SELECT count(*) FROM kafka_poll($c, timeout_ms => 1000)"), 0, 'an aborted one is not seen');
ok(wait_end($c, 0, 6), 'the end moves behind it without any record');
put('transactions', [ 'no' ], '--transaction', 'abort') foreach 1 .. 3;
ok(wait_end($c, 0, 12), 'and behind more of them');
is(sql("SELECT kafka_known_end($c, 0)"), 12, 'as is known');
my $open = $kafka->start_transaction('transactions', [ 'd', 'e' ]);
put('transactions', [ 'f' ]);
is(sql("SELECT count(*) FROM kafka_poll($c, timeout_ms => 500)"), 0,
	'nothing is seen of and behind an open transaction');
is(sql("SELECT r FROM kafka_range($c, 0) r"), '(0,12)', 'the range ends before it');
is(end_reached($c, 0), 12, 'and so does the partition');
$open->commit;
is(following($c, 3), 'd e f',
	'all is seen after the commit');
ok(wait_end($c, 0, 16), 'and the end behind it');
start($c, 0, 4);
is(rest($c), '0@12=d 0@13=e 0@14=f', 'started among what was aborted');
start($c, 0, 15);
is(rest($c), '', 'started at a marker');
is(end_reached($c, 0), 16, 'which is the end');

# A queue much smaller than what there is. Without kicks it would take minutes.
$kafka->run('create', 'backlog', 2);
is($kafka->start_load('backlog', 1_000_000)->finish, 1_000_000, 'a backlog');
new_session();
$c = client('backlog', queue_kb => 256);
start($c, $_, 0) foreach 0 .. 1;
my ($got, $partitions) = split /\|/,
  sql("SELECT CASE holes WHEN 0 THEN nrecords END, partitions FROM kafka_count($c, 50000, 20000)");
cmp_ok($got, '>=', 50_000, 'some of it');
is($partitions, 2, 'no partition is left behind');
is(sql("SELECT nrecords, holes FROM kafka_count($c, 1000000 - $got, 30000)"), (1_000_000 - $got) . '|0',
	'a small queue is refilled when it is empty');
sql("SELECT kafka_close($c)");

# A slower reader fills the queue, which must not take in the topic.
my $memory = q(SELECT substring(pg_read_file('/proc/self/status') from 'VmHWM:\s*(\d+)')::int / 1024);
my $before = sql($memory);
$c = client('backlog', queue_kb => 4096);
start($c, $_, 0) foreach 0 .. 1;
is(sql("SELECT nrecords, holes FROM kafka_count($c, 1000000, 60000, 16)"), '1000000|0',
	'a slow reader');
cmp_ok(sql($memory) - $before, '<', 50, 'takes little memory');
sql("SELECT kafka_close($c)");

# Wake-ups.
$c = client('three');
start($c, 0, 1000);
is(rest($c), '', 'at the end');
sql('SELECT kafka_wait_event(0)');
sql("SELECT count(*) FROM kafka_poll($c)");
is(sql('SELECT kafka_wait_event(100)'), 'f', 'no event while nothing comes');
put('three', [ 'x', 'y' ]);
is(sql('SELECT kafka_wait_event(30000)'), 't', 'an event when something has come');
is(sql("SELECT count(*) > 0 FROM kafka_poll($c, timeout_ms => 10000)"), 't', 'which is there');
put('three', [ 'x' ]) foreach 1 .. 3;
sql("SELECT count(*) FROM kafka_poll($c, 1, timeout_ms => 10000)") while sql("SELECT kafka_known_end($c, 0)") < 1005;
sql("SELECT count(*) FROM kafka_poll($c, 1)");
is(sql('SELECT kafka_wait_event(30000)'), 't', 'an event as well for what a poll has left');

# Handles are kept for a while.
new_session();
my $threads = q(SELECT count(*) FROM pg_ls_dir('/proc/self/task'));
is(sql($threads), 1, 'no thread without a client');
$c = client('three');
is(sql("SELECT kafka_partitions($c)"), 3, 'connected');
my $one = sql($threads);
cmp_ok($one, '>', 1, 'a client has threads');
start($c, 0, 0);
sql("SELECT count(*) FROM kafka_poll($c, 10, timeout_ms => 10000)");
sql("SELECT kafka_close($c)");
is(sql($threads), $one, 'they stay after it is closed');
$c = client('three');
is(sql($threads), $one, 'and are used again for an equal one');
is(sql("SELECT trouble FROM kafka_status($c)"), 'ok', 'which is connected');
is(sql("SELECT count(*) FROM kafka_poll($c, timeout_ms => 200)"), 0, 'and reads nothing yet');
start($c, 1, 998);
is(rest($c), '1@998=v2995 1@999=v2998', 'and reads what it is told to');
my $other = client('three', properties => [ 'client.id', 'other' ]);
cmp_ok(sql($threads), '>', $one, 'one with other options has its own');
sql("SELECT kafka_close($_)") foreach $c, $other;

# Options.
my $err;
(undef, undef, $err) = $node->psql('postgres',
	"SELECT kafka_test.kafka_open('$servers', 'three', '{security.protocol,hunter2}')");
like($err, qr/librdkafka refuses the value of property "security.protocol"/, 'a wrong value');
unlike($err, qr/hunter2/, 'which is not shown');
(undef, undef, $err) = $node->psql('postgres',
	"SELECT kafka_test.kafka_open('$servers', 'three', '{no.such.property,hunter2}')");
like($err, qr/librdkafka has no property "no.such.property"/, 'an unknown property');
unlike($err, qr/hunter2/, 'whose value is not shown');
(undef, undef, $err) = $node->psql('postgres',
	"SELECT kafka_test.kafka_open('$servers', 'three', '{security.protocol,ssl,ssl.key.pem,hunter2}')");
like($err, qr/could not make a Kafka client/, 'a key that is none');
unlike($err, qr/hunter2/, 'and is not shown');
$c = client('transactions',
	properties => [ 'isolation.level', 'read_uncommitted', 'auto.offset.reset', 'earliest' ]);
start($c, 0, 0);
is(rest($c), '0@0=a 0@1=b 0@12=d 0@13=e 0@14=f', 'what results depend on cannot be chosen');
start($c, 0, 100);
becomes($c, 'out of range', 'nor what happens outside of the range');
sql("SELECT kafka_close($c)");

# Records that are gone, or not there yet.
$kafka->run('create', 'range', 1);
put('range', [ map { "v$_" } 0 .. 99 ]);
$c = client('range');
start($c, 0, 95);
is(rest($c), '0@95=v95 0@96=v96 0@97=v97 0@98=v98 0@99=v99', 'the last of a topic');
$kafka->run('truncate', 'range', 0, 50);
is(sql("SELECT r FROM kafka_range($c, 0) r"), '(50,100)', 'the first are deleted');
is(sql("SELECT trouble FROM kafka_status($c)"), 'ok', 'which is nothing to a reader behind them');
start($c, 0, 20);
becomes($c, 'out of range', 'an offset that is gone');
is(sql("SELECT partition, \"offset\", message FROM kafka_status($c)"),
	'0|20|offset 20 of partition 0 is out of range', 'is named');
is(sql("SELECT count(*) FROM kafka_poll($c, timeout_ms => 300)"), 0, 'and nothing is read');
is(sql("SELECT kafka_partitions($c)"), 1, 'a question has an answer');
is(sql("SELECT trouble FROM kafka_status($c)"), 'out of range', 'which changes nothing');
start($c, 0, 500);
start($c, 0, 98);
is(rest($c), '0@98=v98 0@99=v99', 'started right, it reads again');
is(sql("SELECT trouble FROM kafka_status($c)"), 'ok', 'and all is well');
start($c, 0, 101);
becomes($c, 'out of range', 'an offset that is not there yet');
start($c, 0, 98);
$kafka->run('truncate', 'range', 0, 'end');
is(sql("SELECT kafka_wait_status($c, 'out of range', 10000) OR kafka_end_reached($c, 0) = 100"), 't',
	'records deleted before they are read are missed, or were read');
sql("SELECT kafka_close($c)");

# Topics that are not there, grow, go and come.
$c = client('later');
start($c, 0, 0);
becomes($c, 'failing', 'a topic that does not exist');
is(message($c), 'the topic does not exist', 'is called that');
is(sql("SELECT kafka_partitions($c, 5000) IS NULL"), 't', 'and has no partitions');
$kafka->run('create', 'later', 1);
put('later', [ 'a', 'b' ]);
is(following($c, 2), 'a b',
	'it is read when it is there');
becomes($c, 'ok', 'and all is well');
start($c, 1, 0);
is(sql("SELECT kafka_partitions($c)"), 1, 'it has one partition');
becomes($c, 'failing', 'a partition that does not exist');
is(message($c), 'partition 1 does not exist', 'is named');
put('later', [ 'c' ]);
is(following($c, 1), 'c',
	'the other is read all the same');
$kafka->run('grow', 'later', 2);
put('later', [ { partition => 1, value => 'new' } ]);
is(sql("SELECT kafka_partitions($c)"), 2, 'the topic has grown');
is(following($c, 1), 'new', 'the new partition is read');
is(sql("SELECT trouble FROM kafka_status($c)"), 'ok', 'and all is well');
sql("SELECT kafka_stop($c, 1)");
$kafka->run('delete', 'later');
becomes($c, 'failing', 'a topic is deleted while it is read');
$kafka->run('create', 'later', 1);
put('later', [ 'x' ]);
becomes($c, 'out of range', 'made again it is shorter');
is(sql("SELECT \"offset\" FROM kafka_status($c)"), 3, 'than it was read');
start($c, 0, 0);
is(rest($c), '0@0=x', 'it can be read from the beginning');
$kafka->run('create', 'empty', 1);
$other = client('empty');
start($other, 0, 0);
is(rest($other), '', 'an empty topic');
$kafka->run('delete', 'empty');
becomes($other, 'failing', 'is deleted');
$kafka->run('create', 'empty', 1);
put('empty', [ 'x', 'y' ]);
is(following($other, 2), 'x y',
	'made again it is read without help');
becomes($other, 'ok', 'and all is well');
sql("SELECT kafka_close($_)") foreach $c, $other;

# Users.
my @sasl = ('security.protocol', 'sasl_plaintext', 'sasl.mechanism', 'PLAIN', 'sasl.username');
$c = client('three', servers => $kafka->sasl_servers,
	properties => [ @sasl, 'reader', 'sasl.password', 'wrong-secret' ]);
is(sql("SELECT kafka_partitions($c, 600000) IS NULL"), 't', 'a wrong password');
is(sql("SELECT trouble FROM kafka_status($c)"), 'failing', 'is a trouble');
like(message($c), qr/Authentication failed/, 'that says so');
start($c, 0, 0);
is(sql("SELECT kafka_wait_status($c, 'connecting', 3000)"), 'f', 'and stays so while it is tried again');
$other = client('three', servers => $kafka->sasl_servers,
	properties => [ @sasl, 'reader', 'sasl.password', 'reader-secret' ]);
is(sql("SELECT kafka_partitions($other)"), 3, 'the right one');
sql("SELECT kafka_close($_)") foreach $c, $other;
$c = client('three', servers => $kafka->sasl_servers,
	properties => [ @sasl, 'stranger', 'sasl.password', 'stranger-secret' ]);
is(sql("SELECT kafka_partitions($c, 600000) IS NULL"), 't', 'a user without rights');
like(message($c), qr/authorization failed/, 'is told so');
sql("SELECT kafka_close($c)");
$c = client('three', servers => $kafka->sasl_servers);
is(sql("SELECT kafka_partitions($c, 2000) IS NULL"), 't', 'no user where one is needed');
like(message($c), qr/Broken pipe|Disconnected|security.protocol/, 'is told something');
sql("SELECT kafka_close($c)");
my $log = slurp_file($node->logfile);
like($log, qr/Kafka client of topic "three": .*Authentication failed/, 'the server log says why');
unlike($log, qr/(wrong|reader|stranger)-secret/, 'without passwords');

# A record that cannot be read: one bit of it is changed where the broker keeps it.
$kafka->run('create', 'damaged', 1);
put('damaged', [ $_ ]) foreach 'before', 'damage', 'behind';
my ($file) = glob("$kafka->{dir}/data/damaged-0/*.log");
sub change
{
	my ($from, $to) = @_;
	my $bytes = slurp_file($file);

	open my $handle, '+<:raw', $file or die "$file: $!";
	seek $handle, index($bytes, $from), 0;
	print $handle $to;
	close $handle or die "$file: $!";
	return;
}
change('damage', 'demage');
$c = client('damaged');
start($c, 0, 0);
is(following($c, 1), 'before',
	'what is before a damaged record is read');
becomes($c, 'failing', 'then comes a trouble');
like(message($c), qr/^partition 0 cannot be read on from offset 1: /, 'that says where');
is(sql("SELECT count(*) FROM kafka_poll($c, timeout_ms => 7000)"), 0, 'it is not passed over');
is(sql("SELECT trouble FROM kafka_status($c)"), 'failing', 'however long one waits');
change('demage', 'damage');
is(rest($c), '0@1=damage 0@2=behind', 'repaired it is read without help');
is(sql("SELECT trouble FROM kafka_status($c)"), 'ok', 'and all is well');
sql("SELECT kafka_close($c)");

# The broker is killed in the middle of a backlog, and while another client is at its end.
my $end = client('three');
start($end, 1, 1000);
is(rest($end), '', 'one client at the end');
$c = client('backlog');
start($c, $_, 0) foreach 0 .. 1;
my $read = sql("SELECT CASE holes WHEN 0 THEN nrecords END FROM kafka_count($c, 50000, 60000)");
cmp_ok($read, '>=', 50_000, 'another in the middle');
$kafka->kill;
$read += sql("SELECT nrecords FROM kafka_count($c, 950000, 5000)");
cmp_ok($read, '<', 1_000_000, 'the broker is gone');
becomes($_, 'degraded', 'which both notice') foreach $c, $end;
like(message($c), qr/refused/, 'and say');
is(sql("SELECT kafka_partitions($c, 300) IS NULL"), 't', 'questions have no answers');
is(sql("SELECT kafka_range($c, 0, 300) IS NULL"), 't', 'nor this one');

# Opened while it is down; a query that waits for it can be cancelled.
my $down = client('three', properties => [ 'client.id', 'down' ]);
start($down, 0, 990);
sql("SELECT count(*) FROM kafka_poll($down, timeout_ms => 1000)") until message($down);
becomes($down, 'connecting', 'a client of a broker that is down');
like(message($down), qr/refused/, 'says why');
my $pid = sql('SELECT pg_backend_pid()');
foreach my $query ("kafka_partitions($down, 3600000)", "kafka_range($down, 0, 3600000)",
	"kafka_count($down, 1, 3600000)")
{
	$session->query_until(qr/^waiting$/m, "\\echo waiting\nSELECT * FROM $query;\n");
	$node->poll_query_until('postgres',
		"SELECT state = 'active' AND query ~ '3600000' FROM pg_stat_activity WHERE pid = $pid")
	  or die 'the query does not run';
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	$session->query('');
	like($session->{stderr}, qr/canceling statement due to user request/, "$query is cancelled");
	$session->{stderr} = '';
}

# It comes back.
$kafka->start;
is(sql("SELECT nrecords, holes FROM kafka_count($c, 1000000 - $read, 60000)"), (1_000_000 - $read) . '|0',
	'the rest of the backlog comes, each record once');
becomes($_, 'ok', 'all is well again') foreach $c, $end, $down;
is(sql("SELECT count(*) FROM kafka_read($end)"), 0, 'at the end nothing has come');
is(end_reached($end, 1), 1000, 'and it is still the end');
$log = slurp_file($node->logfile);
my @lines = $log =~ /LOG:  Kafka client of topic "backlog": .*refused/g;
cmp_ok(scalar @lines, '<=', 2, 'few lines in the log');
sql("SELECT kafka_close($_)") foreach $c, $end, $down;

# A slow broker, and three of which one is away.
my $mock = Kafka->start_mock('-n', 3, 'slow:1', 'parts:3');
$kafka->run('-b', $mock->servers, 'offsets', 'parts');
$mock->command("leader parts $_ " . ($_ + 1)) foreach 0 .. 2;
$mock->command("rtt $_ 400") foreach 1 .. 3;
$c = client('slow', servers => $mock->servers);
is(sql("SELECT kafka_partitions($c, 60000)"), 1, 'an answer that takes its time');
is(sql("SELECT r FROM kafka_range($c, 0, 60000) r"), '(0,0)', 'and others');
$mock->command("rtt $_ 0") foreach 1 .. 3;
sql("SELECT kafka_close($c)");
$c = client('parts', servers => $mock->servers);
start($c, $_, 0) foreach 0 .. 2;
is(rest($c), '', 'partitions at three brokers');
$mock->command('down 2');
becomes($c, 'degraded', 'one of them goes away');
put('parts', [ 'x', { partition => 2, value => 'y' } ], '-b', $mock->servers);
is(sql("SELECT nrecords FROM kafka_count($c, 2, 30000)"), 2, 'the others are read');
is(sql("SELECT kafka_wait_status($c, 'ok', 2000)"), 'f', 'which does not make it well');
$mock->command('up 2');
becomes($c, 'ok', 'its return does');
put('parts', [ { partition => 1, value => 'z' } ], '-b', $mock->servers);
is(sql("SELECT nrecords FROM kafka_count($c, 1, 30000)"), 1, 'and it is read');

# Sessions end, also with clients open.
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)"),
	'a session with clients ends');
$session->{run}->finish;
undef $session;
$node->stop;
$log = slurp_file($node->logfile);
unlike($log, qr/terminated by signal|PANIC/, 'nothing has crashed');
unlike($log, qr/does not end/, 'and all handles have ended');
done_testing();
