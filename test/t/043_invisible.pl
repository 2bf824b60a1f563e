# Hooks are not to be seen by those who use neither streams nor continuous views: the same script gives the same output
#  - without the library
#  - with the library preloaded, in a database without the extension
#  - with the library preloaded, in a database with the extension
# The statements are those that pass through a hook: DDL of tables, views and indexes by all ways (also in functions,
# where the tree belongs to a cached plan), errors with positions, COPY, triggers, event triggers, foreign data,
# partitions, row-level security, transactions of all kinds, planning.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $script = <<'SQL';
\set VERBOSITY verbose
\set SHOW_CONTEXT always
SET client_min_messages = notice;
SET TimeZone = 'UTC';

-- tables
CREATE TABLE t (a int PRIMARY KEY, b text DEFAULT 'x', c numeric CHECK (c > 0), d timestamptz) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS t (a int);
CREATE TABLE t (a int);
CREATE TABLE bad (a int) WITH (no_such_option = 1);
CREATE TABLE bad (a int) WITH (namespace.option = 1);
CREATE TABLE bad (a int) USING no_such_method;
CREATE TABLE bad (a no_such_type);
CREATE TABLE bad (a int, a int);
CREATE UNLOGGED TABLE u (LIKE t INCLUDING ALL);
CREATE TEMP TABLE tmp ON COMMIT DROP AS SELECT 1 AS a;
CREATE TEMP TABLE tmp (a int) ON COMMIT DELETE ROWS;
CREATE TABLE h (a int) USING heap;
CREATE TABLE ctas WITH (fillfactor = 80) AS SELECT g AS a FROM generate_series(1, 3) g;
CREATE TABLE ctas AS SELECT 1;
CREATE TABLE IF NOT EXISTS ctas AS SELECT 1;
CREATE TABLE nodata AS SELECT 1 AS a WITH NO DATA;
SELECT a INTO si FROM ctas;
PREPARE p AS SELECT a FROM ctas;
CREATE TABLE cp AS EXECUTE p;
CREATE TABLE typed OF no_such_type;
CREATE TYPE ty AS (a int, b text);
CREATE TABLE typed OF ty (PRIMARY KEY (a));
CREATE SCHEMA sch CREATE TABLE inner_t (a int) CREATE VIEW inner_v AS SELECT * FROM inner_t CREATE INDEX inner_i ON inner_t (a);
\d t
\d+ u
\d sch.*
EXPLAIN (COSTS OFF) CREATE TABLE e AS SELECT * FROM ctas WHERE a = 1;
EXPLAIN (COSTS OFF, ANALYZE, TIMING OFF, SUMMARY OFF) CREATE TABLE e AS SELECT * FROM ctas WHERE a = 1;
EXPLAIN (COSTS OFF, ANALYZE, TIMING OFF, SUMMARY OFF) CREATE MATERIALIZED VIEW em AS SELECT * FROM ctas;
DROP TABLE e;
DROP MATERIALIZED VIEW em;

-- ALTER
ALTER TABLE t ADD COLUMN e int DEFAULT 3, ALTER COLUMN b TYPE varchar(10), ALTER b SET NOT NULL;
ALTER TABLE t SET (fillfactor = 90, autovacuum_enabled = off), RESET (fillfactor);
ALTER TABLE t SET (no_such_option = 1);
ALTER TABLE t RESET (no_such_option);
ALTER TABLE t SET ACCESS METHOD heap;
ALTER TABLE t SET ACCESS METHOD no_such_method;
ALTER TABLE t SET UNLOGGED;
ALTER TABLE t SET LOGGED;
ALTER TABLE IF EXISTS nowhere SET (fillfactor = 10);
ALTER TABLE nowhere RENAME a TO b;
ALTER TABLE t RENAME COLUMN c TO cc;
ALTER TABLE t RENAME CONSTRAINT t_c_check TO t_check;
ALTER TABLE t RENAME TO t2;
ALTER TABLE t2 RENAME TO t;
ALTER TABLE t DROP COLUMN no_such_column;
ALTER TABLE t DROP COLUMN IF EXISTS no_such_column;
ALTER TABLE t DROP COLUMN e;
ALTER TABLE t SET SCHEMA sch;
ALTER TABLE sch.t SET SCHEMA public;
ALTER TABLE h CLUSTER ON no_such_index;
ALTER TABLE typed ADD COLUMN c int;
ALTER TYPE ty ADD ATTRIBUTE c int;
ALTER TYPE ty ADD ATTRIBUTE c int CASCADE;
ALTER TYPE ty RENAME ATTRIBUTE b TO bb CASCADE;
\d typed
DO $$ BEGIN FOR i IN 1..3 LOOP
	CREATE TABLE looped (a int) WITH (fillfactor = 60);
	ALTER TABLE looped SET (fillfactor = 50), ADD COLUMN b int;
	CREATE UNIQUE INDEX ON looped (a);
	CREATE MATERIALIZED VIEW looped_v AS SELECT * FROM looped;
	REFRESH MATERIALIZED VIEW looped_v;
	DROP TABLE looped CASCADE;
