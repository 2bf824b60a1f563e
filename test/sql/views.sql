-- Continuous views: results, life, and what is refused.
SET client_min_messages = warning;
SET TimeZone = 'UTC';
CREATE TABLE cv_s (k int, x int, t text, ts timestamptz NOT NULL) USING stream
	WITH (stream.event_time = 'ts', stream.watermark_delay = '5 s');
CREATE MATERIALIZED VIEW cv_a USING continuous AS
	SELECT tumble(ts, '1 minute') AS w, k, count(*) AS n, sum(x) AS s, avg(x)::numeric(10,2) AS a,
		count(DISTINCT x) AS d, array_agg(x ORDER BY x DESC) AS xs, max(t) FILTER (WHERE x > 2) AS m
	FROM cv_s WHERE k IS DISTINCT FROM 9 GROUP BY w, k;
CREATE MATERIALIZED VIEW cv_p USING continuous AS SELECT k + 1 AS k1, upper(t) AS u FROM cv_s WHERE x > 1;
CREATE MATERIALIZED VIEW cv_g USING continuous AS SELECT count(*) AS n, max(x) AS m FROM cv_s;
CREATE MATERIALIZED VIEW cv_d USING continuous AS SELECT DISTINCT k FROM cv_s;
-- A10: one implicit group that exists without rows; HAVING that comes and goes
CREATE MATERIALIZED VIEW cv_h USING continuous AS
	SELECT k, count(*) AS n FROM cv_s GROUP BY k HAVING count(*) BETWEEN 2 AND 3;
CREATE MATERIALIZED VIEW cv_z USING continuous AS SELECT count(*) AS n FROM cv_s HAVING count(*) = 0;
SELECT stream.wait_all();
SELECT * FROM cv_g;
SELECT * FROM cv_z;
SELECT * FROM cv_a;
INSERT INTO cv_s VALUES
	(1, 1, 'a', '2024-05-01 10:00:00Z'), (1, 3, 'b', '2024-05-01 10:00:59.999999Z'),
	(1, 3, 'c', '2024-05-01 10:01:00Z'), (NULL, 2, 'd', '2024-05-01 10:00:01Z'),
	(NULL, NULL, NULL, '2024-05-01 10:00:02Z'), (9, 7, 'e', '2024-05-01 10:00:03Z');
SELECT stream.wait_all();
SELECT * FROM cv_a ORDER BY w, k;
SELECT * FROM cv_p ORDER BY k1, u;
SELECT * FROM cv_g;
SELECT * FROM cv_d ORDER BY k;
SELECT * FROM cv_h ORDER BY k;
SELECT * FROM cv_z;
-- rolled back rows and savepoints
BEGIN;
INSERT INTO cv_s VALUES (2, 2, 'x', '2024-05-01 10:00:00Z');
ROLLBACK;
BEGIN;
SAVEPOINT a;
INSERT INTO cv_s VALUES (3, 3, 'x', '2024-05-01 10:00:00Z');
ROLLBACK TO a;
INSERT INTO cv_s VALUES (1, 5, 'y', '2024-05-01 10:00:30Z');
COMMIT;
SELECT stream.wait_all();
SELECT * FROM cv_a WHERE k = 1 ORDER BY w, k;
SELECT * FROM cv_h ORDER BY k;
-- an index on the view, kept by the worker; a unique one must contain the key
CREATE INDEX cv_a_n ON cv_a (n);
CREATE UNIQUE INDEX cv_a_bad ON cv_a (n);
CREATE UNIQUE INDEX cv_a_key ON cv_a (w, k);
INSERT INTO cv_s VALUES (4, 4, 'z', '2024-05-01 10:00:00Z');
SELECT stream.wait('cv_a');
SET enable_seqscan = off;
SELECT k, n FROM cv_a WHERE k = 4 AND w @> '2024-05-01 10:00:00Z'::timestamptz;
SELECT k FROM cv_a WHERE n = 3;
RESET enable_seqscan;
-- TRUNCATE: the SELECT returns nothing, and so do the views
TRUNCATE cv_s;
INSERT INTO cv_s VALUES (5, 5, 'q', '2024-05-01 11:00:00Z');
SELECT stream.wait_all();
SELECT * FROM cv_a ORDER BY w, k;
SELECT * FROM cv_p ORDER BY k1;
SELECT * FROM cv_g;
-- rewritten heap, REFRESH, pause
VACUUM FULL cv_a;
INSERT INTO cv_s VALUES (5, 6, 'r', '2024-05-01 11:00:01Z');
SELECT stream.wait('cv_a');
SELECT k, n, s, xs FROM cv_a ORDER BY w, k;
REFRESH MATERIALIZED VIEW cv_a;
SELECT stream.wait('cv_a');
SELECT k, n, s, xs FROM cv_a ORDER BY w, k;
SELECT stream.pause('cv_a');
INSERT INTO cv_s VALUES (6, 6, 's', '2024-05-01 11:00:02Z');
SELECT stream.wait('cv_p');
SELECT stream.wait('cv_a');
SELECT k, n FROM cv_a ORDER BY w, k;
SELECT stream.resume('cv_a');
SELECT stream.wait('cv_a');
SELECT k, n FROM cv_a ORDER BY w, k;
-- an error stops its own view only
CREATE MATERIALIZED VIEW cv_f USING continuous AS SELECT 10 / (k - 7) AS q FROM cv_s;
SELECT stream.wait('cv_f');
INSERT INTO cv_s VALUES (7, 7, 't', '2024-05-01 11:00:03Z');
SELECT stream.wait('cv_f');
SELECT stream.wait('cv_a');
SELECT view, state, error_code, error_message FROM stream.views WHERE state <> 'running';
SELECT k, n FROM cv_a ORDER BY w, k;
DROP MATERIALIZED VIEW cv_f;
-- settings of STABLE functions are those of CREATE
SET TimeZone = 'America/New_York';
SET DateStyle = 'SQL, DMY';
CREATE MATERIALIZED VIEW cv_stable USING continuous AS SELECT ts::text AS t FROM cv_s;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, MDY';
SELECT stream.wait('cv_stable');
SELECT * FROM cv_stable ORDER BY t;
-- ORDER BY of a view orders nothing, but is no error
CREATE MATERIALIZED VIEW cv_order USING continuous AS SELECT k FROM cv_s ORDER BY x, k + 1;
SELECT stream.wait('cv_order');
SELECT * FROM cv_order ORDER BY k;
-- a subquery in FROM, over and under the aggregate
CREATE MATERIALIZED VIEW cv_sub USING continuous AS
	SELECT n * 2 AS n2, k FROM (SELECT k, count(*) AS n FROM (SELECT k FROM cv_s WHERE x > 5) i GROUP BY k) o
	WHERE n > 0;
