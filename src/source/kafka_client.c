/*
 * kafka_client.c
 *		A topic as librdkafka reads it: opening, closing, status.
 *
 * The simple consumer: no group, one queue of our own for all partitions. Errors of the client and
 * its log go to the main queue, which must stay another one: what serves records aborts the process
 * when it meets anything else. Both are read by the thread that polls, librdkafka's own threads only
 * set the eventfd. They are made by the process that uses them and do not survive a fork, so nothing
 * of this is ever set up in the postmaster.
 *
 * Callbacks run in frames of librdkafka: they neither raise errors nor allocate in memory contexts.
 *
 * A handle with its threads and connections is kept for some seconds after it was closed: after an
 * error in one of its views a worker opens the same client again at once.
 *
 * Memory of a client: librdkafka's queue holds 'queue_kb' of records, which take three to four times
 * as much in memory, and one response of each broker besides. Crash behaviour: nothing is kept.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "common/hashfn.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "kafka_client_private.h"

/* How long a closed client is kept. */
#define KEEP_US (10 * USECS_PER_SEC)

/* us between two lines in the server log for one client. */
#define LOG_PAUSE_US (10 * USECS_PER_SEC)

/*
 * What reading exactly once and within bounds rests on. Set after the properties of the user, so that
 * none of these can be another.
 */
static const SxKafkaProperty fixed_properties[] = {
	{"allow.auto.create.topics", "false"},
	{"auto.offset.reset", "error"},
	{"check.crcs", "true"},
	{"enable.auto.commit", "false"},
	{"enable.auto.offset.store", "false"},
	{"enable.partition.eof", "true"},
	{"isolation.level", "read_committed"},
	{"log.queue", "true"},
	{"queued.min.messages", "1000000"},
};

/* What a user may set otherwise. */
static const SxKafkaProperty default_properties[] = {
	{"client.id", "stream_ext"},
	{"fetch.message.max.bytes", "1048576"},
	{"fetch.min.bytes", "1"},
	{"fetch.wait.max.ms", "100"},
	{"log.connection.close", "false"},
	{"reconnect.backoff.max.ms", "1000"},
	{"topic.metadata.propagation.max.ms", "5000"},
};

static List *clients = NIL; /* SxKafkaClient *, in TopMemoryContext */
static int event_fd = -1;
static pid_t owner_pid = 0;

/* ---------------------------------------------------------------- status */

void
sx_kafka_client_trouble(SxKafkaClient *client, SxKafkaTrouble trouble, int32 partition,
						int64 offset, const char *message)
{
	SxKafkaStatus *status = &client->status;

	if (status->trouble != trouble)
	{
		status->trouble = trouble;
		status->since = GetCurrentTimestamp();
	}
	status->partition = partition;
	status->offset = offset;
	strlcpy(status->message, message, sizeof(status->message));
}

void
sx_kafka_client_answered(SxKafkaClient *client)
{
	client->was_connected = true;
	if (client->status.trouble == SX_KAFKA_OK || client->status.trouble == SX_KAFKA_FATAL ||
		client->status.trouble == SX_KAFKA_OUT_OF_RANGE)
		return;
	sx_kafka_client_trouble(client, SX_KAFKA_OK, -1, 0, "");
}

void
sx_kafka_client_error(SxKafkaClient *client, rd_kafka_resp_err_t err, int32 partition,
					  const char *message)
{
	char fatal[256];

	if (message == NULL || message[0] == '\0')
		message = rd_kafka_err2str(err);
	if (rd_kafka_fatal_error(client->rk, fatal, sizeof(fatal)) != RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		sx_kafka_client_trouble(client, SX_KAFKA_FATAL, -1, 0, fatal);
		return;
	}
	switch (err)
	{
		case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
		case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
			if (partition >= 0 && partition < client->npartitions)
				sx_kafka_client_trouble(client, SX_KAFKA_OUT_OF_RANGE, partition,
										client->partitions[partition].next, message);
			break;
		case RD_KAFKA_RESP_ERR__AUTHENTICATION:
		case RD_KAFKA_RESP_ERR__SSL:
		case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
		case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
		case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
		case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
		case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
		case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
		case RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM:
		case RD_KAFKA_RESP_ERR_ILLEGAL_SASL_STATE:
		case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
			sx_kafka_client_trouble(client, SX_KAFKA_FAILING, partition, 0, message);
			break;
		case RD_KAFKA_RESP_ERR__TIMED_OUT:
		case RD_KAFKA_RESP_ERR__TRANSPORT:
		case RD_KAFKA_RESP_ERR__RESOLVE:
		case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
		case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
		case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
			/* one of several refused addresses says less than that somebody must act */
			if (client->status.trouble == SX_KAFKA_FAILING ||
				client->status.trouble == SX_KAFKA_OUT_OF_RANGE)
				break;
			sx_kafka_client_trouble(client,
									client->was_connected ? SX_KAFKA_DEGRADED : SX_KAFKA_CONNECTING,
									partition, 0, message);
			break;
		default:
			/* librdkafka goes on trying by itself; what stays wrong is told again */
			if (client->status.trouble == SX_KAFKA_OK)
				sx_kafka_client_trouble(client, SX_KAFKA_DEGRADED, partition, 0, message);
			break;
	}
}

