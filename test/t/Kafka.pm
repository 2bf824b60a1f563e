# Kafka: brokers, topics and records for tests in Perl.
#
#   my $kafka = Kafka->new('main');               # a broker on free ports, killed when the test ends
#   $kafka->start;
#   $kafka->run('create', 't', 3, 'cleanup.policy=compact');      # any command of sxkafka
#   $kafka->produce('t', [ 'value', { key => 'k', headers => [ [ h => 'x' ] ] } ]);
#   $kafka->consume('t');                         # hashes like those, with offset and timestamp
#   my $load = $kafka->start_load('t', 100_000, '--rate', 10_000);
#   $load->wait_for(20_000);                      # acknowledged so far
#   $kafka->restart;
#   is($load->finish, 100_000, 'all are acknowledged');
#   my $open = $kafka->start_transaction('t', ['value']);         # flushed, not ended
#   $open->commit;                                # or ->abort, ->leave
#   my $mock = Kafka->start_mock('t:4');          # librdkafka's mock cluster in a process of its own
#   $mock->command('errors Fetch _TRANSPORT');
#
# What fails dies. Nothing here sleeps: what has to be waited for ends or prints a line. A start takes
# about two seconds (four after a kill), so one broker a file is enough. See test/kafka/broker for
# what listens where and test/kafka/sxkafka.c for its commands and options.
#
# The files of a broker are in tmp_check, and stay there if the test fails.
package Kafka;

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(basename dirname);
use File::Path qw(rmtree);
use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $programs = abs_path(dirname(__FILE__) . '/../kafka');
my @brokers;

# The first of three neighbouring ports that are free, below those that the system hands out itself.
sub free_ports
{
	foreach (1 .. 100)
	{
		my $port = 12000 + 3 * int(rand(6000));
		my @sockets = grep { defined } map {
			IO::Socket::INET->new(
				LocalAddr => '127.0.0.1',
				LocalPort => $port + $_,
				Listen => 1,
				ReuseAddr => 1)
		} (0 .. 2);

		return $port if @sockets == 3;
	}
	die 'no free ports';
}

sub new
{
	my ($class, $name) = @_;
	my $dir = "$PostgreSQL::Test::Utils::tmp_check/kafka_" . basename($0, '.pl') . "_$name";
	my $self = bless { dir => $dir, port => free_ports() }, $class;

	die "$programs/sxkafka is missing; make -C test/kafka builds it" unless -x "$programs/sxkafka";
	rmtree($dir);
	push @brokers, $self;
	return $self;
}

# Where clients connect: without authentication, and with SASL PLAIN (users and passwords are in
# test/kafka/broker).
sub servers { my ($self) = @_; return "127.0.0.1:$self->{port}"; }
sub sasl_servers { my ($self) = @_; return '127.0.0.1:' . ($self->{port} + 1); }

# Runs a program to its end with something on its standard input. Returns its standard output.
sub run_program
{
	my ($input, @command) = @_;
	my ($output, $error) = ('', '');

	IPC::Run::run(\@command, '<', \$input, '>', \$output, '2>', \$error, IPC::Run::timeout(600))
	  or die "@command failed: $error$output";
	return $output;
}

sub broker
{
	my ($self, $command, @args) = @_;

	run_program('', "$programs/broker", $command, $self->{dir}, @args);
	return;
}

# Arguments are properties of the broker, NAME=VALUE, for this start and later ones.
sub start { my ($self, @properties) = @_; return $self->broker('start', $self->{port}, @properties); }
sub restart { my ($self, @properties) = @_; return $self->broker('restart', @properties); }
sub stop { my ($self) = @_; return $self->broker('stop'); }
sub kill { my ($self) = @_; return $self->broker('kill'); }

sub sxkafka
{
	my ($self, @args) = @_;

	return ("$programs/sxkafka", '-b', $self->servers, @args);
}

# Runs sxkafka, whose arguments may begin with options, also -b for other servers. Returns what it
# prints.
sub run
{
	my ($self, @args) = @_;

	return run_program('', $self->sxkafka(@args));
}

# One [ first, stable, end ] a partition.
sub offsets
{
	my ($self, $topic) = @_;

	return map { [ (split / /)[ 1 .. 3 ] ] } split /\n/, $self->run('offsets', $topic);
}

# Text goes out as UTF-8, bytes as they are.
sub escape
{
	my ($bytes) = @_;

	utf8::encode($bytes) if utf8::is_utf8($bytes);
	return $bytes =~ s/([^ -\[\]-~])/sprintf('\\x%02x', ord($1))/egr;
}

sub unescape
{
	my ($text) = @_;
	my %short = (t => "\t", n => "\n", r => "\r", '\\' => '\\');

	return $text =~ s/\\(?:x([0-9a-f]{2})|(.))/defined $1 ? chr(hex $1) : $short{$2}/egr;
}

# Records as lines for sxkafka. A record is a hash, or its value alone. Fields that are undef or
# missing: key and value are NULL, the others up to Kafka.
sub lines
{
	my ($records) = @_;
	my $lines = '';

	foreach my $record (map { ref $_ ? $_ : { value => $_ } } @$records)
	{
		my @fields;

		foreach my $name ('partition', 'timestamp', 'key', 'value')
		{
			push @fields, "$name=" . escape($record->{$name}) if defined $record->{$name};
		}
		foreach my $header (@{ $record->{headers} || [] })
		{
			my ($name, $value) = @$header;

			push @fields,
			  'header=' . escape($name) =~ s/:/\\x3a/gr . (defined $value ? ':' . escape($value) : '');
		}
		$lines .= join("\t", @fields) . "\n";
	}
	return $lines;
}

