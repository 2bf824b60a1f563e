# Copies of a database, whole and in part, and its end.
#
#  1. pg_dump of the schema, of the data, of one schema, one stream, one view; with INSERTs; as ordinary tables;
#     over running views (--clean); by an owner who is no superuser; pg_dumpall into another server
#  2. CREATE DATABASE .. TEMPLATE: the workers of both run, and their results stay apart
#  3. DROP DATABASE under load
#  4. DROP EXTENSION CASCADE leaves nothing, and CREATE EXTENSION works again
# What 002_dump_restore.pl has (formats, jobs, one transaction, labels) is not done again.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'stream_ext'
max_worker_processes = 24
stream.max_views = 24
stream.max_streams = 24
CONF
$node->start;
my $dir = $node->basedir;

$node->safe_psql('postgres', <<'SQL');
CREATE ROLE keeper LOGIN;
CREATE DATABASE source OWNER keeper;
\c source
CREATE SCHEMA ext;
CREATE EXTENSION stream_ext SCHEMA ext;
GRANT USAGE ON SCHEMA ext TO PUBLIC;
SET ROLE keeper;
CREATE SCHEMA a;
CREATE SCHEMA b;
CREATE TYPE a.mood AS ENUM ('sad', 'ok');
CREATE FUNCTION a.twice(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 * 2';
CREATE TABLE a.clicks (k int, mood a.mood, ts timestamptz) USING stream
	WITH (stream.event_time = 'ts', stream.watermark_delay = '5 s', stream.max_ahead = '2 h');
CREATE TABLE b.parts (k int, x numeric) PARTITION BY LIST (k);
CREATE TABLE b.part PARTITION OF b.parts FOR VALUES IN (1, 2, 3) USING stream;
CREATE MATERIALIZED VIEW a.minutes USING continuous AS
	SELECT ext.tumble(ts, '1 min') AS w, mood, a.twice(k) AS k, count(*) AS n FROM a.clicks GROUP BY 1, 2, 3;
CREATE UNIQUE INDEX minutes_key ON a.minutes (w, mood, k);
CREATE MATERIALIZED VIEW b.sums USING continuous WITH (fillfactor = 80) AS SELECT k, sum(x) AS x FROM b.part GROUP BY k;
COMMENT ON MATERIALIZED VIEW b.sums IS 'sums';
-- a view of another schema's stream
CREATE MATERIALIZED VIEW b.copies USING continuous AS SELECT k, ts FROM a.clicks WHERE mood = 'ok';
INSERT INTO a.clicks SELECT g % 3, CASE g % 2 WHEN 0 THEN 'sad' ELSE 'ok' END::a.mood, '2024-05-01'::timestamptz + g * interval '7 s'
	FROM generate_series(1, 100) g;
INSERT INTO b.parts SELECT 1 + g % 3, g FROM generate_series(1, 100) g;
SELECT stream.wait_all();
SQL
my %query = (
	'a.minutes' => "SELECT ext.tumble(ts, '1 min') AS w, mood, a.twice(k) AS k, count(*) AS n FROM a.clicks GROUP BY 1, 2, 3",
	'b.sums' => 'SELECT k, sum(x) AS x FROM b.part GROUP BY k',
	'b.copies' => "SELECT k, ts FROM a.clicks WHERE mood = 'ok'");

# Do these views (default: all) have the rows of their SELECTs, and so many of them?
sub is_exact
{
	my ($server, $database, $name, @views) = @_;

	foreach my $view (@views ? @views : sort keys %query)
	{
		is($server->safe_psql($database, "SELECT stream.wait('$view', '60 s')"), 't', "$name: $view is built");
		is($server->safe_psql($database, <<SQL), 'f|0|0', "$name: $view has the rows of its SELECT");
SELECT (SELECT count(*) FROM $view) = 0, (SELECT count(*) FROM ($query{$view} EXCEPT ALL SELECT * FROM $view) a),
	(SELECT count(*) FROM (SELECT * FROM $view EXCEPT ALL $query{$view}) b)
SQL
	}
	return;
}
is_exact($node, 'source', 'source');

# Definitions: all that there is to know, but for identities.
my $definitions = <<'SQL';
SELECT c.oid::regclass, c.relkind, a.amname, c.reloptions, c.relowner::regrole, obj_description(c.oid, 'pg_class'),
	regexp_replace(l.label, '[0-9a-f]{16}', 'ID')
FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam LEFT JOIN pg_seclabel l ON l.objoid = c.oid AND l.classoid = 'pg_class'::regclass
WHERE c.relnamespace IN ('a'::regnamespace, 'b'::regnamespace) ORDER BY c.oid::regclass::text
SQL
my $expected = $node->safe_psql('source', $definitions);
like($expected, qr/a\.clicks\|r\|stream\|\|keeper\|\|v1 event_time='ts' max_ahead='2 h' watermark_delay='5 s'/, 'definitions of the source');

sub dump_to
{
	my ($file, @options) = @_;

	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/$file", @options, 'source' ], "pg_dump @options");
	return;
}

sub restore
{
	my ($file, $database, @options) = @_;

	$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $database, @options, "$dir/$file" ],
		"$database: pg_restore @options");
	return;
}

