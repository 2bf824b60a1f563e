# Queries.pm
#	Random queries of the kind that continuous views accept: one stream; filter and projection,
#	DISTINCT, or GROUP BY with any aggregates, expressions over them, and HAVING.
#
#	Every query is a hash: sql, and columns, a list of comparison modes in the order of the select
#	list (named c1, c2, ..):
#	  exact   the text must be the same
#	  equal   equal by the type's own operator
#	  approx  floating point, where the order of addition shows in the last digits
#
#	Aggregates come from pg_aggregate. They are dealt from a shuffled pack, so that each is used
#	before one is used again; unused() tells which of them never were.
package Oracle::Queries;

use strict;
use warnings;

use List::Util qw(shuffle);
use Oracle::Types;

*pick    = \&Oracle::Types::pick;
*between = \&Oracle::Types::between;

# Their value depends on the order of rows.
my %in_order = map { $_ => 1 } qw(array_agg string_agg json_agg jsonb_agg json_object_agg
  jsonb_object_agg xmlagg json_agg_strict jsonb_agg_strict json_object_agg_strict
  json_object_agg_unique json_object_agg_unique_strict jsonb_object_agg_strict
  jsonb_object_agg_unique jsonb_object_agg_unique_strict);

# Not determined by the rows, so there is nothing to compare.
my %excluded = map { $_ => 1 } qw(any_value);

# Column name of each argument type of the catalog.
my %column_of = (
	'boolean' => 'bool', 'smallint' => 'int2', 'integer' => 'int4', 'bigint' => 'int8',
	'numeric' => 'numeric', 'real' => 'float4', 'double precision' => 'float8', 'text' => 'text',
	'character' => 'bpchar', 'date' => 'date', 'time without time zone' => 'time',
	'time with time zone' => 'timetz', 'timestamp without time zone' => 'timestamp',
	'timestamp with time zone' => 'timestamptz', 'interval' => 'interval', 'bytea' => 'bytea',
	'inet' => 'inet', 'oid' => 'oid', 'pg_lsn' => 'lsn', 'xid8' => 'xid8', 'tid' => 'tid',
	'bit' => 'bit', 'money' => 'money', 'anyarray' => 'array', 'anyenum' => 'enum',
	'anyrange' => 'range', 'anymultirange' => 'multirange');

# new(types => [..], aggregates => [[name, kind, direct arguments, types..], ..])
sub new
{
	my ($class, %args) = @_;
	my $self = bless { %args, pack => [], dealt => {} }, $class;

	$self->{type} = { map { $_->{name} => $_ } @{ $args{types} } };
	$self->{aggregates} = [ grep { !$excluded{ $_->[0] } } @{ $args{aggregates} } ];
	return $self;
}

