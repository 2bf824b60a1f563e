/*
 * lines.c
 *		Records as lines of text: the commands produce and consume of sxkafka. Its usage text says what
 *		a line looks like.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sxkafka.h"

/* Where standard input is, for messages. */
static int64_t line_number = 0;

static int64_t delivered = 0;
static rd_kafka_resp_err_t delivery_error = RD_KAFKA_RESP_ERR_NO_ERROR;

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Replaces escapes by what they stand for, in place. Returns the number of bytes. */
static size_t
unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++)
	{
		if (*from != '\\')
		{
			*to++ = *from;
			continue;
		}
		switch (*++from)
		{
			case 't':
				*to++ = '\t';
				break;
			case 'n':
				*to++ = '\n';
				break;
			case 'r':
				*to++ = '\r';
				break;
			case '\\':
				*to++ = '\\';
				break;
			case 'x':
				if (hex_digit(from[1]) >= 0 && hex_digit(from[2]) >= 0)
				{
					*to++ = (char) (hex_digit(from[1]) * 16 + hex_digit(from[2]));
					from += 2;
					break;
				}
				/* FALLTHROUGH */
			default:
				sx_fail("line %" PRId64 ": unknown escape", line_number);
		}
	}
	return (size_t) (to - text);
}

static int64_t
parse_number(const char *text)
{
	char *end;
	int64_t value = strtoll(text, &end, 10);

	if (end == text || *end)
		sx_fail("line %" PRId64 ": \"%s\" is not a number", line_number, text);
	return value;
}

static void
add_header(rd_kafka_headers_t **headers, char *text)
{
	char *value = strchr(text, ':');
	size_t size = 0;

	if (value)
	{
		*value++ = '\0';
		size = unescape(value);
	}
	if (!*headers)
		*headers = rd_kafka_headers_new(4);
	rd_kafka_header_add(*headers, text, (ssize_t) unescape(text), value, (ssize_t) size);
}

/* The value of a field if the text is that field; otherwise NULL. */
static char *
field_value(char *text, const char *name)
{
	size_t size = strlen(name);

	return strncmp(text, name, size) == 0 && text[size] == '=' ? text + size + 1 : NULL;
}

/* Hands the record of a line to the client, waiting while its queue is full. */
static void
produce_line(rd_kafka_t *rk, const char *topic, char *line)
{
	int64_t partition = RD_KAFKA_PARTITION_UA;
	int64_t timestamp = 0;
	char *key = NULL;
	char *value = NULL;
	size_t key_size = 0;
	size_t value_size = 0;
	rd_kafka_headers_t *headers = NULL;
	rd_kafka_resp_err_t err;

	for (char *field = line, *next; field; field = next)
	{
		char *text;

		if ((next = strchr(field, '\t')))
			*next++ = '\0';
		if ((text = field_value(field, "partition")))
			partition = parse_number(text);
		else if ((text = field_value(field, "timestamp")))
			timestamp = parse_number(text);
		else if ((text = field_value(field, "key")))
			key_size = unescape(key = text);
		else if ((text = field_value(field, "value")))
			value_size = unescape(value = text);
		else if ((text = field_value(field, "header")))
			add_header(&headers, text);
		else if (!field_value(field, "offset"))
			sx_fail("line %" PRId64 ": unknown field \"%s\"", line_number, field);
	}

	for (;;)
	{
		/* the client takes the headers only if it takes the record */
		err = rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic),
								RD_KAFKA_V_PARTITION((int32_t) partition),
								RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
								RD_KAFKA_V_TIMESTAMP(timestamp), RD_KAFKA_V_KEY(key, key_size),
								RD_KAFKA_V_VALUE(value, value_size), RD_KAFKA_V_HEADERS(headers),
								RD_KAFKA_V_END);
		if (err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
			break;
		rd_kafka_poll(rk, 100);
	}
	if (err)
		sx_fail("line %" PRId64 ": %s", line_number, rd_kafka_err2str(err));
	rd_kafka_poll(rk, 0);
}

static void
count_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	(void) rk;
	(void) opaque;
	if (message->err)
		delivery_error = message->err;
	else
		delivered++;
}

/* Waits until all records are written. */
static void
flush(rd_kafka_t *rk)
{
	rd_kafka_resp_err_t err = rd_kafka_flush(rk, 10 * SX_TIMEOUT);

	if (!err)
		err = delivery_error;
	if (err)
		sx_fail("a record is not written: %s", rd_kafka_err2str(err));
}

/* Fails if a call about transactions failed. */
static void
check_transaction(rd_kafka_error_t *error)
{
	if (error)
		sx_fail("%s", rd_kafka_error_string(error));
}

static void
end_transaction(rd_kafka_t *rk, SxEnding ending)
{
	rd_kafka_error_t *error;

	/* what has not arrived at the broker would not have been aborted there */
	flush(rk);
	do
		error = ending == SX_ENDING_COMMIT ? rd_kafka_commit_transaction(rk, 10 * SX_TIMEOUT)
										   : rd_kafka_abort_transaction(rk, 10 * SX_TIMEOUT);
	while (error && rd_kafka_error_is_retriable(error));
	check_transaction(error);
	printf("%s\n", ending == SX_ENDING_COMMIT ? "committed" : "aborted");
}

