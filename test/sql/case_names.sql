-- A42: names are names, never code
SET client_min_messages = warning;
CREATE TABLE x (a int);
CREATE SCHEMA "Weird.Sch""ema";
SET search_path = "Weird.Sch""ema", public;
CREATE TABLE "Tä ""b'le; drop table x--" ("Col 1" int, "select" text, "ID" int, id int, "T's ""time" timestamptz)
	USING stream WITH (stream.event_time = 'T''s "time', stream.watermark_delay = '1 s');
CREATE MATERIALIZED VIEW "V;--" USING continuous AS
	SELECT "select", "ID", id, count(*) AS "n""'", max("Col 1") AS "Max;" FROM "Tä ""b'le; drop table x--"
	GROUP BY "select", "ID", id;
-- two of 63 bytes that agree in all but the last ones
CREATE TABLE nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn1 (a int) USING stream WITH (stream.event_time = 'a');
CREATE TABLE nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn1 (a int, aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa timestamptz)
	USING stream WITH (stream.event_time = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
CREATE TABLE nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn2 (a int) USING stream;
CREATE MATERIALIZED VIEW vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv1 USING continuous AS
	SELECT a, count(*) AS n FROM nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn1 GROUP BY a;
CREATE MATERIALIZED VIEW vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv2 USING continuous AS
	SELECT a, count(*) AS n FROM nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn2 GROUP BY a;
INSERT INTO "Tä ""b'le; drop table x--" VALUES
	(1, 'a''); drop table x;--', 1, 2, '2024-01-01'), (2, 'b', 2, 1, '2024-01-02'), (3, 'b', 1, 2, '2024-01-02');
INSERT INTO nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn1 VALUES (1, '2024-01-01');
INSERT INTO nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn2 VALUES (2), (2);
SELECT stream.wait_all();
SELECT * FROM "V;--" ORDER BY 1, 2, 3;
SELECT * FROM vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv1;
SELECT * FROM vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv2;
SELECT view, source FROM stream.positions ORDER BY view::text COLLATE "C";
SELECT operator, detail FROM stream.explain('"V;--"') ORDER BY id;
SELECT stream.pause('"V;--"');
SELECT stream.resume('"V;--"');
ALTER TABLE "Tä ""b'le; drop table x--" RENAME "T's ""time" TO "now ''""";
SELECT objname, label FROM pg_seclabels WHERE label LIKE '%now%';
ALTER TABLE "Tä ""b'le; drop table x--" SET (stream.watermark_delay = '2 s');
SELECT label FROM pg_seclabels WHERE label LIKE '%now%';
REFRESH MATERIALIZED VIEW "V;--";
SELECT stream.wait('"V;--"');
SELECT count(*) FROM "V;--";
-- no option can smuggle in a second one
CREATE TABLE evil (ts timestamptz) USING stream WITH (stream.event_time = 'ts'' watermark_delay=''1 s');
SELECT * FROM x;
RESET search_path;
DROP SCHEMA "Weird.Sch""ema" CASCADE;
DROP TABLE x;
