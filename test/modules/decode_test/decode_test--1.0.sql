-- Decodes records as rows of 'rel'; offsets count from 0. 'keys', if given, has one for each record;
-- 'headers' are names and values of each record in turn. Options are 'name=value':
--   format=json|csv|raw  ignore_case=on  delimiter= quote= escape= null=  event_time=COLUMN
--   wanted=COLUMN (only these are in the row; the others are null)
--   meta:COLUMN=partition|offset|timestamp|key|headers  name:COLUMN=KEY  path:COLUMN=PATH
CREATE FUNCTION decode(rel regclass, records bytea[], options text[] DEFAULT '{}', keys bytea[] DEFAULT NULL,
                       headers bytea[] DEFAULT NULL, "timestamp" bigint DEFAULT -1,
                       OUT record int, OUT "row" text, OUT code text, OUT message text)
RETURNS SETOF record LANGUAGE c AS 'MODULE_PATHNAME', 'decode_test_decode';

-- The same for JSON given as text.
CREATE FUNCTION decode(rel regclass, records text[], options text[] DEFAULT '{}',
                       OUT record int, OUT "row" text, OUT code text, OUT message text)
RETURNS SETOF record LANGUAGE sql AS
$$ SELECT * FROM decode_test.decode(rel, ARRAY(SELECT convert_to(r, 'UTF8') FROM unnest(records)
                                               WITH ORDINALITY AS u(r, n) ORDER BY n), options) $$;

-- Only checks the options.
CREATE FUNCTION check_format(rel regclass, options text[]) RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'decode_test_check_format';

-- Decodes the records 'times' times. By how many bytes has the memory of the process grown in the second half?
CREATE FUNCTION growth(rel regclass, records bytea[], times int, options text[] DEFAULT '{}') RETURNS bigint
LANGUAGE c AS 'MODULE_PATHNAME', 'decode_test_growth';

-- The same; CPU time of a record in ns.
CREATE FUNCTION cost(rel regclass, records bytea[], times int, options text[] DEFAULT '{}') RETURNS float8
LANGUAGE c AS 'MODULE_PATHNAME', 'decode_test_cost';