/* The command produce. Returns the exit code. */
int
sx_produce(const SxOptions *options)
{
	static const char *const idempotent[] = {"enable.idempotence", "true", NULL};
	const char *const transactional[] = {"transactional.id",
										 options->transactional_id ? options->transactional_id
																   : "sxkafka",
										 NULL};
	bool transactions = options->ending != SX_ENDING_NONE;
	bool in_transaction = false;
	rd_kafka_conf_t *conf;
	rd_kafka_t *rk;
	char *line = NULL;
	size_t allocated = 0;
	ssize_t size;

	conf = sx_conf(transactions ? transactional : options->idempotent ? idempotent : NULL);
	rd_kafka_conf_set_dr_msg_cb(conf, count_delivery);
	rk = sx_client(RD_KAFKA_PRODUCER, conf);
	sx_partition_count(rk, options->topic);
	if (transactions)
		check_transaction(rd_kafka_init_transactions(rk, SX_TIMEOUT));

	while (!sx_stopped && (size = getline(&line, &allocated, stdin)) > 0)
	{
		line_number++;
		if (line[size - 1] == '\n')
			line[size - 1] = '\0';
		if (strcmp(line, "!flush") == 0)
		{
			flush(rk);
			printf("flushed %" PRId64 "\n", delivered);
		}
		else if (in_transaction && strcmp(line, "!commit") == 0)
		{
			end_transaction(rk, SX_ENDING_COMMIT);
			in_transaction = false;
		}
		else if (in_transaction && strcmp(line, "!abort") == 0)
		{
			end_transaction(rk, SX_ENDING_ABORT);
			in_transaction = false;
		}
		else
		{
			if (transactions && !in_transaction)
			{
				check_transaction(rd_kafka_begin_transaction(rk));
				in_transaction = true;
			}
			produce_line(rk, options->topic, line);
		}
	}
	free(line);
	flush(rk);
	if (in_transaction && options->ending != SX_ENDING_OPEN && !sx_stopped)
		end_transaction(rk, options->ending);
	rd_kafka_destroy(rk);
	return in_transaction && options->ending != SX_ENDING_OPEN && sx_stopped ? 1 : 0;
}

/* Prints a name as it is and bytes with escapes; a colon is one if it could be taken for an end. */
static void
print_bytes(const char *name, const void *bytes, size_t size, bool escape_colon)
{
	const unsigned char *byte = bytes;

	fputs(name, stdout);
	for (size_t i = 0; i < size; i++)
	{
		if (byte[i] == '\\')
			fputs("\\\\", stdout);
		else if (byte[i] == '\t')
			fputs("\\t", stdout);
		else if (byte[i] == '\n')
			fputs("\\n", stdout);
		else if (byte[i] == '\r')
			fputs("\\r", stdout);
		else if (byte[i] < ' ' || byte[i] > '~' || (escape_colon && byte[i] == ':'))
			printf("\\x%02x", byte[i]);
		else
			putchar(byte[i]);
	}
}

static void
print_message(const rd_kafka_message_t *message)
{
	rd_kafka_timestamp_type_t type;
	rd_kafka_headers_t *headers;
	const char *name;
	const void *value;
	size_t size;

	printf("partition=%d\toffset=%" PRId64 "\ttimestamp=%" PRId64, message->partition,
		   message->offset, rd_kafka_message_timestamp(message, &type));
	if (message->key)
		print_bytes("\tkey=", message->key, message->key_len, false);
	if (message->payload)
		print_bytes("\tvalue=", message->payload, message->len, false);
	if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == 0; i++)
		{
			print_bytes("\theader=", name, strlen(name), true);
			if (value)
				print_bytes(":", value, size, false);
		}
	}
	putchar('\n');
}

/*
 * Reads a partition from an offset to where it ended at the start, or could be read to. Returns the
 * number of records; prints them if told to.
 */
static int64_t
consume_partition(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partition, int64_t from, bool print)
{
	int64_t first, end;
	int64_t count = 0;
	bool done = false;
	rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(rk, rd_kafka_topic_name(topic),
															   partition, &first, &end, SX_TIMEOUT);

	if (err)
		sx_fail("partition %d: %s", partition, rd_kafka_err2str(err));
	if (from < 0)
		from = first;
	if (from >= end)
		return 0;
	if (rd_kafka_consume_start(topic, partition, from))
		sx_fail("partition %d: %s", partition, rd_kafka_err2str(rd_kafka_last_error()));
	while (!done && !sx_stopped)
	{
		rd_kafka_message_t *message = rd_kafka_consume(topic, partition, SX_TIMEOUT);

		if (!message)
			sx_fail("partition %d: nothing comes", partition);
		if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
			done = true;
		else if (message->err)
			sx_fail("partition %d: %s", partition, rd_kafka_message_errstr(message));
		else
		{
			/* a record that came later is not reported; those before it have all been */
			done = message->offset >= end - 1;
			if (message->offset < end)
			{
				count++;
				if (print)
					print_message(message);
			}
		}
		rd_kafka_message_destroy(message);
	}
	rd_kafka_consume_stop(topic, partition);
	return count;
}

/* The command consume. Returns the exit code. */
int
sx_consume(const SxOptions *options)
{
	const char *const defaults[] = {"isolation.level",
									options->uncommitted ? "read_uncommitted" : "read_committed",
									"enable.partition.eof",
									"true",
									"auto.offset.reset",
									"error",
									"check.crcs",
									"true",
									"fetch.wait.max.ms",
									"100",
									NULL};
	rd_kafka_t *rk = sx_client(RD_KAFKA_CONSUMER, sx_conf(defaults));
	rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
	int partitions = sx_partition_count(rk, options->topic);

	for (int partition = 0; partition < partitions; partition++)
	{
		int64_t count;

		if (options->partition >= 0 && options->partition != partition)
			continue;
		count = consume_partition(rk, topic, partition, options->from, !options->count);
		if (options->count)
			printf("%d %" PRId64 "\n", partition, count);
	}
	fflush(stdout);
	rd_kafka_topic_destroy(topic);
	rd_kafka_destroy(rk);
	return sx_stopped ? 1 : 0;
}