END LOOP; END $$;
CREATE FUNCTION ddl() RETURNS void LANGUAGE sql AS $$
	CREATE TABLE made (a int) WITH (fillfactor = 60); DROP TABLE made $$;
SELECT ddl();
SELECT ddl();

-- materialized views
CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM ctas GROUP BY a;
CREATE MATERIALIZED VIEW IF NOT EXISTS m AS SELECT 1;
CREATE MATERIALIZED VIEW m AS SELECT 1;
CREATE MATERIALIZED VIEW mb AS SELECT * FROM tmp;
CREATE MATERIALIZED VIEW mn WITH (fillfactor = 60) AS SELECT * FROM m WITH NO DATA;
CREATE MATERIALIZED VIEW mo WITH (namespace.option = 1) AS SELECT 1;
SELECT * FROM mn;
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
CREATE UNIQUE INDEX m_a ON m (a);
INSERT INTO ctas VALUES (3), (4);
REFRESH MATERIALIZED VIEW CONCURRENTLY m;
SELECT * FROM m ORDER BY a;
REFRESH MATERIALIZED VIEW mn;
REFRESH MATERIALIZED VIEW mn WITH NO DATA;
REFRESH MATERIALIZED VIEW CONCURRENTLY mn WITH NO DATA;
REFRESH MATERIALIZED VIEW t;
REFRESH MATERIALIZED VIEW nowhere;
ALTER MATERIALIZED VIEW m SET (fillfactor = 55), SET ACCESS METHOD heap;
ALTER MATERIALIZED VIEW m RENAME COLUMN n TO nn;
ALTER MATERIALIZED VIEW m RENAME TO m2;
INSERT INTO m2 VALUES (1);
DELETE FROM m2;
\d+ m2
DROP MATERIALIZED VIEW m2;
DROP MATERIALIZED VIEW m2 CASCADE;

-- indexes
CREATE UNIQUE INDEX ON ctas (a);
CREATE UNIQUE INDEX i1 ON t (b, a DESC) INCLUDE (d) WHERE cc > 1;
CREATE UNIQUE INDEX CONCURRENTLY i2 ON t (lower(b));
CREATE INDEX IF NOT EXISTS i2 ON t (b);
CREATE INDEX ON nowhere (a);
CREATE INDEX ON t (no_such_column);
REINDEX TABLE t;
CLUSTER t USING t_pkey;
VACUUM (FULL, ANALYZE) t;
VACUUM FREEZE ctas;
ANALYZE t (a, no_such_column);

-- rows, COPY, rights
INSERT INTO t VALUES (1, 'one', 1, '2024-05-01'), (2, 'two', 2, NULL) RETURNING a;
INSERT INTO t VALUES (1, 'again', 1) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *;
UPDATE t SET cc = -1;
SELECT * FROM t ORDER BY a FOR UPDATE;
MERGE INTO t USING ctas ON t.a = ctas.a WHEN MATCHED THEN UPDATE SET b = 'merged' WHEN NOT MATCHED THEN INSERT (a, b) VALUES (ctas.a, 'new');
COPY t FROM STDIN;
10	ten	10	2024-05-01
11	eleven	\N	\N
\.
COPY t (a, b) FROM STDIN WITH (FORMAT csv, HEADER);
a,b
12,twelve
13,"way too long for ten"
\.
COPY t (a, b) TO STDOUT WITH (FORMAT csv);
COPY (SELECT * FROM ctas ORDER BY a) TO STDOUT;
COPY nowhere TO STDOUT;
CREATE ROLE invisible_role;
GRANT SELECT (a) ON t TO invisible_role;
SET ROLE invisible_role;
SELECT a FROM t ORDER BY a;
SELECT b FROM t;
UPDATE t SET b = 'x';
DELETE FROM t;
ALTER TABLE t SET (fillfactor = 10);
CREATE UNIQUE INDEX ON t (a);
REFRESH MATERIALIZED VIEW mn;
DROP TABLE t;
TRUNCATE t;
RESET ROLE;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY pol ON t USING (a > 5);
SET ROLE invisible_role;
SELECT a FROM t ORDER BY a;
RESET ROLE;

