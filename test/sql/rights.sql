-- Rights: a view computes with those of its owner and nobody's else, and shows what it does to nobody else.
SET client_min_messages = warning;
SET client_encoding = 'UTF8';
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, MDY';
SET IntervalStyle = 'postgres';
SET search_path = public;
CREATE ROLE rights_owner;
CREATE ROLE rights_other;
CREATE ROLE rights_reader;
CREATE ROLE rights_monitor IN ROLE stream_monitor;
CREATE ROLE rights_admin IN ROLE stream_admin;
CREATE ROLE rights_group;
CREATE SCHEMA rights;
GRANT USAGE, CREATE ON SCHEMA rights TO rights_owner, rights_other;
GRANT USAGE ON SCHEMA rights TO rights_reader, rights_monitor, rights_admin;
SET search_path = rights, public;

-- Code of the owner, wherever it runs: as the owner, who cannot become somebody else.
SET ROLE rights_owner;
CREATE FUNCTION must_be_owner(place text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	attempt text;
BEGIN
	IF current_user <> 'rights_owner' THEN
		RAISE EXCEPTION '%: code of rights_owner runs as %', place, current_user;
	END IF;
	FOREACH attempt IN ARRAY ARRAY['RESET ROLE', 'SET SESSION AUTHORIZATION DEFAULT', 'SET ROLE NONE'] LOOP
		BEGIN
			EXECUTE attempt;
		EXCEPTION WHEN insufficient_privilege OR feature_not_supported THEN
			CONTINUE;
		END;
		RAISE EXCEPTION '%: % succeeded', place, attempt;
	END LOOP;
	RETURN true;
END $$;
CREATE FUNCTION distance(a text, b text) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM must_be_owner('subtype_diff');
	RETURN 1;
END $$;
CREATE TYPE span AS RANGE (subtype = text, subtype_diff = distance);
CREATE TABLE s (k int, r span, ts timestamptz) USING stream WITH (stream.event_time = 'ts');
CREATE MATERIALIZED VIEW v USING continuous AS
	SELECT r, count(*) AS n, max(k) AS k FROM s WHERE must_be_owner('constant') AND must_be_owner('row ' || k)
	GROUP BY r HAVING must_be_owner('group ' || count(*));
CREATE INDEX ON v ((must_be_owner('index of ' || n))) WHERE must_be_owner('predicate of ' || n);
INSERT INTO s SELECT g, span('a', repeat('b', g % 7 + 1)), '2024-05-01' FROM generate_series(1, 100) g;
SELECT stream.wait('v');
SELECT count(*), sum(n) FROM v;
RESET ROLE;
-- commands of a superuser
CREATE UNIQUE INDEX ON v (r);
CREATE INDEX ON v ((must_be_owner('second index of ' || n)));
SELECT operator FROM stream.explain('v') ORDER BY id;
ANALYZE v;
ANALYZE s;
DO $$
DECLARE
	state regclass;
BEGIN
	FOR state IN SELECT relid FROM stream.catalog_state WHERE view = 'v'::regclass LOOP
		EXECUTE 'ANALYZE ' || state;
	END LOOP;
END $$;
SELECT count(*) FROM stream.catalog_state WHERE view = 'v'::regclass;
VACUUM FULL v;
INSERT INTO s VALUES (1, span('a', 'c'), '2024-05-02');
SELECT stream.wait('v');
REFRESH MATERIALIZED VIEW v;
SELECT stream.wait('v');
SELECT count(*), sum(n) FROM v;
ALTER MATERIALIZED VIEW v SET (stream.emit = 'update');
SELECT stream.pause('v');
SELECT stream.resume('v');
SELECT stream.wait('v');
-- the owner may not touch the state, nor anybody else our tables
SET ROLE rights_owner;
SELECT has_schema_privilege('stream_state', 'usage') AS usage, has_schema_privilege('stream_state', 'create') AS "create",
	has_schema_privilege('stream', 'create') AS create_in_stream;
SELECT relname FROM pg_class WHERE relnamespace IN ('stream'::regnamespace, 'stream_state'::regnamespace)
	AND relkind IN ('r', 'v') AND has_any_column_privilege(oid, 'select, insert, update, references') ORDER BY relname COLLATE "C";
SELECT count(*) FROM pg_class WHERE relnamespace IN ('stream'::regnamespace, 'stream_state'::regnamespace)
	AND relkind IN ('r', 'v') AND has_table_privilege(oid, 'insert, update, delete, truncate, references, trigger');
-- no command on a view of somebody else
SET ROLE rights_other;
REFRESH MATERIALIZED VIEW v;
REFRESH MATERIALIZED VIEW v WITH NO DATA;
ALTER MATERIALIZED VIEW v SET (stream.emit = 'update');
ALTER TABLE s SET (stream.max_ahead = '1 h');
SECURITY LABEL FOR stream ON TABLE s IS 'v1';
CREATE INDEX ON v (n);
CREATE UNIQUE INDEX ON v (r);
DROP MATERIALIZED VIEW v;
TRUNCATE s;
CREATE MATERIALIZED VIEW mine USING continuous AS SELECT k FROM s;
SELECT * FROM v;

-- Rights of the owner on the source: a column, a role, none.
RESET ROLE;
CREATE TABLE t (a int, b int) USING stream;
GRANT SELECT (a) ON t TO rights_other;
SET ROLE rights_other;
CREATE MATERIALIZED VIEW refused USING continuous AS SELECT a, sum(b) FROM t GROUP BY a;
CREATE MATERIALIZED VIEW of_a USING continuous AS SELECT a, count(*) AS n FROM t GROUP BY a;
CREATE MATERIALIZED VIEW of_none USING continuous AS SELECT count(*) AS n FROM t;
RESET ROLE;
INSERT INTO t VALUES (1, 1), (1, 2);
SELECT stream.wait_all();
SELECT a, n, (SELECT n FROM of_none) FROM of_a;
REVOKE SELECT (a) ON t FROM rights_other;
INSERT INTO t VALUES (2, 1);
SELECT stream.wait('of_a');
SELECT stream.wait('of_none');
SELECT view, state, error_code, error_message FROM stream.views WHERE view IN ('of_a'::regclass, 'of_none'::regclass)
	ORDER BY view::text;
GRANT SELECT ON t TO rights_group;
GRANT rights_group TO rights_other;
SELECT stream.resume(view) FROM stream.views WHERE owner = 'rights_other';
SELECT stream.wait_all();
SELECT a, n, (SELECT n FROM of_none) FROM of_a ORDER BY a;
REVOKE rights_group FROM rights_other;
INSERT INTO t VALUES (3, 1);
SELECT stream.wait('of_a');
SELECT stream.wait('of_none');
SELECT n FROM of_none;
GRANT rights_group TO rights_other;
SELECT stream.resume(view) FROM stream.views WHERE owner = 'rights_other';
SELECT stream.wait_all();
SELECT a, n, (SELECT n FROM of_none) FROM of_a ORDER BY a;
-- a new owner with fewer rights
ALTER MATERIALIZED VIEW of_none OWNER TO rights_owner;
SELECT stream.wait('of_none');
DROP TABLE t CASCADE;

-- Row-level security: the view has what its owner sees.
CREATE TABLE own (who name, x int) USING stream;
ALTER TABLE own ENABLE ROW LEVEL SECURITY;
CREATE POLICY his ON own USING (who = current_user);
CREATE POLICY of_group ON own TO rights_group USING (who = 'rights_group');
GRANT SELECT ON own TO rights_owner, rights_other;
SET ROLE rights_owner;
CREATE MATERIALIZED VIEW owner_own USING continuous AS SELECT who, sum(x) AS x FROM own GROUP BY who;
SET ROLE rights_other;
CREATE MATERIALIZED VIEW other_own USING continuous AS SELECT who, x FROM own;
RESET ROLE;
CREATE MATERIALIZED VIEW all_own USING continuous AS SELECT who, sum(x) AS x FROM own GROUP BY who;
INSERT INTO own VALUES ('rights_owner', 1), ('rights_other', 2), ('rights_group', 4), ('rights_owner', 8);
-- each view beside the SELECT of its owner
CREATE FUNCTION compare_own() RETURNS TABLE (view regclass, sum bigint, "select" bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOREACH view IN ARRAY ARRAY['all_own', 'other_own', 'owner_own']::regclass[] LOOP
		PERFORM stream.wait(view);
		EXECUTE 'SELECT sum(x) FROM ' || view INTO sum;
		EXECUTE 'SET LOCAL ROLE ' || (SELECT relowner::regrole FROM pg_class WHERE oid = view);
		SELECT sum(x) INTO "select" FROM own;
		RESET ROLE;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM compare_own();
GRANT rights_group TO rights_owner;
SELECT * FROM compare_own();
REVOKE rights_group FROM rights_other;
SELECT * FROM compare_own();
ALTER ROLE rights_other BYPASSRLS;
SELECT * FROM compare_own();
ALTER ROLE rights_other NOBYPASSRLS;
SELECT * FROM compare_own();
ALTER ROLE rights_owner RENAME TO rights_renamed;
INSERT INTO own VALUES ('rights_renamed', 16);
SELECT * FROM compare_own();
ALTER ROLE rights_renamed RENAME TO rights_owner;
ALTER MATERIALIZED VIEW owner_own OWNER TO rights_other;
SELECT * FROM compare_own();
-- as when a dump is restored
SET row_security = off;
REFRESH MATERIALIZED VIEW other_own;
RESET row_security;
SELECT * FROM compare_own();
ALTER TABLE own DISABLE ROW LEVEL SECURITY;
SELECT * FROM compare_own();
ALTER TABLE own ENABLE ROW LEVEL SECURITY;
CREATE POLICY subquery ON own USING (who IN (SELECT 'x'));
SELECT stream.wait('other_own');
DROP TABLE own CASCADE;
DROP FUNCTION compare_own;

-- Who sees what. Rows are put into the catalog, for there is no broker here.
SET ROLE rights_owner;
INSERT INTO s VALUES (NULL, span('x', 'y'), '2024-05-03');
CREATE MATERIALIZED VIEW failed USING continuous AS
	SELECT count(*) AS n, sum(CASE WHEN k IS NULL THEN r::text::int END) FROM s;
SELECT stream.wait('failed');
GRANT SELECT ON failed TO rights_reader;
RESET ROLE;
CREATE SERVER rights_broker FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'localhost:1');
CREATE FOREIGN TABLE topic (k int) SERVER rights_broker OPTIONS (topic 't', format 'json');
ALTER FOREIGN TABLE topic OWNER TO rights_owner;
INSERT INTO stream.catalog_dead_letter SELECT 'topic'::regclass, 0, g, 't', '22P02', 'secret', now(), 'secret', 'secret', now()
	FROM generate_series(1, 3) g;
INSERT INTO stream.catalog_gap VALUES ('topic'::regclass, 'topic'::regclass, 0, 1, 3, 't', now());
CREATE FUNCTION leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
	RAISE WARNING 'leaked %', $1;
	RETURN true;
END $$;
CREATE FUNCTION seen() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n bigint[] := '{}';
	m bigint;
	relation text;
BEGIN
	FOREACH relation IN ARRAY ARRAY['views', 'get_views()', 'positions', 'get_positions()', 'watermarks',
		'dead_letters WHERE rights.leak(error_message)', 'gaps WHERE rights.leak(topic)'] LOOP
		EXECUTE 'SELECT count(*) FROM stream.' || relation INTO m;
		n := n || m;
	END LOOP;
	RETURN n::text;
END $$;
SET client_min_messages = error;
SET ROLE rights_owner;
SELECT seen();
SET ROLE rights_monitor;
SELECT seen();
SET ROLE rights_admin;
SELECT seen();
SET client_min_messages = warning;
SET ROLE rights_reader;
SELECT seen();
SET ROLE rights_other;
SELECT seen();
SET ROLE rights_reader;
SELECT stream.wait('failed');
SELECT stream.wait('v');
SELECT stream.explain('failed');
SELECT stream.pause('failed');
SELECT stream.resume('failed');
SELECT stream.discard_dead_letters('topic');
SET ROLE rights_monitor;
SELECT count(*) FROM stream.explain('v');
SELECT stream.pause('v');
SELECT stream.resume('v');
SELECT stream.discard_dead_letters('topic');
SELECT * FROM v;
REFRESH MATERIALIZED VIEW v;
SET ROLE rights_admin;
SELECT count(*) FROM stream.explain('v');
SELECT stream.pause('v');
SELECT stream.resume('v');
SELECT stream.discard_dead_letters('topic');
SELECT * FROM v;
REFRESH MATERIALIZED VIEW v;
DROP MATERIALIZED VIEW v;
RESET ROLE;
DROP FOREIGN TABLE topic;
DROP SERVER rights_broker;
DROP MATERIALIZED VIEW failed;

-- search_path: objects of an attacker before those of the server, in a superuser's session and for the worker.
GRANT CREATE ON DATABASE :DBNAME TO rights_other;
SET ROLE rights_other;
CREATE SCHEMA rights_attack;
SET search_path = rights_attack;
CREATE FUNCTION trap() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped %', current_user; END $$;
CREATE FUNCTION trap(a anyelement, b anyelement) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION 'trapped %', current_user; END $$;
CREATE FUNCTION trap(a oid, b regclass) RETURNS boolean LANGUAGE sql AS 'SELECT rights_attack.trap()';
CREATE OPERATOR = (FUNCTION = trap, LEFTARG = anyelement, RIGHTARG = anyelement);
CREATE OPERATOR ~ (FUNCTION = trap, LEFTARG = anyelement, RIGHTARG = anyelement);
DO $$
DECLARE
	type regtype;
BEGIN
	FOREACH type IN ARRAY ARRAY['oid', 'name', 'text', 'int4', 'int8', 'char']::regtype[] LOOP
		EXECUTE format('CREATE FUNCTION rights_attack.trap(%1$s, %1$s) RETURNS boolean LANGUAGE sql AS ''SELECT rights_attack.trap()''', type);
		EXECUTE format('CREATE OPERATOR rights_attack.= (FUNCTION = rights_attack.trap, LEFTARG = %1$s, RIGHTARG = %1$s)', type);
		EXECUTE format('CREATE OPERATOR rights_attack.~ (FUNCTION = rights_attack.trap, LEFTARG = %1$s, RIGHTARG = %1$s)', type);
	END LOOP;
END $$;
CREATE FUNCTION has_table_privilege(oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT rights_attack.trap()';
CREATE FUNCTION tumble(timestamptz, interval) RETURNS tstzrange LANGUAGE sql IMMUTABLE AS 'SELECT NULL::tstzrange WHERE rights_attack.trap()';
CREATE TABLE pg_class (oid oid, relname name);
CREATE TABLE pg_namespace (oid oid);
CREATE TABLE catalog_view (view oid);
CREATE TYPE int4 AS (a text);
CREATE TYPE regclass AS (a text);
GRANT USAGE ON SCHEMA rights_attack TO PUBLIC;
RESET ROLE;
-- for whoever connects from now on, the worker among them
ALTER DATABASE :DBNAME SET search_path = rights_attack, pg_catalog, public;
SELECT count(pg_terminate_backend(pid)) FROM stream.stat_workers WHERE database = current_database() AND pid IS NOT NULL;
SELECT pg_catalog.count(*) FROM stream.views;
SET search_path = rights_attack, pg_catalog, rights, public;
CREATE TEMP TABLE catalog_position (view oid);
CREATE TABLE rights.t (k pg_catalog.int4, ts timestamptz) USING stream WITH (stream.event_time = 'ts');
CREATE MATERIALIZED VIEW rights.w USING continuous AS
	SELECT public.tumble(ts, '1 h') AS w, k, count(*) AS n FROM rights.t GROUP BY 1, 2;
INSERT INTO rights.t VALUES (1, '2024-05-01');
SELECT stream.wait('rights.w');
SELECT view, state FROM stream.views WHERE pg_catalog.oideq(view, 'rights.w'::pg_catalog.regclass);
SELECT pg_catalog.count(*) FROM stream.positions;
SELECT pg_catalog.count(*) FROM stream.watermarks;
SELECT pg_catalog.count(*) FROM stream.dead_letters;
SELECT pg_catalog.count(*) FROM stream.stat_workers WHERE number IS NULL;
SELECT operator FROM stream.explain('rights.w') ORDER BY id;
ALTER MATERIALIZED VIEW rights.w SET (stream.emit = 'update');
ALTER TABLE rights.t SET (stream.watermark_delay = '1 s');
ALTER TABLE rights.t RENAME COLUMN ts TO moment;
CREATE UNIQUE INDEX ON rights.w (w, k);
SELECT stream.pause('rights.w');
SELECT stream.resume('rights.w');
REFRESH MATERIALIZED VIEW rights.w;
SELECT stream.wait('rights.w');
TRUNCATE rights.t;
INSERT INTO rights.t VALUES (2, '2024-05-01');
SELECT stream.wait('rights.w');
SET search_path = rights, public;
SELECT lower(w) AT TIME ZONE 'UTC' AS w, k, n FROM w;
SELECT state, error_message FROM stream.views WHERE view = 'w'::regclass;
ALTER DATABASE :DBNAME RESET search_path;
SELECT count(pg_terminate_backend(pid)) FROM stream.stat_workers WHERE database = current_database() AND pid IS NOT NULL;
DROP TABLE catalog_position;
DROP TABLE t CASCADE;
SET client_min_messages = error;
DROP SCHEMA rights_attack CASCADE;
SET client_min_messages = warning;
REVOKE CREATE ON DATABASE :DBNAME FROM rights_other;

-- Names: of roles, schemas, types, columns and indexes; 63 bytes
CREATE ROLE "Rôle ""of"" 63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü12345678901";
CREATE SCHEMA "Schéma.""of"".63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü1234567"
	AUTHORIZATION "Rôle ""of"" 63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü12345678901";
-- (all that follow have 63 bytes)
SELECT octet_length(rolname) AS role, octet_length(nspname) AS schema FROM pg_authid, pg_namespace
	WHERE rolname LIKE 'Rôle%' AND nspname LIKE 'Schéma%';
SET ROLE "Rôle ""of"" 63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü12345678901";
SET search_path = "Schéma.""of"".63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü1234567", public;
CREATE TABLE x (a int);
CREATE TYPE "Type; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890" AS ENUM ('a''b', '"c";--');
CREATE TABLE "Stream; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö12345678" (
	"Key; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö12345678901" "Type; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890",
	"Time; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890" timestamptz
) USING stream WITH (stream.event_time = 'Time; "of" ''x'' %s %1$s \ ünïcödé äöäöäöäö1234567890');
CREATE MATERIALIZED VIEW "View; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890" USING continuous AS
	SELECT "Key; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö12345678901",
		tumble("Time; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890", '1 h') AS "W; ""of"" 'x'", count(*) AS "n;""'%s"
	FROM "Stream; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö12345678" GROUP BY 1, 2;
CREATE UNIQUE INDEX "Index; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö123456789"
	ON "View; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890"
	("Key; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö12345678901", "W; ""of"" 'x'");
INSERT INTO "Stream; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö12345678"
	VALUES ('a''b', '2024-05-01'), ('"c";--', '2024-05-01'), ('a''b', '2024-05-01 00:59');
SELECT stream.wait('"View; ""of"" ''x'' %s %1$s \ ünïcödé äöäöäöäö1234567890"');
SELECT * FROM "View; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890" ORDER BY 1, 2;
SELECT view, owner, state FROM stream.views;
SELECT view, source FROM stream.positions;
SELECT operator, detail FROM stream.explain('"View; ""of"" ''x'' %s %1$s \ ünïcödé äöäöäöäö1234567890"') ORDER BY id;
ALTER TYPE "Type; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890" RENAME VALUE 'a''b' TO 'ä"; --';
REFRESH MATERIALIZED VIEW "View; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890";
SELECT stream.wait('"View; ""of"" ''x'' %s %1$s \ ünïcödé äöäöäöäö1234567890"');
SELECT * FROM "View; ""of"" 'x' %s %1$s \ ünïcödé äöäöäöäö1234567890" ORDER BY 1, 2;
SELECT DISTINCT octet_length(relname) FROM pg_class WHERE relname LIKE '%ünï%';
SELECT count(*) FROM x;

-- Values of options are values. The settings that a view keeps come from the session, and are as wild.
CREATE TABLE y (ts timestamptz) USING stream WITH (stream.event_time = 'ts'' max_ahead=''1 s');
CREATE TABLE y (ts timestamptz) USING stream WITH (stream.event_time = 'ts', stream.watermark_delay = '1 s''; DROP TABLE x; --');
CREATE TABLE y (ts timestamptz) USING stream WITH (stream.event_time = 'ts', stream.max_ahead = '');
CREATE TABLE y (ts timestamptz) USING stream WITH (stream."event_time; --" = 'ts');
CREATE TABLE y (k int) USING stream;
SECURITY LABEL FOR stream ON TABLE y IS E'v1 event_time=\'k\' x=\'';
SECURITY LABEL FOR stream ON TABLE y IS E'v1 id=\'0123456789abcdef\'';
SET search_path = "Schéma.""of"".63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü1234567", "'; DROP TABLE x; --", """", public;
CREATE FUNCTION path(int) RETURNS text STABLE LANGUAGE sql AS $$ SELECT current_setting('search_path') || nullif($1, $1 - 1) * 0 $$;
CREATE MATERIALIZED VIEW z USING continuous WITH (stream.emit = 'update'' search_path=''x') AS SELECT path(k) FROM y;
CREATE MATERIALIZED VIEW z USING continuous AS SELECT path(k) FROM y;
INSERT INTO y VALUES (1);
SELECT stream.wait('z');
SELECT * FROM z EXCEPT ALL SELECT path(k) FROM y;
SELECT count(*) FROM z;
SELECT regexp_replace(label, '[0-9a-f]{16}', 'ID') FROM pg_seclabel WHERE objoid = 'z'::regclass;

RESET ROLE;
SET search_path = public;
DROP SCHEMA "Schéma.""of"".63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü1234567" CASCADE;
DROP SCHEMA rights CASCADE;
DROP ROLE "Rôle ""of"" 63 bytes; DROP TABLE x; -- 'äöüäöüäöüäöü12345678901";
DROP ROLE rights_owner, rights_other, rights_reader, rights_monitor, rights_admin, rights_group;
