# Types.pm
#	The column types that the oracle test uses and values of them.
#
#	A type has a name (that of its columns, k_<name> and v_<name>), its SQL, a few values that
#	make good group keys, and a function that draws a value to aggregate. Values are strings, undef
#	is NULL. "vague" says that two values can be equal and yet look different, such as 1.0 and
#	1.00: then a query may show either, and results are compared by the type's own equality.
#	"nohash": cannot be a group key of a continuous view. "unordered": has no btree order, so no
#	DISTINCT and ORDER BY inside of aggregates.
package Oracle::Types;

use strict;
use warnings;

sub pick
{
	return $_[ int(rand(@_)) ];
}

# An integer from $low to $high.
sub between
{
	my ($low, $high) = @_;
	return $low + int(rand($high - $low + 1));
}

# The values of aggregates: mostly a random one, now and then one of the list.
sub mostly
{
	my ($random, @special) = @_;
	return sub { return rand() < 0.15 ? pick(@special) : $random->(); };
}

my $uuid = sub { return sprintf('%08x-0000-4000-8000-%012x', between(0, 9), between(0, 3)); };
my $time = sub {
	return sprintf('%02d:%02d:%02d', between(0, 23), between(0, 59), between(0, 59));
};
my $day = sub { return sprintf('%04d-%02d-%02d', between(1960, 2030), between(1, 12), between(1, 28)); };
my $word = sub { return join('', map { chr(97 + between(0, 5)) } 1 .. between(0, 6)); };

