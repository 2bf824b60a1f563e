# Streams and continuous views survive pg_dump and pg_restore with options, indexes and state:
#  - custom format, one statement a time; one transaction; directory format with two jobs; plain SQL
#  - a running view runs in the copy, a stopped one is stopped
#  - without security labels nothing is lost in silence
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'stream_ext'");
$node->start;

$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', <<'SQL');
CREATE EXTENSION stream_ext;
CREATE SCHEMA "Weird ""S";
SET timezone = 'Asia/Tokyo';
SET search_path = public, "Weird ""S";
CREATE TABLE "Weird ""S"."it's" (k int, "Event T" timestamptz) USING stream
	WITH (stream.event_time = 'Event T', stream.watermark_delay = '5 s', fillfactor = 90);
CREATE TABLE plain (k int) USING stream;
INSERT INTO "it's" SELECT g % 3, '2024-05-01'::timestamptz + g * interval '1 s'
	FROM generate_series(1, 10) g;
CREATE MATERIALIZED VIEW running USING continuous WITH (stream.emit = 'update')
	AS SELECT k, count(*) AS n FROM "it's" GROUP BY k;
CREATE UNIQUE INDEX running_key ON running (k);
CREATE MATERIALIZED VIEW stopped USING continuous WITH (fillfactor = 70)
	AS SELECT k, count(*) AS n FROM plain GROUP BY k WITH NO DATA;
SQL

# All there is to know about our relations: of the label every character, the identity included.
my $contents = <<'SQL';
SELECT c.oid::regclass, am.amname, c.relispopulated, c.reloptions, l.label,
	EXISTS (SELECT FROM stream.catalog_view v WHERE v.view = c.oid AND strpos(l.label, v.id) > 0)
FROM pg_class c JOIN pg_am am ON am.oid = c.relam
	LEFT JOIN pg_seclabel l ON l.objoid = c.oid AND l.classoid = 'pg_class'::regclass
WHERE am.amname IN ('stream', 'continuous') ORDER BY c.relname;
SELECT * FROM "Weird ""S"."it's" ORDER BY 2;
SELECT indexrelid::regclass, indisunique, indisvalid FROM pg_index
WHERE indrelid = 'running'::regclass;
SQL
my $expected = $node->safe_psql('source', $contents);
like($expected, qr/running\|continuous\|t\|\{fillfactor=50\}\|v1 .*timezone='Asia\/Tokyo'\|t/,
	'the running view has options and runs');
like($expected, qr/stopped\|continuous\|f\|\{fillfactor=70\}\|v1 .*\|f/, 'the stopped view does not');

my $dir = $node->basedir;
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/custom", 'source' ], 'dump, custom format');
$node->command_ok([ 'pg_dump', '-Fd', '-j2', '-f', "$dir/directory", 'source' ],
	'dump, directory format');
$node->command_ok([ 'pg_dump', '-Fp', '-f', "$dir/plain.sql", 'source' ], 'dump, plain SQL');

# Restores into a new database by a command and compares.
sub restored_is
{
	my ($name, @command) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name");
	$node->command_ok([ @command, '-d', $name ], "$name: restored");
	is($node->safe_psql($name, $contents), $expected, "$name: all is there");
	is($node->safe_psql($name, "SELECT stream.wait('running', '60 s')"), 't', "$name: built");
	is($node->safe_psql($name, 'SELECT * FROM running ORDER BY k'), "0|3\n1|4\n2|3",
		"$name: the view has its rows");
}
restored_is('custom', 'pg_restore', '--exit-on-error', "$dir/custom");
restored_is('single', 'pg_restore', '--exit-on-error', '--single-transaction', "$dir/custom");
restored_is('parallel', 'pg_restore', '--exit-on-error', '-j2', "$dir/directory");
restored_is('plain', 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/plain.sql");

# The restored view is not the original by another name: its results are its own.
$node->safe_psql('custom', q{INSERT INTO "Weird ""S"."it's" VALUES (7, now())});
is( $node->safe_psql(
		'custom', "SELECT stream.wait('running', '60 s'); SELECT n FROM running WHERE k = 7"),
	"t\n1", 'the copy goes on');
is( $node->safe_psql(
		'source', "SELECT stream.wait('running', '60 s'); SELECT count(*) FROM running WHERE k = 7"),
	"t\n0", 'the original is left alone');

# Without labels: data is there, views are stopped, and REFRESH says how to go on.
$node->safe_psql('postgres', 'CREATE DATABASE unlabelled');
my ($out, $err) = run_command(
	[ 'pg_restore', '--no-security-labels', '-h', $node->host, '-p', $node->port, '-d', 'unlabelled',
		"$dir/custom" ]);
like($err, qr/continuous view "running" is undefined/, 'unlabelled: REFRESH refuses');
is( $node->safe_psql('unlabelled', $contents) =~ s/\n.*//sr,
	q{"Weird ""S"."it's"|stream|t|{fillfactor=90}||f},
	'unlabelled: the stream is undefined');
is($node->safe_psql('unlabelled', q{SELECT count(*) FROM "Weird ""S"."it's"}), '10',
	'unlabelled: its rows are there');
$node->safe_psql('unlabelled', <<'SQL');
ALTER TABLE "Weird ""S"."it's" SET (stream.event_time = 'Event T');
ALTER MATERIALIZED VIEW running RESET (stream.emit);
REFRESH MATERIALIZED VIEW running;
SQL
like($node->safe_psql('unlabelled', $contents), qr/running\|continuous\|t\|.*\|v1 .*\|t/,
	'unlabelled: defined again, the view runs');
is($node->safe_psql('unlabelled', "SELECT stream.wait('running', '60 s')"), 't', 'unlabelled: built');
is($node->safe_psql('unlabelled', 'SELECT * FROM running ORDER BY k'), "0|3\n1|4\n2|3",
	'unlabelled: the view has its rows');

# A dump of the copy is the dump of the original, but for the state tables, which have new names.
$node->command_ok([ 'pg_dump', '-s', '-N', 'stream_state', '-f', "$dir/again.sql", 'plain' ], 'dump of a copy');
$node->command_ok([ 'pg_dump', '-s', '-N', 'stream_state', '-f', "$dir/schema.sql", 'source' ], 'dump of the original');
# (minor releases of pg_dump write a random key between \restrict and \unrestrict)
is( slurp_file("$dir/again.sql") =~ s/^\\(un)?restrict.*\n//gmr,
	slurp_file("$dir/schema.sql") =~ s/^\\(un)?restrict.*\n//gmr, 'both are equal');

$node->stop;
done_testing();
