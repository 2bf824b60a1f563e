-- Options of foreign servers, user mappings, tables and columns of wrapper kafka. Needs no broker.
\set VERBOSITY default

CREATE ROLE kafka_user;
CREATE ROLE kafka_other;
GRANT USAGE ON FOREIGN DATA WRAPPER kafka TO kafka_user;
GRANT CREATE ON SCHEMA public TO kafka_user;

-- wrapper and servers
ALTER FOREIGN DATA WRAPPER kafka OPTIONS (ADD debug '1');
CREATE SERVER s FOREIGN DATA WRAPPER kafka;
CREATE SERVER s FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'localhost');
CREATE SERVER s FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'localhost:0');
CREATE SERVER s FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'localhost:65536');
CREATE SERVER s FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'localhost:9092,');
CREATE SERVER s FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'PLAINTEXT://localhost:9092');
CREATE SERVER s FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers 'a:1,[::1]:2,c.example.com:3');
ALTER SERVER s OPTIONS (SET bootstrap_servers '127.0.0.1:1');
ALTER SERVER s OPTIONS (DROP bootstrap_servers);
ALTER SERVER s OPTIONS (ADD topic 't');
ALTER SERVER s OPTIONS (ADD bootstrap_server 'a:1');

-- what runs code, what we set, what does not exist
ALTER SERVER s OPTIONS (ADD "kafka.plugin.library.paths" '/tmp/x');
ALTER SERVER s OPTIONS (ADD "kafka.sasl.kerberos.kinit.cmd" 'rm');
ALTER SERVER s OPTIONS (ADD "kafka.ssl.engine.location" '/tmp/x');
ALTER SERVER s OPTIONS (ADD "kafka.ssl.providers" 'x');
ALTER SERVER s OPTIONS (ADD "kafka.sasl.oauthbearer.config" 'x');
ALTER SERVER s OPTIONS (ADD "kafka.sasl.kerberos.principal" 'x; rm');
ALTER SERVER s OPTIONS (ADD "kafka.sasl.kerberos.keytab" '/tmp/x');
ALTER SERVER s OPTIONS (ADD "kafka.enable.auto.commit" 'true');
ALTER SERVER s OPTIONS (ADD "kafka.isolation.level" 'read_uncommitted');
ALTER SERVER s OPTIONS (ADD "kafka.group.id" 'g');
ALTER SERVER s OPTIONS (ADD "kafka.bootstrap.servers" 'b:1');
ALTER SERVER s OPTIONS (ADD "kafka.nonsense" '1');

-- secrets only where others do not see them, and never in a message
ALTER SERVER s OPTIONS (ADD password 'secret1');
ALTER SERVER s OPTIONS (ADD "kafka.sasl.password" 'secret2');
ALTER SERVER s OPTIONS (ADD "kafka.ssl.key.pem" 'secret3');
CREATE USER MAPPING FOR kafka_user SERVER s OPTIONS (bootstrap_servers 'a:1');
CREATE USER MAPPING FOR kafka_user SERVER s OPTIONS (password 'secret4', passwort 'secret5');
CREATE USER MAPPING FOR kafka_user SERVER s OPTIONS ("user" 'u', password 'secret6');
ALTER USER MAPPING FOR kafka_user SERVER s OPTIONS (ADD "kafka.ssl.key.password" 'secret7');

-- properties that are allowed
ALTER SERVER s OPTIONS (ADD "kafka.security.protocol" 'sasl_plaintext', ADD "kafka.sasl.mechanism" 'PLAIN',
	ADD "kafka.client.rack" 'r1');

