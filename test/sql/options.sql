-- Options of streams and continuous views: values, units, mistakes, labels.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
RESET client_min_messages;
CREATE SCHEMA options;
SET search_path = options, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, MDY';
SET IntervalStyle = 'postgres';

-- The label of a relation, without what differs in every run.
CREATE FUNCTION label(relation regclass) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(label, '[0-9a-f]{16}', 'ID') FROM pg_seclabel
	WHERE objoid = relation AND provider = 'stream' $$;
-- What is wrong with a statement: SQLSTATE, message, detail and hint, or NULL.
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

-- Streams
CREATE TABLE plain (k int) USING stream;
SELECT label('plain');
CREATE TABLE s (k int, ts timestamptz, local timestamp, v text) USING stream
	WITH (stream.event_time = 'ts', stream.watermark_delay = '00:00:05', fillfactor = 90,
		  stream.max_ahead = '36 hours', stream.idle_timeout = '2 min');
SELECT label('s'), reloptions FROM pg_class WHERE oid = 's'::regclass;
ALTER TABLE s SET (stream.event_time = local, fillfactor = 80);
ALTER TABLE s RESET (stream.idle_timeout, stream.max_ahead), ADD COLUMN added timestamptz,
	SET (stream.event_time = added);
SELECT label('s'), reloptions FROM pg_class WHERE oid = 's'::regclass;
ALTER TABLE s RESET (stream.event_time, stream.watermark_delay);
SELECT label('s');
ALTER TABLE IF EXISTS no_such_stream SET (stream.event_time = 'ts');

-- Lengths of time: every way PostgreSQL writes them, stored in one
CREATE TEMP TABLE lengths (n serial, given text);
INSERT INTO lengths (given) VALUES ('5 s'), ('5 seconds'), ('PT5S'), ('00:00:05'), ('60 s'),
	('90 min'), ('24:00'), ('1 day'), ('1 week'), ('0.5 ms'), ('1.5 s'), ('1 day -1 hour'), ('0'),
	('0 s'), ('1000000 days');
CREATE FUNCTION stored(given text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER TABLE s SET (stream.event_time = ''ts'', stream.watermark_delay = %L)',
				   given);
	RETURN label('s');
END $$;
SELECT given, stored(given) FROM lengths ORDER BY n;
SET IntervalStyle = 'sql_standard';
SELECT stored('90 min');
SET IntervalStyle = 'postgres';

-- Mistakes in values
SELECT value, mistake(format('ALTER TABLE s SET (stream.idle_timeout = %L)', value))
FROM unnest('{5,-5,0,0 s,-1 s,1 month,1 year,5 parsecs,"",soon,1000001 days,
              99999999999999999999 s}'::text[]) WITH ORDINALITY AS u(value, n) ORDER BY n;
SELECT value, mistake(format('ALTER TABLE s SET (stream.watermark_delay = %L)', value))
FROM unnest('{5,-1 s,1 month}'::text[]) WITH ORDINALITY AS u(value, n) ORDER BY n;
SELECT value, mistake(format('ALTER TABLE s SET (stream.event_time = %L)', value))
FROM unnest('{"",TS,v,k,xmin}'::text[]) WITH ORDINALITY AS u(value, n) ORDER BY n;
SELECT label('s');

-- Mistakes in names and places
SELECT statement, mistake(statement) FROM unnest(ARRAY[
	'CREATE TABLE x (ts timestamptz) USING stream WITH (stream.event_tim = ''ts'')',
	'CREATE TABLE x (ts timestamptz) USING stream WITH (stream.id = ''0123456789abcdef'')',
	'CREATE TABLE x (ts timestamptz) USING stream WITH (stream.emit = ''update'')',
	'CREATE TABLE x (ts timestamptz) USING stream WITH (stream.event_time)',
	'CREATE TABLE x (ts timestamptz) USING stream WITH (stream.event_time = ''t'')',
	'CREATE TABLE x (ts timestamptz) USING stream WITH (stream.watermark_delay = ''5 s'')',
	'CREATE TABLE x (ts timestamptz) USING stream
		WITH (stream.event_time = ''ts'', stream.event_time = ''ts'')',
	'CREATE TABLE x (ts timestamptz) WITH (stream.event_time = ''ts'')',
	'CREATE TABLE x USING heap WITH (stream.event_time = ''ts'') AS SELECT now() AS ts',
	'CREATE TABLE x (ts timestamptz) PARTITION BY RANGE (ts) WITH (stream.event_time = ''ts'')',
	'CREATE MATERIALIZED VIEW x WITH (stream.emit = ''update'') AS SELECT 1 AS i',
	'ALTER TABLE lengths SET (stream.event_time = ''given'')',
	'ALTER TABLE s RESET (stream.watermark_delay, stream.event_tim)',
	'ALTER TABLE s RESET (stream.event_time)',
	'ALTER TABLE s RESET (stream.event_time = ''ts'')',
	'ALTER TABLE no_such_stream SET (stream.event_time = ''ts'')'
]) WITH ORDINALITY AS u(statement, n) ORDER BY n;

-- Known, but of a later version
SELECT option, mistake(format('CREATE TABLE x (ts timestamptz) USING stream WITH (stream.%s)', option))
FROM unnest('{retention = ''1 day'',retention_max_lag = ''1 day'',max_lag = 1000,watermark = ''ts''}'::text[])
	WITH ORDINALITY AS u(option, n) ORDER BY n;