# A database for a part of a dump: the extension is no part of it.
sub create_target
{
	my ($database) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE SCHEMA ext; CREATE EXTENSION stream_ext SCHEMA ext');
	return;
}

sub states
{
	my ($database) = @_;
	return $node->safe_psql($database, 'SELECT view, state, reason FROM stream.views ORDER BY view::text');
}

# 1. The schema alone, then the data alone: views are stopped, for neither refreshes materialized views.
dump_to('schema', '--schema-only');
dump_to('data', '--data-only', '-N', 'stream_state');
$node->safe_psql('postgres', 'CREATE DATABASE schema_only');
restore('schema', 'schema_only');
is($node->safe_psql('schema_only', $definitions), $expected, 'schema_only: all is defined');
my $stopped = join("\n", map { "$_|stopped|Use REFRESH MATERIALIZED VIEW to start it." } sort keys %query);
is(states('schema_only'), $stopped, 'schema_only: views are stopped');
restore('data', 'schema_only');
is(states('schema_only'), $stopped, 'data_only: views are stopped');
$node->safe_psql('schema_only', "REFRESH MATERIALIZED VIEW $_") foreach sort keys %query;
is_exact($node, 'schema_only', 'data_only');

# One schema, one stream, one view
dump_to('one_schema', '-n', 'a');
create_target('one_schema');
restore('one_schema', 'one_schema');
is_exact($node, 'one_schema', 'one_schema', 'a.minutes');
dump_to('one_view', '-t', 'b.copies');
$node->safe_psql('one_schema', 'CREATE SCHEMA b');
restore('one_view', 'one_schema');
is_exact($node, 'one_schema', 'one_view', 'a.minutes', 'b.copies');
dump_to('one_stream', '-t', 'b.part*');
restore('one_stream', 'one_schema');
is($node->safe_psql('one_schema', 'SELECT count(*), sum(x) FROM b.part'), '100|5050', 'one_stream: rows are there');
$node->safe_psql('one_schema', "CREATE MATERIALIZED VIEW b.sums USING continuous AS $query{'b.sums'}");
is_exact($node, 'one_schema', 'one_stream');

# INSERT commands instead of COPY; over what runs already
dump_to('inserts', '--inserts', '--rows-per-insert=30', '-N', 'stream_state');
$node->safe_psql('postgres', 'CREATE DATABASE inserts');
restore('inserts', 'inserts');
is_exact($node, 'inserts', 'inserts');
is($node->safe_psql('inserts', $definitions), $expected, 'inserts: all is defined');
dump_to('all');
restore('all', 'inserts', '--clean', '--if-exists');
is_exact($node, 'inserts', 'clean');
is($node->safe_psql('inserts', $definitions), $expected, 'clean: all is defined');

# As ordinary tables, which need no worker
$node->safe_psql('postgres', 'CREATE DATABASE ordinary');
restore('all', 'ordinary', '--no-table-access-method', '--no-security-labels');
is($node->safe_psql('ordinary', <<'SQL'), "heap|6", 'ordinary: all is heap');
SELECT a.amname, count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
WHERE c.relkind IN ('r', 'm') AND c.relnamespace IN ('a'::regnamespace, 'b'::regnamespace, 'stream_state'::regnamespace)
	AND c.relname !~ '^s[0-9a-f]{16}$' OR c.relname = 'pg_class' GROUP BY 1
SQL
is($node->safe_psql('ordinary', "SELECT count(*) FROM ($query{'a.minutes'} EXCEPT ALL SELECT * FROM a.minutes) x"), '0', 'ordinary: rows are there');

# By an owner who is no superuser. The state of views is not his, and not needed.
$node->command_fails_like([ 'pg_dump', '-U', 'keeper', '-f', "$dir/refused", 'source' ],
	qr/permission denied for schema stream_state/, 'owner: pg_dump of the state is refused');