-- foreign keys, triggers, rules
CREATE TABLE child (a int REFERENCES t ON DELETE CASCADE ON UPDATE SET NULL, b int);
INSERT INTO child VALUES (1, 1), (99, 1);
INSERT INTO child VALUES (1, 1);
CREATE FUNCTION trg() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	RAISE NOTICE '% % % %', TG_NAME, TG_WHEN, TG_OP, coalesce(NEW.a, OLD.a); RETURN coalesce(NEW, OLD); END $$;
CREATE TRIGGER before_row BEFORE INSERT OR UPDATE OR DELETE ON child FOR EACH ROW EXECUTE FUNCTION trg();
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON child DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION trg();
CREATE FUNCTION trg_trans() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	RAISE NOTICE '% rows', (SELECT count(*) FROM new_rows); RETURN NULL; END $$;
CREATE TRIGGER trans AFTER INSERT ON child REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION trg_trans();
BEGIN;
INSERT INTO child VALUES (2, 1), (10, 2);
COPY child FROM STDIN;
11	1
\.
COMMIT;
DELETE FROM t WHERE a = 1;
TRUNCATE t;
TRUNCATE t, child;
CREATE RULE r AS ON INSERT TO h DO ALSO INSERT INTO si VALUES (NEW.a);
INSERT INTO h VALUES (7);
SELECT * FROM si ORDER BY a;
CREATE VIEW v AS SELECT * FROM t WHERE a > 1 WITH CHECK OPTION;
INSERT INTO v VALUES (0, 'x', 1);

-- partitions and inheritance
CREATE TABLE part (a int, b text) PARTITION BY RANGE (a);
CREATE TABLE part (a int) PARTITION BY RANGE (a) WITH (fillfactor = 10);
CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10) WITH (fillfactor = 40);
CREATE TABLE part2 PARTITION OF part FOR VALUES FROM (5) TO (20);
CREATE TABLE part2 (LIKE part);
ALTER TABLE part ATTACH PARTITION part2 FOR VALUES FROM (10) TO (20);
CREATE UNIQUE INDEX ON part (a);
CREATE UNIQUE INDEX ON part (b);
INSERT INTO part SELECT g, 'x' || g FROM generate_series(0, 19) g;
UPDATE part SET a = a + 10 WHERE a = 5;
DELETE FROM part WHERE a = 15;
UPDATE part SET a = a + 10 WHERE a = 5;
ALTER TABLE part RENAME b TO bb;
ALTER TABLE part DROP COLUMN bb;
ALTER TABLE part DETACH PARTITION part2;
\d+ part
CREATE TABLE inh () INHERITS (t);
DROP TABLE t;
EXPLAIN (COSTS OFF) SELECT * FROM part JOIN ctas USING (a) WHERE a < 3;
SELECT tableoid::regclass, count(*) FROM part GROUP BY 1 ORDER BY 1;

-- event triggers
CREATE FUNCTION evt() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE r record; BEGIN
	IF TG_EVENT = 'ddl_command_end' THEN
		FOR r IN SELECT command_tag, object_type, object_identity, in_extension FROM pg_event_trigger_ddl_commands() LOOP RAISE NOTICE '%', r; END LOOP;
	ELSIF TG_EVENT = 'sql_drop' THEN
		FOR r IN SELECT object_type, object_identity, original, normal FROM pg_event_trigger_dropped_objects() LOOP RAISE NOTICE '%', r; END LOOP;
	ELSIF TG_EVENT = 'table_rewrite' THEN RAISE NOTICE 'rewrite % %', pg_event_trigger_table_rewrite_oid()::regclass, pg_event_trigger_table_rewrite_reason();
	ELSE RAISE NOTICE '% %', TG_EVENT, TG_TAG; END IF; END $$;
