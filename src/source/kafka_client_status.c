/*
 * kafka_client_status.c
 *		What is wrong with a client of librdkafka, and its log.
 *
 * Trouble is of the client as a whole (brokers, authentication, the topic) or of one partition. The
 * brokers send no "all is well": when they come back and there is nothing to read, librdkafka says
 * nothing at all. So trouble of the client ends when each partition that is read has shown a record
 * or its end since the trouble was last reported, and kafka_client_poll.c starts partitions again to
 * make them do so; without partitions, when a broker has answered a question. Trouble of a partition
 * ends with its next sign of life, or when it is started or stopped.
 *
 * Callbacks of librdkafka run inside its frames on the main thread: they only write to the client.
 * What they left is logged by sx_kafka_client_serve() after that.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "utils/timestamp.h"

#include "kafka_client_private.h"

#define LOG_INTERVAL (10 * USECS_PER_SEC)

/*
 * How long a trouble that must be acted on is not replaced by one that heals by itself: a refused
 * password is followed by "all brokers are down". librdkafka repeats the same error every 30 s.
 */
#define FAILING_TIME (60 * USECS_PER_SEC)

/* What an error means for a client. */
SxKafkaTrouble
sx_kafka_client_classify(rd_kafka_resp_err_t err)
{
	switch (err)
	{
		case RD_KAFKA_RESP_ERR_NO_ERROR:
			return SX_KAFKA_OK;
		case RD_KAFKA_RESP_ERR__TRANSPORT:
		case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
		case RD_KAFKA_RESP_ERR__RESOLVE:
		case RD_KAFKA_RESP_ERR__TIMED_OUT:
		case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
		case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
		case RD_KAFKA_RESP_ERR__WAIT_CACHE:
		case RD_KAFKA_RESP_ERR__INTR:
		case RD_KAFKA_RESP_ERR__RETRY:
		case RD_KAFKA_RESP_ERR__OUTDATED:
		case RD_KAFKA_RESP_ERR__NODE_UPDATE:
		case RD_KAFKA_RESP_ERR__BAD_MSG: /* of a reply; of records it is handled before */
		case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
		case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
		case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
		case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
		case RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH:
		case RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH:
		case RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED:
			return SX_KAFKA_DEGRADED;
		case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
		case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
			return SX_KAFKA_OUT_OF_RANGE;
		case RD_KAFKA_RESP_ERR__FATAL:
			return SX_KAFKA_FATAL;
		default:
			return SX_KAFKA_FAILING;
	}
}

/* Replaces every occurrence of a secret in a text by asterisks. */
void
sx_kafka_client_scrub(char *text, char **secrets)
{
	for (int i = 0; secrets != NULL && secrets[i] != NULL; i++)
	{
		size_t len = strlen(secrets[i]);

		/* a single letter would be found in any text, and is no secret then */
		for (char *found = text; len > 1 && (found = strstr(found, secrets[i])) != NULL;)
			memset(found, '*', len);
	}
}

/*
 * Copies a message of librdkafka: one line of ASCII, as it may have been cut or be in
 * another encoding, no secrets, and without "(after 12ms in state
 * CONNECT)", which would make a new message of each attempt.
 */