dump_to('owner', '-U', 'keeper', '--exclude-schema=stream_state');
create_target('owner');
$node->safe_psql('owner', 'ALTER DATABASE owner OWNER TO keeper; GRANT USAGE ON SCHEMA ext TO PUBLIC; ALTER SCHEMA ext OWNER TO keeper; DROP EXTENSION stream_ext; DROP SCHEMA ext');
$node->safe_psql('owner', 'CREATE SCHEMA ext AUTHORIZATION keeper; CREATE EXTENSION stream_ext SCHEMA ext');
# the extension, its schema and their comments are there, and belong to a superuser
my ($list) = run_command([ 'pg_restore', '-l', "$dir/owner" ]);
append_to_file("$dir/owner.list", join("\n", grep { !/ (SCHEMA - ext|EXTENSION - |COMMENT - EXTENSION|ACL - SCHEMA ext)/ } split /\n/, $list) . "\n");
restore('owner', 'owner', '-U', 'keeper', '-L', "$dir/owner.list");
is_exact($node, 'owner', 'owner');
is($node->safe_psql('owner', $definitions), $expected, 'owner: all is defined');

# Everything into another server
$node->command_ok([ 'pg_dumpall', '-f', "$dir/everything.sql", '--exclude-database=[^s]*' ], 'pg_dumpall');
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->append_conf('postgresql.conf', "shared_preload_libraries = 'stream_ext'\nmax_worker_processes = 24\n");
$other->start;
my ($rc, $out, $err) = $other->psql('postgres', "\\i $dir/everything.sql", on_error_stop => 0);
is(join("\n", grep { /ERROR/ && !/role "\w+" already exists/ } split /\n/, $err), '', 'pg_dumpall: no error');
is_exact($other, 'source', 'pg_dumpall');
is_exact($other, 'schema_only', 'pg_dumpall, second database');
is($other->safe_psql('source', $definitions), $expected, 'pg_dumpall: all is defined');
$other->stop;

