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
	part integer NOT NULL,
	filenumber oid NOT NULL
);
CREATE INDEX catalog_state_view ON stream.catalog_state (view);
COMMENT ON TABLE stream.catalog_state IS 'tables in schema stream_state and what they hold';

CREATE TABLE stream.catalog_source (
	source oid PRIMARY KEY,
	generation bigint NOT NULL
);
COMMENT ON TABLE stream.catalog_source IS 'how often each stream was truncated';

REVOKE ALL ON stream.catalog_view, stream.catalog_position, stream.catalog_state,
	stream.catalog_source FROM PUBLIC;


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


------------------------------------------------------------------------------
-- Views for users (src/monitor)
------------------------------------------------------------------------------

