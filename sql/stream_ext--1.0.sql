-- stream_ext 1.0
\echo Use "CREATE EXTENSION stream_ext" to load this file. \quit

CREATE SCHEMA stream;
COMMENT ON SCHEMA stream IS 'functions and views of stream_ext';
GRANT USAGE ON SCHEMA stream TO PUBLIC;

-- State of running views. Its tables are made and dropped by the workers and belong to no extension.
CREATE SCHEMA stream_state;
COMMENT ON SCHEMA stream_state IS 'operator state of continuous views (stream_ext)';


------------------------------------------------------------------------------
-- Access methods (src/storage)
------------------------------------------------------------------------------

CREATE FUNCTION stream.stream_handler(internal) RETURNS table_am_handler
	LANGUAGE c AS 'MODULE_PATHNAME', 'stream_ext_stream_handler';
COMMENT ON FUNCTION stream.stream_handler(internal) IS 'handler of access method stream';

CREATE FUNCTION stream.continuous_handler(internal) RETURNS table_am_handler
	LANGUAGE c AS 'MODULE_PATHNAME', 'stream_ext_continuous_handler';
COMMENT ON FUNCTION stream.continuous_handler(internal) IS 'handler of access method continuous';

CREATE ACCESS METHOD stream TYPE TABLE HANDLER stream.stream_handler;
COMMENT ON ACCESS METHOD stream IS 'append-only table that continuous views can read as a stream';

CREATE ACCESS METHOD continuous TYPE TABLE HANDLER stream.continuous_handler;
COMMENT ON ACCESS METHOD continuous IS 'materialized view that is kept up to date by a worker';


------------------------------------------------------------------------------
-- Foreign data wrapper (src/fdw)
------------------------------------------------------------------------------

CREATE FUNCTION stream.kafka_handler() RETURNS fdw_handler
	LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_ext_kafka_handler';
COMMENT ON FUNCTION stream.kafka_handler() IS 'handler of foreign data wrapper kafka';

CREATE FUNCTION stream.kafka_validator(text[], oid) RETURNS void
	LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_ext_kafka_validator';
COMMENT ON FUNCTION stream.kafka_validator(text[], oid) IS 'validator of foreign data wrapper kafka';

CREATE FOREIGN DATA WRAPPER kafka HANDLER stream.kafka_handler VALIDATOR stream.kafka_validator;
COMMENT ON FOREIGN DATA WRAPPER kafka IS 'topics of Apache Kafka as foreign tables and sources of continuous views';


------------------------------------------------------------------------------
-- Catalog (src/catalog); only C code reads and writes these tables
------------------------------------------------------------------------------

CREATE TABLE stream.catalog_view (
	view oid PRIMARY KEY,
	id text NOT NULL,
	paused boolean NOT NULL,
	rebuild boolean NOT NULL,
	caught_up boolean NOT NULL,
	signature text,
	pg_major integer NOT NULL,
	filenumber oid NOT NULL,
	error_code text,
	error_message text,
	error_detail text,
	error_hint text,
	error_time timestamptz,
	failures integer NOT NULL
);
COMMENT ON TABLE stream.catalog_view IS 'continuous views and the state of their processing';

CREATE TABLE stream.catalog_position (
	view oid,
	source oid,
	"position" bytea NOT NULL,
	PRIMARY KEY (view, source)
) WITH (fillfactor = 50);
COMMENT ON TABLE stream.catalog_position IS 'where each view stands in each of its sources';

CREATE TABLE stream.catalog_state (
	relid oid PRIMARY KEY,
	view oid NOT NULL,
	operator integer NOT NULL,
	part integer NOT NULL
);
CREATE INDEX catalog_state_view ON stream.catalog_state (view);
COMMENT ON TABLE stream.catalog_state IS 'tables in schema stream_state and what they hold';

CREATE TABLE stream.catalog_source (
	source oid PRIMARY KEY,
	generation bigint NOT NULL
);
COMMENT ON TABLE stream.catalog_source IS 'how often each stream was truncated';

CREATE TABLE stream.catalog_dead_letter (
	source oid,
	partition integer,
	"offset" bigint,
	topic text NOT NULL,
	error_code text NOT NULL,
	error_message text NOT NULL,
	"timestamp" timestamptz,
	key bytea,
	value bytea,
	noted_at timestamptz NOT NULL,
	PRIMARY KEY (source, partition, "offset")
);
COMMENT ON TABLE stream.catalog_dead_letter IS 'records that could not be decoded';