SELECT stream.wait('cv_sub');
SELECT * FROM cv_sub ORDER BY k;
SELECT id, parent, operator, rows_in, rows_out FROM stream.explain('cv_sub') ORDER BY id;
\set VERBOSITY default
-- the planner evaluates constant calls, as the owner of the view whoever asks
CREATE ROLE regress_cv_owner;
GRANT SELECT ON cv_s TO regress_cv_owner;
GRANT CREATE ON SCHEMA public TO regress_cv_owner;
SET ROLE regress_cv_owner;
CREATE FUNCTION cv_who(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RAISE WARNING 'evaluated as %', current_user; RETURN i; END $$;
CREATE MATERIALIZED VIEW cv_owned USING continuous AS SELECT k, count(*) AS n FROM cv_s WHERE k > cv_who(0) GROUP BY k;
RESET ROLE;
CREATE UNIQUE INDEX ON cv_owned (k);
SELECT operator FROM stream.explain('cv_owned') ORDER BY id;
DROP OWNED BY regress_cv_owner;
DROP ROLE regress_cv_owner;
-- refused, with the construct and its position
CREATE TABLE cv_heap (k int);
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k FROM cv_heap;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT 1;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT a.k FROM cv_s a JOIN cv_s b ON a.k = b.k;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT a.k FROM cv_s a, cv_heap b;
CREATE MATERIALIZED VIEW cv_no USING continuous AS WITH q AS (SELECT * FROM cv_s) SELECT k FROM q;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k FROM cv_s UNION ALL SELECT x FROM cv_s;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k FROM cv_s LIMIT 10;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT DISTINCT ON (k) k, x FROM cv_s ORDER BY k, x;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k, count(*) FROM cv_s GROUP BY ROLLUP (k);
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k, row_number() OVER (ORDER BY ts) FROM cv_s;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k FROM cv_s WHERE k IN (SELECT k FROM cv_heap);
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k, generate_series(1, 3) FROM cv_s;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k FROM cv_s WHERE ts > now() - interval '1 hour';
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k, current_date FROM cv_s;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k, age(ts) FROM cv_s;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k, random() FROM cv_s;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT ctid FROM cv_s;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k FROM cv_s TABLESAMPLE system (10);
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT k FROM cv_a;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT max(n) FROM (SELECT count(*) AS n FROM cv_s GROUP BY k) q;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT DISTINCT count(*) FROM cv_s GROUP BY k;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT count(*) FROM cv_s WHERE false;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT t::xml, count(*) FROM cv_s GROUP BY 1;
-- A04: absurd sizes fail when the view is created
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT tumble(ts, '0') AS w, count(*) FROM cv_s GROUP BY 1;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT tumble(ts, '-1 min') AS w, count(*) FROM cv_s GROUP BY 1;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT tumble(ts, '10000000 years') AS w, count(*) FROM cv_s GROUP BY 1;
CREATE MATERIALIZED VIEW cv_no USING continuous AS SELECT tumble(ts, NULL) AS w, count(*) FROM cv_s GROUP BY 1;
-- a child that a stream gets later stops the view, whose SELECT would read it
CREATE TABLE cv_parent (k int) USING stream;
CREATE MATERIALIZED VIEW cv_c USING continuous AS SELECT k FROM cv_parent;
SELECT stream.wait('cv_c');
CREATE TABLE cv_child () INHERITS (cv_parent);
SELECT stream.wait('cv_c');
DROP TABLE cv_child;
SELECT stream.resume('cv_c');
SELECT stream.wait('cv_c');
DROP TABLE cv_parent CASCADE;
DROP TABLE cv_s CASCADE;
SELECT count(*) FROM stream.catalog_view;
SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_state'::regnamespace;
DROP TABLE cv_heap;
