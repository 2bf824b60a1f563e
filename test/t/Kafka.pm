# Kafka
#	A broker for a test, on free ports, with its data in the test's directory; the program sxkafka talks to it.
package Kafka;

use strict;
use warnings;

use Cwd 'abs_path';
use FindBin;
use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $programs = abs_path("$FindBin::RealBin/../kafka");
my @started;

# A port of which the two after it are free as well.
sub free_port
{
	my $port = 20000 + ($$ * 7) % 20000;

	for (;; $port += 3)
	{
		my @sockets = grep { defined } map {
			IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port + $_, Listen => 1, ReuseAddr => 1)
		} (0, 1, 2);

		return $port if @sockets == 3;
	}
}

sub new
{
	my ($class, $name) = @_;
	my $self = bless {dir => PostgreSQL::Test::Utils::tempdir . "/kafka_$name", port => free_port()}, $class;

	mkdir $self->{dir};
	push @started, $self;
	return $self;
}

# host:port, without authentication; with authentication (see test/kafka/broker).
sub servers { return '127.0.0.1:' . $_[0]->{port}; }
sub sasl_servers { return '127.0.0.1:' . ($_[0]->{port} + 1); }

sub broker
{
	my ($self, $command, @rest) = @_;
	my ($output, $error) = ('', '');

	IPC::Run::run([ "$programs/broker", $command, $self->{dir}, @rest ], '<', \undef, '>', \$output, '2>', \$error)
	  or BAIL_OUT("broker $command failed: $output$error");
}

# Arguments after the first are properties of the broker, NAME=VALUE.
sub start { my ($self, @properties) = @_; $self->broker('start', $self->{port}, @properties); }
sub stop { $_[0]->broker('stop'); }
sub kill { $_[0]->broker('kill'); }
sub restart { my ($self, @properties) = @_; $self->broker('restart', @properties); }

# Runs sxkafka with arguments; returns what it prints.
sub run
{
	my ($self, @arguments) = @_;
	return $self->feed('', @arguments);
}

# The same with something on its standard input.
sub feed
{
	my ($self, $input, @arguments) = @_;
	my ($output, $error) = ('', '');

	IPC::Run::run([ "$programs/sxkafka", '-b', $self->servers, @arguments ], '<', \$input, '>', \$output, '2>', \$error)
	  or BAIL_OUT("sxkafka @arguments failed: $output$error");
	return $output;
}

# Writes records, each a hash of fields of sxkafka produce (value, key, partition, ..) or a text, which is the value.
sub produce
{
	my ($self, $topic, $records, @options) = @_;
	my $input = '';

	foreach my $record (@$records)
	{
		my %fields = ref $record ? %$record : (value => $record);
		$input .= join("\t", map { "$_=" . ($_ =~ /^(key|value|header)$/ ? escape($fields{$_}) : $fields{$_}) } sort keys %fields) . "\n";
	}
	return $self->feed($input, 'produce', $topic, @options);
}

# Bytes as sxkafka takes them.
sub escape
{
	my ($bytes) = @_;
	$bytes =~ s/([^ -~]|\\)/sprintf('\\x%02x', ord($1))/ge;
	return $bytes;
}

# Starts a program of sxkafka in the background whose standard input stays open.
sub start_program
{
	my ($self, $input, @arguments) = @_;
	my $program = {input => $input, output => '', error => ''};

	$program->{harness} = IPC::Run::start([ "$programs/sxkafka", '-b', $self->servers, @arguments ],
		'<', \$program->{input}, '>', \$program->{output}, '2>', \$program->{error}, IPC::Run::timeout(600));
	return bless $program, 'Kafka::Program';
}

sub start_load
{
	my ($self, $topic, $records, @options) = @_;
	return $self->start_program('', 'load', $topic, $records, @options);
}

END
{
	my $code = $?;
	foreach my $self (@started)
	{
		IPC::Run::run([ "$programs/broker", 'kill', $self->{dir} ], '>', '/dev/null', '2>', '/dev/null') if -e "$self->{dir}/pid";
	}
	$? = $code;
}

package Kafka::Program;

# Waits until it has printed that so many records are acknowledged.
sub wait_for
{
	my ($self, $count) = @_;
	$self->{harness}->pump until ($self->{output} =~ /.*acknowledged (\d+)/s && $1 >= $count) || !$self->{harness}->pumpable;
}

# Waits until it prints something.
sub wait_output
{
	my ($self, $pattern) = @_;
	$self->{harness}->pump until $self->{output} =~ $pattern || !$self->{harness}->pumpable;
}

# Waits for its end; returns the number of records it was told to be written.
sub finish
{
	my ($self) = @_;
	$self->{harness}->finish;
	Test::More::diag($self->{error}) if $self->{error};
	return $self->{output} =~ /done: (\d+) acknowledged, 0 failed/ ? $1 : $self->{output};
}

1;