CREATE EVENT TRIGGER e1 ON ddl_command_start EXECUTE FUNCTION evt();
CREATE EVENT TRIGGER e2 ON ddl_command_end EXECUTE FUNCTION evt();
CREATE EVENT TRIGGER e3 ON sql_drop EXECUTE FUNCTION evt();
CREATE EVENT TRIGGER e4 ON table_rewrite EXECUTE FUNCTION evt();
CREATE TABLE ev (a int PRIMARY KEY, b serial);
ALTER TABLE ev ALTER a TYPE bigint, SET (fillfactor = 40);
CREATE TABLE ev2 AS SELECT * FROM ev;
CREATE MATERIALIZED VIEW evm AS SELECT * FROM ev;
REFRESH MATERIALIZED VIEW evm;
ALTER MATERIALIZED VIEW evm SET (fillfactor = 40);
CREATE INDEX ON evm (a);
SELECT 1 AS a INTO ev3;
ALTER TABLE ev RENAME a TO aa;
DROP TABLE ev CASCADE;
DROP TABLE ev2, ev3;
COMMENT ON TABLE t IS 'a table';
DROP EVENT TRIGGER e1; DROP EVENT TRIGGER e2; DROP EVENT TRIGGER e3; DROP EVENT TRIGGER e4;

-- foreign data
CREATE FOREIGN DATA WRAPPER dummy OPTIONS (a '1');
CREATE SERVER srv FOREIGN DATA WRAPPER dummy OPTIONS (host 'x');
CREATE USER MAPPING FOR invisible_role SERVER srv OPTIONS (password 'p');
CREATE FOREIGN TABLE ft (a int OPTIONS (x 'y'), b text) SERVER srv OPTIONS (topic 't', event_time 'a');
ALTER FOREIGN TABLE ft OPTIONS (SET topic 'u', DROP event_time, ADD z '1');
ALTER FOREIGN TABLE ft RENAME a TO aa;
ALTER FOREIGN TABLE ft DROP COLUMN aa, ALTER b TYPE int;
ALTER FOREIGN TABLE ft OPTIONS (DROP no_such_option);
SELECT * FROM ft;
IMPORT FOREIGN SCHEMA x FROM SERVER srv INTO public;
\d+ ft
DROP SERVER srv;
DROP FOREIGN DATA WRAPPER dummy CASCADE;

-- addresses, labels
SELECT * FROM pg_identify_object('pg_class'::regclass, 't'::regclass, 0);
SELECT type, object_names, object_args FROM pg_identify_object_as_address('pg_class'::regclass, 'part'::regclass, 1);
SELECT pg_describe_object(classid, objid, objsubid) FROM pg_get_object_address('table column', '{public,t,a}', '{}');
SECURITY LABEL FOR no_such_provider ON TABLE t IS 'x';
SELECT count(*) FROM pg_seclabels WHERE objname = 't';

-- transactions
BEGIN;
SAVEPOINT a;
CREATE TABLE sp (a int);
SELECT 1 / 0;
SELECT 1;
ROLLBACK TO a;
CREATE TABLE sp (a int);
SAVEPOINT b;
DROP TABLE sp;
ROLLBACK TO b;
RELEASE a;
PREPARE TRANSACTION 'invisible';
SELECT gid FROM pg_prepared_xacts WHERE gid = 'invisible';
COMMIT PREPARED 'invisible';
ROLLBACK PREPARED 'invisible';
COMMIT;
SELECT count(*) FROM sp;
BEGIN READ ONLY;
CREATE TABLE ro (a int);
ROLLBACK;
BEGIN READ ONLY;
REFRESH MATERIALIZED VIEW mn;
ROLLBACK;
BEGIN;
DECLARE cur CURSOR WITH HOLD FOR SELECT a FROM ctas ORDER BY a;
COMMIT AND CHAIN;
FETCH 2 FROM cur;
ROLLBACK;
CREATE PROCEDURE proc() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..3 LOOP INSERT INTO si VALUES (i); COMMIT; END LOOP; ROLLBACK; END $$;
CALL proc();
PREPARE TRANSACTION 'nothing';
DISCARD ALL;

-- databases and extensions
CREATE DATABASE invisible_db TEMPLATE no_such_database;
DROP DATABASE no_such_database;
DROP DATABASE IF EXISTS no_such_database;
ALTER DATABASE no_such_database RENAME TO x;
ALTER DATABASE no_such_database SET TABLESPACE pg_default;
SET ROLE invisible_role;
CREATE DATABASE invisible_db;
DROP DATABASE template1;
ALTER DATABASE template1 RENAME TO x;
RESET ROLE;
CREATE EXTENSION no_such_extension;
DROP EXTENSION no_such_extension;
DROP EXTENSION IF EXISTS no_such_extension;
CREATE EXTENSION plpgsql;

