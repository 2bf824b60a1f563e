-- Decoding records: handed cases A08, A26 to A29 and A33, formats, constraints, whose code runs how.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
CREATE EXTENSION IF NOT EXISTS decode_test;
RESET client_min_messages;
CREATE SCHEMA decode_case;
SET search_path = decode_case, public;
SET TimeZone = 'UTC';
SET IntervalStyle = 'postgres';
SET DateStyle = 'ISO, MDY';
CREATE FUNCTION bytes(VARIADIC t text[]) RETURNS bytea[] LANGUAGE sql AS
$$ SELECT array_agg(convert_to(s, 'UTF8') ORDER BY n) FROM unnest(t) WITH ORDINALITY AS u(s, n) $$;

-- Case A27: numbers, as (value ->> 'column')::type
CREATE TABLE numbers (b bigint, n numeric, i int, f float8);
SELECT record, "row", code FROM decode_test.decode('numbers', ARRAY[
	'{"b":9007199254740993}', '{"b":-9223372036854775808}', '{"b":922337203685477580.7e1}', '{"b":1.2e6}',
	'{"n":327267367867168100000}', '{"n":0.1000000000000000000001}', '{"b":327267367867168100000}', '{"i":1.5}',
	'{"i":"12"}', '{"f":1e400}', '{"i":null}', '{}'])
ORDER BY record;
-- negative zero is lost in jsonb, but not in a string; a float is the nearest one
SELECT record, "row", code FROM decode_test.decode('numbers', ARRAY[
	'{"f":-0}', '{"f":-0.0}', '{"f":"-0"}', '{"f":0.1}', '{"f":0.30000000000000004}', '{"f":123456789012345678901234567890}',
	'{"f":5e-324}', '{"f":1e-400}', '{"f":"NaN"}', '{"n":"NaN"}', '{"n":1.10}', '{"n":1e3}', '{"n":-0.000}', '{"i":-0}',
	'{"i":2147483648}', '{"i":true}', '{"b":1e400000}', '{"other":1e400000}'])
ORDER BY record;

-- Case A28: text
CREATE TABLE texts (s text, k int);
SELECT record, "row", code FROM decode_test.decode('texts', bytes(
	'{"s":"a\u0000b"}', '{"s":"a\\u0000b"}', '{"s":"\ud83d\ude00"}', '{"s":"\ud83d"}', '{"s":"\ude00\ud83d"}'))
ORDER BY record;
SELECT record, "row", code FROM decode_test.decode('texts', ARRAY[convert_to('{"s":"', 'UTF8') || '\xff'::bytea || convert_to('"}', 'UTF8')]
	|| bytes(E'{"s":"a\nb"}', '{"k":1,"k":2}', '{"s":NaN}', '{"a":1}{"b":2}', U&'\FEFF{"k":1}'))
ORDER BY record;
SELECT record, "row", code, message FROM decode_test.decode('texts', ARRAY[convert_to(repeat('[', 100000000), 'UTF8'),
	convert_to(repeat('{"a":', 1001) || '1' || repeat('}', 1001), 'UTF8'), convert_to(repeat('{"a":', 1000) || '1' || repeat('}', 1000), 'UTF8')])
ORDER BY record;
-- a byte of zero ends nothing; broken UTF-8 anywhere; what is not looked at has to be right, too
SELECT record, "row", code FROM decode_test.decode('texts', ARRAY[convert_to('{"k":1}', 'UTF8') || '\x00'::bytea,
	convert_to('{"k":1,"', 'UTF8') || '\xc0af'::bytea || convert_to('":2}', 'UTF8')]
	|| bytes('{"k":1,"x":"\u0000"}', '{"k":1,"x":"\q"}', '{"k":1,"x":[1,2,]}', '{"k":1,"x":{"a":01}}', '{"k":1,"x":"\u00e4\n"}',
	         '{"s":"é日😀","k":3}', '{"s":{"b":1, "a":[1 ,2]}}', '{"s":true}', '{"s":1.50}', '{"s":1e2}', '{"\u0073":"x"}', ' {"k" : 4 } '))
ORDER BY record;

-- Case A08: event time
CREATE TABLE events (ts timestamptz, v int);
SELECT record, "row", code, CASE WHEN code <> '22007' THEN message END AS message FROM decode_test.decode('events', ARRAY[
	'{"ts":null,"v":1}', '{"v":2}', '{"ts":"soon","v":3}', '{"ts":"2024-05-01T10:00:03Z","v":4}', '{"ts":"infinity","v":5}',
	'{"ts":"-infinity","v":6}'], '{event_time=ts}')
