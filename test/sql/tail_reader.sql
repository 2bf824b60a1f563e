-- The tail reader, driven by the test module tail_test.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
CREATE SCHEMA tail_test;
CREATE EXTENSION tail_test;
RESET client_min_messages;
SET search_path = public, tail_test;
CREATE FUNCTION got(reader text, rel regclass, batches int DEFAULT 0,
					OUT n bigint, OUT sum numeric, OUT min bigint, OUT max bigint)
	LANGUAGE sql AS 'SELECT count(*), sum(t), min(t), max(t) FROM tail_poll($1, $2, $3) t';

CREATE TABLE tr (id bigint, client int, len int, payload text) USING stream;
-- an empty stream
SELECT * FROM got('a', 'tr');
INSERT INTO tr SELECT g FROM generate_series(1, 1000) g;
SELECT * FROM got('a', 'tr');
SELECT * FROM got('a', 'tr');
-- the reader's abort discards the position
INSERT INTO tr VALUES (1001);
BEGIN;
SELECT * FROM got('a', 'tr');
SELECT * FROM got('a', 'tr');
ROLLBACK;
SELECT * FROM got('a', 'tr');
-- another reader has a position of its own
SELECT * FROM got('b', 'tr');
-- own rows are not final before the commit, those of a savepoint rolled back never
BEGIN;
INSERT INTO tr VALUES (1002);
SELECT * FROM got('a', 'tr');
SAVEPOINT s;
INSERT INTO tr VALUES (1003);
SELECT * FROM got('a', 'tr');
ROLLBACK TO s;
INSERT INTO tr VALUES (1004);
SELECT * FROM got('a', 'tr');
COMMIT;
SELECT * FROM got('a', 'tr');
SELECT * FROM got('a', 'tr');
-- bounded batches: the position stands exactly behind what was returned
INSERT INTO tr SELECT g FROM generate_series(2001, 12000) g;
SELECT n > 0 AND n < 2000 AS bounded FROM got('b', 'tr', 2);
CREATE TEMP TABLE b_got (id bigint);
INSERT INTO b_got SELECT tail_poll('b', 'tr', 1);
INSERT INTO b_got SELECT tail_poll('b', 'tr', 3);
INSERT INTO b_got SELECT tail_poll('b', 'tr');
INSERT INTO b_got SELECT tail_poll('b', 'tr');
SELECT count(*) = count(DISTINCT id) AS once, max(id) FROM b_got;
SELECT * FROM got('a', 'tr');
-- rows all visible: VACUUM makes no difference
INSERT INTO tr SELECT g FROM generate_series(20001, 25000) g;
VACUUM (FREEZE) tr;
SELECT * FROM got('a', 'tr');
-- wide values come inline, and columns that were added later with their default
INSERT INTO tr SELECT 30000 + g, 0, n, (SELECT left(string_agg(md5((g * i)::text), ''), n)
	FROM generate_series(1, 400) i)
	FROM generate_series(1, 20) g, LATERAL (SELECT g * 600) l (n);
SELECT * FROM got('a', 'tr');
ALTER TABLE tr ADD COLUMN added text DEFAULT 'later', ADD COLUMN n int DEFAULT 5;
ALTER TABLE tr DROP COLUMN client;
INSERT INTO tr VALUES (40000, NULL, NULL, 'now', 6);
SELECT * FROM got('a', 'tr');
SELECT tail_count('c', 'tr') = (SELECT count(*) FROM tr) AS all_rows;
-- positions survive encoding
SELECT bool_and(tail_recode(position) = position) FROM tail_position;
SELECT tail_recode('\x01000000000000');
SELECT tail_recode('\x010507020a040a09020008010d0185030203');
SELECT tail_recode('\x0100000a000100060a00');
-- and nothing else is taken for one
SELECT tail_recode('\x');
SELECT tail_recode('\x02');
SELECT tail_recode('\x0100080000000000');
SELECT tail_recode('\x010000800000');
SELECT tail_recode('\x0100000000000000');
SELECT tail_recode('\x0100000000010004');
SELECT tail_recode('\x0100000a0001000000');
SELECT tail_recode('\x0100000a0001000300');
SELECT tail_recode('\x0100000a00010006');
SELECT tail_recode('\x0100000a000100060100');
SELECT tail_recode('\x0100000a000100060600');
SELECT tail_recode('\x0100000a0001000a0a0000');
SELECT tail_recode('\x0100000a0000010002');
SELECT tail_recode('\x0100000a000001030a00');
SELECT tail_recode('\x0100000a0000028503020185030300');
-- TRUNCATE: a new generation, if it commits
BEGIN;
TRUNCATE tr;
INSERT INTO tr (id) VALUES (50000);
ROLLBACK;
SELECT * FROM got('a', 'tr');
INSERT INTO tr (id) VALUES (50001);
SELECT * FROM got('a', 'tr');
TRUNCATE tr;
SELECT * FROM got('a', 'tr');
INSERT INTO tr (id) VALUES (50002);
SELECT * FROM got('a', 'tr');
-- SET TABLESPACE moves no row
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE tr_space LOCATION '';
INSERT INTO tr (id) VALUES (50003);
ALTER TABLE tr SET TABLESPACE tr_space;
INSERT INTO tr (id) VALUES (50004);
SELECT * FROM got('a', 'tr');
BEGIN;
ALTER TABLE tr SET TABLESPACE pg_default;
INSERT INTO tr (id) VALUES (50005);
ROLLBACK;
INSERT INTO tr (id) VALUES (50006);
SELECT * FROM got('a', 'tr');
ALTER TABLE tr SET TABLESPACE pg_default;
SELECT * FROM got('a', 'tr');
DROP TABLESPACE tr_space;
-- a prepared transaction commits late, in a block that has long been closed
BEGIN;
INSERT INTO tr (id) SELECT g FROM generate_series(60001, 60200) g;
PREPARE TRANSACTION 'tail_reader';
INSERT INTO tr (id) SELECT g FROM generate_series(70001, 80000) g;
SELECT * FROM got('a', 'tr');
SELECT running FROM tail_summary('a', 'tr');
COMMIT PREPARED 'tail_reader';
SELECT * FROM got('a', 'tr');
SELECT running FROM tail_summary('a', 'tr');
SELECT * FROM got('a', 'tr');
-- an aborted load, VACUUM, new rows in the line pointers of the aborted ones
CREATE TABLE tr_reuse (id bigint) USING stream;
INSERT INTO tr_reuse VALUES (1);
SELECT * FROM got('a', 'tr_reuse');
BEGIN;
SAVEPOINT s;
INSERT INTO tr_reuse SELECT g FROM generate_series(100, 150) g;
ROLLBACK TO s;
INSERT INTO tr_reuse VALUES (2);
COMMIT;
SELECT * FROM got('a', 'tr_reuse');
VACUUM tr_reuse;
INSERT INTO tr_reuse VALUES (3);
SELECT ctid < (SELECT ctid FROM tr_reuse WHERE id = 2) AS reused FROM tr_reuse WHERE id = 3;
SELECT * FROM got('a', 'tr_reuse');
-- the watermark: greatest event time less the delay, at the end of a poll only
CREATE TABLE tr_time (id bigint, ts timestamptz) USING stream;
SET timezone = 'UTC';
INSERT INTO tr_time VALUES (1, '2020-01-01 00:00:10'), (2, '2020-01-01 00:00:05'), (3, NULL),
	(4, 'infinity'), (5, '9999-01-01');