sub all
{
	my ($case_insensitive) = @_;    # name of a nondeterministic collation, or undef

	my @types = (
		{ name => 'bool', sql => 'boolean', keys => [ undef, 't', 'f' ],
			random => mostly(sub { pick('t', 'f') }, undef) },
		{ name => 'int2', sql => 'smallint', keys => [ undef, -32768, 0, 7, 32767 ],
			random => mostly(sub { between(-300, 300) }, undef, -32768, 32767) },
		{ name => 'int4', sql => 'integer', keys => [ undef, -1, 0, 1, 2147483647 ],
			random => mostly(sub { between(-1000, 1000) }, undef, 0, 2147483647) },
		{ name => 'int8', sql => 'bigint', keys => [ undef, '-9223372036854775808', -1, 0, 1, '9223372036854775807' ],
			random => mostly(sub { between(-1000, 1000) }, undef, '9223372036854775807', '-9223372036854775808') },
		{ name => 'numeric', sql => 'numeric', vague => 1,
			keys => [ undef, '1.0', '1.00', '1', '0', '-0.50', 'NaN', 'Infinity', '-Infinity', '1e30' ],
			random => mostly(sub { sprintf('%.*f', between(0, 4), rand(200) - 100) }, undef, '0.000', '12345678901234567890.123') },
		# one that also has the values which stick in a sum
		{ name => 'special', sql => 'numeric', vague => 1, keys => [ undef, '2', '2.0', 'NaN' ],
			random => mostly(sub { between(-9, 9) }, 'NaN', 'Infinity', undef) },
		{ name => 'float4', sql => 'real', vague => 1, keys => [ undef, '0', '-0', 'NaN', '1.5', '-Infinity' ],
			random => mostly(sub { between(-400, 400) / 4 }, undef, '-0') },
		{ name => 'float8', sql => 'double precision', vague => 1,
			keys => [ undef, '0', '-0', 'NaN', 'Infinity', '-Infinity', '0.1', '1e300' ],
			random => mostly(sub { sprintf('%.6g', rand(200) - 100) }, undef, '-0', '0') },
		{ name => 'wild', sql => 'double precision', vague => 1, keys => [ undef, '-1e-300', '5e-324' ],
			random => mostly(sub { between(-20, 20) }, 'NaN', 'Infinity', '-Infinity', '-0', undef) },
		{ name => 'text', sql => 'text', keys => [ undef, '', 'a', 'A', 'ab ', "it's", "tab\tand\nline", 'x' x 3000, "\xc3\x9f" ],
			random => mostly($word, undef, '', 'long ' x 900) },
		{ name => 'ctext', sql => 'text COLLATE "C"', keys => [ undef, 'b', 'B', 'a', "\xc3\xa9" ],
			random => mostly($word, undef, "back\\slash") },
		{ name => 'ltext', sql => $case_insensitive ? "text COLLATE $case_insensitive" : 'text',
			vague => 1, keys => [ undef, 'ab', 'aB', 'AB', 'Ab', 'b', 'B', '' ],
			random => mostly(sub { pick(qw(ab AB c C d)) }, undef) },
		{ name => 'varchar', sql => 'varchar(10)', keys => [ undef, '', 'v', 'V' ], random => mostly($word, undef) },
		{ name => 'bpchar', sql => 'char(3)', keys => [ undef, '', 'a', 'a ', 'abc' ],
			random => mostly(sub { pick(qw(a b c ab)) }, undef) },
		{ name => 'date', sql => 'date', keys => [ undef, '2000-01-01', '1969-12-31', 'infinity', '-infinity', '0044-03-15 BC' ],
			random => mostly($day, undef, 'infinity') },
		{ name => 'time', sql => 'time', keys => [ undef, '00:00', '24:00' ], random => mostly($time, undef) },
		{ name => 'timetz', sql => 'timetz', keys => [ undef, '12:00+00', '13:00+01' ],
			random => mostly(sub { $time->() . pick('+00', '-05', '+05:30') }, undef) },
		{ name => 'timestamp', sql => 'timestamp', keys => [ undef, '2000-01-01 00:00', '1969-12-31 23:59:59.5', 'infinity' ],
			random => mostly(sub { $day->() . ' ' . $time->() }, undef) },
		{ name => 'timestamptz', sql => 'timestamptz',
			keys => [ undef, '2000-01-01 00:00+00', '2000-01-01 01:00+01', '-infinity' ],
			random => mostly(sub { $day->() . ' ' . $time->() . '+00' }, undef, 'infinity') },
		{ name => 'interval', sql => 'interval', vague => 1,
			keys => [ undef, '1 mon', '30 days', '1 day', '24 hours', '-1 day', '0' ],
			random => mostly(sub { pick('1 mon', '30 days', '36:00', '-1 day', between(0, 99) . ' min') }, undef) },
		{ name => 'uuid', sql => 'uuid', keys => [ undef, map { $uuid->() } 1 .. 4 ], random => mostly($uuid, undef) },
		{ name => 'enum', sql => 'color', keys => [ undef, 'red', 'green', 'blue' ],
			random => mostly(sub { pick(qw(red green blue)) }, undef) },
		{ name => 'bytea', sql => 'bytea', keys => [ undef, '\x', '\x00', '\xff00' ],
			random => mostly(sub { '\x' . join('', map { sprintf('%02x', between(0, 255)) } 1 .. between(0, 5)) }, undef) },
		{ name => 'jsonb', sql => 'jsonb', vague => 1,
			keys => [ undef, '{"a":1,"b":2}', '{"b":2,"a":1.0}', 'null', '[]', '[1,2.00]', '"x"' ],
			random => mostly(sub { sprintf('{"a":%d,"b":"%s"}', between(0, 9), $word->()) }, undef, 'null') },
		{ name => 'json', sql => 'json', nohash => 1, unordered => 1, keys => [ undef, '{}' ],
			random => mostly(sub { sprintf('{"b": %d}', between(0, 9)) }, undef) },
		{ name => 'array', sql => 'integer[]', keys => [ undef, '{}', '{1,2}', '{NULL}', '[0:1]={1,2}', '{{1},{2}}' ],
			random => sub { '{' . join(',', between(0, 9), pick('NULL', 5)) . '}' } },
		{ name => 'texts', sql => 'text[]', keys => [ undef, '{}', '{a,NULL}', '{"a b"}' ],
			random => sub { '{' . join(',', 'x' . $word->(), 'y') . '}' } },
		{ name => 'range', sql => 'int4range', keys => [ undef, 'empty', '[1,5)', '[1,4]', '(,)' ],
			random => mostly(sub { my $l = between(0, 50); "[$l," . ($l + between(0, 9)) . ')' }, undef, 'empty') },
		{ name => 'multirange', sql => 'int4multirange', keys => [ undef, '{}', '{[1,2),[5,6)}' ],
			random => mostly(sub { my $l = between(0, 50); "{[$l," . ($l + 3) . ')}' }, undef) },
		{ name => 'inet', sql => 'inet', keys => [ undef, '10.0.0.1', '10.0.0.1/8', '::1' ],
			random => mostly(sub { '10.0.0.' . between(0, 20) }, undef) },
		{ name => 'oid', sql => 'oid', keys => [ undef, 0, 4294967295 ], random => mostly(sub { between(0, 50) }, undef) },
		{ name => 'lsn', sql => 'pg_lsn', keys => [ undef, '0/0', 'FFFFFFFF/FFFFFFFF' ],
			random => mostly(sub { sprintf('0/%X', between(0, 5000)) }, undef) },
		{ name => 'xid8', sql => 'xid8', keys => [ undef, 3, '18446744073709551615' ],
			random => mostly(sub { between(0, 5000) }, undef) },
		{ name => 'tid', sql => 'tid', keys => [ undef, '(0,1)', '(7,2)' ],
			random => mostly(sub { sprintf('(%d,%d)', between(0, 9), between(1, 9)) }, undef) },
		{ name => 'bit', sql => 'bit(5)', nohash => 1, keys => [ undef, '10101' ],
			random => mostly(sub { join('', map { between(0, 1) } 1 .. 5) }, undef) },
		{ name => 'money', sql => 'money', nohash => 1, keys => [ undef, '1.00' ],
			random => mostly(sub { between(-100, 100) . '.' . between(10, 99) }, undef) },
	);
	return @types;
}

# Quotes a value for an INSERT.
sub literal
{
	my ($value) = @_;
	return 'NULL' unless defined $value;
	$value =~ s/'/''/g;
	return "'$value'";
}

# Writes a value as a field of COPY's text format.
sub copy_field
{
	my ($value) = @_;
	return '\N' unless defined $value;
	$value =~ s/\\/\\\\/g;
	$value =~ s/\t/\\t/g;
	$value =~ s/\n/\\n/g;
	return $value;
}

1;
