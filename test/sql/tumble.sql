-- Window function tumble: alignment, calendar months, time zones, limits, refused arguments.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS stream_ext;
RESET client_min_messages;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, MDY';
SET IntervalStyle = 'postgres';

-- Case A01: times before 1970 and before 2000, negative origin
SELECT ts, tumble(ts, '1 min')
FROM unnest('{1969-12-31 23:59:59.5+00, 1969-12-31 23:59:00+00, 1970-01-01 00:00:00+00,
              1960-05-22 00:00:30+00, 1999-12-31 23:58:00+00}'::timestamptz[]) AS ts
ORDER BY ts;
SELECT ts, tumble(ts, '1 hour', '-15 min')
FROM unnest('{2024-05-01 09:44:59.999999+00, 2024-05-01 09:45:00+00,
              2024-05-01 10:44:59+00}'::timestamptz[]) AS ts
ORDER BY ts;

-- Case A02: weeks begin on Monday, months are the calendar's
SELECT ts, lower(tumble(ts, '1 week')) AS week, lower(tumble(ts, '1 month')) AS month
FROM unnest('{2024-04-01 00:00+00, 2024-04-03 23:59:59+00, 2024-03-31 12:00+00,
              2024-02-29 10:00+00, 2024-01-31 23:59:59.999999+00}'::timestamptz[]) AS ts
ORDER BY ts;
-- however the length is written; two weeks count from Monday 1970-01-05 too
SELECT tumble(ts, '7 days') = tumble(ts, '1 week') AS days,
       tumble(ts, '168 hours') = tumble(ts, '1 week') AS hours,
       tumble(ts, '14 days') AS two_weeks, tumble(ts, '1 week', '1 day') AS from_tuesday
FROM (VALUES (timestamptz '2024-04-03 23:59:59+00')) AS v(ts);
SELECT tumble(timestamptz '1970-01-05', '14 days'), tumble(timestamptz '1970-01-04 23:59', '14 days'),
       tumble(timestamptz '1970-01-05', '10 days');

-- Case A04: extreme times and sizes
SELECT ts, tumble(ts, '1 min') FROM (VALUES (timestamptz 'infinity'), ('-infinity'), ('2024-05-01 00:05')) AS v(ts)
ORDER BY ts;
SELECT tumble(timestamptz '294276-12-31 23:59:59.999999', '1 min');
SELECT tumble(timestamptz '2024-05-01', '0');
SELECT tumble(timestamptz '2024-05-01', '-1 min');
SELECT tumble(timestamptz '2024-05-01', '10000000 years');
SELECT tumble(timestamptz '2024-05-01', NULL) IS NULL AS no_window;

