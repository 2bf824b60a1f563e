-- What users see of views and workers, and stream.wait, pause and resume.
SET client_min_messages = warning;
CREATE SCHEMA monitor;
SET search_path = monitor, public;
CREATE TABLE s (v int) USING stream;
CREATE TABLE plain (v int);
CREATE ROLE monitor_friend;
GRANT USAGE ON SCHEMA monitor TO monitor_friend;

-- a defined view that was never started
CREATE MATERIALIZED VIEW stopped USING continuous AS SELECT count(*) AS n FROM s WITH NO DATA;
SELECT view, state, reason FROM stream.views WHERE view = 'stopped'::regclass;
SELECT stream.wait('stopped');
SELECT stream.pause('stopped');
SELECT stream.resume('stopped');

-- one that runs; paused, it keeps its place
CREATE MATERIALIZED VIEW mv USING continuous AS SELECT count(*) AS n FROM s WITH NO DATA;
REFRESH MATERIALIZED VIEW mv;
SELECT stream.wait('mv', '1 min');
INSERT INTO s VALUES (1), (2);
SELECT stream.wait('mv', '1 min');
SELECT n FROM mv;
SELECT stream.pause('mv');
INSERT INTO s VALUES (3);
SELECT stream.wait('mv', '1 min');
SELECT n FROM mv;
SELECT view, state, reason FROM stream.views WHERE view = 'mv'::regclass;
-- the paused and the stopped one are passed over
GRANT SELECT ON mv, stopped TO monitor_friend;
SET ROLE monitor_friend;
SELECT stream.wait_all('1 min');
RESET ROLE;
BEGIN;
SELECT stream.resume('mv');
ROLLBACK;
SELECT state FROM stream.views WHERE view = 'mv'::regclass;
SELECT stream.resume('mv');
SELECT stream.wait('mv', '1 min');
SELECT n FROM mv;
SELECT state, reason, error_code, failures FROM stream.views WHERE view = 'mv'::regclass;
SELECT count(*) FROM stream.positions WHERE view = 'mv'::regclass AND source = 's'::regclass;
SELECT count(*) FROM stream.watermarks WHERE view = 'mv'::regclass AND watermark IS NULL;
SELECT count(*) > 0 AS has_operators, count(parent) = count(*) - 1 AS has_one_root
	FROM stream.explain('mv');
SET ROLE monitor_friend;
SELECT stream.wait_all('1 min');
RESET ROLE;

-- what cannot be waited for
SELECT stream.wait(NULL);
SELECT stream.wait('plain');
SELECT stream.wait('no_such_view');
SELECT stream.wait('mv', '-1 s');
SELECT stream.pause('plain');
SELECT stream.explain('plain');
BEGIN;
ALTER MATERIALIZED VIEW mv RENAME TO mv2;
SELECT stream.wait('mv2', '1 min');
ROLLBACK;

-- other users
CREATE ROLE monitor_other;
CREATE ROLE monitor_reader IN ROLE stream_monitor;
CREATE ROLE monitor_admin IN ROLE stream_admin;
GRANT USAGE ON SCHEMA monitor TO monitor_other, monitor_reader, monitor_admin;
SET ROLE monitor_other;
SELECT count(*) FROM stream.views;
SELECT count(*) FROM stream.positions;
SELECT stream.wait('mv', '1 min');
SELECT stream.wait_all('1 min');
SELECT stream.pause('mv');
SELECT stream.explain('mv');
SET ROLE monitor_friend;
SELECT stream.wait('mv', '1 min');
SELECT stream.pause('mv');
SET ROLE monitor_reader;
SELECT view FROM stream.views WHERE view::text IN ('mv', 'stopped') ORDER BY view::text;
SELECT count(*) > 0 AS has_operators FROM stream.explain('mv');
SELECT stream.pause('mv');
SET ROLE monitor_admin;
SELECT view FROM stream.views WHERE view::text IN ('mv', 'stopped') ORDER BY view::text;
SELECT stream.pause('mv');
SELECT stream.resume('mv');
RESET ROLE;
SELECT stream.wait('mv', '1 min');

-- the launcher and the workers of this database
SELECT count(*), count(database) FROM stream.stat_workers WHERE number IS NULL;
SELECT number, state, reason, pid IS NOT NULL AS has_pid
	FROM stream.stat_workers WHERE database = current_database() ORDER BY number;

DROP MATERIALIZED VIEW mv;
SELECT view FROM stream.views WHERE view::text IN ('mv', 'stopped') ORDER BY view::text;
DROP SCHEMA monitor CASCADE;
DROP ROLE monitor_friend, monitor_other, monitor_reader, monitor_admin;