ORDER BY record;
-- times without a zone are UTC, whatever the session's zone is
SET TimeZone = 'America/New_York';
SET DateStyle = 'SQL, DMY';
SELECT record, "row", code FROM decode_test.decode('events', ARRAY[
	'{"ts":"2024-05-01T10:00:03"}', '{"ts":"05/01/2024 10:00"}', '{"ts":"2024-05-01 10:00:03+02"}', '{"ts":"2024-05-01T10:00:03.1234567Z"}'])
ORDER BY record;
SELECT current_setting('TimeZone') AS zone, current_setting('DateStyle') AS style;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, MDY';

-- Case A26: tombstones and keys
CREATE TABLE keyed (x int, key text);
SELECT record, "row", code, CASE WHEN code = '2203C' THEN message END AS message
FROM decode_test.decode('keyed', bytes('{"x":1}', NULL, '{"x":2}', 'null', '', '{"x":3}', '{"x":4}', '{"x":5}'), '{meta:key=key}',
	bytes('a', 'a', NULL, '', 'null', '', 'null') || '\xff'::bytea)
ORDER BY record;

-- Case A29: a bad record in the middle, and nothing but bad ones
CREATE TABLE checked (x int CHECK (x <> 500));
CREATE FUNCTION thousand(bad text, at int) RETURNS bytea[] LANGUAGE sql AS
$$ SELECT array_agg(convert_to(CASE WHEN i = at OR at < 0 THEN bad ELSE format('{"x":%s}', i) END, 'UTF8') ORDER BY i)
   FROM generate_series(1, 1000) AS i $$;
SELECT count("row") AS nrows, count(DISTINCT record) AS records, count(code) AS dead, max(code) AS code, max(record) FILTER (WHERE code IS NOT NULL) AS record
FROM decode_test.decode('checked', thousand('{oops', 400));
SELECT "row", record, code, message FROM decode_test.decode('checked', thousand('', 0)) WHERE record BETWEEN 498 AND 500 ORDER BY record;
SELECT count("row") AS nrows, count(code) AS dead, min(code) AS min, max(code) AS max FROM decode_test.decode('checked', thousand('{oops', -1));
SELECT count("row") AS nrows, count(code) AS dead, min(code) AS min, max(code) AS max FROM decode_test.decode('checked', thousand('{"x":500}', -1));

-- Case A33: wide rows, nested values, names
DO $$ BEGIN
	EXECUTE 'CREATE TABLE wide (' || (SELECT string_agg(format('column_with_a_long_name_of_forty_chars_%s int', to_char(i, 'fm000')), ', ' ORDER BY i)
		FROM generate_series(1, 300) AS i) || ')';
END $$;
CREATE FUNCTION wide_record(n int, step int) RETURNS bytea LANGUAGE sql AS
$$ SELECT convert_to('{' || string_agg(format('"column_with_a_long_name_of_forty_chars_%s":%s', to_char(i, 'fm000'), n * 1000 + i), ',' ORDER BY i * step % 301)
   || '}', 'UTF8') FROM generate_series(1, 300) AS i $$;
SELECT record, count(*) FILTER (WHERE v = (record * 1000 + n)::text) AS right, count(*) AS columns
FROM decode_test.decode('wide', ARRAY[wide_record(0, 1), wide_record(1, 1), wide_record(2, 7), wide_record(3, 1)]) AS d,
     string_to_table(btrim("row", '()'), ',') WITH ORDINALITY AS u(v, n)
GROUP BY record ORDER BY record;
CREATE TYPE part AS (a int, b text, c timestamptz);
CREATE TABLE nested (p part, a int[], j jsonb, "MixedCase" int, "dotted.name" int, mixedcase int);
SELECT record, "row", code FROM decode_test.decode('nested', ARRAY[
	'{"p":{"b":"x","a":1},"a":[1,null,3],"j":{"z":[1,{}],"a":null},"MixedCase":1,"dotted.name":2,"mixedcase":3}',
	'{"mixedCase":1,"dotted":{"name":2},"MIXEDCASE":3}', '{"p":null,"a":null,"j":null}', '{"a":"{4,5}","p":"(1,y,)","j":"text"}',
	'{"a":{}}', '{"a":[1,"x"]}', '{"a":[1e400]}', '{"p":[1]}', '{"p":{"c":"2024-05-01T10:00:00+02:00"}}', '{"j":"\u0041\ud83d\ude00"}', '{"j":7e2}'])
