-- What a stream can do as a table, and what it refuses.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
RESET client_min_messages;
\set VERBOSITY default

--
-- Rows in: every way
--
CREATE TABLE st (id bigint, k int DEFAULT 7, p text, j jsonb) USING stream WITH (fillfactor = 90);
INSERT INTO st VALUES (1, 1, 'one', '{"a": 1}') RETURNING id, k, p, j, ctid;
INSERT INTO st (id) VALUES (2), (3) RETURNING id, k;
INSERT INTO st SELECT g, g % 100, 'row ' || g, jsonb_build_object('a', g)
	FROM generate_series(4, 5000) g;
COPY st (id, p) FROM stdin;
5001	copied
5002	copied too
\.
COPY st (id, k) FROM stdin WITH (FORMAT csv);
5003,42
\.
SELECT count(*), sum(id), count(p), sum(k) FROM st;
COPY (SELECT id, k, p FROM st WHERE id > 5000 ORDER BY id) TO stdout;

-- wide values, in and out of line
INSERT INTO st (id, p) VALUES (6000, repeat('y', 100000));
INSERT INTO st (id, p) SELECT 6000 + g, (SELECT string_agg(md5((g * i)::text), '') FROM
	generate_series(1, 400) i) FROM generate_series(1, 20) g;
SELECT count(*), min(length(p)), max(length(p)) FROM st WHERE id >= 6000;
SELECT count(DISTINCT md5(p)) FROM st WHERE id > 6000;
CREATE TABLE st_main (id int, p text) USING stream;
ALTER TABLE st_main ALTER p SET STORAGE MAIN;
INSERT INTO st_main SELECT g, (SELECT string_agg(md5((g * i)::text), '') FROM
	generate_series(1, 150) i) FROM generate_series(1, 10) g;
SELECT count(*), sum(length(p)) FROM st_main;
CREATE TABLE st_plain (id int, p name) USING stream;
INSERT INTO st_plain SELECT g, 'n' || g FROM generate_series(1, 1000) g;
SELECT count(*), count(DISTINCT p) FROM st_plain;
CREATE TABLE st_copy (LIKE st INCLUDING ALL) USING stream;
INSERT INTO st_copy SELECT * FROM st;
SELECT count(*), sum(length(p)) FROM st_copy;
SELECT count(*) FROM (SELECT * FROM st EXCEPT ALL SELECT * FROM st_copy) d;
-- a row that no page can hold
CREATE TABLE st_toobig (a char(9000)) USING stream;
ALTER TABLE st_toobig ALTER a SET STORAGE PLAIN;
INSERT INTO st_toobig VALUES ('x');
INSERT INTO st_toobig VALUES (NULL);
SELECT count(*) FROM st_toobig;
-- no columns
CREATE TABLE st_none () USING stream;
INSERT INTO st_none DEFAULT VALUES;
INSERT INTO st_none SELECT FROM generate_series(1, 1000);
SELECT count(*) FROM st_none;
DROP TABLE st_main, st_plain, st_toobig, st_none;

--
-- Indexes
--
CREATE INDEX st_id ON st (id);
CREATE UNIQUE INDEX CONCURRENTLY st_unique ON st (id);
CREATE INDEX st_expr ON st ((lower(left(p, 20)))) WHERE k < 50;
CREATE INDEX CONCURRENTLY st_gin ON st USING gin (j);
CREATE INDEX st_brin ON st USING brin (id) WITH (pages_per_range = 2);
CREATE INDEX st_hash ON st USING hash (k);
ALTER TABLE st ADD PRIMARY KEY USING INDEX st_unique;
-- an index whose expression reads the catalog, so that invalidations come in the middle
CREATE FUNCTION st_twice(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN $1 * 2; END $$;
CREATE INDEX st_func ON st (st_twice(id)) WHERE st_twice(id) > 100;
SET max_parallel_maintenance_workers = 2;
SET min_parallel_table_scan_size = 0;
CREATE INDEX st_parallel ON st (k, id);
RESET max_parallel_maintenance_workers;
RESET min_parallel_table_scan_size;
REINDEX TABLE st;
REINDEX INDEX CONCURRENTLY st_id;
INSERT INTO st (id) VALUES (77);
INSERT INTO st (id) VALUES (77) ON CONFLICT DO NOTHING;
INSERT INTO st (id) VALUES (77), (7000), (7000) ON CONFLICT (id) DO NOTHING RETURNING id;
ANALYZE st;
VACUUM st;
VACUUM (FREEZE, ANALYZE) st;
SELECT relpages > 0 AS pages, reltuples, relallvisible > 0 AS visible, relkind, amname
	FROM pg_class JOIN pg_am a ON relam = a.oid WHERE relname = 'st';
SELECT amname FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid JOIN pg_am a
	ON t.relam = a.oid WHERE c.relname = 'st';

--
-- Scans
--
SELECT id, k FROM st WHERE id = 77;
SELECT id FROM st WHERE st_twice(id) = 154;
SELECT id FROM st WHERE lower(left(p, 20)) = 'row 49' AND k < 50;
SELECT id FROM st WHERE j @> '{"a": 123}';
SET enable_seqscan = off;
SELECT count(*) FROM st WHERE id BETWEEN 10 AND 20;
SELECT id FROM st ORDER BY id DESC LIMIT 3;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT count(*) FROM st WHERE id BETWEEN 10 AND 20 OR id = 99;
RESET enable_seqscan;
RESET enable_indexscan;
RESET enable_indexonlyscan;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*), sum(id) FROM st WHERE k = 5;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
SELECT count(*) FROM st TABLESAMPLE system (100);
SELECT count(*) FROM st TABLESAMPLE bernoulli (100);
SELECT id FROM st WHERE ctid = '(0,1)';
SELECT count(*) > 0 AS some FROM st WHERE ctid < '(5,0)';
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM st ORDER BY id;
FETCH 2 FROM c;
INSERT INTO st (id) VALUES (0);
FETCH 1 FROM c;
FETCH BACKWARD 2 FROM c;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO st (id) VALUES (8000);
SELECT count(*) FROM st WHERE id = 8000;
COMMIT;