CREATE TABLE stream.catalog_gap (
	view oid NOT NULL,
	source oid NOT NULL,
	partition integer NOT NULL,
	from_offset bigint NOT NULL,
	to_offset bigint NOT NULL,
	topic text NOT NULL,
	noted_at timestamptz NOT NULL
);
CREATE INDEX catalog_gap_view ON stream.catalog_gap (view);
COMMENT ON TABLE stream.catalog_gap IS 'records that were deleted before they were read';

REVOKE ALL ON stream.catalog_view, stream.catalog_position, stream.catalog_state,
	stream.catalog_source, stream.catalog_dead_letter, stream.catalog_gap FROM PUBLIC;


------------------------------------------------------------------------------
-- Window functions (src/time), in the schema of installation
------------------------------------------------------------------------------

-- Not strict: a NULL zone means UTC.
CREATE FUNCTION @extschema@.tumble(ts timestamptz, size interval,
		origin interval DEFAULT '0', zone text DEFAULT NULL)
	RETURNS tstzrange
	LANGUAGE c IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'stream_ext_tumble_timestamptz';
COMMENT ON FUNCTION @extschema@.tumble(timestamptz, interval, interval, text)
	IS 'window of fixed length, or of calendar months, that holds a time';

CREATE FUNCTION @extschema@.tumble(ts timestamp, size interval, origin interval DEFAULT '0')
	RETURNS tsrange
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'stream_ext_tumble_timestamp';
COMMENT ON FUNCTION @extschema@.tumble(timestamp, interval, interval)
	IS 'window of fixed length, or of calendar months, that holds a time';

CREATE FUNCTION @extschema@.tumble(ts bigint, size bigint, origin bigint DEFAULT 0)
	RETURNS int8range
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'stream_ext_tumble_bigint';
COMMENT ON FUNCTION @extschema@.tumble(bigint, bigint, bigint)
	IS 'window of fixed length that holds a number';


------------------------------------------------------------------------------
-- Functions for users (src/worker, src/command)
------------------------------------------------------------------------------

-- Fails if the library is not preloaded: nothing would work.
CREATE FUNCTION stream.require_preload() RETURNS void
	LANGUAGE c AS 'MODULE_PATHNAME', 'stream_ext_require_preload';
SELECT stream.require_preload();
DROP FUNCTION stream.require_preload();

-- Roles belong to the whole server: made once, left behind by DROP EXTENSION.
DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'stream_admin') THEN
		CREATE ROLE stream_admin NOLOGIN;
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'stream_monitor') THEN
		CREATE ROLE stream_monitor NOLOGIN;
	END IF;
END
$$;