-- Hand-computed cases
CREATE TEMP TABLE window_case (n int, got text, want text);
INSERT INTO window_case VALUES
(1, tumble(timestamptz '2024-01-01 00:00:00+00', '10 s')::text,     '["2024-01-01 00:00:00+00","2024-01-01 00:00:10+00")'),
(2, tumble(timestamptz '2024-01-01 00:00:09.999999+00', '10 s')::text, '["2024-01-01 00:00:00+00","2024-01-01 00:00:10+00")'),
(3, tumble(timestamptz '2024-01-01 00:00:10+00', '10 s')::text,     '["2024-01-01 00:00:10+00","2024-01-01 00:00:20+00")'),
(4, tumble(timestamptz '2024-01-01 00:00:00+00', '7 s')::text,      '["2023-12-31 23:59:57+00","2024-01-01 00:00:04+00")'),
(5, tumble(timestamptz '1969-12-31 23:59:50+00', '10 s')::text,     '["1969-12-31 23:59:50+00","1970-01-01 00:00:00+00")'),
(6, tumble(timestamptz '1969-12-31 23:59:49.5+00', '10 s')::text,   '["1969-12-31 23:59:40+00","1969-12-31 23:59:50+00")'),
(7, tumble(timestamptz '2024-01-01 00:00:05+00', '10 s', '3 s')::text,    '["2024-01-01 00:00:03+00","2024-01-01 00:00:13+00")'),
(8, tumble(timestamptz '2024-01-01 00:00:05+00', '10 s', '-7 s')::text,   '["2024-01-01 00:00:03+00","2024-01-01 00:00:13+00")'),
(9, tumble(timestamptz '2024-01-01 00:00:05+00', '10 s', '1003 s')::text, '["2024-01-01 00:00:03+00","2024-01-01 00:00:13+00")'),
(10, tumble(timestamptz '2024-03-10 12:00:00+00', '1 day')::text,   '["2024-03-10 00:00:00+00","2024-03-11 00:00:00+00")'),
(11, tumble(timestamptz '2024-03-10 12:00:00+00', '1 day', '5 hours')::text, '["2024-03-10 05:00:00+00","2024-03-11 05:00:00+00")'),
(12, tumble(NULL::timestamptz, '10 s')::text, NULL),
(13, tumble(timestamptz '2024-01-01', NULL)::text, NULL),
(14, tumble(timestamptz 'infinity', '10 s')::text, NULL),
(15, tumble(timestamptz '-infinity', '10 s')::text, NULL),
-- NULL origin, NULL zone, and no error from a bad size where there is no time
(16, tumble(timestamptz '2024-01-01', '10 s', NULL)::text, NULL),
(17, tumble(timestamptz '2024-01-01', '10 s', '0', NULL)::text,     '["2024-01-01 00:00:00+00","2024-01-01 00:00:10+00")'),
(18, tumble(timestamptz 'infinity', '0 s')::text, NULL),
-- the other types
(20, tumble(timestamp '1969-12-31 23:59:49.5', '10 s')::text,       '["1969-12-31 23:59:40","1969-12-31 23:59:50")'),
(21, tumble(timestamp '2024-05-15 10:00', '1 month', '14 days')::text, '["2024-05-15 00:00:00","2024-06-15 00:00:00")'),
(22, tumble(timestamp 'infinity', '10 s')::text, NULL),
(23, tumble(timestamp '2024-04-03', '1 week')::text,                '["2024-04-01 00:00:00","2024-04-08 00:00:00")'),
(24, tumble(0, 10)::text, '[0,10)'), (25, tumble(-1, 10)::text, '[-10,0)'), (26, tumble(-10, 10)::text, '[-10,0)'),
(27, tumble(5, 10, 3)::text, '[3,13)'), (28, tumble(5, 10, -7)::text, '[3,13)'), (29, tumble(2, 10, 1003)::text, '[-7,3)'),
(30, tumble(NULL::bigint, 10)::text, NULL), (31, tumble(1, NULL)::text, NULL),
-- weeks do not exist for numbers
(32, tumble(0, 604800000000)::text, '[0,604800000000)'),
-- months: origin in months counts modulo size, days and time shift the start
(40, tumble(timestamptz '2024-02-10', '3 months')::text,            '["2024-01-01 00:00:00+00","2024-04-01 00:00:00+00")'),
(41, tumble(timestamptz '2024-02-10', '3 months', '1 month')::text, '["2024-02-01 00:00:00+00","2024-05-01 00:00:00+00")'),
(42, tumble(timestamptz '2024-02-10', '1 year', '-9 months')::text, '["2023-04-01 00:00:00+00","2024-04-01 00:00:00+00")'),
(43, tumble(timestamptz '1969-12-31 23:59:59.999999', '1 month')::text, '["1969-12-01 00:00:00+00","1970-01-01 00:00:00+00")'),
(44, tumble(timestamptz '0001-01-15 00:00 BC', '1 year')::text,     '["0001-01-01 00:00:00+00 BC","0001-01-01 00:00:00+00")'),
(45, tumble(timestamptz '2024-03-01 05:00', '1 month', '6 hours')::text, '["2024-02-01 06:00:00+00","2024-03-01 06:00:00+00")'),
(46, tumble(timestamptz '2024-03-01 05:00', '5 years')::text,       '["2020-01-01 00:00:00+00","2025-01-01 00:00:00+00")'),
-- an origin in months for a fixed size is a date
(47, tumble(timestamptz '2024-03-01 05:00', '10 days', '1 month')::text,
     tstzrange(date_bin('10 days', timestamptz '2024-03-01 05:00', timestamptz '1970-02-01'),
               date_bin('10 days', timestamptz '2024-03-01 05:00', timestamptz '1970-02-01') + interval '10 days')::text),
