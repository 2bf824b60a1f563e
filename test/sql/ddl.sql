-- CREATE, ALTER, REFRESH, DROP of streams and continuous views; case A42 (names).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
RESET client_min_messages;
SET client_encoding = 'UTF8';
CREATE SCHEMA ddl;
SET search_path = ddl, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, MDY';
SET IntervalStyle = 'postgres';

CREATE FUNCTION label(relation regclass) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(label, '[0-9a-f]{16}', 'ID') FROM pg_seclabel
	WHERE objoid = relation AND provider = 'stream' $$;
CREATE FUNCTION mistake(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text; detail text; hint text;
BEGIN
	EXECUTE statement;
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
		hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(E'\n', SQLSTATE || ': ' || message, nullif(detail, ''), nullif(hint, ''));
END $$;
-- Relations of ours in this schema: is there a label, is the view populated and known to workers?
CREATE VIEW ours AS
	SELECT c.relname::text, a.amname, c.relispopulated AS populated,
		EXISTS (SELECT FROM pg_seclabel l WHERE l.objoid = c.oid) AS labelled,
		(SELECT strpos(label, v.id) > 0 FROM stream.catalog_view v, pg_seclabel l
		 WHERE v.view = c.oid AND l.objoid = c.oid) AS known
	FROM pg_class c JOIN pg_am a ON a.oid = c.relam
	WHERE c.relnamespace = 'ddl'::regnamespace AND a.amname IN ('stream', 'continuous');

-- Views
CREATE TABLE s (k int, ts timestamptz, x numeric) USING stream WITH (stream.event_time = 'ts');
CREATE MATERIALIZED VIEW v USING continuous AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW IF NOT EXISTS v USING continuous WITH (stream.emit = 'update')
	AS SELECT k FROM s;
CREATE MATERIALIZED VIEW stopped USING continuous WITH (fillfactor = 60)
	AS SELECT k, sum(x) AS total FROM s GROUP BY k WITH NO DATA;
SELECT * FROM ours ORDER BY relname;
SELECT relname, reloptions FROM pg_class WHERE oid IN ('v'::regclass, 'stopped'::regclass) ORDER BY 1;
SELECT label('v'), label('stopped');

-- As a dump creates them: no label yet, and nothing runs until it is there
SET default_table_access_method = stream;
CREATE TABLE restored (k int);
CREATE TABLE selected AS SELECT 1 AS k;
SELECT 2 AS k INTO selected_into;
CREATE TABLE with_option (ts timestamptz) WITH (stream.event_time = 'ts');
SET default_table_access_method = continuous;
CREATE MATERIALIZED VIEW restored_view AS SELECT k, count(*) AS n FROM restored GROUP BY k WITH NO DATA;
CREATE MATERIALIZED VIEW with_data AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW with_setting WITH (stream.emit = 'update')
	AS SELECT k, count(*) AS n FROM s GROUP BY k WITH NO DATA;
SELECT mistake('CREATE TABLE x (k int)');
SELECT mistake('CREATE TABLE x AS SELECT 1 AS k');
RESET default_table_access_method;
SELECT * FROM ours ORDER BY relname;
SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'ddl'::regnamespace AND relkind = 'm'
ORDER BY 1;
SELECT mistake('REFRESH MATERIALIZED VIEW restored_view');
SELECT mistake('CREATE MATERIALIZED VIEW x USING continuous AS SELECT k, count(*) FROM restored GROUP BY k')
	IS NOT NULL AS refused;
SECURITY LABEL FOR stream ON TABLE restored IS 'v1';
ALTER MATERIALIZED VIEW restored_view RESET (stream.emit);
REFRESH MATERIALIZED VIEW restored_view;
SELECT * FROM ours WHERE relname LIKE 'restored%' ORDER BY relname;
SELECT mistake('SECURITY LABEL FOR stream ON MATERIALIZED VIEW restored_view IS '
	|| quote_literal(regexp_replace(label, '[0-9a-f]{16}', '0123456789abcdef')))
FROM pg_seclabel WHERE objoid = 'restored_view'::regclass;

-- The wrong kind of relation
SELECT statement, mistake(statement) FROM unnest(ARRAY[
	'CREATE TABLE x (k int) USING continuous',
	'CREATE TABLE x USING continuous AS SELECT 1 AS k',
	'CREATE MATERIALIZED VIEW x USING stream AS SELECT 1 AS k',
	'ALTER TABLE s SET ACCESS METHOD continuous',
	'ALTER MATERIALIZED VIEW v SET ACCESS METHOD stream',
	'EXPLAIN ANALYZE CREATE MATERIALIZED VIEW x USING continuous AS SELECT k FROM s',
	'EXPLAIN ANALYZE CREATE TABLE x USING stream AS SELECT k FROM s'
]) WITH ORDINALITY AS u(statement, n) ORDER BY n;
CREATE TABLE heap_table (k int, ts timestamptz);
CREATE MATERIALIZED VIEW heap_view AS SELECT k FROM heap_table;
SELECT mistake('ALTER TABLE heap_table SET ACCESS METHOD stream');
SELECT mistake('ALTER MATERIALIZED VIEW heap_view SET ACCESS METHOD continuous');
REFRESH MATERIALIZED VIEW heap_view;

-- Every other way to create a stream
CREATE SCHEMA ddl_inner CREATE TABLE t (ts timestamptz) USING stream WITH (stream.event_time = 'ts');
SELECT label('ddl_inner.t');
CREATE FUNCTION make_stream() RETURNS void LANGUAGE sql AS
	$$ CREATE TABLE made (ts timestamptz) USING stream WITH (stream.event_time = 'ts') $$;
DO $$ BEGIN FOR i IN 1..2 LOOP PERFORM make_stream(); DROP TABLE made; END LOOP; END $$;
SELECT make_stream();
SELECT label('made');
DO $$ BEGIN FOR i IN 1..2 LOOP
	CREATE TABLE looped (ts timestamptz) USING stream WITH (stream.event_time = 'ts');
	DROP TABLE looped;
END LOOP; END $$;
PREPARE some_rows AS SELECT timestamptz '2024-05-01' AS ts;
CREATE TABLE prepared USING stream WITH (stream.event_time = 'ts') AS EXECUTE some_rows;
SELECT label('prepared');
DEALLOCATE some_rows;
CREATE TEMP TABLE shadowed (k int);
CREATE TABLE ddl.shadowed (ts timestamptz) USING stream WITH (stream.event_time = 'ts');
SELECT label('ddl.shadowed'), label('pg_temp.shadowed');
CREATE TABLE IF NOT EXISTS s (a int) USING stream WITH (stream.idle_timeout = '1 s');
SELECT label('s');

-- Columns in labels: renamed, retyped and dropped, also through a parent
CREATE TABLE parent (k int, ts timestamptz, other int) PARTITION BY LIST (k);
CREATE TABLE child PARTITION OF parent FOR VALUES IN (1) USING stream
	WITH (stream.event_time = 'ts', stream.watermark_delay = '1 s');
ALTER TABLE parent RENAME COLUMN ts TO moment;
ALTER TABLE parent RENAME COLUMN other TO ts;
SELECT label('child');
SELECT statement, mistake(statement) FROM unnest(ARRAY[
	'ALTER TABLE parent DROP COLUMN moment',
	'ALTER TABLE parent ALTER COLUMN moment TYPE timestamp',
	'ALTER TABLE s DROP COLUMN ts',
	'ALTER TABLE s DROP COLUMN ts CASCADE',
	'ALTER TABLE s ALTER COLUMN ts TYPE timestamp'
]) WITH ORDINALITY AS u(statement, n) ORDER BY n;
ALTER TABLE parent DROP COLUMN ts;
ALTER TABLE s RENAME COLUMN ts TO "it's";
SELECT label('s');
BEGIN;
ALTER TABLE s RENAME COLUMN "it's" TO gone;
ROLLBACK;
ALTER TABLE s RENAME COLUMN "it's" TO ts;
SELECT label('s'), label('child');

-- Unique indexes: only over the key, for the workers do not look for duplicates
SELECT mistake('CREATE UNIQUE INDEX ON v (n)');
SELECT mistake('CREATE UNIQUE INDEX ON v (n) INCLUDE (k)');
SELECT mistake('CREATE UNIQUE INDEX ON v ((k + 0))');
SELECT mistake('CREATE UNIQUE INDEX ON v (k int4_minmax_ops)');
CREATE UNIQUE INDEX v_key ON v (k);
CREATE UNIQUE INDEX CONCURRENTLY v_more ON v (n DESC, k) WHERE n > 1;
CREATE INDEX v_any ON v (n);
SELECT indexrelid::regclass, indisunique, indisvalid FROM pg_index WHERE indrelid = 'v'::regclass
ORDER BY indexrelid::regclass::text;

-- REFRESH asks for a rebuild, in this transaction
SELECT mistake('REFRESH MATERIALIZED VIEW CONCURRENTLY v');
BEGIN;
REFRESH MATERIALIZED VIEW v;
SELECT rebuild FROM stream.catalog_view WHERE view = 'v'::regclass;
ROLLBACK;
BEGIN READ ONLY;
REFRESH MATERIALIZED VIEW v;
ROLLBACK;
REFRESH MATERIALIZED VIEW v WITH NO DATA;
SELECT * FROM ours WHERE relname = 'v';
SELECT * FROM v;
BEGIN;
REFRESH MATERIALIZED VIEW v;
SELECT * FROM ours WHERE relname = 'v';
ROLLBACK;
SELECT * FROM ours WHERE relname = 'v';
REFRESH MATERIALIZED VIEW v;
SELECT * FROM ours WHERE relname = 'v';
CREATE ROLE ddl_other;
GRANT USAGE ON SCHEMA ddl TO ddl_other;
SET ROLE ddl_other;
SELECT mistake('REFRESH MATERIALIZED VIEW v');
SELECT mistake('REFRESH MATERIALIZED VIEW v WITH NO DATA');
SELECT mistake('CREATE UNIQUE INDEX ON v (k)');
RESET ROLE;
REVOKE USAGE ON SCHEMA ddl FROM ddl_other;
DROP ROLE ddl_other;

-- A view that becomes an ordinary one is not ours any more, nor a stream that no view reads
SELECT regexp_replace(mistake('ALTER TABLE s SET ACCESS METHOD heap'), 'view "\w+"', 'view ...');
SELECT mistake('ALTER MATERIALIZED VIEW v SET ACCESS METHOD heap, SET (stream.emit = ''update'')');
ALTER MATERIALIZED VIEW v SET ACCESS METHOD continuous;
ALTER MATERIALIZED VIEW v SET ACCESS METHOD heap;
SELECT label('v') IS NULL AS label_is_gone,
	NOT EXISTS (SELECT FROM stream.catalog_view WHERE view = 'v'::regclass) AS row_is_gone;
ALTER TABLE prepared SET ACCESS METHOD heap;
SELECT label('prepared') IS NULL AS label_is_gone;

-- DROP takes all rows with it, and gives them back
BEGIN;
DROP MATERIALIZED VIEW restored_view;
SELECT count(*) FROM stream.catalog_view v WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.view);
ROLLBACK;
SELECT * FROM ours WHERE relname = 'restored_view';
DROP TABLE restored CASCADE;

