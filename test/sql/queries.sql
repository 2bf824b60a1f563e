-- Queries that views must refuse when they are created, and aggregates whose state is easy to spoil.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
CREATE SCHEMA queries;
SET search_path = queries, public;

CREATE TABLE s (k int, t text) USING stream;

-- values that no table can hold
CREATE MATERIALIZED VIEW v USING continuous AS SELECT count(DISTINCT (k, t)) FROM s;
CREATE MATERIALIZED VIEW v USING continuous AS SELECT jsonb_agg((k, t) ORDER BY k) FROM s;

-- stable for the server, but different in each session or transaction
CREATE MATERIALIZED VIEW v USING continuous AS SELECT k, txid_current() FROM s;
CREATE MATERIALIZED VIEW v USING continuous AS SELECT k, inet_client_addr() FROM s;
CREATE MATERIALIZED VIEW v USING continuous AS SELECT k, pg_column_size(t) AS n FROM s;

-- an aggregate without final function whose state is an expanded array: expressions that append to
-- the result in place must not reach the state
CREATE AGGREGATE collect(anycompatible) (sfunc = array_append, stype = anycompatiblearray, initcond = '{}');
CREATE MATERIALIZED VIEW collected USING continuous AS
	SELECT k, array_append(collect(t), 'end') AS ended, cardinality(collect(t)) AS n FROM s GROUP BY k;
INSERT INTO s SELECT 1, 'a' || i FROM generate_series(1, 3) i;
SELECT stream.wait('collected');
INSERT INTO s VALUES (1, 'a4');
SELECT stream.wait('collected');
SELECT * FROM collected;

-- row-level security: the view has the rows that its owner sees, also after the policies change
CREATE ROLE queries_owner;
GRANT USAGE, CREATE ON SCHEMA queries TO queries_owner;
CREATE TABLE r (k int) USING stream;
GRANT SELECT ON r TO queries_owner;
INSERT INTO r SELECT i % 20 FROM generate_series(1, 200) i;
SET ROLE queries_owner;
CREATE MATERIALIZED VIEW allowed USING continuous AS SELECT count(DISTINCT k) AS keys, count(*) AS n FROM r;
RESET ROLE;
SELECT stream.wait('allowed');
TABLE allowed;
CREATE POLICY p ON r USING (k < 10);
ALTER TABLE r ENABLE ROW LEVEL SECURITY;
SELECT stream.wait('allowed');
TABLE allowed;
ALTER POLICY p ON r USING (k < 5);
INSERT INTO r VALUES (1), (7);
SELECT stream.wait('allowed');
TABLE allowed;

DROP SCHEMA queries CASCADE;
DROP ROLE queries_owner;
-- DISTINCT takes equal values of another scale for one, in a set as in plain SQL
CREATE TABLE cq_scale (k int, x numeric) USING stream;
CREATE MATERIALIZED VIEW cq_set USING continuous AS
	SELECT k, count(DISTINCT x) AS n, sum(DISTINCT x) AS s FROM cq_scale GROUP BY k;
INSERT INTO cq_scale SELECT i % 2, (i % 25)::numeric(10, 2) FROM generate_series(1, 100) i;
SELECT stream.wait('cq_set');
INSERT INTO cq_scale SELECT i % 2, (i % 25)::numeric(10, 1) FROM generate_series(1, 100) i;
SELECT stream.wait('cq_set');
SELECT k, n, s = 300 AS s FROM cq_set ORDER BY k;
SELECT k, count(DISTINCT x) AS n, sum(DISTINCT x) = 300 AS s FROM cq_scale GROUP BY k ORDER BY k;
DROP TABLE cq_scale CASCADE;