ORDER BY record;
SELECT decode_test.growth('wide', ARRAY(SELECT wide_record(i, 1) FROM generate_series(1, 100) AS i), 100) AS wide,
       decode_test.growth('nested', ARRAY(SELECT convert_to('{"p":{"b":"x","a":1},"a":[1,null,3],"j":{"z":[1,{}]},"MixedCase":1}', 'UTF8')
                                          FROM generate_series(1, 1000)), 10) AS nested;

-- Memory stays the same over many records, good or bad
SELECT decode_test.growth('texts', thousand('{"s":"x\u0041","k":1}', -1), 20) AS general,
       decode_test.growth('texts', thousand('{oops', -1), 20) AS bad,
       decode_test.growth('numbers', thousand('{"b":"x","n":1.5}', -1), 20) AS bad_column,
       decode_test.growth('checked', thousand('{"x":500}', -1), 20) AS bad_check,
       decode_test.growth('nested', thousand('{"a":[1],"p":{"a":"x"}}', -1), 20) AS bad_nested;

-- Types by their input functions, with their limits
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN required AS text NOT NULL;
CREATE DOMAIN short_list AS int[] CHECK (cardinality(VALUE) < 3);
CREATE TABLE types (v varchar(3), c char(3), n numeric(5,2), m mood, iv interval, by bytea, pos positive, req required, list short_list,
                    u uuid, d date, ts timestamp(0));
SELECT record, "row", code FROM decode_test.decode('types', ARRAY[
	'{"req":"x","v":"abc","c":"a","n":123.455,"m":"sad","iv":"1 day 02:00","by":"\\x00ff","pos":1,"list":[1,2]}',
	'{"req":"x","v":"äöü"}', '{"req":"x","v":"abcd"}', '{"req":"x","v":"abc "}', '{"req":"x","n":1000}', '{"req":"x","n":999.999}',
	'{"req":"x","m":"angry"}', '{"req":"x","pos":0}', '{"req":null}', '{}', '{"req":"x","list":[1,2,3]}', '{"req":"x","list":"{1}"}',
	'{"req":"x","u":"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11","d":"2024-02-29","ts":"2024-02-29T23:59:59.6Z"}', '{"req":"x","d":"2023-02-29"}'])
ORDER BY record;

-- NOT NULL and CHECK; all columns are conditions, also those that nobody wants
CREATE TABLE strict (a int NOT NULL, b text, CHECK (length(b) < 4), CONSTRAINT odd_one CHECK (a % 2 = 1 OR b = 'even'));
SELECT record, "row", code, message FROM decode_test.decode('strict', ARRAY[
	'{"a":1,"b":"x"}', '{"b":"x"}', '{"a":null}', '{"a":2}', '{"a":2,"b":"even"}', '{"a":1,"b":"long"}', '{"a":2,"b":"x"}', '{"a":3}'])
ORDER BY record;
SELECT record, "row", code FROM decode_test.decode('strict', ARRAY['{"a":1,"b":"x"}', '{"a":1,"b":"long"}', '{"a":"x"}', '{"a":1,"b":"\u0062"}'], '{wanted=b}')
ORDER BY record;