-- negative parts of a positive length
(48, tumble(timestamptz '2024-03-01 05:00', '1 day -1 hour')::text, tumble(timestamptz '2024-03-01 05:00', '23 hours')::text),
-- the cache of a call site tells '1 month' from '30 days'
(49, (SELECT string_agg(tumble(timestamptz '2024-03-01 05:00', s, o, z)::text, ' ' ORDER BY n)
      FROM (VALUES (1, interval '30 days', interval '0', NULL), (2, '1 month', '0', NULL), (3, '1 month', '0', 'Asia/Tokyo'),
                   (4, '1 month', '30 days', 'Asia/Tokyo'), (5, '1 month', '1 month', ''||NULL)) AS v(n, s, o, z)),
     '["2024-02-17 00:00:00+00","2024-03-18 00:00:00+00") ["2024-03-01 00:00:00+00","2024-04-01 00:00:00+00") '
     '["2024-02-29 15:00:00+00","2024-03-31 15:00:00+00") ["2024-01-30 15:00:00+00","2024-03-01 15:00:00+00") '
     '["2024-03-01 00:00:00+00","2024-04-01 00:00:00+00")');
SELECT * FROM window_case WHERE got IS DISTINCT FROM want ORDER BY n;
SELECT count(*) FROM window_case;

-- Refused arguments
SELECT tumble(timestamptz '2024-01-01', '0 s');
SELECT tumble(timestamptz '2024-01-01', '-1 s');
SELECT tumble(timestamptz '2024-01-01', '-1 month');
SELECT tumble(timestamptz '2024-01-01', '1 month 1 day');
SELECT tumble(timestamptz '2024-01-01', '1 month -1 us');
SELECT tumble(timestamptz '2024-01-01', '1 day -25 hours');
SELECT tumble(timestamptz '2024-01-01', '2147483647 days');
SELECT tumble(timestamptz '2024-01-01', '-2147483647 days');
SELECT tumble(timestamptz '2024-01-01', '292000 years');
SELECT tumble(timestamptz '2024-01-01', '1 min', '2147483647 days');
SELECT tumble(timestamptz '2024-01-01', '1 min', '178000000 years');
SELECT tumble(timestamptz '2024-01-01', '1 month', '2147483647 days');
SELECT tumble(timestamptz '2024-01-01', '1 min', zone => 'Mars/Phobos');
SELECT tumble(timestamptz '2024-01-01', '1 min', zone => '');
SELECT tumble(timestamptz '2024-01-01', '1 min', zone => repeat('x', 300)) IS NULL;
SELECT tumble(timestamp '2024-01-01', '0 s');
SELECT tumble(1, 0);
SELECT tumble(1, -5);
SELECT tumble('2024-01-01', '1 min');
-- a call site works on after an error
DO $$
DECLARE got text := '';
BEGIN
  FOR n IN 1..4 LOOP
    BEGIN
      got := got || tumble(timestamptz '2024-01-01 00:00:07', make_interval(secs => CASE n WHEN 2 THEN 0 ELSE 5 END),
                           '0', CASE n WHEN 3 THEN 'Nowhere' END) || ' ';
    EXCEPTION WHEN invalid_parameter_value THEN
      got := got || SQLERRM || ' ';
    END;
  END LOOP;
  RAISE NOTICE '%', got;
END
$$;