--
-- Refused, and the stream named
--
UPDATE st SET k = 1 WHERE id = 1;
UPDATE st SET k = 1 WHERE false;
DELETE FROM st WHERE id = 1;
DELETE FROM st WHERE id = -1;
SELECT * FROM st WHERE id = 1 FOR UPDATE;
SELECT * FROM st WHERE id = -1 FOR NO KEY UPDATE;
SELECT * FROM st WHERE id = 1 FOR SHARE;
SELECT id FROM st WHERE id = 1 FOR KEY SHARE;
INSERT INTO st (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET k = 9;
MERGE INTO st USING (VALUES (1)) v (i) ON st.id = v.i WHEN MATCHED THEN UPDATE SET k = 2;
MERGE INTO st USING (VALUES (1)) v (i) ON st.id = v.i WHEN MATCHED THEN DELETE;
MERGE INTO st USING (VALUES (-77), (1)) v (i) ON st.id = v.i
	WHEN NOT MATCHED THEN INSERT (id) VALUES (v.i);
SELECT id FROM st WHERE id = -77;
WITH d AS (DELETE FROM st RETURNING id) SELECT count(*) FROM d;
PREPARE st_update AS UPDATE st SET k = $1;
EXECUTE st_update(1);
DEALLOCATE st_update;
VACUUM FULL st;
CLUSTER st USING st_id;
ALTER TABLE st ALTER COLUMN k TYPE bigint;
ALTER TABLE st ADD COLUMN z float DEFAULT random();
ALTER TABLE st SET UNLOGGED;
CREATE TEMP TABLE st_temp (a int) USING stream;
CREATE UNLOGGED TABLE st_unlogged (a int) USING stream;
CREATE TABLE st_heap (id int PRIMARY KEY) USING heap;
ALTER TABLE st_heap SET ACCESS METHOD stream;
ALTER TABLE st_heap SET ACCESS METHOD continuous;
ALTER TABLE st SET ACCESS METHOD continuous;
CREATE TABLE st_continuous (a int) USING continuous;
CREATE TABLE st_continuous USING continuous AS SELECT 1 AS a;
CREATE MATERIALIZED VIEW st_view USING stream AS SELECT 1 AS a;
CREATE TABLE st_child (id bigint REFERENCES st);
CREATE TABLE st_child (id bigint);
ALTER TABLE st_child ADD FOREIGN KEY (id) REFERENCES st;
DROP TABLE st_child;
-- nothing of that changed anything
SELECT count(*), sum(k) FROM st;

--
-- DDL
--
ALTER TABLE st ADD COLUMN c1 int;
ALTER TABLE st ADD COLUMN c2 int DEFAULT 7;
ALTER TABLE st ADD COLUMN c3 text DEFAULT 'seven';
ALTER TABLE st DROP COLUMN c1;
ALTER TABLE st ADD CONSTRAINT st_positive CHECK (c2 > 0);
INSERT INTO st (id, c2) VALUES (9000, 8);
INSERT INTO st (id, c2) VALUES (9001, -8);
SELECT id, c2, c3 FROM st WHERE id IN (1, 9000) ORDER BY id;
BEGIN;
TRUNCATE st_copy;
INSERT INTO st_copy (id) VALUES (5);
SELECT count(*) FROM st_copy;
SAVEPOINT a;
TRUNCATE st_copy;
INSERT INTO st_copy (id) VALUES (6), (7);
SELECT count(*) FROM st_copy;
ROLLBACK TO a;
SELECT id FROM st_copy;
-- in place, because the file is of this transaction
TRUNCATE st_copy;
INSERT INTO st_copy (id) VALUES (8);
SELECT id FROM st_copy;
ROLLBACK;
SELECT count(*) FROM st_copy;
INSERT INTO st_copy (id) VALUES (10000);
SELECT count(*) FROM st_copy;
TRUNCATE st_copy;
SELECT count(*) FROM st_copy;
INSERT INTO st_copy SELECT * FROM (SELECT id, k, p, j FROM st WHERE id <= 100) t;
SELECT count(*) FROM st_copy;
BEGIN;
CREATE TABLE st_new (a int) USING stream;
INSERT INTO st_new VALUES (1);
TRUNCATE st_new;
INSERT INTO st_new VALUES (2);
SAVEPOINT a;
DROP TABLE st_new;
ROLLBACK TO a;
INSERT INTO st_new VALUES (3);
COMMIT;
SELECT a FROM st_new ORDER BY a;
BEGIN;
DROP TABLE st_new;
ROLLBACK;
INSERT INTO st_new VALUES (4);
SELECT a FROM st_new ORDER BY a;
DROP TABLE st_new;
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE st_space LOCATION '';
ALTER TABLE st_copy SET TABLESPACE st_space;
INSERT INTO st_copy (id) VALUES (11000);
SELECT count(*), max(id) FROM st_copy;
BEGIN;
ALTER TABLE st_copy SET TABLESPACE pg_default;
INSERT INTO st_copy (id) VALUES (12000);
ROLLBACK;
INSERT INTO st_copy (id) VALUES (13000);
SELECT count(*), max(id) FROM st_copy;
ALTER TABLE st_copy SET TABLESPACE pg_default;
DROP TABLESPACE st_space;
ALTER TABLE st_copy RENAME TO st_renamed;
INSERT INTO st_renamed (id) VALUES (14000);
UPDATE st_renamed SET k = 1;
ALTER TABLE st_renamed SET ACCESS METHOD heap;
UPDATE st_renamed SET k = 1 WHERE id = 14000 RETURNING id, k;
SELECT count(*) FROM st_renamed;
DROP TABLE st_renamed;
CREATE TABLE st_as USING stream AS SELECT id, p FROM st WHERE id < 100;
SELECT count(*) FROM st_as;
DROP TABLE st_as;
SET default_table_access_method = stream;
SELECT id INTO st_into FROM st WHERE id < 10;
RESET default_table_access_method;
SELECT count(*) FROM st_into;
DELETE FROM st_into;
DROP TABLE st_into;
BEGIN;
CREATE TABLE st_frozen (a int, b text) USING stream;
COPY st_frozen FROM stdin WITH (FREEZE);
1	one
2	two
\.
COMMIT;
SELECT * FROM st_frozen ORDER BY a;
DROP TABLE st_frozen;

--
-- Triggers
--
CREATE FUNCTION st_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF tg_when = 'BEFORE' THEN
		new.k := coalesce(new.k, 0) + 1;
		RETURN new;
	ELSIF tg_level = 'ROW' THEN
		RAISE NOTICE 'after row % %', new.id, new.k;
	ELSE
		RAISE NOTICE 'statement % rows', (SELECT count(*) FROM nt);
	END IF;
	RETURN NULL;
END $$;
CREATE TABLE st_trig (id bigint, k int) USING stream;
CREATE TRIGGER b BEFORE INSERT ON st_trig FOR EACH ROW EXECUTE FUNCTION st_trigger();
CREATE TRIGGER a AFTER INSERT ON st_trig FOR EACH ROW EXECUTE FUNCTION st_trigger();
CREATE TRIGGER s AFTER INSERT ON st_trig REFERENCING NEW TABLE AS nt
	FOR EACH STATEMENT EXECUTE FUNCTION st_trigger();
INSERT INTO st_trig VALUES (1, 1), (2, NULL);
COPY st_trig FROM stdin;
3	3
\.
SELECT * FROM st_trig ORDER BY id;
DROP TABLE st_trig;
DROP FUNCTION st_trigger();

--
-- Foreign keys from a stream
--
INSERT INTO st_heap VALUES (1), (2), (3);
CREATE TABLE st_fk (id bigint, d int REFERENCES st_heap) USING stream;
INSERT INTO st_fk VALUES (1, 1), (2, NULL);
INSERT INTO st_fk VALUES (3, 9);
DELETE FROM st_heap WHERE id = 1;
DELETE FROM st_heap WHERE id = 2;
UPDATE st_heap SET id = 4 WHERE id = 3;
SELECT * FROM st_heap ORDER BY id;
CREATE TABLE st_cascade (d int REFERENCES st_heap ON DELETE CASCADE) USING stream;
INSERT INTO st_cascade VALUES (4);
DELETE FROM st_heap WHERE id = 4;
DROP TABLE st_fk, st_cascade, st_heap;

--
-- Partitions and inheritance
--
CREATE TABLE st_part (id bigint, k int) PARTITION BY RANGE (id);
CREATE TABLE st_part1 PARTITION OF st_part FOR VALUES FROM (0) TO (100) USING stream;
CREATE TABLE st_part2 (id bigint, k int) USING stream;
ALTER TABLE st_part ATTACH PARTITION st_part2 FOR VALUES FROM (100) TO (200);
INSERT INTO st_part SELECT g, g FROM generate_series(50, 149) g;
COPY st_part FROM stdin;
1	1
150	150
2	2
\.
SELECT tableoid::regclass, count(*) FROM st_part GROUP BY 1 ORDER BY 1;
UPDATE st_part SET k = 2;
DELETE FROM st_part WHERE id = 1;
SELECT * FROM st_part WHERE id = 1 FOR UPDATE;
UPDATE st_part SET id = 150 WHERE id = 1;
UPDATE ONLY st_part1 SET k = 3;
ALTER TABLE st_part ADD PRIMARY KEY (id);
CREATE TABLE st_child (id bigint REFERENCES st_part);
DROP TABLE st_part;
CREATE TABLE st_part (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE st_child (id bigint REFERENCES st_part);
CREATE TABLE st_part1 PARTITION OF st_part FOR VALUES FROM (0) TO (100) USING stream;
CREATE TABLE st_part1 (id bigint PRIMARY KEY) USING stream;
ALTER TABLE st_part ATTACH PARTITION st_part1 FOR VALUES FROM (0) TO (100);
DROP TABLE st_child, st_part, st_part1;
CREATE TABLE st_parent (id int) USING heap;
CREATE TABLE st_inherits () INHERITS (st_parent) USING stream;
INSERT INTO st_inherits VALUES (1);
UPDATE st_parent SET id = 2;
SELECT * FROM st_parent;
DROP TABLE st_inherits, st_parent;

--
-- Event time
--
CREATE TABLE st_time (id int, ts timestamptz, p text) USING stream;
SECURITY LABEL FOR stream ON TABLE st_time IS 'v1 event_time=''ts''';
INSERT INTO st_time VALUES (1, '2020-01-01 00:00:00+00');
INSERT INTO st_time VALUES (2, NULL);
INSERT INTO st_time VALUES (3, 'infinity');
INSERT INTO st_time VALUES (4, '-infinity');
INSERT INTO st_time SELECT g, CASE WHEN g < 9 THEN '2020-01-01'::timestamptz END
	FROM generate_series(5, 9) g;
COPY st_time FROM stdin;
10	2020-01-01 00:00:00+00	x
11	\N	y
\.
COPY st_time FROM stdin;
12	infinity	x
\.
CREATE UNIQUE INDEX ON st_time (id);
INSERT INTO st_time VALUES (13, NULL) ON CONFLICT DO NOTHING;
INSERT INTO st_time VALUES (14, '2020-01-02 00:00:00+00') ON CONFLICT DO NOTHING;
INSERT INTO st_time (id) VALUES (15);
INSERT INTO st_time VALUES (16, NULL, repeat('x', 50000));
SELECT id FROM st_time ORDER BY id;
-- the option is looked at again when it changes
SECURITY LABEL FOR stream ON TABLE st_time IS 'v1';
INSERT INTO st_time VALUES (17, NULL);
SECURITY LABEL FOR stream ON TABLE st_time IS 'v1 event_time=''ts''';
TRUNCATE st_time;
SECURITY LABEL FOR stream ON TABLE st_time IS 'v1 event_time=''ts''';
INSERT INTO st_time VALUES (18, NULL);
-- a partition that is a stream checks its own rows
CREATE TABLE st_part (ts timestamp, p text) PARTITION BY HASH (p);
CREATE TABLE st_part1 (p text, ts timestamp) USING stream;
ALTER TABLE st_part ATTACH PARTITION st_part1 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
SECURITY LABEL FOR stream ON TABLE st_part1 IS 'v1 event_time=''ts''';
INSERT INTO st_part VALUES ('2020-01-01', 'a');
INSERT INTO st_part VALUES ('infinity', 'a');
INSERT INTO st_part VALUES (NULL, 'a');
SELECT p, ts FROM st_part1;
DROP TABLE st_part;
DROP TABLE st_time;

DROP TABLE st;
DROP FUNCTION st_twice(bigint);
