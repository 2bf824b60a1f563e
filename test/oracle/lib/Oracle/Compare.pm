# Compare.pm
#	Are two relations the same multiset of rows?
#
#	By columns c1, c2, .. and their modes (see Queries.pm). EXCEPT ALL both ways decides over all
#	columns but the approximate ones: exact ones as text, the others by their type's equality.
#	For approximate columns the rows are then numbered by the other columns, which hold the whole
#	key in such queries, and compared pair by pair.
package Oracle::Compare;

use strict;
use warnings;

# Allowed difference of two floating point results, relative to their size, and absolute.
my ($relative, $absolute) = ('1e-7', '1e-7');

# SQL that returns up to five differences between relations (SQL, in parentheses, or names) as
# text; no rows: they are equal.
sub differences
{
	my ($actual, $expected, @modes) = @_;
	my (@rows, @sort, @approx);

	foreach my $n (1 .. @modes)
	{
		my $mode = $modes[ $n - 1 ];

		if ($mode eq 'approx')
		{
			push @approx, $n;
			next;
		}
		push @rows, $mode eq 'exact' ? "c$n\::text COLLATE \"C\" AS c$n" : "c$n";
		push @sort, "c$n";
	}
	# a set operation needs a column
	push @rows, '0 AS c0';
	push @sort, 'c0';

	my $rows = join(', ', @rows);
	my $sort = join(', ', @sort);
	my $approx = join('', map { ", c$_ AS a$_" } @approx);
	my $sql = <<SQL;
WITH actual AS MATERIALIZED (SELECT $rows$approx FROM $actual AS r),
  expected AS MATERIALIZED (SELECT $rows$approx FROM $expected AS r)
SELECT * FROM (
  SELECT 'missing: ' || left(x::text, 500) FROM
    (SELECT $sort FROM expected EXCEPT ALL SELECT $sort FROM actual) AS x
  UNION ALL
  SELECT 'too many: ' || left(x::text, 500) FROM
    (SELECT $sort FROM actual EXCEPT ALL SELECT $sort FROM expected) AS x
SQL
	if (@approx)
	{
		my $far = join(' OR ',
			map { "(a.a$_ IS NOT DISTINCT FROM e.a$_ OR abs(a.a$_ - e.a$_) <= $relative * (abs(a.a$_) + abs(e.a$_)) + $absolute) IS NOT TRUE" }
			  @approx);

		$sql .= <<SQL;
  UNION ALL
  SELECT 'differs: ' || left(a::text, 250) || ' / ' || left(e::text, 250)
  FROM (SELECT *, row_number() OVER (ORDER BY $sort) AS n FROM actual) AS a
  FULL JOIN (SELECT *, row_number() OVER (ORDER BY $sort) AS n FROM expected) AS e USING (n)
  WHERE $far
SQL
	}
	return "$sql) AS d LIMIT 5";
}

# Relations that differ from $relation (a name) a little, if it has rows with a value in column
# $column: by a row that is missing, one that is there twice, and a value that is not the same.
sub mutations
{
	my ($relation, $column, @modes) = @_;
	my $columns = join(', ', map { "c$_" } 1 .. @modes);
	my $other = $modes[ $column - 1 ] eq 'approx' ? "c$column * 1.001 + 1" : 'NULL';

	$columns =~ s/\bc$column\b/CASE WHEN n > 1 THEN c$column ELSE $other END AS c$column/;
	# first a row with a value there, and one that a sum changes
	my $order = "coalesce(c$column\::text = ANY ('{NaN,Infinity,-Infinity}'), true)";

	return (
		"(SELECT * FROM $relation AS m OFFSET 1)",
		"(SELECT * FROM $relation AS m UNION ALL (SELECT * FROM $relation AS m LIMIT 1))",
		"(SELECT $columns FROM (SELECT *, row_number() OVER (ORDER BY $order) AS n FROM $relation AS m) AS m)");
}

1;