-- The ends of the types
SELECT tumble(timestamptz '4714-11-24 00:00:00+00 BC', '1 min'), tumble(timestamptz '4714-11-24 00:00:00+00 BC', '1 week');
SELECT tumble(timestamptz '4714-11-24 00:00:00+00 BC', '1 month');
SELECT tumble(timestamptz '4714-11-24 00:00:00+00 BC', '1 day', '1 us');
SELECT tumble(timestamptz '294276-12-31 23:58:59.999999+00', '1 min'), tumble(timestamptz '294276-11-30 23:59', '1 month');
SELECT tumble(timestamptz '294276-12-31 23:59', '1 month');
SELECT tumble(timestamptz '294276-12-31 23:59', '1 month', '2 days');
SELECT tumble(timestamptz '294276-12-31 23:59', '1 day', zone => 'Pacific/Kiritimati');
SELECT tumble(timestamptz '294276-12-31 23:59', '1 hour', zone => 'Europe/Berlin');
SELECT tumble(timestamptz '4714-11-24 00:00:00+00 BC', '1 day', zone => 'America/New_York');
SELECT tumble(timestamptz '4714-11-24 00:00:00+00 BC', '1 year', zone => 'America/New_York');
SELECT tumble(timestamptz '4714-11-24 00:00:00+00 BC', '291999 years');
SELECT tumble(timestamptz '1970-01-01', '291999 years'), tumble(timestamptz '1970-01-01', '100000000 days', '99999999 days');
SELECT tumble(timestamptz '294276-12-31 23:59', '106000000 days', '105999999 days');
SELECT tumble(timestamp '294276-12-31 23:59:59.999999', '1 min');
SELECT tumble(9223372036854775807, 2);
SELECT tumble(9223372036854775806, 2);
SELECT tumble(9223372036854775805, 2, 1), tumble(-9223372036854775808, 2);
SELECT tumble(-9223372036854775808, 3);
SELECT tumble(-9223372036854775808, 9223372036854775807);
SELECT tumble(-9223372036854775807, 9223372036854775807, 9223372036854775806), tumble(0, 9223372036854775807, -9223372036854775808);
SELECT tumble(9223372036854775807, 9223372036854775807, 9223372036854775806);

-- Pseudo-random times of the years 1 to 9999, the same in every run
CREATE TEMP TABLE random_time AS
SELECT n, timestamptz '0001-01-01' + ((('x' || substr(md5(n::text), 1, 15))::bit(60)::bigint)::numeric % 315537897599000000) * interval '1 us' AS ts
FROM generate_series(1, 4000) AS n;
SELECT count(*), min(extract(year FROM ts)) < 10 AS early, max(extract(year FROM ts)) > 9990 AS late FROM random_time;
-- against date_bin; counts of wrong windows
SELECT size, origin, count(*) AS tested,
       count(*) FILTER (WHERE NOT record_image_eq(ROW(w), ROW(tstzrange(start AT TIME ZONE 'UTC', (start + size) AT TIME ZONE 'UTC')))) AS wrong,
       count(*) FILTER (WHERE NOT record_image_eq(ROW(w_plain), ROW(tsrange(start, start + size)))) AS wrong_plain,
       count(*) FILTER (WHERE (ts <@ w) IS NOT TRUE) AS outside
FROM (VALUES (interval '1 us', interval '0'), ('1 ms', '0'), ('7 s', '0'), ('1 min', '3 s'), ('15 min', '-1 min'), ('1 hour', '1003 hours'),
             ('23 hours', '5 hours'), ('1 day', '0'), ('1 day', '-6 hours'), ('10 days', '0'), ('1000000 days', '12345 days'),
             ('3.5 s', '-999 days')) AS a(size, origin),
     random_time,
     date_bin(size, ts AT TIME ZONE 'UTC', timestamp '1970-01-01' + origin) AS start,
     tumble(ts, size, origin) AS w, tumble(ts AT TIME ZONE 'UTC', size, origin) AS w_plain