static void
copy_message(const SxKafkaClient *client, char *message, size_t size, const char *text)
{
	char line[2048]; /* as long as librdkafka's are: a secret must not be cut before it is found */
	char *rest;

	strlcpy(line, text, sizeof(line));
	sx_kafka_client_scrub(line, client->secrets);
	rest = strstr(line, " (after ");
	if (rest != NULL)
		*rest = '\0';
	strlcpy(message, line, size);
	for (char *c = message; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			*c = IS_HIGHBIT_SET(*c) ? '?' : ' ';
}

/*
 * Takes in an error of brokers or of the answer to a question. 'partition' -1: none in particular.
 * May be called in a callback.
 */
void
sx_kafka_client_report(SxKafkaClient *client, rd_kafka_resp_err_t err, int32 partition,
					   const char *reason)
{
	SxKafkaStatus *own = &client->own;
	SxKafkaTrouble trouble = sx_kafka_client_classify(err);
	TimestampTz now = GetCurrentTimestamp();
	char fatal[sizeof(own->message)];

	if (trouble == SX_KAFKA_OK || own->trouble == SX_KAFKA_FATAL)
		return;
	if (trouble == SX_KAFKA_DEGRADED && own->trouble == SX_KAFKA_FAILING &&
		now - client->reported < FAILING_TIME)
		return;
	if (trouble == SX_KAFKA_DEGRADED && !client->reached)
		trouble = SX_KAFKA_CONNECTING;
	if (trouble == SX_KAFKA_FATAL &&
		rd_kafka_fatal_error(client->rk, fatal, sizeof(fatal)) != RD_KAFKA_RESP_ERR_NO_ERROR)
		reason = fatal;
	if (own->trouble != trouble)
		own->since = now;
	/* says less than the error of the last of them, which has come before unless it was a close */
	if (err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
		reason =
			own->trouble == trouble && own->message[0] != '\0'
				? own->message
				: "all brokers have closed the connection or are down; security.protocol may be "
				  "wrong";
	copy_message(client, own->message, sizeof(own->message), reason);
	own->trouble = trouble;
	own->partition = partition;
	client->reported = now;
	client->ntroubles++;
	client->news = true;
}

/* Takes in an error of a partition that is read. May be called in a callback. */
void
sx_kafka_client_report_partition(SxKafkaClient *client, ClientPartition *partition,
								 rd_kafka_resp_err_t err, int64 wanted)
{
	SxKafkaTrouble trouble = sx_kafka_client_classify(err);

	/* what it is not of a record */
	if (trouble == SX_KAFKA_DEGRADED)
		trouble = SX_KAFKA_FAILING;
	if (partition->trouble == trouble && partition->error == err)
		return;
	if (partition->trouble != trouble)
		partition->since = GetCurrentTimestamp();
	partition->trouble = trouble;
	partition->error = err;
	partition->wanted = wanted;
	client->news = true;
	sx_kafka_client_settle(client);
}

/* Ends the trouble of the client as a whole. */
void
sx_kafka_client_clear(SxKafkaClient *client)
{
	if (client->own.trouble == SX_KAFKA_OK || client->own.trouble == SX_KAFKA_FATAL)
		return;
	client->own.trouble = SX_KAFKA_OK;
	client->own.partition = -1;
	client->own.message[0] = '\0';
	client->own.since = GetCurrentTimestamp();
	client->news = true;
}

/* Ends it if the partitions that are read show that it is over. */
void
sx_kafka_client_settle(SxKafkaClient *client)
{
	bool any = false;

	if (client->own.trouble == SX_KAFKA_OK)
		return;
	for (int id = 0; id < client->npartitions; id++)
	{
		const ClientPartition *partition = &client->partitions[id];

		if (!partition->started || partition->trouble != SX_KAFKA_OK)
			continue;
		if (partition->alive != client->ntroubles)
			return;
		any = true;
	}
	if (any)
		sx_kafka_client_clear(client);
}

/* A partition that is read has shown a record or its end. */
void
sx_kafka_client_alive(SxKafkaClient *client, ClientPartition *partition)
{
	partition->trouble = SX_KAFKA_OK;
	partition->error = RD_KAFKA_RESP_ERR_NO_ERROR;
	client->reached = true;
	partition->alive = client->ntroubles;
	sx_kafka_client_settle(client);
}

/* Error of a broker or of the handle. */
void
sx_kafka_client_error_cb(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
	sx_kafka_client_report(opaque, (rd_kafka_resp_err_t) err, -1, reason);
}

/* A line of librdkafka's log; while a handle is being made it comes without one. */
void
sx_kafka_client_log_cb(const rd_kafka_t *rk, int level, const char *fac, const char *buf)
{
	SxKafkaClient *client = rk != NULL ? rd_kafka_opaque(rk) : NULL;
	ClientLogLine *line;

	if (client == NULL)
		return;
	if (client->nlines == CLIENT_LOG_LINES)
	{
		client->lost_lines++;
		return;
	}
	line = &client->lines[client->nlines++];
	line->level = level;
	/* the name of the thread is the address that most messages begin with */
	if (strncmp(buf, "[thrd:", 6) == 0 && strstr(buf, "]: ") != NULL)
		buf = strstr(buf, "]: ") + 3;
	copy_message(client, line->text, sizeof(line->text), buf);
}

/* A line to the server log; at most one each LOG_INTERVAL at LOG. */
static void
log_line(SxKafkaClient *client, const ClientLogLine *line)
{
	const char *topic = client->topic != NULL ? client->topic : "";
	TimestampTz now = GetCurrentTimestamp();
	uint64 quiet = client->quiet_lines + client->lost_lines;

	/* levels of syslog: 4 is a warning, what is greater less */
	if (line->level > 4)
	{
		ereport(DEBUG1, (errmsg_internal("Kafka client of topic \"%s\": %s", topic, line->text)));
		return;
	}
	if (now - client->logged < LOG_INTERVAL)
	{
		client->quiet_lines++;
		ereport(DEBUG1, (errmsg_internal("Kafka client of topic \"%s\": %s", topic, line->text)));
		return;
	}
	client->logged = now;
	client->quiet_lines = 0;
	client->lost_lines = 0;
	ereport(LOG, (errmsg("Kafka client of topic \"%s\": %s", topic, line->text),
				  quiet > 0 ? errdetail_plural("%llu message before it was left out.",
											   "%llu messages before it were left out.",
											   (unsigned long) quiet, (unsigned long long) quiet)
							: 0));
}

/*
 * Takes in what has happened to brokers and the handle, and logs what librdkafka has to say. Raises
 * nothing but lack of memory.
 */
void
sx_kafka_client_serve(SxKafkaClient *client)
{
	int nlines;

	(void) rd_kafka_poll(client->rk, 0);
	nlines = client->nlines;
	client->nlines = 0;
	for (int i = 0; i < nlines; i++)
		log_line(client, &client->lines[i]);
}

/* Text for the trouble of a partition. */
static void
describe_partition(const SxKafkaClient *client, int id, SxKafkaStatus *status)
{
	const ClientPartition *partition = &client->partitions[id];
	size_t size = sizeof(status->message);

	switch (partition->error)
	{
		case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
		case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
			status->partition = -1;
			strlcpy(status->message, "the topic does not exist", size);
			break;
		case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
			snprintf(status->message, size, "partition %d does not exist", id);
			break;
		case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
		case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
			snprintf(status->message, size, "offset %lld of partition %d is out of range",
					 (long long) partition->wanted, id);
			break;
		default:
			if (partition->blocked)
				snprintf(status->message, size,
						 "partition %d cannot be read on from offset %lld: %s", id,
						 (long long) partition->next, rd_kafka_err2str(partition->error));
			else
				snprintf(status->message, size, "partition %d: %s", id,
						 rd_kafka_err2str(partition->error));
			break;
	}
}

const SxKafkaStatus *
sx_kafka_client_status(SxKafkaClient *client)
{
	int worst = -1;

	client->status = client->own;
	if (client->own.trouble == SX_KAFKA_FATAL)
		return &client->status;
	for (int id = 0; id < client->npartitions; id++)
		if (client->partitions[id].started &&
			client->partitions[id].trouble >
				(worst < 0 ? client->own.trouble : client->partitions[worst].trouble))
			worst = id;
	if (worst >= 0)
	{
		const ClientPartition *partition = &client->partitions[worst];

		client->status.trouble = partition->trouble;
		client->status.partition = worst;
		client->status.offset = partition->wanted;
		client->status.since = partition->since;
		describe_partition(client, worst, &client->status);
	}
	return &client->status;
}