SELECT option, mistake(format('CREATE MATERIALIZED VIEW x USING continuous WITH (stream.%s)
	AS SELECT k, count(*) FROM s GROUP BY k', option))
FROM unnest('{start = latest,state_ttl = ''1 day'',allow_partial_refresh = on,on_error = skip,on_error = never,
	emit = close,emit = ''every 10 s'',emit = ''count 5'',"emit = ''close, every 10 s''",emit = sometimes,
	allowed_lateness = ''1 s'',allowed_lateness = 1,event_time = ts}'::text[])
	WITH ORDINALITY AS u(option, n) ORDER BY n;

-- Rows that are there already must have an event time
CREATE TABLE rows (k int, ts timestamptz) USING stream;
INSERT INTO rows VALUES (1, '2024-05-01'), (2, NULL);
SELECT mistake('ALTER TABLE rows SET (stream.event_time = ''ts'')');
TRUNCATE rows;
INSERT INTO rows VALUES (1, '2024-05-01'), (2, 'infinity');
SELECT mistake('ALTER TABLE rows SET (stream.event_time = ''ts'')');
TRUNCATE rows;
INSERT INTO rows VALUES (1, '2024-05-01'), (2, '2024-05-02');
ALTER TABLE rows SET (stream.event_time = 'ts');
SELECT label('rows');
SELECT mistake('CREATE TABLE x USING stream WITH (stream.event_time = ts)
	AS SELECT k, nullif(k, 2)::text::interval + timestamptz ''2024-05-01'' AS ts FROM rows');
CREATE TABLE copied USING stream WITH (stream.event_time = ts) AS SELECT * FROM rows;
SELECT label('copied');

-- Views: the label also says what they are computed under
CREATE MATERIALIZED VIEW v USING continuous
	WITH (stream.emit = ' Update ', stream.allowed_lateness = '0', stream.on_error = stop)
	AS SELECT k, count(*) AS n FROM rows GROUP BY k WITH NO DATA;
SELECT label('v'), reloptions FROM pg_class WHERE oid = 'v'::regclass;
ALTER MATERIALIZED VIEW v RESET (stream.emit, stream.allowed_lateness), SET (fillfactor = 70);
SELECT label('v'), reloptions FROM pg_class WHERE oid = 'v'::regclass;
SELECT mistake('ALTER MATERIALIZED VIEW v SET (stream.timezone = ''Europe/Paris'')');
SELECT mistake('ALTER MATERIALIZED VIEW v SET (stream.event_time = ''k'')');

-- Only the owner may
CREATE ROLE options_other;
GRANT USAGE ON SCHEMA options TO options_other;
SET ROLE options_other;
SELECT mistake('ALTER TABLE s SET (stream.idle_timeout = ''1 s'')');
SELECT mistake('ALTER MATERIALIZED VIEW v RESET (stream.emit)');
SELECT mistake('SECURITY LABEL FOR stream ON TABLE s IS ''v1''');
RESET ROLE;
REVOKE USAGE ON SCHEMA options FROM options_other;
DROP ROLE options_other;

-- Labels by hand: exactly what DDL writes, on nothing else
SELECT new, mistake(format('SECURITY LABEL FOR stream ON TABLE s IS %L', new))
FROM unnest(ARRAY['v1', 'v1 event_time=''ts''', 'v1 event_time=''ts'' max_ahead=''1 min''',
	'', 'V1', 'v2 x', 'v10', 'v1 ', 'v1  event_time=''ts''', 'v1 event_time=ts', 'v1 event_time=''ts',
	'v1 event_time=''ts''max_ahead=''1 s''', 'v1 event_time=''ts'' event_time=''ts''',
	'v1 max_ahead=''1 s'' event_time=''ts''', 'v1 event_time=''t''', 'v1 event_time=''v''',
	'v1 max_ahead=''60 s''', 'v1 max_ahead=''1 second''', 'v1 max_ahead=''0 s''',
	'v1 max_ahead=''9999999999 d''', 'v1 watermark_delay=''1 s''', 'v1 retention=''1 d''',
	'v1 emit=''update''', 'v1 nonsense=''1''', 'v1 id=''0123456789abcdef'''])
	WITH ORDINALITY AS u(new, n) ORDER BY n;
SELECT label('s');
SELECT new, mistake(format('SECURITY LABEL FOR stream ON MATERIALIZED VIEW v IS %L', new))
FROM unnest(ARRAY['v1',
	'v1 datestyle=''ISO'' id=''0123456789ABCDEF'' intervalstyle=''postgres'' search_path=''public'' timezone=''UTC''',
	'v1 datestyle=''ISO'' id=''0123456789abcdef'' intervalstyle=''postgres'' search_path=''public'' timezone=''Nowhere''',
	'v1 datestyle=''ISO'' emit=''Update'' id=''0123456789abcdef'' intervalstyle=''postgres'' search_path=''public'' timezone=''UTC''',
	'v1 datestyle=''ISO'' id=''0123456789abcdef'' intervalstyle=''postgres'' search_path=''a, "b""c", ''''d'' timezone=''UTC'''])
	WITH ORDINALITY AS u(new, n) ORDER BY n;
SELECT label FROM pg_seclabel WHERE objoid = 'v'::regclass;
SELECT statement, mistake(statement) FROM unnest(ARRAY[
	'SECURITY LABEL FOR stream ON TABLE s IS NULL',
	'SECURITY LABEL FOR stream ON TABLE lengths IS ''v1''',
	'SECURITY LABEL FOR stream ON COLUMN s.ts IS ''v1''',
	'SECURITY LABEL FOR stream ON SCHEMA options IS ''v1''',
	'SECURITY LABEL FOR stream ON ROLE pg_monitor IS ''v1''',
	'SECURITY LABEL FOR stream ON FUNCTION label(regclass) IS ''v1'''
]) WITH ORDINALITY AS u(statement, n) ORDER BY n;

SET client_min_messages = warning;
DROP SCHEMA options CASCADE;