GROUP BY size, origin ORDER BY size, origin;
-- against date_trunc and the constructor
SELECT unit, zone, count(*) AS tested,
       count(*) FILTER (WHERE NOT record_image_eq(ROW(tumble(ts, size, zone => zone)),
         ROW(tstzrange(date_trunc(unit, ts, coalesce(zone, 'UTC')),
                       (date_trunc(unit, ts AT TIME ZONE coalesce(zone, 'UTC')) + size) AT TIME ZONE coalesce(zone, 'UTC'))))) AS wrong
FROM random_time,
     (VALUES ('minute', interval '1 minute'), ('day', '1 day'), ('week', '1 week'), ('month', '1 month'), ('quarter', '3 months'), ('year', '1 year')) AS u(unit, size),
     (VALUES (NULL), ('Europe/Berlin'), ('America/New_York'), ('Asia/Kolkata')) AS z(zone)
GROUP BY unit, size, zone ORDER BY size, zone;
-- numbers
SELECT size, origin, count(*) AS tested,
       count(*) FILTER (WHERE NOT record_image_eq(ROW(tumble(v, size, origin)), ROW(int8range(start, start + size)))) AS wrong
FROM (VALUES (1::bigint, 0::bigint), (10, 0), (10, -3), (7, 1000000), (1::bigint << 40, 12345)) AS a(size, origin),
     LATERAL (SELECT v, v - ((v - origin) % size + size) % size AS start
              FROM (SELECT ('x' || substr(md5(n::text), 1, 15))::bit(60)::bigint - (1::bigint << 59) AS v
                    FROM generate_series(1, 1000) AS n) AS n) AS r
GROUP BY size, origin ORDER BY size, origin;

-- The days on which clocks change: 23 and 25 hours, and the hours of these days
SELECT zone, day, upper(w) - lower(w) AS length, w
FROM (VALUES ('Europe/Berlin', timestamptz '2024-03-31 12:00+00'), ('Europe/Berlin', '2024-10-27 12:00+00'),
             ('America/New_York', '2024-03-10 18:00+00'), ('America/New_York', '2024-11-03 18:00+00')) AS v(zone, day)
CROSS JOIN LATERAL tumble(day, '1 day', zone => zone) AS w
ORDER BY zone, day;
SELECT zone, lower(w), upper(w) - lower(w) AS length, count(*) AS quarters, array_agg(DISTINCT (to_char(ts AT TIME ZONE zone, 'HH24'))) AS clock
FROM (VALUES ('Europe/Berlin', timestamptz '2024-10-27 00:00+00'), ('America/New_York', '2024-11-03 05:00+00'),
             ('Europe/Berlin', '2024-03-31 00:00+00')) AS v(zone, start)
CROSS JOIN LATERAL generate_series(start, start + interval '165 min', '15 min') AS ts
CROSS JOIN LATERAL tumble(ts, '1 hour', zone => zone) AS w
GROUP BY zone, w ORDER BY zone, w;
-- other sizes across the change: six hours are five or seven; two hours begin where the clock shows it
SELECT size, lower(w), upper(w) - lower(w) AS length
FROM (VALUES (interval '6 hours'), ('2 hours'), ('90 min'), ('30 min')) AS s(size),
     LATERAL (SELECT DISTINCT tumble(ts, size, zone => 'Europe/Berlin') AS w
              FROM generate_series(timestamptz '2024-10-26 23:00+00', '2024-10-27 02:30+00', '10 min') AS ts) AS x
ORDER BY size, w;
SELECT size, lower(w), upper(w) - lower(w) AS length
FROM (VALUES (interval '6 hours'), ('2 hours')) AS s(size),
     LATERAL (SELECT DISTINCT tumble(ts, size, zone => 'Europe/Berlin') AS w
              FROM generate_series(timestamptz '2024-03-31 00:00+00', '2024-03-31 02:30+00', '10 min') AS ts) AS x