# Writes records, with options of "sxkafka produce".
sub produce
{
	my ($self, $topic, $records, @options) = @_;

	return run_program(lines($records), $self->sxkafka('produce', $topic, @options));
}

# The records that are there, in the order of partition and offset. Takes options of "sxkafka
# consume".
sub consume
{
	my ($self, $topic, @options) = @_;
	my @records;

	foreach my $line (split /\n/, $self->run('consume', $topic, @options))
	{
		my %record = (key => undef, value => undef, headers => []);

		foreach my $field (split /\t/, $line)
		{
			my ($name, $text) = split /=/, $field, 2;

			if ($name eq 'header')
			{
				my ($header, $value) = split /:/, $text, 2;

				push @{ $record{headers} },
				  [ unescape($header), defined $value ? unescape($value) : undef ];
			}
			else
			{
				$record{$name} = unescape($text);
			}
		}
		push @records, \%record;
	}
	return @records;
}

# Starts a command of sxkafka in the background, whose standard input stays open.
sub start_program
{
	my ($self, $input, @args) = @_;

	return Kafka::Program->new($input, $self->sxkafka(@args));
}

# Starts "sxkafka load" in the background, with its options. RECORDS may be 0: until ->stop.
sub start_load
{
	my ($self, $topic, $records, @options) = @_;

	return $self->start_program('', 'load', $topic, $records, '--progress', 1000, @options);
}

# Begins a transaction and writes records, which have arrived when this returns. Takes options of
# "sxkafka produce".
sub start_transaction
{
	my ($self, $topic, $records, @options) = @_;
	my $program =
	  $self->start_program('', 'produce', $topic, '--transaction', 'open', @options);

	$program->ask(lines($records) . "!flush\n", qr/^flushed /m);
	return $program;
}

# Starts a mock cluster with topics TOPIC:PARTITIONS.
sub start_mock
{
	my ($class, @args) = @_;
	my $program = Kafka::Program->new('', "$programs/mock", @args);

	$program->{servers} = $program->ask('', qr/^(\S+)\n/);
	return $program;
}

END
{
	my $status = $?;

	foreach my $broker (@brokers)
	{
		eval { $broker->kill };
		diag($@) if $@;
		rmtree($broker->{dir}) if $status == 0 && Test::More->builder->is_passing;
	}
	$? = $status;
}

# A program in the background that is asked on standard input and answers on standard output. It ends
# with its object at the latest.
package Kafka::Program;

use strict;
use warnings;

sub new
{
	my ($class, $input, @command) = @_;
	my $self = bless {
		name => "@command",
		input => $input,
		output => '',
		error => '',
		answered => 0 }, $class;

	$self->{timer} = IPC::Run::timeout(600);
	$self->{harness} = IPC::Run::start(\@command, '<', \$self->{input}, '>', \$self->{output}, '2>',
		\$self->{error}, $self->{timer});
	return $self;
}

# Waits until what it has printed from a position on matches. Returns the first group of the pattern.
sub await
{
	my ($self, $position, $pattern) = @_;

	$self->{timer}->start;
	for (;;)
	{
		if (substr($self->{output}, $position) =~ $pattern)
		{
			$self->{answered} = $position + $+[0];
			return $1;
		}
		last unless $self->{harness}->pumpable;
		$self->{harness}->pump;
	}
	die "$self->{name} has ended: $self->{error}$self->{output}";
}

# Waits until all that it has printed matches.
sub wait_output
{
	my ($self, $pattern) = @_;

	return $self->await(0, $pattern);
}

# Writes to its standard input and waits until what it prints from then on matches. Returns the first
# group of the pattern.
sub ask
{
	my ($self, $text, $pattern) = @_;

	$self->{input} .= $text;
	return $self->await($self->{answered}, $pattern);
}

# Of load: waits until so many records are acknowledged, counted from its start.
sub wait_for
{
	my ($self, $count) = @_;
	my $acknowledged = 0;

	while ($acknowledged < $count)
	{
		$acknowledged = $self->ask('', qr/^(?:acknowledged|done:) (\d+)\b.*\n/m);
	}
	return;
}

# Of load: lets it end early, in good order. Returns how many records were acknowledged.
sub stop
{
	my ($self) = @_;

	$self->{harness}->signal('TERM');
	return $self->finish;
}

# Of a transaction.
sub commit
{
	my ($self) = @_;

	$self->ask("!commit\n", qr/^committed$/m);
	return $self->finish;
}

sub abort
{
	my ($self) = @_;

	$self->ask("!abort\n", qr/^aborted$/m);
	return $self->finish;
}

# Ends the producer and leaves the transaction open, until the broker's timeout for it.
sub leave { my ($self) = @_; return $self->finish; }

# Of a mock cluster: where clients connect, and a command.
sub servers { my ($self) = @_; return $self->{servers}; }

sub command
{
	my ($self, $command) = @_;
	my $answer = $self->ask("$command\n", qr/^(ok|error: .*)\n/m);

	die "mock: $command: $answer" if $answer ne 'ok';
	return;
}

# Waits for the end, which must be a good one. Of load returns how many records were acknowledged.
sub finish
{
	my ($self) = @_;

	$self->{timer}->start;
	$self->{harness}->finish;
	die "$self->{name} failed: $self->{error}$self->{output}" if $self->{harness}->full_result;
	return $self->{output} =~ /^done: (\d+) acknowledged, 0 failed/m ? $1 : undef;
}

sub DESTROY
{
	my ($self) = @_;

	local $?;
	$self->{harness}->kill_kill(grace => 5) if $self->{harness} && $self->{harness}->pumpable;
	return;
}

1;