-- their values are checked, without showing secrets
ALTER SERVER s OPTIONS (ADD "kafka.socket.timeout.ms" 'soon');
ALTER SERVER s OPTIONS (ADD "kafka.socket.timeout.ms" '5');
ALTER SERVER s OPTIONS (SET "kafka.security.protocol" 'sasl');
ALTER SERVER s OPTIONS (SET "kafka.sasl.mechanism" 'OAUTHBEARER');
ALTER SERVER s OPTIONS (ADD "kafka.sasl.mechanisms" 'PLAIN');
ALTER USER MAPPING FOR kafka_user SERVER s OPTIONS (ADD "kafka.sasl.password" 'secret8');
ALTER USER MAPPING FOR kafka_user SERVER s OPTIONS (ADD "kafka.sasl.username" 'secret9');

-- who may see what: options of servers all, those of mappings their users
SET ROLE kafka_other;
SELECT srvoptions FROM pg_foreign_server WHERE srvname = 's';
SELECT srvname, usename, umoptions FROM pg_user_mappings WHERE srvname = 's';
SELECT * FROM information_schema.user_mapping_options WHERE foreign_server_name = 's';
SELECT umoptions FROM pg_user_mapping;
RESET ROLE;

-- files: superusers only, also as the owner of the server
ALTER SERVER s OPTIONS (ADD "kafka.ssl.ca.location" '/etc/ssl/certs/none.pem');
ALTER SERVER s OPTIONS (DROP "kafka.ssl.ca.location");
SET ROLE kafka_user;
CREATE SERVER mine FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '127.0.0.1:1');
ALTER SERVER mine OPTIONS (ADD "kafka.ssl.ca.location" '/etc/passwd');
ALTER SERVER mine OPTIONS (ADD "kafka.sasl.mechanism" 'GSSAPI');
CREATE FOREIGN TABLE mine_t (v text) SERVER mine OPTIONS (topic 'x');
RESET ROLE;
-- a superuser adds it, but the server stays the user's
ALTER SERVER mine OPTIONS (ADD "kafka.ssl.ca.location" '/etc/passwd');
SELECT * FROM mine_t;
ALTER SERVER mine OPTIONS (DROP "kafka.ssl.ca.location");
-- without a mechanism librdkafka takes GSSAPI
ALTER SERVER mine OPTIONS (ADD "kafka.security.protocol" 'SASL_SSL');
SELECT * FROM mine_t;
ALTER SERVER mine OPTIONS (ADD "kafka.sasl.mechanism" 'GSSAPI');
SELECT * FROM mine_t;
ALTER SERVER mine OPTIONS (DROP "kafka.sasl.mechanism", DROP "kafka.security.protocol");
-- a superuser's server that is given away
CREATE SERVER given FOREIGN DATA WRAPPER kafka OPTIONS (bootstrap_servers '127.0.0.1:1', "kafka.ssl.key.location" '/tmp/none.pem');
CREATE FOREIGN TABLE given_t (v text) SERVER given OPTIONS (topic 'x', format 'raw');
ALTER SERVER given OWNER TO kafka_user;
SELECT * FROM given_t;
GRANT pg_read_server_files TO kafka_user;
EXPLAIN (COSTS OFF) SELECT * FROM given_t;
SET ROLE kafka_user;
ALTER SERVER given OPTIONS (SET "kafka.ssl.key.location" '/tmp/other.pem');
RESET ROLE;
REVOKE pg_read_server_files FROM kafka_user;
DROP SERVER given CASCADE;

-- tables
CREATE FOREIGN TABLE t (a int) SERVER s;
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic '');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'a b');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic '..');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', bootstrap_servers 'a:1');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', format 'avro');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', "case" 'upper');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', delimiter ';');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', format 'csv', delimiter ';;');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', start 'now');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', start '2026-01-31 12:00:00');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', start '2026-02-31 12:00:00+00');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', start '1969-01-31 12:00:00+00');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', on_gap 'skip');
CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (topic 'x', watermark_delay '5 s');
CREATE FOREIGN TABLE t (a int, ts timestamptz) SERVER s OPTIONS (topic 'x', event_time 'ts', watermark_delay '5');
CREATE FOREIGN TABLE t (a int, ts timestamptz) SERVER s OPTIONS (topic 'x', event_time 'ts', idle_timeout '0 s');
CREATE FOREIGN TABLE t (a int OPTIONS (meta 'size')) SERVER s OPTIONS (topic 'x');
CREATE FOREIGN TABLE t (a int OPTIONS (meta 'partition', name 'b')) SERVER s OPTIONS (topic 'x');
CREATE FOREIGN TABLE t (a int OPTIONS (alias 'b')) SERVER s OPTIONS (topic 'x');