# 2. A copy of files
foreach my $strategy ('wal_log', 'file_copy')
{
	my $copy = "copy_$strategy";

	$node->safe_psql('source', "INSERT INTO a.clicks VALUES (1, 'ok', '2024-05-02')");
	$node->safe_psql('postgres', "CREATE DATABASE $copy TEMPLATE source STRATEGY $strategy");
	$node->safe_psql('source', "INSERT INTO a.clicks VALUES (5, 'ok', '2024-05-03')");
	$node->safe_psql($copy, "INSERT INTO a.clicks VALUES (6, 'ok', '2024-05-04'); INSERT INTO b.parts VALUES (2, 1000)");
	is_exact($node, 'source', "$strategy, template");
	is_exact($node, $copy, $strategy);
	is($node->safe_psql($copy, "SELECT count(*) FROM a.minutes WHERE k = 10 AND upper(w) >= '2024-05-03'"),
		$strategy eq 'wal_log' ? '0' : '1', "$strategy: the copy has the rows of before");
	is($node->safe_psql('source', 'SELECT count(*) FROM a.minutes WHERE k = 12'), '0', "$strategy: the template has no row of the copy");
	is($node->safe_psql($copy, <<'SQL'), '0', "$strategy: every state table is known, and there");
SELECT count(*) FROM stream.catalog_state FULL JOIN
	(SELECT oid FROM pg_class WHERE relnamespace = 'stream_state'::regnamespace AND relkind = 'r') c ON c.oid = relid
WHERE c.oid IS NULL OR relid IS NULL
SQL
	# whatever happens to the copy is no business of the template
	$node->safe_psql($copy, 'TRUNCATE a.clicks; REFRESH MATERIALIZED VIEW b.sums');
	is($node->safe_psql($copy, q{SELECT stream.wait_all('60 s'); SELECT count(*) FROM a.minutes}), "t\n0", "$strategy: TRUNCATE in the copy");
	$node->safe_psql('postgres', "ALTER DATABASE $copy RENAME TO renamed");
	$node->safe_psql('renamed', "INSERT INTO a.clicks VALUES (7, 'ok', '2024-05-05'); INSERT INTO b.parts VALUES (3, 2000)");
	is_exact($node, 'renamed', "$strategy, renamed");
	$node->safe_psql('renamed', 'DROP MATERIALIZED VIEW a.minutes; DROP TABLE a.clicks CASCADE');
	is_exact($node, 'source', "$strategy, template after DROP in the copy");

	# 3. DROP DATABASE while rows come in
	append_to_file("$dir/$strategy.sql", "INSERT INTO b.parts VALUES (1, 1);\n\\watch 0.001\n");
	my $stderr = '';
	my $load = IPC::Run::start([ 'psql', '-Xq', '-d', $node->connstr('renamed'), '-f', "$dir/$strategy.sql" ],
		'>', '/dev/null', '2>', \$stderr);
	$node->poll_query_until('renamed', 'SELECT count(*) > 120 FROM b.part') or die 'no load';
	($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE renamed');
	like($err, qr/database "renamed" is being accessed by other users\nDETAIL:  There is 1 other session using the database\./,
		"$strategy: DROP DATABASE is refused because of the session, not of a worker");
	is($node->safe_psql('renamed', "SELECT stream.wait('b.sums', '60 s')"), 't', "$strategy: workers come back");
	$node->safe_psql('postgres', 'DROP DATABASE renamed WITH (FORCE)');
	$load->finish;
	like($stderr, qr/terminating connection/, "$strategy: DROP DATABASE WITH FORCE under load");
	is($node->safe_psql('source', 'SELECT count(*) FROM stream.stat_workers WHERE database IS NULL AND number IS NOT NULL'),
		'0', "$strategy: no worker is left");
}

# 4. The extension goes. The roles stay, so they are there before. Statistics come and go by themselves.
my $catalogs = $node->safe_psql('postgres', <<'SQL');
SELECT string_agg(format('SELECT %L, count(*) FROM %s', oid::regclass, oid::regclass), ' UNION ALL ' ORDER BY relname)
FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND relname !~ '^pg_statistic'
SQL
$node->safe_psql('postgres', 'CREATE DATABASE fresh');
my $before = $node->safe_psql('fresh', $catalogs);
foreach my $round (1 .. 4)
{
	$node->safe_psql('fresh', <<'SQL');
CREATE EXTENSION stream_ext;
CREATE SERVER broker FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'localhost:1');
CREATE USER MAPPING FOR PUBLIC SERVER broker;
CREATE FOREIGN TABLE topic (k int) SERVER broker OPTIONS (topic 't', format 'json');
CREATE TABLE s (k int, t text, ts timestamptz) USING stream WITH (stream.event_time = 'ts');
CREATE INDEX ON s (k);
CREATE MATERIALIZED VIEW v1 USING continuous AS SELECT tumble(ts, '1 h') AS w, k, count(*) AS n FROM s GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v2 USING continuous AS SELECT k, array_agg(DISTINCT t) AS t FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v3 USING continuous AS SELECT k, t FROM s WHERE k > 1;
CREATE MATERIALIZED VIEW v4 USING continuous AS SELECT sum(k) AS k FROM s WITH NO DATA;
CREATE MATERIALIZED VIEW v5 USING continuous AS SELECT count(*) AS n FROM topic;
CREATE UNIQUE INDEX ON v1 (w, k);
CREATE VIEW on_top AS SELECT * FROM v1;
INSERT INTO s SELECT g % 5, repeat('x', g), '2024-05-01' FROM generate_series(1, 1000) g;
SQL
	is( $node->safe_psql('fresh', q{SELECT stream.wait('v1', '60 s'), stream.wait('v2', '60 s'), stream.wait('v3', '60 s')}),
		't|t|t', "extension, round $round: views are built");
	is( $node->safe_psql('fresh', q{SELECT count(*) FROM (SELECT tumble(ts, '1 h') AS w, k, count(*) AS n FROM s GROUP BY 1, 2 EXCEPT ALL SELECT * FROM v1) x}),
		'0', "extension, round $round: a view has the rows of its SELECT");
	($rc, $out, $err) = $node->psql('fresh', 'DROP EXTENSION stream_ext');
	like($err, qr/cannot drop extension stream_ext because other objects depend on it/, "extension, round $round: DROP without CASCADE");
	is($node->safe_psql('fresh', q{INSERT INTO s VALUES (1, 'y', '2024-05-01'); SELECT stream.wait('v1', '60 s')}), 't', "extension, round $round: and all goes on");
	$node->safe_psql('fresh', 'DROP EXTENSION stream_ext CASCADE');
	is($node->safe_psql('fresh', $catalogs), $before, "extension, round $round: nothing is left in the catalogs");
	ok( $node->poll_query_until('source',
			"SELECT NOT EXISTS (SELECT FROM stream.stat_workers WHERE database = 'fresh')"),
		"extension, round $round: no worker is left");
}
# 4 * 5 views and the 3 of each of the 6 other databases are more than stream.max_views: entries come back
is_exact($node, 'source', 'other databases');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing crashed');
done_testing();