CREATE FUNCTION stream.wait(view regclass, timeout interval DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'stream_ext_wait';
COMMENT ON FUNCTION stream.wait(regclass, interval)
	IS 'waits until all that is committed at the call is in the continuous view; false: timeout';

CREATE FUNCTION stream.wait_all(timeout interval DEFAULT NULL) RETURNS boolean
	LANGUAGE c VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'stream_ext_wait_all';
COMMENT ON FUNCTION stream.wait_all(interval)
	IS 'waits as stream.wait() for all continuous views that run and that the caller may read';

CREATE FUNCTION stream.pause(view regclass) RETURNS void
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'stream_ext_pause';
COMMENT ON FUNCTION stream.pause(regclass)
	IS 'stops work on a continuous view, which keeps its place in its sources';

CREATE FUNCTION stream.resume(view regclass) RETURNS void
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'stream_ext_resume';
COMMENT ON FUNCTION stream.resume(regclass)
	IS 'lets a paused or failed continuous view go on, at once';

CREATE FUNCTION stream.discard_dead_letters(source regclass,
		before timestamptz DEFAULT 'infinity') RETURNS bigint
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'stream_ext_discard_dead_letters';
COMMENT ON FUNCTION stream.discard_dead_letters(regclass, timestamptz)
	IS 'deletes the dead letters of a source that were noted before a time; returns how many';

CREATE FUNCTION stream.explain(view regclass,
	OUT id integer, OUT parent integer, OUT operator text, OUT detail text,
	OUT rows_in bigint, OUT rows_out bigint, OUT state_rows bigint, OUT state_bytes bigint)
	RETURNS SETOF record
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
	AS 'MODULE_PATHNAME', 'stream_ext_explain';
COMMENT ON FUNCTION stream.explain(regclass)
	IS 'the running dataflow of a continuous view with its counters';


------------------------------------------------------------------------------
-- Views for users (src/monitor)
------------------------------------------------------------------------------

CREATE FUNCTION stream.get_views(
	OUT view regclass, OUT owner name, OUT state text, OUT reason text,
	OUT commits bigint, OUT rows_in bigint, OUT rows_out bigint, OUT last_commit timestamptz,
	OUT blocks_behind bigint, OUT records_behind bigint, OUT dead_letters bigint,
	OUT tombstones bigint, OUT watermark timestamptz,
	OUT error_code text, OUT error_message text, OUT error_detail text, OUT error_hint text,
	OUT error_time timestamptz, OUT failures integer, OUT worker_pid integer)
	RETURNS SETOF record
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
	AS 'MODULE_PATHNAME', 'stream_ext_get_views';
COMMENT ON FUNCTION stream.get_views() IS 'behind stream.views';

CREATE FUNCTION stream.get_positions(
	OUT view regclass, OUT source regclass, OUT generation bigint, OUT "cursor" bigint,
	OUT open_blocks integer, OUT running_transactions integer,
	OUT partition integer, OUT "offset" bigint,
	OUT watermark timestamptz, OUT max_event_time timestamptz)
	RETURNS SETOF record
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
	AS 'MODULE_PATHNAME', 'stream_ext_get_positions';
COMMENT ON FUNCTION stream.get_positions() IS 'behind stream.positions and stream.watermarks';

CREATE FUNCTION stream.get_workers(
	OUT datid oid, OUT number integer, OUT pid integer, OUT state text, OUT since timestamptz,
	OUT reason text)
	RETURNS SETOF record
	LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
	AS 'MODULE_PATHNAME', 'stream_ext_get_workers';
COMMENT ON FUNCTION stream.get_workers() IS 'behind stream.stat_workers';

CREATE VIEW stream.views AS
	SELECT * FROM stream.get_views();
COMMENT ON VIEW stream.views
	IS 'continuous views of this database, their state, counters and last error';

CREATE VIEW stream.positions AS
	SELECT * FROM stream.get_positions();
COMMENT ON VIEW stream.positions
	IS 'how far each continuous view has read each of its sources';

-- For an event time of type timestamp the watermark is shown as if that were in UTC.
CREATE VIEW stream.watermarks AS
	SELECT source, view, partition, watermark, max_event_time FROM stream.get_positions();
COMMENT ON VIEW stream.watermarks
	IS 'event time up to which each continuous view takes each of its sources to be complete';

-- Records are shown to those who may read the source; a column privilege is not enough.
CREATE VIEW stream.dead_letters WITH (security_barrier) AS
	SELECT source::pg_catalog.regclass AS source, topic, partition, "offset", error_code,
		error_message, "timestamp", key, value, noted_at
	FROM stream.catalog_dead_letter
	WHERE pg_catalog.has_table_privilege(source, 'SELECT');
COMMENT ON VIEW stream.dead_letters
	IS 'records of topics that could not be decoded, once for each source';

CREATE VIEW stream.gaps WITH (security_barrier) AS
	SELECT view::pg_catalog.regclass AS view, source::pg_catalog.regclass AS source, topic, partition,
		from_offset, to_offset, noted_at
	FROM stream.catalog_gap
	WHERE pg_catalog.has_table_privilege(source, 'SELECT');
COMMENT ON VIEW stream.gaps
	IS 'records of topics that were deleted before a view had read them: from_offset up to, without, to_offset';

CREATE VIEW stream.stat_workers AS
	SELECT d.datname AS database, w.number, w.pid, w.state, w.since, w.reason
	FROM stream.get_workers() w LEFT JOIN pg_catalog.pg_database d ON d.oid = w.datid;
COMMENT ON VIEW stream.stat_workers
	IS 'the launcher (without database) and the workers of all databases';

GRANT SELECT ON stream.views, stream.positions, stream.watermarks, stream.stat_workers,
	stream.dead_letters, stream.gaps TO PUBLIC;