-- A check whose own error is the record's, and errors that are not
CREATE FUNCTION judge(x int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
$$ BEGIN
	IF x = 1 THEN RAISE EXCEPTION 'no good: %', x; END IF;
	IF x = 2 THEN RAISE EXCEPTION 'user asks to stop' USING ERRCODE = 'query_canceled'; END IF;
	IF x = 3 THEN RAISE EXCEPTION 'no more memory' USING ERRCODE = 'out_of_memory'; END IF;
	IF x = 4 THEN RETURN 1 / (x - 4) > 0; END IF;
	IF x = 5 THEN PERFORM nothing(); END IF;
	RETURN NULL;
END $$;
CREATE TABLE judged (x int CHECK (judge(x)));
SELECT record, "row", code FROM decode_test.decode('judged', ARRAY['{"x":0}', '{"x":1}', '{"x":4}', '{"x":6}']) ORDER BY record;
SELECT * FROM decode_test.decode('judged', ARRAY['{"x":0}', '{"x":1}', '{"x":2}']);
SELECT * FROM decode_test.decode('judged', ARRAY['{"x":0}', '{"x":3}']);
SELECT * FROM decode_test.decode('judged', ARRAY['{"x":5}']);

-- Checks run as the owner, restricted, in pg_catalog, at UTC; settings of theirs do not last
CREATE ROLE decode_owner;
CREATE TABLE seen (x int CHECK (x IS NULL OR current_user || ' ' || current_setting('search_path') || ' ' || current_setting('TimeZone') || ' '
	|| set_config('work_mem', '77kB', false) = 'decode_owner pg_catalog, pg_temp UTC 77kB'));
ALTER TABLE seen OWNER TO decode_owner;
SET TimeZone = 'Asia/Tokyo';
SELECT record, "row", code FROM decode_test.decode('seen', ARRAY['{"x":1}', '{', '{"x":1}', '{"x":"y"}', '{"x":1}']) ORDER BY record;
SELECT current_user = session_user AS same_user, current_setting('TimeZone') AS zone, current_setting('work_mem') = '77kB' AS work_mem;
-- the same after an error that goes through
CREATE TABLE judged_by_owner (x int CHECK (judge(x)));
ALTER TABLE judged_by_owner OWNER TO decode_owner;
DO $$ BEGIN
	PERFORM decode_test.decode('judged_by_owner', ARRAY['{"x":0}', '{"x":1}', '{"x":2}']);
EXCEPTION WHEN query_canceled THEN
	RAISE NOTICE 'same user: %, zone: %', current_user = session_user, current_setting('TimeZone');
END $$;
SET TimeZone = 'UTC';

-- CSV, by the rules of COPY
CREATE TABLE csv (id int, name text, part int, v numeric);
SELECT record, "row", code, CASE WHEN code = '22P04' THEN message END AS message FROM decode_test.decode('csv', bytes('1,a,2.5', E'2,b,\n', E'3,"a,""b"" \nc",1\r\n', '4,"",', '5,,7', ' 6 ,x y, 8 ', '7,a',
	'8,a,1,', '9,"a,1', E'10,a\nb,1', '', NULL, 'x"y"z,a,1', '"11",p"q"r,1', '12,é,1', '13,a,"1"') || '\x312cff2c31'::bytea || '\x312c002c31'::bytea, '{format=csv,meta:part=partition}')
ORDER BY record;
SELECT record, "row", code FROM decode_test.decode('csv', bytes('1;\N;2', '2;|a||b\|c|;|\N|', '3;|\N|;\N', '4;|a\\|;\N'),
	ARRAY['format=csv', 'delimiter=;', 'quote=|', 'escape=\', 'null=\N', 'meta:part=partition'])
ORDER BY record;
CREATE TABLE csv_one (t text);
SELECT record, "row", code FROM decode_test.decode('csv_one', bytes('', '""', 'a', E'\n', 'a,b'), '{format=csv}') ORDER BY record;
SELECT record, "row" IS NULL AS dead, "row" FROM decode_test.decode('csv_one', bytes(''), '{format=csv,null=x}') ORDER BY record;

-- Raw
CREATE TABLE raw_bytes (v bytea, part bigint, "offset" bigint, ts timestamptz);
SELECT record, "row", code FROM decode_test.decode('raw_bytes', ARRAY['\x00ff'::bytea, '\x', NULL], '{format=raw,meta:part=partition,meta:offset=offset,meta:ts=timestamp}',
	"timestamp" => 1714557603123)
ORDER BY record;
CREATE TABLE raw_int (v int NOT NULL);
SELECT record, "row", code FROM decode_test.decode('raw_int', bytes('12', 'x', '') || NULL::bytea || '\x31ff'::bytea || '\x3100'::bytea, '{format=raw}') ORDER BY record;
CREATE TABLE raw_json (v jsonb);
SELECT record, "row", code FROM decode_test.decode('raw_json', bytes('{"a": [1]}', '"x"', 'null', '', NULL, '{'), '{format=raw}') ORDER BY record;
CREATE DOMAIN some_bytes AS bytea CHECK (length(VALUE) > 0);
CREATE TABLE raw_domain (v some_bytes, k some_bytes);
SELECT record, "row", code FROM decode_test.decode('raw_domain', ARRAY['\x00ff'::bytea, '\x', NULL], '{format=raw,meta:k=key}', ARRAY['\x01'::bytea, '\x02', '\x03']) ORDER BY record;

-- Key, time and headers
CREATE TABLE meta (k bytea, n int, h jsonb, ms bigint, ts timestamp, tz timestamptz, x int);
SELECT record, "row", code FROM decode_test.decode('meta', bytes('{"x":1}', '{"x":2}'), '{meta:k=key,meta:h=headers,meta:ms=timestamp,meta:ts=timestamp,meta:tz=timestamp}',
	ARRAY['\xff00'::bytea, NULL], ARRAY['\x61'::bytea, '\x31', '\x62', NULL, '\x61', '\x32', '\x63', '\xff41', '\x', '\x', '\xc3a4', '\x6100'], 1714557603123)
ORDER BY record;
SELECT record, "row", code FROM decode_test.decode('meta', bytes('{"x":1}', '{"x":2}'), '{meta:n=key,meta:h=headers,meta:tz=timestamp}', bytes('5', 'five'))
ORDER BY record;
SELECT record, "row", code, message FROM decode_test.decode('meta', bytes('{"x":1}'), '{meta:tz=timestamp}', "timestamp" => 9223372036854775807)
ORDER BY record;

-- Other names, paths into the value, keys without regard to case
CREATE TABLE paths (a int, b text, c text, d text, e timestamptz);
SELECT record, "row", code FROM decode_test.decode('paths', ARRAY[
	'{"x":{"a":1,"b":[{"odd \"name":"first"},"second"]},"C":"c","d":{"a":[1, 2]}}', '{"x":{"a":1,"a":2,"b":[]}}', '{"x":[1]}', '{"x":7,"d":8}', '{}',
	'{"x":{"a":"y"}}', '{"x":{"\u0061":3}}', '{"x":null,"d":{"a":["\ud83d\ude00"]}}', '{"d":{"a":"not an array"}}'],
	ARRAY['path:a=$.x.a', 'path:b=$.x.b[0]["odd \"name"]', 'name:c=C', 'path:d=$.d.a[0]'])
ORDER BY record;
CREATE TABLE folded (a int, "B" text);
SELECT record, "row", code FROM decode_test.decode('folded', ARRAY['{"A":1,"b":"x"}', '{"a":1,"A":2}', '{"A":2,"a":1}', '{"b":"1","B":"2"}', '{"b":"1","b":"2"}',
	'{"B":{"c":1,"C":2}}'], '{ignore_case=on}')
ORDER BY record;
SELECT record, "row", code FROM decode_test.decode('folded', ARRAY['{"A":1,"b":"x"}']) ORDER BY record;
SELECT record, "row" FROM decode_test.decode('folded', ARRAY['{"X":{"Y":1}}', '{"x":{"y":2,"Y":3}}', '{"X":{"Y":4,"YY":5,"z":{"y":6}}}'], '{ignore_case=on,path:a=$.x.y}') ORDER BY record;

-- Messages are short and valid, whatever is in the record
SELECT length(message) <= 1000 AS short, code FROM decode_test.decode('numbers', ARRAY[format('{"i":"%s"}', repeat('ä', 5000))]);

-- What a format cannot be
CREATE TABLE bad (a int, t text, b int GENERATED ALWAYS AS (a + 1) STORED);
SELECT decode_test.check_format('bad', '{}');
SELECT decode_test.check_format('csv', '{meta:name=partition}');
SELECT decode_test.check_format('csv', '{meta:id=offset}');
SELECT decode_test.check_format('csv', '{meta:v=timestamp}');
SELECT decode_test.check_format('csv', '{meta:name=headers}');
SELECT decode_test.check_format('csv', '{format=raw}');
SELECT decode_test.check_format('csv', '{format=csv,name:id=x}');
SELECT decode_test.check_format('csv', '{meta:part=partition,path:part=$.a}');
SELECT decode_test.check_format('csv', '{name:id=x,path:id=$.a}');
SELECT decode_test.check_format('csv', '{event_time=name}');
SELECT decode_test.check_format('csv', '{path:id=a.b}');
SELECT decode_test.check_format('csv', '{path:id=$}');
SELECT decode_test.check_format('csv', '{path:id=$[0].a}');
SELECT decode_test.check_format('csv', '{path:id=$.a..b}');
SELECT decode_test.check_format('csv', '{path:id=$.a[*]}');
SELECT decode_test.check_format('csv', '{path:id=$.a[1}');
SELECT decode_test.check_format('csv', ARRAY['path:id=$.ä["b]']);
SELECT decode_test.check_format('csv', '{path:id=$.a[99999999999]}');
SELECT decode_test.check_format('csv', ARRAY['format=csv', 'delimiter="']);
SELECT decode_test.check_format('csv', '{"format=csv","delimiter=;","null=a;b"}');

SET client_min_messages = warning;
DROP SCHEMA decode_case CASCADE;
DROP ROLE decode_owner;