-- Case A42: names that are not identifiers
CREATE SCHEMA "Weird.Sch""ema";
CREATE TABLE "Weird.Sch""ema"."Tä ""b'le; drop table x--" ("Col 1" timestamptz, "select" int,
	"ID" int, id int) USING stream WITH (stream.event_time = 'Col 1');
CREATE MATERIALIZED VIEW "Weird.Sch""ema"."V;--" USING continuous AS
	SELECT "ID", id, count(*) AS "select" FROM "Weird.Sch""ema"."Tä ""b'le; drop table x--"
	GROUP BY "ID", id;
ALTER TABLE "Weird.Sch""ema"."Tä ""b'le; drop table x--" RENAME COLUMN "Col 1" TO "a' ""b=''c";
SELECT label('"Weird.Sch""ema"."Tä ""b''le; drop table x--"');
SELECT mistake('CREATE UNIQUE INDEX ON "Weird.Sch""ema"."V;--" ("select")') IS NOT NULL AS refused;
REFRESH MATERIALIZED VIEW "Weird.Sch""ema"."V;--";
ALTER TABLE "Weird.Sch""ema"."Tä ""b'le; drop table x--"
	RESET (stream.event_time), SET (stream.event_time = "a' ""b=''c", stream.max_ahead = '1 s');
