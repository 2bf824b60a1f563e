# Without shared_preload_libraries: what works, and what says which setting to change.
#  - CREATE EXTENSION is refused, and leaves nothing behind
#  - SELECT, DROP and ALTER of other things work on what is there
#  - everything that defines a stream or view is refused
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'stream_ext'");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION stream_ext;
CREATE TABLE s (k int, ts timestamptz) USING stream WITH (stream.event_time = 'ts');
INSERT INTO s VALUES (1, '2024-05-01'), (2, '2024-05-02');
CREATE MATERIALIZED VIEW v USING continuous AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW w USING continuous AS SELECT k, count(*) AS n FROM s GROUP BY k WITH NO DATA;
CREATE DATABASE other;
SQL
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;

# Fails with the setting to change, in a session that has used a stream before.
sub refused
{
	my ($statement) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT count(*) FROM s; $statement");

	like(
		$err,
		qr/ERROR:  stream_ext is not loaded by shared_preload_libraries\nHINT:  Add stream_ext/,
		"refused: $statement");
}

my ($rc, $out, $err) = $node->psql('other', 'CREATE EXTENSION stream_ext');
like($err, qr/ERROR:  stream_ext is not loaded by shared_preload_libraries/,
	'CREATE EXTENSION is refused');
is( $node->safe_psql('other', "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'stream%'"),
	'0', 'and leaves nothing behind');

is($node->safe_psql('postgres', 'SELECT k FROM s ORDER BY k'), "1\n2", 'SELECT of a stream');
is($node->safe_psql('postgres', 'SELECT count(*) >= 0 FROM v'), 't', 'SELECT of a view');
refused(q{CREATE TABLE x (ts timestamptz) USING stream WITH (stream.event_time = 'ts')});
refused(q{CREATE TABLE x USING stream AS SELECT * FROM s});
refused(q{CREATE MATERIALIZED VIEW x USING continuous AS SELECT k FROM s});
refused(q{ALTER TABLE s SET (stream.max_ahead = '1 h')});
refused(q{ALTER MATERIALIZED VIEW v RESET (stream.emit)});
refused(q{REFRESH MATERIALIZED VIEW v});
refused(q{REFRESH MATERIALIZED VIEW v WITH NO DATA});
refused(q{SECURITY LABEL FOR stream ON TABLE s IS 'v1'});
$node->safe_psql('postgres', 'ALTER TABLE s RENAME TO t');
$node->safe_psql('postgres', 'DROP MATERIALIZED VIEW v, w');
$node->safe_psql('postgres', 'DROP TABLE t');
pass('RENAME and DROP work');

# What was dropped in the meantime does not matter after.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'stream_ext'");
$node->restart;
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE s (k int, ts timestamptz) USING stream WITH (stream.event_time = 'ts');
CREATE MATERIALIZED VIEW v USING continuous AS SELECT k, count(*) AS n FROM s GROUP BY k;
SQL
is( $node->safe_psql('postgres',
		"SELECT count(*) FROM stream.catalog_view WHERE view = 'v'::regclass"),
	'1', 'a new view is known');
$node->safe_psql('postgres', 'DROP EXTENSION stream_ext CASCADE');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_class WHERE relname IN ('s', 'v')"),
	'0', 'DROP EXTENSION takes streams and views with it');

$node->stop;
done_testing();