-- planning
SET enable_hashagg = off;
EXPLAIN (COSTS OFF) SELECT a, count(*) FROM ctas GROUP BY a;
SHOW row_security;
SHOW enable_hashagg;
SHOW work_mem;
SELECT relname, attname, n_distinct FROM pg_class c JOIN pg_stats s ON s.tablename = c.relname WHERE relname = 'ctas' AND n_distinct > 0;
DROP SCHEMA sch CASCADE;
DROP TABLE t CASCADE;
DROP OWNED BY invisible_role;
DROP ROLE invisible_role;
SQL

# Names that mean nothing where the extension is not installed.
my $without_extension = <<'SQL';
CREATE TABLE o (a int) WITH (stream.event_time = 'a');
CREATE MATERIALIZED VIEW o WITH (stream.emit = 'update') AS SELECT 1;
CREATE TABLE o (a int) USING stream;
CREATE MATERIALIZED VIEW o USING continuous AS SELECT 1;
CREATE TABLE o (a int);
ALTER TABLE o SET (stream.event_time = 'a');
ALTER TABLE o SET ACCESS METHOD stream;
SET default_table_access_method = stream;
CREATE SCHEMA stream CREATE TABLE catalog_view (view int);
CREATE FUNCTION stream.wait(text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT stream.wait('o');
CREATE FOREIGN DATA WRAPPER kafka;
CREATE SERVER broker FOREIGN DATA WRAPPER kafka;
CREATE FOREIGN TABLE topic (a int) SERVER broker OPTIONS (event_time 'a');
ALTER FOREIGN TABLE topic RENAME a TO b;
ALTER FOREIGN TABLE topic DROP COLUMN b;
\d+ topic
DROP FOREIGN DATA WRAPPER kafka CASCADE;
DROP SCHEMA stream CASCADE;
DROP TABLE o;
SQL

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_prepared_transactions = 10\nautovacuum = off\n");
$node->start;
my $dir = $node->basedir;
append_to_file("$dir/script.sql", $script);
append_to_file("$dir/without.sql", $without_extension);

sub output_of
{
	my ($database, $file) = @_;
	my $output = '';

	$node->safe_psql('postgres', "CREATE DATABASE $database") if $node->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname = '$database'") eq '0';
	IPC::Run::run([ 'psql', '-Xa', '-d', $node->connstr($database), '-f', "$dir/$file" ], '&>', \$output);
	# the place in the server's source is not ours to keep; psql says where it was
	$output =~ s/^LOCATION: .*\n//mg;
	return $output;
}

# What differs, with the lines around.
sub is_same
{
	my ($output, $expected, $name) = @_;

	ok($output eq $expected, $name) and return;
	my @output = split /\n/, $output;
	my @expected = split /\n/, $expected;
	my $line = 0;

	$line++ while $line < @output && $line < @expected && $output[$line] eq $expected[$line];
	diag("line $line\n-- expected:\n" . join("\n", @expected[ ($line > 4 ? $line - 4 : 0) .. $line + 4 ])
		. "\n-- got:\n" . join("\n", @output[ ($line > 4 ? $line - 4 : 0) .. $line + 4 ]));
	return;
}

my $expected = output_of('plain', 'script.sql');
my $expected_without = output_of('plain', 'without.sql');
like($expected, qr/DROP ROLE\s*\z/, 'the script runs to its end');
cmp_ok(scalar(() = $expected =~ /ERROR:/g), '>', 60, 'and has errors to compare');
like($expected_without, qr/unrecognized parameter namespace "stream"/, 'so has the other one');

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'stream_ext'\n");
$node->restart;
is_same(output_of('loaded', 'script.sql'), $expected, 'the same with the library loaded');
is_same(output_of('loaded', 'without.sql'), $expected_without, 'the same with names of ours, which mean nothing there');
$node->safe_psql('postgres', 'CREATE DATABASE extension');
$node->safe_psql('extension', 'CREATE EXTENSION stream_ext');
is_same(output_of('extension', 'script.sql'), $expected, 'the same with the extension installed');
$node->safe_psql('postgres', 'CREATE DATABASE beside');
$node->safe_psql('beside', <<'SQL');
CREATE EXTENSION stream_ext;
CREATE TABLE s (k int) USING stream;
CREATE MATERIALIZED VIEW sv USING continuous AS SELECT k, count(*) AS n FROM s GROUP BY k;
INSERT INTO s VALUES (1);
SELECT stream.wait('sv', '60 s');
SQL
is_same(output_of('beside', 'script.sql'), $expected, 'the same beside a view');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing crashed');
done_testing();
