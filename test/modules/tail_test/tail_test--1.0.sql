\echo Use "CREATE EXTENSION tail_test" to load this file. \quit

-- one row for each reader of a stream
CREATE TABLE tail_position (
	reader text,
	rel oid,
	"position" bytea NOT NULL,
	PRIMARY KEY (reader, rel)
) WITH (fillfactor = 50);

-- ring pointers of the simulated retention
CREATE TABLE tail_retention (
	rel oid PRIMARY KEY,
	head bigint NOT NULL,
	rec bigint NOT NULL
);

-- Returns the first column, a bigint, of every row that the reader has not got yet. Columns "len"
-- and "payload" are compared, if there are any. With batches > 0 it stops after so many batches.
CREATE FUNCTION tail_poll(reader text, rel regclass, batches integer DEFAULT 0)
	RETURNS SETOF bigint LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- As above, but only counts the rows; to measure.
CREATE FUNCTION tail_count(reader text, rel regclass, OUT nrows bigint)
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- What the position of a reader says of itself.
CREATE FUNCTION tail_summary(reader text, rel regclass, OUT generation bigint, OUT cursor bigint,
							 OUT open_blocks integer, OUT running integer, OUT watermark timestamptz)
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- Polls with event time: column, delay and max_ahead in microseconds.
CREATE FUNCTION tail_poll_time(reader text, rel regclass, "column" name, delay bigint,
							   max_ahead bigint, batches integer DEFAULT 0)
	RETURNS SETOF bigint LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- Decodes and encodes again.
CREATE FUNCTION tail_recode("position" bytea) RETURNS bytea
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- Deletes the rows of at most max_blocks blocks that all readers have passed and whose rows all
-- have a value below the cutoff in the column; returns the number of blocks.
CREATE FUNCTION tail_expire(rel regclass, "column" name, cutoff timestamptz, max_blocks integer)
	RETURNS integer LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- Gives at most max_blocks empty blocks back to the writers; returns their number.
CREATE FUNCTION tail_recycle(rel regclass, max_blocks integer)
	RETURNS integer LANGUAGE c STRICT AS 'MODULE_PATHNAME';
