-- Random JSON documents: rows and errors are those of jsonb and the types' input functions.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
CREATE EXTENSION IF NOT EXISTS decode_test;
RESET client_min_messages;
CREATE SCHEMA decode_random;
SET search_path = decode_random, public;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, MDY';
SET IntervalStyle = 'postgres';

CREATE TYPE pair AS (a int, b text, c timestamptz);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN code AS text NOT NULL CHECK (VALUE <> 'bad');
CREATE TABLE flat (b bigint, i int, s smallint, f float8, r float4, n numeric, n2 numeric(8,2), t text,
                   v varchar(5), bo boolean, tz timestamptz, ts timestamp, d date, u uuid);
CREATE TABLE nested (b bigint, t text, j jsonb, js json, a int[], p pair, iv interval, pos positive,
                     ip inet, by bytea, aa text[], pp pair[], bp char(3));
CREATE TABLE strict (code code, f float8, pos positive, t text);

-- One of the elements.
CREATE FUNCTION pick(VARIADIC a text[]) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT a[1 + floor(random() * cardinality(a))::int] $$;

CREATE FUNCTION digits(n int) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(string_agg(floor(random() * 10)::int::text, ''), '') FROM generate_series(1, n) $$;

CREATE FUNCTION random_number() RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT pick('', '', '-') || pick('0', pick('1', '9') || digits(floor(random() * 6)::int),
                                    pick('1', '9') || digits(floor(random() * 22)::int))
       || pick('', '', '.' || digits(1 + floor(random() * 4)::int), '.' || digits(1 + floor(random() * 24)::int))
       || pick('', '', '', 'e', 'E-', 'e+') $$;

CREATE FUNCTION random_time() RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT pick('2026', '1969', '0001', '9999', '2024', '0000')
       || '-' || pick('01', '02', '12', '13', '06', '1') || '-' || pick('01', '28', '29', '30', '31', '00')
       || pick('T', 'T', 'T', ' ', '', 't') || pick('00', '23', '24', '07') || ':' || pick('00', '59', '60', '5')
       || pick(':', ':', ':', '') || pick('00', '59', '60', '30')
       || pick('', '.5', '.123456', '.1234567', '.', '.999999', '.9999995')
       || pick('Z', 'Z', 'Z', '', '+02:00', '-05:30', '+14', '+15:00', '-0330', ' UTC', 'z', '+00:60') $$;

CREATE FUNCTION random_string() RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT pick('', 'ok', 'bad', 'a b', 'ab', 'abc', 'abcde', 'abcdef', 'true', 'false', 't', 'no', 'null', 'é', '日本', '😀',
               'a\nb', 'a\"b', 'a\\b', 'a\/b', '\u0041', '\u00e9', '\ud83d\ude00', '\ud83d', '\ude00', '\u0000', '\\u0000',
               '\x', '\u12', E'\x01', E'a\nb', '12', '-0', ' 12', '12 ', '+12', '0x10', '1e5', '1_000', 'NaN', 'Infinity', '-inf',
               'infinity', 'epoch', '2026-01-31', '2026-02-30', '31/01/2026',
               'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11',
               'a0eebc999c0b4ef8bb6d6bb9bd380a11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g', '{1,2}', '{a,null}', '(1,x,)',
               '1 day 2 h', 'P1D', '10.0.0.1', '\\x00ff', '\\x0', repeat('x', 40),
               (random() * 1000)::text, ((random() - 0.5) * power(10, floor(random() * 30 - 15)))::text) $$;

CREATE FUNCTION random_value(depth int) RETURNS text LANGUAGE plpgsql VOLATILE AS
$$ DECLARE r float8 := random();
BEGIN
	IF r < 0.28 THEN
		RETURN random_number() || pick('', '', '', '', '', '', digits(1), digits(2));
	ELSIF r < 0.36 THEN
		RETURN '"' || random_number() || '"';
	ELSIF r < 0.48 THEN
		RETURN '"' || random_time() || '"';
	ELSIF r < 0.68 OR depth > 3 THEN
		RETURN '"' || random_string() || '"';
	ELSIF r < 0.80 THEN
		RETURN pick('null', 'true', 'false', '-0', '-0.0', '0e0', '1e400', '1e-400', '1e40', '9007199254740993', '16777217',
		            '9223372036854775807', '9223372036854775808', '-9223372036854775808', '-9223372036854775809', '2147483648',
		            '-32768', '32768', '999999.99', '999999.995', '0.1', '1.10', '3.4028235677973366e38', '0.50000005960464477539063',
		            '7.038531e-26', '1e1000', '1e-1000', '1E5', '0.000001', '123456789012345678.5');
	ELSIF r < 0.82 THEN
		RETURN pick('01', '1.', '.5', '+1', 'NaN', 'tru', '''x''', '1e', '-', '"x', '[1,]', '{"a":}', '{a:1}', '[', '{', 'nul', 'truex', '1 2', '');
	ELSIF r < 0.91 THEN
		RETURN '[' || pick('', random_value(depth + 1), random_value(depth + 1) || ',' || random_value(depth + 1),
		                   '1,null, 3', '"a","b"', '[1,2],[3,4]', '{"a":1,"b":"x"},null') || ']';
	ELSE
		RETURN '{' || pick('', '"a":' || random_value(depth + 1), '"b":"x","a":1', '"b": ' || random_value(depth + 1) || ' , "a" :' || random_value(depth + 1)) || '}';
	END IF;