-- what does not fit the columns shows when a view is made
CREATE FOREIGN TABLE t (a text OPTIONS (meta 'partition'), ts timestamptz) SERVER s
	OPTIONS (topic 'x', event_time 'tss');
SELECT * FROM t;
ALTER FOREIGN TABLE t OPTIONS (SET event_time 'ts');
SELECT * FROM t;
CREATE MATERIALIZED VIEW v USING continuous AS SELECT count(*) FROM t;
DROP FOREIGN TABLE t;

-- names with everything in them
CREATE FOREIGN TABLE "Ta""b'le ü" ("Co""l'ü" timestamptz OPTIONS (name 'k"e''y ü'), b int) SERVER s
	OPTIONS (topic 'x.y_z-1', start '2026-01-31T12:00:00+01:30', event_time 'Co"l''ü', watermark_delay '2 min');
SELECT ftoptions FROM pg_foreign_table;
ALTER FOREIGN TABLE "Ta""b'le ü" RENAME "Co""l'ü" TO "N'ew""ü";
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = '"Ta""b''le ü"'::regclass;
ALTER FOREIGN TABLE "Ta""b'le ü" DROP "N'ew""ü";
ALTER FOREIGN TABLE "Ta""b'le ü" ALTER "N'ew""ü" TYPE text;
ALTER FOREIGN TABLE "Ta""b'le ü" OPTIONS (DROP event_time);
ALTER FOREIGN TABLE "Ta""b'le ü" OPTIONS (DROP event_time, DROP watermark_delay);
ALTER FOREIGN TABLE "Ta""b'le ü" DROP "N'ew""ü";

-- a view is made without a broker, and says that it is not there
ALTER SERVER s OPTIONS (DROP "kafka.security.protocol", DROP "kafka.sasl.mechanism");
CREATE MATERIALIZED VIEW kafka_away USING continuous AS SELECT b, count(*) AS n FROM "Ta""b'le ü" GROUP BY b;
SELECT stream.wait('kafka_away', '1 s');
SELECT state FROM stream.views WHERE view = 'kafka_away'::regclass;
EXPLAIN (COSTS OFF) SELECT * FROM "Ta""b'le ü" WHERE b > 1;
SELECT operator, detail FROM stream.explain('kafka_away') ORDER BY id;

-- no writes
INSERT INTO "Ta""b'le ü" VALUES (1);
DELETE FROM "Ta""b'le ü";
ANALYZE "Ta""b'le ü";

-- dead letters are the owner's to discard
SELECT stream.discard_dead_letters('"Ta""b''le ü"');
SELECT stream.discard_dead_letters('kafka_away');
SET ROLE kafka_other;
SELECT stream.discard_dead_letters('"Ta""b''le ü"');
SELECT count(*) FROM stream.dead_letters;
SELECT count(*) FROM stream.catalog_dead_letter;
RESET ROLE;

-- the table goes with its view only
DROP FOREIGN TABLE "Ta""b'le ü";
DROP FOREIGN TABLE "Ta""b'le ü" CASCADE;
DROP USER MAPPING FOR kafka_user SERVER s;
DROP SERVER s;
DROP FOREIGN TABLE mine_t;
DROP SERVER mine;
REVOKE ALL ON SCHEMA public FROM kafka_user;
REVOKE ALL ON FOREIGN DATA WRAPPER kafka FROM kafka_user;
DROP ROLE kafka_user, kafka_other;