SELECT label('"Weird.Sch""ema"."Tä ""b''le; drop table x--"');
-- 63 bytes, and two that agree in the first 60
CREATE TABLE a12345678_b12345678_c12345678_d12345678_e12345678_f12345678_123
	(äääääääääääääääääääääääääääääää timestamptz) USING stream
	WITH (stream.event_time = 'äääääääääääääääääääääääääääääää');
CREATE TABLE a12345678_b12345678_c12345678_d12345678_e12345678_f12345678_124
	(äääääääääääääääääääääääääääääää timestamptz) USING stream
	WITH (stream.max_ahead = '1 h');
CREATE MATERIALIZED VIEW v12345678_b12345678_c12345678_d12345678_e12345678_f12345678_123
	USING continuous AS SELECT äääääääääääääääääääääääääääääää, count(*)
	FROM a12345678_b12345678_c12345678_d12345678_e12345678_f12345678_123 GROUP BY 1;
CREATE MATERIALIZED VIEW v12345678_b12345678_c12345678_d12345678_e12345678_f12345678_124
	USING continuous AS SELECT äääääääääääääääääääääääääääääää, count(*)
	FROM a12345678_b12345678_c12345678_d12345678_e12345678_f12345678_124 GROUP BY 1;
SELECT relname, label(c.oid) FROM pg_class c WHERE relname LIKE 'a12345678\_b%' ORDER BY 1;
SELECT mistake('ALTER TABLE a12345678_b12345678_c12345678_d12345678_e12345678_f12345678_124
	SET (stream.event_time = ''ääääääääääääääääääääääääääääääää'')');
SET client_min_messages = warning;
DROP SCHEMA "Weird.Sch""ema", ddl, ddl_inner CASCADE;
SELECT count(*) FROM stream.catalog_view v WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = v.view);