END $$;

-- An object with some of the keys, some of them twice; now and then it is damaged.
CREATE FUNCTION random_document(keys text[]) RETURNS text LANGUAGE plpgsql VOLATILE AS
$$ DECLARE
	doc text := pick('', '', '', ' ', E'\n') || '{';
	space text := pick('', '', ' ');
	n int := floor(random() * (CASE WHEN random() < 0.5 THEN 3 ELSE 8 END))::int;
BEGIN
	FOR i IN 1..n LOOP
		doc := doc || CASE WHEN i > 1 THEN ',' ELSE '' END || space || '"'
			|| CASE WHEN random() < 0.9 THEN pick(VARIADIC keys) ELSE pick('other', 'x', '', 'aé', 'a\nb', repeat('k', 70)) END
			|| '"' || CASE WHEN random() < 0.95 THEN '' ELSE ' ' END || ':' || space || random_value(0);
	END LOOP;
	doc := doc || pick('', '', ' ') || '}' || pick('', '', '', '', E'\r\n ', '', '', '', 'x', '{}');
	IF random() < 0.05 THEN
		n := 1 + floor(random() * length(doc))::int;
		doc := overlay(doc PLACING pick('', ',', '"', '\', '}', E'\t', ' ', '0') FROM n FOR 1);
	END IF;
	RETURN doc;
END $$;

-- What jsonb says: a row as text, or the code of the first error (OFFSET 0: nothing is evaluated ahead of its turn).
CREATE FUNCTION expect(rel regclass, expression text, doc text, OUT "row" text, OUT code text) LANGUAGE plpgsql AS
$$ DECLARE j jsonb;
BEGIN
	j := doc::jsonb;
	IF jsonb_typeof(j) <> 'object' THEN
		code := '2203C';
		RETURN;
	END IF;
	EXECUTE format('SELECT %s FROM (SELECT $1 AS j OFFSET 0) AS s', expression) INTO "row" USING j;
EXCEPTION WHEN OTHERS THEN
	"row" := NULL;
	code := SQLSTATE;
END $$;

-- Compares n documents; returns what differs.
CREATE FUNCTION compare(rel regclass, expression text, n int)
RETURNS TABLE (doc text, "row" text, code text, expected_row text, expected_code text) LANGUAGE plpgsql AS
$$ DECLARE
	keys text[] := ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = rel AND attnum > 0);
	docs text[];
	seed float8 := extract(epoch FROM clock_timestamp())::numeric % 1;
BEGIN
	PERFORM setseed(seed);
	docs := ARRAY(SELECT random_document(keys) FROM generate_series(1, n));
	RETURN QUERY
		SELECT docs[d.record + 1] || format(' (seed %s, document %s)', seed, d.record + 1), d."row", d.code, e."row", e.code
		FROM decode_test.decode(rel, docs) AS d, LATERAL expect(rel, expression, docs[d.record + 1]) AS e
		WHERE (d."row", d.code) IS DISTINCT FROM (e."row", e.code)
		UNION ALL
		SELECT format('%s of %s documents are missing', n - count(*), n), NULL, NULL, NULL, NULL
		FROM decode_test.decode(rel, docs) HAVING count(*) <> n;
	-- documents that are all bad, or all good, would show nothing
	RETURN QUERY
		SELECT format('only %s of %s documents are rows (seed %s)', count(d."row"), n, seed), NULL, NULL, NULL, NULL
		FROM decode_test.decode(rel, docs) AS d HAVING count(d."row") NOT BETWEEN n / 20 AND n * 19 / 20;
END $$;

-- each column is (value ->> 'name')::type
SELECT * FROM compare('flat', $$ ROW((j->>'b')::bigint, (j->>'i')::int, (j->>'s')::smallint, (j->>'f')::float8, (j->>'r')::float4,
	(j->>'n')::numeric, (j->>'n2')::numeric(8,2), j->>'t', (jsonb_populate_record(NULL::flat, jsonb_build_object('v', j->'v'))).v,
	(j->>'bo')::boolean, (j->>'tz')::timestamptz, (j->>'ts')::timestamp, (j->>'d')::date, (j->>'u')::uuid)::text $$, 4000);
SELECT * FROM compare('flat', 'jsonb_populate_record(NULL::flat, j)::text', 2000);
-- rows, arrays, json and domains as jsonb_populate_record() has them
SELECT * FROM compare('nested', 'jsonb_populate_record(NULL::nested, j)::text', 3000);
SELECT * FROM compare('strict', 'jsonb_populate_record(NULL::strict, j)::text', 2000);

SET client_min_messages = warning;
DROP SCHEMA decode_random CASCADE;