const SxKafkaStatus *
sx_kafka_client_status(SxKafkaClient *client)
{
	return &client->status;
}

/* error_cb: called by our own polls. */
static void
take_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
	sx_kafka_client_error((SxKafkaClient *) opaque, (rd_kafka_resp_err_t) err, -1, reason);
}

/*
 * log_cb: called by our own polls, in a frame of librdkafka. The server's log is written without a
 * chance of an error being raised: below ERROR ereport() does not.
 */
static void
take_log(const rd_kafka_t *rk, int level, const char *facility, const char *message)
{
	SxKafkaClient *client = rd_kafka_opaque(rk);
	TimestampTz now = GetCurrentTimestamp();

	if (level > 4 || now - client->logged_at < LOG_PAUSE_US)
	{
		client->suppressed++;
		return;
	}
	client->logged_at = now;
	ereport(LOG, (errmsg_internal("librdkafka: %s: %s", facility, message),
				  client->suppressed > 0
					  ? errdetail_internal("%d lines before it were left out.", client->suppressed)
					  : 0));
	client->suppressed = 0;
}

/* ---------------------------------------------------------------- open */

int
sx_kafka_event_fd(void)
{
	if (event_fd < 0)
	{
		event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (event_fd < 0)
			ereport(ERROR, (errcode_for_file_access(), errmsg("could not create an eventfd: %m")));
	}
	return event_fd;
}

/* Sets a property. Errors: librdkafka refuses it; its message may hold the value and is not shown. */
static void
set_property(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char message[512];

	switch (rd_kafka_conf_set(conf, name, value, message, sizeof(message)))
	{
		case RD_KAFKA_CONF_OK:
			break;
		case RD_KAFKA_CONF_UNKNOWN:
			rd_kafka_conf_destroy(conf);
			ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
							errmsg("librdkafka has no property \"%s\"", name)));
			break;
		default:
			rd_kafka_conf_destroy(conf);
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
					 errmsg("librdkafka does not accept the value of property \"%s\"", name)));
			break;
	}
}

static rd_kafka_conf_t *
make_conf(const SxKafkaOptions *options, int queue_kb, SxKafkaClient *client)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char number[16];
	ListCell *lc;

	for (int i = 0; i < lengthof(default_properties); i++)
		set_property(conf, default_properties[i].name, default_properties[i].value);
	foreach(lc, options->properties)
	{
		SxKafkaProperty *property = lfirst(lc);

		set_property(conf, property->name, property->value);
	}
	for (int i = 0; i < lengthof(fixed_properties); i++)
		set_property(conf, fixed_properties[i].name, fixed_properties[i].value);
	snprintf(number, sizeof(number), "%d", queue_kb);
	set_property(conf, "queued.max.messages.kbytes", number);
	rd_kafka_conf_set_opaque(conf, client);
	rd_kafka_conf_set_error_cb(conf, take_error);
	rd_kafka_conf_set_log_cb(conf, take_log);
	return conf;
}

static uint64
fingerprint_of(const SxKafkaOptions *options, int queue_kb)
{
	uint64 hash = hash_combine64(options->topic == NULL ? 0 : 1, (uint64) queue_kb);
	ListCell *lc;

	if (options->topic != NULL)
		hash = hash_combine64(hash, hash_bytes_extended((const unsigned char *) options->topic,
														strlen(options->topic), 0));
	foreach(lc, options->properties)
	{
		SxKafkaProperty *property = lfirst(lc);

		hash = hash_bytes_extended((const unsigned char *) property->name, strlen(property->name),
								   hash);
		hash = hash_bytes_extended((const unsigned char *) property->value, strlen(property->value),
								   hash);
	}
	return hash;
}

