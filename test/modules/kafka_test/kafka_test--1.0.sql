\echo Use "CREATE EXTENSION kafka_test" to load this file. \quit

-- Opens a client and returns its number in this session. Properties are name, value, name, value ..;
-- without a topic it can only list topics.
CREATE FUNCTION kafka_open(servers text, topic text, properties text[] DEFAULT '{}',
						   queue_kb integer DEFAULT 16384)
	RETURNS integer LANGUAGE c AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_close(client integer) RETURNS void
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_start(client integer, partition integer, "offset" bigint) RETURNS void
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_stop(client integer, partition integer) RETURNS void
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- One poll. Headers are an array of name, value, name, value ..
CREATE FUNCTION kafka_poll(client integer, max_records integer DEFAULT 1000,
						   max_bytes bigint DEFAULT 1048576, timeout_ms integer DEFAULT 0,
						   OUT partition integer, OUT "offset" bigint, OUT "timestamp" bigint,
						   OUT key text, OUT value text, OUT headers text[])
	RETURNS SETOF record LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- Polls as long as it takes to get so many records or the time is over, without making rows of
-- them. 'bytes' are those of keys, values and headers, 'polls' how often there was something, 'holes'
-- offsets that were not there since the start of each partition or the last kafka_count(), 'partitions'
-- how many had records. An offset that comes twice or too late is an error.
CREATE FUNCTION kafka_count(client integer, nrecords bigint, timeout_ms integer,
							max_records integer DEFAULT 1024, max_bytes bigint DEFAULT 1048576,
							OUT nrecords bigint, OUT bytes bigint, OUT polls bigint,
							OUT holes bigint, OUT partitions integer)
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- As kafka_poll() again and again, until each started partition has been at its end.
CREATE FUNCTION kafka_read(client integer, timeout_ms integer DEFAULT 30000,
						   max_records integer DEFAULT 1000, OUT partition integer,
						   OUT "offset" bigint, OUT "timestamp" bigint, OUT key text, OUT value text,
						   OUT headers text[])
	RETURNS SETOF record LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_end_reached(client integer, partition integer) RETURNS bigint
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_known_end(client integer, partition integer) RETURNS bigint
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- NULL: no answer.
CREATE FUNCTION kafka_partitions(client integer, timeout_ms integer DEFAULT 30000) RETURNS integer
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_range(client integer, partition integer, timeout_ms integer DEFAULT 30000,
							OUT first bigint, OUT "end" bigint)
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_offset_at(client integer, partition integer, "time" bigint,
								timeout_ms integer DEFAULT 30000) RETURNS bigint
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_topics(client integer, timeout_ms integer DEFAULT 30000, OUT topic text,
							 OUT partitions integer)
	RETURNS SETOF record LANGUAGE c STRICT AS 'MODULE_PATHNAME';

CREATE FUNCTION kafka_status(client integer, OUT trouble text, OUT partition integer,
							 OUT "offset" bigint, OUT since timestamptz, OUT message text)
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- Polls, throwing records away, until the status is this trouble; false: it is not in time.
CREATE FUNCTION kafka_wait_status(client integer, trouble text, timeout_ms integer DEFAULT 60000)
	RETURNS boolean LANGUAGE c STRICT AS 'MODULE_PATHNAME';

-- Waits for the eventfd, and reads it; false: it did not become readable in time.
CREATE FUNCTION kafka_wait_event(timeout_ms integer) RETURNS boolean
	LANGUAGE c STRICT AS 'MODULE_PATHNAME';