ORDER BY size, w;
-- midnight that does not exist, that comes twice, a day that was skipped, half-hour shifts
SELECT zone, lower(w) AT TIME ZONE 'UTC' AS start, upper(w) - lower(w) AS length
FROM (VALUES ('America/Sao_Paulo', timestamptz '2018-11-04 12:00+00'), ('America/Havana', '2024-11-03 04:30+00'),
             ('America/Havana', '2024-11-03 05:30+00'), ('Pacific/Apia', '2011-12-30 09:00+00'), ('Pacific/Apia', '2011-12-30 10:00+00'),
             ('Australia/Lord_Howe', '2024-04-07 00:00+00'), ('America/St_Johns', '1990-10-28 02:30:30+00'), ('America/St_Johns', '1990-10-28 02:45+00'),
             ('America/St_Johns', '1990-10-28 04:00+00')) AS v(zone, ts)
CROSS JOIN LATERAL tumble(ts, '1 day', zone => zone) AS w
ORDER BY zone, ts;
-- Windows hold their time, do not overlap and leave no gap: the window of the end begins there,
-- that of the last moment is the same
SELECT zone, size, count(*) AS tested, count(*) FILTER (WHERE NOT w @> ts) AS outside,
       count(*) FILTER (WHERE lower(tumble(upper(w), size, zone => zone)) IS DISTINCT FROM upper(w)) AS gap,
       count(*) FILTER (WHERE tumble(upper(w) - interval '1 us', size, zone => zone) IS DISTINCT FROM w) AS overlap,
       count(*) FILTER (WHERE tumble(lower(w), size, zone => zone) IS DISTINCT FROM w) AS start
FROM (VALUES ('Europe/Berlin'), ('America/New_York'), ('America/Havana'), ('America/St_Johns'), ('Pacific/Apia'), ('Australia/Lord_Howe')) AS z(zone),
     (VALUES (interval '7 min'), ('1 hour'), ('5 hours'), ('1 day'), ('1 week'), ('1 month')) AS s(size)
CROSS JOIN LATERAL (
  SELECT ts, tumble(ts, size, zone => zone) AS w FROM random_time WHERE n <= 300
  UNION ALL
  SELECT ts, tumble(ts, size, zone => zone) FROM generate_series(timestamptz '1987-01-01', '1988-01-10', '5 hours 7 min') AS ts
  UNION ALL
  SELECT ts, tumble(ts, size, zone => zone) FROM generate_series(timestamptz '2011-12-25', '2012-01-02', '29 min') AS ts
  UNION ALL
  SELECT ts, tumble(ts, size, zone => zone) FROM generate_series(timestamptz '2024-11-02', '2024-11-05', '11 min') AS ts) AS t
GROUP BY zone, size
HAVING count(*) < 2500 OR count(*) FILTER (WHERE NOT w @> ts) + count(*) FILTER (WHERE lower(tumble(upper(w), size, zone => zone)) IS DISTINCT FROM upper(w))
       + count(*) FILTER (WHERE tumble(upper(w) - interval '1 us', size, zone => zone) IS DISTINCT FROM w)
       + count(*) FILTER (WHERE tumble(lower(w), size, zone => zone) IS DISTINCT FROM w) > 0
ORDER BY zone, size;
-- hours against the clock: same local hour and same offset means same window
SELECT zone, count(DISTINCT w) = count(DISTINCT (date_trunc('hour', ts AT TIME ZONE zone), ts AT TIME ZONE zone - ts AT TIME ZONE 'UTC')) AS equal
FROM (VALUES ('Europe/Berlin'), ('America/New_York')) AS z(zone), generate_series(timestamptz '2024-01-01', '2025-01-01', '20 min') AS ts,
     tumble(ts, '1 hour', zone => zone) AS w
GROUP BY zone ORDER BY zone;

-- Not inlined, so that the call is still in the plan; may be indexed
SELECT proname, provolatile, proparallel, prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') AS c
FROM pg_proc WHERE proname = 'tumble' ORDER BY oid;
CREATE TEMP TABLE window_index (ts timestamptz);
CREATE INDEX ON window_index (tumble(ts, '1 hour'));
DROP TABLE window_case, random_time, window_index;