static void
destroy_client(SxKafkaClient *client)
{
	clients = list_delete_ptr(clients, client);
	for (int i = 0; client->topic != NULL && i < client->npartitions; i++)
		if (client->partitions[i].is_started)
			(void) rd_kafka_consume_stop(client->topic, i);
	if (client->topic != NULL)
		rd_kafka_topic_destroy(client->topic);
	if (client->queue != NULL)
	{
		rd_kafka_queue_io_event_enable(client->queue, -1, NULL, 0);
		rd_kafka_queue_destroy(client->queue);
		rd_kafka_queue_io_event_enable(client->main, -1, NULL, 0);
		rd_kafka_queue_destroy(client->main);
	}
	if (client->rk != NULL)
		rd_kafka_destroy_flags(client->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	free(client->partitions);
	free(client);
}

/* Before shared memory goes: librdkafka's threads must not run into the end of the process. */
static void
destroy_all(int code, Datum arg)
{
	if (owner_pid != getpid())
		return;
	while (clients != NIL)
		destroy_client(linitial(clients));
}

/* Destroys closed clients that nobody has opened again. */
static void
destroy_old(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = list_length(clients) - 1; i >= 0; i--)
	{
		SxKafkaClient *client = list_nth(clients, i);

		if (!client->is_open && now - client->closed_at > KEEP_US)
			destroy_client(client);
	}
}

/* A closed client that was opened with the same options, or NULL. */
static SxKafkaClient *
find_closed(uint64 fingerprint)
{
	ListCell *lc;

	foreach(lc, clients)
	{
		SxKafkaClient *client = lfirst(lc);

		if (!client->is_open && client->fingerprint == fingerprint)
			return client;
	}
	return NULL;
}

static void
register_process(void)
{
	if (owner_pid == getpid())
		return;
	owner_pid = getpid();
	clients = NIL;
	before_shmem_exit(destroy_all, (Datum) 0);
}

/* Makes the handle and the queue; on failure the caller destroys the client. */
static void
connect_client(SxKafkaClient *client, const SxKafkaOptions *options, int queue_kb)
{
	static const uint64 one = 1;
	rd_kafka_conf_t *conf = make_conf(options, queue_kb, client);
	char message[512];

	client->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, message, sizeof(message));
	if (client->rk == NULL)
	{
		rd_kafka_conf_destroy(conf);
		ereport(ERROR, (errcode(ERRCODE_FDW_UNABLE_TO_CREATE_EXECUTION),
						errmsg("could not create a Kafka client: %s", message)));
	}
	(void) rd_kafka_set_log_queue(client->rk, NULL);
	client->main = rd_kafka_queue_get_main(client->rk);
	client->queue = rd_kafka_queue_new(client->rk);
	rd_kafka_queue_io_event_enable(client->main, sx_kafka_event_fd(), &one, sizeof(one));
	rd_kafka_queue_io_event_enable(client->queue, sx_kafka_event_fd(), &one, sizeof(one));
	if (options->topic != NULL)
	{
		client->topic = rd_kafka_topic_new(client->rk, options->topic, NULL);
		if (client->topic == NULL)
			ereport(ERROR, (errcode(ERRCODE_FDW_UNABLE_TO_CREATE_EXECUTION),
							errmsg("could not read topic \"%s\": %s", options->topic,
								   rd_kafka_err2str(rd_kafka_last_error()))));
	}
}

SxKafkaClient *
sx_kafka_client_open(const SxKafkaOptions *options, int queue_kb)
{
	uint64 fingerprint = fingerprint_of(options, queue_kb);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	SxKafkaClient *client;

	register_process();
	destroy_old();
	client = find_closed(fingerprint);
	if (client == NULL)
	{
		client = calloc(1, sizeof(SxKafkaClient));
		if (client == NULL)
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
		client->fingerprint = fingerprint;
		sx_kafka_client_trouble(client, SX_KAFKA_CONNECTING, -1, 0, "");
		clients = lappend(clients, client);
		PG_TRY();
		{
			connect_client(client, options, queue_kb);
		}
		PG_CATCH();
		{
			destroy_client(client);
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	client->is_open = true;
	MemoryContextSwitchTo(old);
	return client;
}

void
sx_kafka_client_close(SxKafkaClient *client)
{
	if (owner_pid != getpid() || !list_member_ptr(clients, client) || !client->is_open)
		return;
	client->is_open = false;
	client->closed_at = GetCurrentTimestamp();
	if (client->status.trouble == SX_KAFKA_FATAL || proc_exit_inprogress)
	{
		destroy_client(client);
		return;
	}
	for (int i = 0; i < client->npartitions; i++)
		sx_kafka_client_stop(client, i);
	/* whoever opens it next asks for other offsets */
	if (client->status.trouble == SX_KAFKA_OUT_OF_RANGE)
		sx_kafka_client_trouble(client, SX_KAFKA_OK, -1, 0, "");
}