SELECT * FROM tail_poll_time('w', 'tr_time', 'ts', 5000000, 86400000000) ORDER BY 1;
SELECT watermark FROM tail_summary('w', 'tr_time');
INSERT INTO tr_time VALUES (6, '2020-01-01 00:00:07');
SELECT * FROM tail_poll_time('w', 'tr_time', 'ts', 5000000, 86400000000);
SELECT watermark FROM tail_summary('w', 'tr_time');
INSERT INTO tr_time SELECT g, timestamptz '2020-01-02' + g * interval '1 s'
	FROM generate_series(7, 10000) g;
-- in the middle of a poll it stands still
SELECT count(*) > 0 AS some FROM tail_poll_time('w', 'tr_time', 'ts', 5000000, 86400000000, 1);
SELECT watermark FROM tail_summary('w', 'tr_time');
SELECT bool_and(tail_recode(position) = position) FROM tail_position;
INSERT INTO tr_time VALUES (10001, '2020-01-03');
SELECT max(t) FROM tail_poll_time('w', 'tr_time', 'ts', 5000000, 86400000000) t;
SELECT watermark FROM tail_summary('w', 'tr_time');
-- recycling: blocks that were emptied are filled again, and every reader gets the new rows
CREATE TABLE tr_ring (id bigint, at timestamptz DEFAULT now()) USING stream;
SELECT tail_summary('a', 'tr_ring') IS NULL, tail_summary('b', 'tr_ring') IS NULL;
INSERT INTO tr_ring SELECT g FROM generate_series(1, 20000) g;
SELECT * FROM got('a', 'tr_ring');
SELECT * FROM got('a', 'tr_ring');
-- reader b has not passed anything
SELECT tail_expire('tr_ring', 'at', 'infinity', 1000), tail_recycle('tr_ring', 100);
SELECT * FROM got('b', 'tr_ring');
SELECT * FROM got('b', 'tr_ring');
SELECT tail_expire('tr_ring', 'at', 'infinity', 1000) > 50 AS expired;
VACUUM (INDEX_CLEANUP ON) tr_ring;
BEGIN;
SELECT tail_recycle('tr_ring', 40);
-- not free before the commit
SELECT pg_relation_size('tr_ring') AS size \gset
INSERT INTO tr_ring SELECT g FROM generate_series(20001, 30000) g;
SELECT pg_relation_size('tr_ring') > :size AS extended;
ROLLBACK;
BEGIN;
SELECT tail_recycle('tr_ring', 40);
PREPARE TRANSACTION 'tail_reader';
SELECT tail_recycle('tr_ring', 40);
SELECT pg_relation_size('tr_ring') AS size \gset
-- fills the free list's blocks and some of the recycled ones
INSERT INTO tr_ring SELECT g FROM generate_series(30001, 36000) g;
SELECT count(*) > 0 AS reused FROM tr_ring WHERE id BETWEEN 30001 AND 36000 AND ctid < '(50,0)';
SELECT * FROM got('a', 'tr_ring');
SELECT * FROM got('b', 'tr_ring');
SELECT * FROM got('new', 'tr_ring');
INSERT INTO tr_ring SELECT g FROM generate_series(36001, 42000) g;
SELECT * FROM got('a', 'tr_ring');
SELECT * FROM got('b', 'tr_ring');
SELECT * FROM got('new', 'tr_ring');
SELECT tail_count('newer', 'tr_ring');

DROP TABLE tr, tr_reuse, tr_time, tr_ring;
DROP FUNCTION got;
RESET search_path;
SET client_min_messages = warning;
DROP EXTENSION tail_test;
DROP SCHEMA tail_test;