sub unused
{
	my ($self) = @_;
	return grep { !$self->{dealt}{$_} } map { $_->[0] . '(' . join(', ', @$_[ 3 .. $#$_ ]) . ')' }
	  @{ $self->{aggregates} };
}

sub any_type
{
	my ($self, $filter) = @_;
	return pick(grep { !$filter || $filter->($_) } @{ $self->{types} });
}

sub mode_of
{
	my ($type) = @_;
	return $type->{vague} ? 'equal' : 'exact';
}

# A condition on one row that raises no error.
sub condition
{
	my ($self) = @_;
	my $type = $self->any_type;

	return pick(
		'v_int4 > ' . between(-300, 300),
		'v_numeric < ' . between(-50, 50),
		'v_float8 BETWEEN -50 AND 60.5',
		"ts >= timestamptz '2024-05-01 12:00+00'",
		'v_bool',
		'k_bool IS NOT TRUE',
		"k_$type->{name} IS NOT NULL",
		"k_$type->{name} IS NULL",
		"v_text LIKE '%a%'",
		"k_text IN ('a', 'A', '', 'zzz')",
		"k_float8 = 'NaN' OR k_float8 < 1",
		"(v_jsonb ->> 'a')::int % 2 = 0",
		"CASE WHEN v_int2 > 0 THEN k_enum = 'red' ELSE v_date > '2000-01-01' END",
		'id % 3 <> 1 AND coalesce(v_int8, 0) < 900',
		"date_trunc('hour', ts) = ts OR extract(minute FROM ts) > 10");
}

# An expression over one row to group by or to select: (sql, mode).
sub scalar_key
{
	my ($self) = @_;

	if (rand() < 0.6)
	{
		my $type = $self->any_type(sub { !$_[0]{nohash} });
		return ("k_$type->{name}", mode_of($type));
	}
	return @{
		pick(
			[ "tumble(ts, '10 minutes')", 'exact' ],
			[ "tumble(ts, '1 hour', '7 min', 'Europe/Berlin')", 'exact' ],
			[ "tumble(ts AT TIME ZONE 'UTC', '1 week')", 'exact' ],
			[ 'tumble(id, 500)', 'exact' ],
			[ "date_trunc('hour', ts)", 'exact' ],
			[ "to_char(ts, 'HH24')", 'exact' ],
			[ 'v_int4 % 7', 'exact' ],
			[ 'id % 5', 'exact' ],
			[ 'lower(k_text)', 'exact' ],
			[ "k_ctext || '!'", 'exact' ],
			[ 'k_numeric + 1', 'equal' ],
			[ 'k_numeric > 0', 'exact' ],
			[ "k_jsonb -> 'a'", 'equal' ],
			[ 'coalesce(k_bool, false)', 'exact' ],
			[ 'extract(dow FROM ts)', 'exact' ],
			[ "CASE WHEN k_int4 > 0 THEN 'many' WHEN k_int4 IS NULL THEN NULL ELSE 'few' END", 'exact' ],
			[ 'ARRAY[k_int4, id::int % 2]', 'exact' ],
			[ 'ROW(k_bool, k_int2)::pair', 'exact' ])
	};
}

# The next aggregate of the pack.
sub deal
{
	my ($self) = @_;

	$self->{pack} = [ shuffle(@{ $self->{aggregates} }) ] unless @{ $self->{pack} };
	return shift @{ $self->{pack} };
}

# A call of an aggregate over random columns that suit it: (sql, mode).
sub call
{
	my ($self, $aggregate) = @_;
	my ($name, $kind, $direct, @types) = @$aggregate;
	my $filter = rand() < 0.35 ? ' FILTER (WHERE ' . $self->condition . ')' : '';

	$self->{dealt}{ $name . '(' . join(', ', @types) . ')' } = 1;
	return $self->hypothetical($name, $filter) if $kind eq 'h';
	return $self->ordered_set($name, $filter, @types) if $kind eq 'o';
	return ("count(*)$filter", 'exact') if @types == 0;

	my @arguments;
	my @chosen;
	foreach my $catalog_type (@types)
	{
		my $type = $self->{type}{ $column_of{$catalog_type} // '' };

		if ($catalog_type eq 'xml' || $catalog_type eq 'record')
		{
			push @arguments,
			  $catalog_type eq 'xml' ? 'xmlelement(name e, id % 10)' : 'ROW(v_int4, v_int2)';
			push @chosen, { unordered => 1 };
			next;
		}
		# several types have the same catalog type
		$type = $self->{type}{ pick('numeric', 'special') } if $catalog_type eq 'numeric';
		$type = $self->{type}{ pick('float8', 'wild') }
		  if $catalog_type eq 'double precision' && @types == 1;
		$type = $self->{type}{ pick('text', 'ctext', 'ltext', 'varchar') }
		  if $catalog_type eq 'text' && $name =~ /^(min|max)$/;
		$type = $self->any_type(sub { $_[0]{name} !~ /^(array|texts)$/ })
		  if $catalog_type =~ /^("any"|anyelement|anynonarray)$/;
		$type = $self->{type}{ pick('array', 'texts') } if $catalog_type eq 'anyarray';
		die "no column for argument type $catalog_type of aggregate $name" unless $type;
		push @arguments, pick('k', 'v', 'v') . "_$type->{name}";
		# extremes would overflow in a sum, and arrays of arrays must have the same dimensions
		$arguments[-1] =~ s/^k_/v_/
		  if $name !~ /^(count|min|max|array_agg|json_agg|jsonb_agg)$/
		  || ($name eq 'array_agg' && $catalog_type eq 'anyarray');
		push @chosen, $type;
	}
	$arguments[1] = 'v_int2' if @types == 2 && $types[1] eq 'double precision';
	$arguments[0] = 'id::text' if $name =~ /object_agg/;
	$arguments[1] = "','" if $name eq 'string_agg' && $types[0] eq 'text';

	my $vague = grep { $_->{vague} } @chosen;
	my $float = grep { /^(real|double precision)$/ } @types;
	my $mode = 'exact';
	my $distinct = '';
	my $order = '';

	$mode = 'approx' if $float && $name =~ /^(sum|avg|stddev|var|corr|covar|regr_)/ && $name ne 'regr_count';
	$mode = 'equal' if $vague && $name =~ /^(min|max)$/;

	if ($in_order{$name})
	{
		# by a unique column at last
		$order = ' ORDER BY ' . pick('', 'k_int4 DESC NULLS LAST, ', 'k_text, ', 'v_numeric, ') . 'id';
	}
	# which of two equal values is left by DISTINCT must not show in what is made of it
	my $shows = $vague && ($name =~ /json/ || ($name eq 'avg' && $types[0] eq 'interval'));
	if (rand() < 0.25 && !$shows && (@types == 1 || $arguments[1] eq "','") && !$chosen[0]{unordered} && $name !~ /^(json_agg|json_agg_strict|xmlagg)$/)
	{
		$distinct = 'DISTINCT ';
		$order = $in_order{$name} ? " ORDER BY $arguments[0]" . pick('', ' DESC', ' NULLS FIRST') : '';
		$mode = 'equal' if $vague && $mode eq 'exact' && $name ne 'count';
	}
	elsif (!$order && rand() < 0.1)
	{
		$order = ' ORDER BY id';
	}
	return ("$name($distinct" . join(', ', @arguments) . "$order)$filter", $mode);
}

sub hypothetical
{
	my ($self, $name, $filter) = @_;
	my ($value, $column) = @{ pick([ '10', 'v_int4' ], [ "'b'::text", 'v_text' ], [ '1.0', 'v_numeric' ]) };

	return ("$name($value) WITHIN GROUP (ORDER BY $column" . pick('', ' DESC') . ")$filter", 'exact');
}

sub ordered_set
{
	my ($self, $name, $filter, @types) = @_;
	my $fraction = $types[0] eq 'double precision[]' ? 'ARRAY[0, 0.25, 0.5, 1]' : pick('0.5', '0.9', '0', '1');
	my ($type, $column);

	if ($name eq 'percentile_cont')
	{
		$column = $types[1] eq 'interval' ? 'v_interval' : pick('v_float8', 'v_int4');
		return ("$name($fraction) WITHIN GROUP (ORDER BY $column)$filter", 'equal');
	}
	$type = $self->any_type(sub { !$_[0]{unordered} && $_[0]{name} ne 'texts' });
	$fraction = '' if $name eq 'mode';
	# an array of arrays needs equal dimensions
	$type = $self->{type}{int8} if $type->{name} eq 'array' && $fraction =~ /ARRAY/;
	return ("$name($fraction) WITHIN GROUP (ORDER BY v_$type->{name})$filter", mode_of($type));
}

# An expression over aggregates: (sql, mode).
sub over
{
	return @{
		pick(
			[ 'coalesce(sum(v_int4), 0) + count(*)', 'exact' ],
			[ 'sum(v_int8) / nullif(count(v_int8), 0)', 'exact' ],
			[ 'count(*) * 2 - count(v_text)', 'exact' ],
			[ "CASE WHEN count(*) > 20 THEN 'many' ELSE max(v_ctext) END", 'exact' ],
			[ 'round(avg(v_numeric), 2)', 'exact' ],
			[ "string_agg(v_text, '' ORDER BY id) || max(id)", 'exact' ],
			[ 'max(id) - min(id)', 'exact' ],
			[ 'greatest(max(v_int2), 5)', 'exact' ],
			[ 'total(v_numeric)', 'exact' ],
			[ 'last_value_of(v_text ORDER BY id)', 'exact' ])
	};
}

sub having
{
	my ($self) = @_;
	return pick(
		'count(*) > ' . between(1, 60),
		'count(*) BETWEEN 5 AND ' . between(10, 80),
		'bool_or(v_bool)',
		'max(v_int4) > ' . between(100, 1000),
		'sum(v_int4) > 0 AND count(v_text) > 3',
		'min(v_date) IS NOT NULL',
		'avg(v_numeric) > 0');
}

sub assemble
{
	my ($distinct, $columns, @rest) = @_;
	my $n = 0;
	my $list = join(', ', map { $n++; "$_->[0] AS c$n" } @$columns);

	return {
		sql => "SELECT $distinct$list FROM " . join(' ', grep { $_ ne '' } @rest),
		columns => [ map { $_->[1] } @$columns ]
	};
}

# A query over stream $table.
sub next_query
{
	my ($self, $table) = @_;
	my $where = rand() < 0.4 ? 'WHERE ' . $self->condition : '';
	my $shape = rand();

	if ($shape < 0.1)
	{
		# all rows, one by one: nothing is left to choose, so texts are the same
		my @columns = map { [ $_, 'exact' ] } map { ("v_$_->{name}", "k_$_->{name}") }
		  (shuffle(@{ $self->{types} }))[ 0 .. between(1, 5) ];
		push @columns, [ ($self->scalar_key)[0], 'exact' ];
		unshift @columns, [ 'id', 'exact' ] if rand() < 0.7;
		return assemble('', \@columns, $table, $where);
	}
	if ($shape < 0.2)
	{
		return assemble('DISTINCT ', [ map { [ $self->scalar_key ] } 1 .. between(1, 3) ], $table, $where);
	}

	my @keys = $shape < 0.35 ? () : map { [ $self->scalar_key ] } 1 .. pick(1, 1, 2, 2, 3);
	my @results = map { [ $self->call($self->deal) ] } 1 .. between(3, 5);
	push @results, [ over() ] if rand() < 0.5;
	my @columns = (@keys, @results);

	# a hidden key now and then; approximate columns need all keys to be found by
	@columns = (@keys[ 1 .. $#keys ], @results)
	  if @keys > 1 && rand() < 0.15 && !grep { $_->[1] eq 'approx' } @results;

	return assemble('', \@columns, $table, $where,
		@keys ? 'GROUP BY ' . join(', ', map { $_->[0] } @keys) : '',
		rand() < 0.25 ? 'HAVING ' . $self->having : '');
}

1;
