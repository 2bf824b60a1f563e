/*
 * kafka_client.c
 *		Opens, keeps and closes clients of librdkafka.
 *
 * A client is a "simple" consumer: no group, no offsets at the broker. All its partitions are read
 * through one queue. Its main queue (errors of brokers, log) is served beside it and not forwarded
 * to it: an event without a serve function in the queue of records is an assertion in librdkafka
 * that would end the process, and news of brokers must not wait behind megabytes of records.
 *
 * Handles have threads and connections, so they are made in the process that uses them and are
 * never looked at after a fork. Whoever opens a client closes it, also after an error (from a reset
 * callback of a memory context or PG_CATCH). Closing keeps the handle for CLIENT_IDLE_TIME, because
 * connecting, with TLS even more, costs more than a short query. Handles that were not closed are
 * destroyed when the process ends. A crash ends the threads with the process, and the brokers keep
 * nothing of a client.
 *
 * Memory: librdkafka counts only values, and small records take 3.4 times that; the number of those
 * that are smaller still is limited (RECORD_BYTES). A client holds at most
 *		3.4 * (queue_kb + what one fetch brings)
 * besides the buffer of the caller; a fetch brings at most a megabyte (fetch.message.max.bytes) or a
 * batch of each partition, together the greater of queue_kb and 8 MB, before it is uncompressed.
 *
 * No locks are taken. All functions are called by the process's main thread.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "kafka_client_private.h"

#define CLIENT_IDLE_TIME (10 * USECS_PER_SEC)
#define CLIENT_IDLE_MAX  4
#define RECORD_BYTES     128 /* a smaller record counts as this */
#define QUEUE_MAX_KB     (512 * 1024)
#define FETCH_MIN        (8 * 1024 * 1024)

/* What a property is set to before and after those of the options. */
typedef struct Setting
{
	const char *name;
	const char *value;
} Setting;

/* Options may choose otherwise. */
static const Setting defaults[] = {
	{"client.id", "stream_ext"},
	/* answers to questions and news of the end of a partition wait for it */
	{"fetch.wait.max.ms", "20"},
	{"fetch.error.backoff.ms", "200"},
	{"reconnect.backoff.max.ms", "1000"},
	{"topic.metadata.refresh.interval.ms", "10000"},
	/* a topic that does not exist is only reported, so there is no need to be sure for 30 s */
	{"topic.metadata.propagation.max.ms", "3000"},
	{"socket.keepalive.enable", "true"},
};

/* What the results depend on. */
static const Setting fixed[] = {
	{"isolation.level", "read_committed"},
	{"enable.auto.commit", "false"},
	{"enable.auto.offset.store", "false"},
	{"auto.offset.reset", "error"},
	{"enable.partition.eof", "true"},
	{"check.crcs", "true"},
	{"allow.auto.create.topics", "false"},
	/* see take_messages() */
	{"consume.callback.max.messages", "500"},
	{"log.queue", "true"},
	/* brokers close idle connections; that is no news */
	{"log.connection.close", "false"},
	/* statistics would be events that nobody serves */
	{"statistics.interval.ms", "0"},
};

static SxKafkaClient *open_clients = NULL;
static SxKafkaClient *idle_clients = NULL;
static int owner_pid = 0; /* process that the lists and the eventfd belong to */
static int event_fd = -1;

static void destroy_client(SxKafkaClient *client);

/* Last thing of the process, also after FATAL. */
static void
destroy_all(int code, Datum arg)
{
	if (owner_pid != MyProcPid)
		return;
	while (open_clients != NULL)
	{
		SxKafkaClient *client = open_clients;

		open_clients = client->next;
		destroy_client(client);
	}
	while (idle_clients != NULL)
	{
		SxKafkaClient *client = idle_clients;

		idle_clients = client->next;
		destroy_client(client);
	}
	sx_kafka_client_await_destroyed();
}

/* After a fork the handles of the parent are none: their threads are not there. */
static void
claim_process(void)
{
	if (owner_pid == MyProcPid)
		return;
	open_clients = NULL;
	idle_clients = NULL;
	event_fd = -1;
	before_shmem_exit(destroy_all, (Datum) 0);
	owner_pid = MyProcPid;
}

int
sx_kafka_event_fd(void)
{
	claim_process();
	if (event_fd < 0)
	{
		if (!AcquireExternalFD())
			ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES),
							errmsg("too many files are open for a Kafka client")));
		event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (event_fd < 0)
		{
			int save_errno = errno;

			ReleaseExternalFD();
			errno = save_errno;
			ereport(ERROR, (errcode_for_file_access(), errmsg("could not make an eventfd: %m")));
		}
	}
	return event_fd;
}

/* Makes the eventfd readable. */
void
sx_kafka_client_signal(void)
{
	static const uint64 one = 1;

	/* it fails only when it is readable anyway */
	if (write(event_fd, &one, sizeof(one)) < 0)
		return;
}

/*
 * May the value of a property be shown? Names and passwords of users, keys and certificates given
 * as text, tokens: no.
 */
static bool
is_secret(const char *name)
{
	static const char *const parts[] = {"password", "secret", "username", "oauth",
										".pem",     "key",    "principal"};

	for (int i = 0; i < lengthof(parts); i++)
		if (strstr(name, parts[i]) != NULL)
			return true;
	return false;
}

static void
free_secrets(char **secrets)
{
	for (int i = 0; secrets != NULL && secrets[i] != NULL; i++)
	{
		explicit_bzero(secrets[i], strlen(secrets[i]));
		free(secrets[i]);
	}
	free(secrets);
}

/* Values that messages of librdkafka are cleared of; NULL: out of memory. */
static char **
copy_secrets(List *properties)
{
	char **secrets = calloc(list_length(properties) + 1, sizeof(char *));
	ListCell *lc;
	int n = 0;

	if (secrets == NULL)
		return NULL;
	foreach(lc, properties)
	{
		const SxKafkaProperty *property = lfirst(lc);

		if (!is_secret(property->name))
			continue;
		secrets[n] = strdup(property->value);
		if (secrets[n++] == NULL)
		{
			free_secrets(secrets);
			return NULL;
		}
	}
	return secrets;
}

/*
 * SHA-256 of all that makes a handle what it is, so that a handle is not given to somebody with
 * other credentials, and no copy of these needs to be kept.
 */
static void
compute_fingerprint(const SxKafkaOptions *options, int queue_kb, uint8 *result)
{
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	const char *topic = options->topic != NULL ? options->topic : "";
	ListCell *lc;
	bool ok;

	ok = hash != NULL && pg_cryptohash_init(hash) >= 0 &&
		 pg_cryptohash_update(hash, (const uint8 *) &queue_kb, sizeof(queue_kb)) >= 0 &&
		 pg_cryptohash_update(hash, (const uint8 *) topic, strlen(topic) + 1) >= 0;
	foreach(lc, options->properties)
	{
		const SxKafkaProperty *property = lfirst(lc);

		ok = ok &&
			 pg_cryptohash_update(hash, (const uint8 *) property->name,
								  strlen(property->name) + 1) >= 0 &&
			 pg_cryptohash_update(hash, (const uint8 *) property->value,
								  strlen(property->value) + 1) >= 0;
	}
	ok = ok && pg_cryptohash_final(hash, result, PG_SHA256_DIGEST_LENGTH) >= 0;
	if (hash != NULL)
		pg_cryptohash_free(hash);
	if (!ok)
		elog(ERROR, "could not compute a fingerprint");
}

static void
set_property(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char message[512]; /* not shown: it holds the value */
	rd_kafka_conf_res_t result = rd_kafka_conf_set(conf, name, value, message, sizeof(message));

	if (result == RD_KAFKA_CONF_OK)
		return;
	rd_kafka_conf_destroy(conf);
	if (result == RD_KAFKA_CONF_UNKNOWN)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("librdkafka has no property \"%s\"", name)));
	ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
					errmsg("librdkafka refuses the value of property \"%s\"", name)));
}

/*
 * Records that are read ahead at most: each takes some 330 bytes besides its value, so that without
 * this limit a million of tiny ones would take 330 MB in a queue of any size.
 */
static int
queue_records(int queue_kb)
{
	return (int) Min((int64) queue_kb * 1024 / RECORD_BYTES, 1000000);
}

static rd_kafka_conf_t *
make_conf(const SxKafkaOptions *options, int queue_kb)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char number[16];
	ListCell *lc;

	for (int i = 0; i < lengthof(defaults); i++)
		set_property(conf, defaults[i].name, defaults[i].value);
	/*
	 * What a fetch brings comes on top of a queue that is almost full. It must have room for a batch
	 * of each partition all the same: the broker fills in partitions in the order of the request,
	 * which begins with the same one whenever the queue was full, so the last ones would get nothing
	 * while the first have more.
	 */
	snprintf(number, sizeof(number), "%d", Max(queue_kb * 1024, FETCH_MIN));
	set_property(conf, "fetch.max.bytes", number);
	foreach(lc, options->properties)
	{
		const SxKafkaProperty *property = lfirst(lc);

		set_property(conf, property->name, property->value);
	}
	for (int i = 0; i < lengthof(fixed); i++)
		set_property(conf, fixed[i].name, fixed[i].value);
	snprintf(number, sizeof(number), "%d", queue_kb);
	set_property(conf, "queued.max.messages.kbytes", number);
	/* which is no minimum: reading ahead stops at whichever of the two is reached first */
	snprintf(number, sizeof(number), "%d", queue_records(queue_kb));
	set_property(conf, "queued.min.messages", number);
	rd_kafka_conf_set_error_cb(conf, sx_kafka_client_error_cb);
	rd_kafka_conf_set_log_cb(conf, sx_kafka_client_log_cb);
	return conf;
}

/* Makes rk, topic and queues of a client; false with a message if that fails. */
static bool
start_handle(SxKafkaClient *client, rd_kafka_conf_t *conf, char *message, size_t size)
{
	static const uint64 one = 1;

	rd_kafka_conf_set_opaque(conf, client);
	client->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, message, size);
	if (client->rk == NULL)
	{
		rd_kafka_conf_destroy(conf);
		return false;
	}
	if (client->topic != NULL)
	{
		client->rkt = rd_kafka_topic_new(client->rk, client->topic, NULL);
		if (client->rkt == NULL)
		{
			strlcpy(message, rd_kafka_err2str(rd_kafka_last_error()), size);
			return false;
		}
	}
	client->queue = rd_kafka_queue_new(client->rk);
	client->main_queue = rd_kafka_queue_get_main(client->rk);
	(void) rd_kafka_set_log_queue(client->rk, NULL);
	rd_kafka_queue_io_event_enable(client->queue, event_fd, &one, sizeof(one));
	rd_kafka_queue_io_event_enable(client->main_queue, event_fd, &one, sizeof(one));
	return true;
}

/* Frees a client, of which anything may not have been made. Raises nothing. */
static void
destroy_client(SxKafkaClient *client)
{
	if (client->queue != NULL)
	{
		rd_kafka_queue_io_event_enable(client->queue, -1, NULL, 0);
		rd_kafka_queue_destroy(client->queue);
	}
	if (client->main_queue != NULL)
	{
		rd_kafka_queue_io_event_enable(client->main_queue, -1, NULL, 0);
		rd_kafka_queue_destroy(client->main_queue);
	}
	if (client->rkt != NULL)
		rd_kafka_topic_destroy(client->rkt);
	if (client->rk != NULL)
		sx_kafka_client_destroy_handle(client->rk);
	free_secrets(client->secrets);
	free(client->topic);
	free(client->partitions);
	free(client);
}

/* False: it is not in the list. Does not look at the client, which may have been freed. */
static bool
unlink_client(SxKafkaClient **list, const SxKafkaClient *client)
{
	while (*list != NULL && *list != client)
		list = &(*list)->next;
	if (*list == NULL)
		return false;
	*list = (*list)->next;
	return true;
}

/* Destroys handles that nobody has asked for again. */
void
sx_kafka_client_forget_idle(void)
{
	SxKafkaClient **link = &idle_clients;
	TimestampTz now;
	int n = 0;

	claim_process();
	if (idle_clients == NULL)
		return;
	now = GetCurrentTimestamp();
	while (*link != NULL)
	{
		SxKafkaClient *client = *link;

		/* the latest are first */
		if (++n <= CLIENT_IDLE_MAX && now - client->idle_since < CLIENT_IDLE_TIME)
		{
			link = &client->next;
			continue;
		}
		*link = client->next;
		destroy_client(client);
	}
}

static SxKafkaClient *
take_idle(const uint8 *fingerprint)
{
	for (SxKafkaClient *client = idle_clients; client != NULL; client = client->next)
	{
		if (memcmp(client->fingerprint, fingerprint, sizeof(client->fingerprint)) != 0)
			continue;
		(void) unlink_client(&idle_clients, client);
		return client;
	}
	return NULL;
}

static SxKafkaClient *
make_client(const SxKafkaOptions *options, int queue_kb)
{
	rd_kafka_conf_t *conf = make_conf(options, queue_kb);
	SxKafkaClient *client = calloc(1, sizeof(SxKafkaClient));
	char message[512] = "";

	if (client != NULL)
	{
		client->secrets = copy_secrets(options->properties);
		client->topic = options->topic != NULL ? strdup(options->topic) : NULL;
	}
	if (client == NULL || client->secrets == NULL ||
		(client->topic == NULL && options->topic != NULL))
	{
		rd_kafka_conf_destroy(conf);
		if (client != NULL)
			destroy_client(client);
		sx_kafka_client_out_of_memory();
	}
	client->queue_bytes = (uint64) queue_kb * 1024;
	client->queue_records = queue_records(queue_kb);
	client->own.trouble = SX_KAFKA_CONNECTING;
	client->own.partition = -1;
	client->own.since = GetCurrentTimestamp();
	client->ntroubles = 1;
	sx_kafka_client_reserve_fds();
	if (!start_handle(client, conf, message, sizeof(message)))
	{
		sx_kafka_client_scrub(message, client->secrets);
		if (client->rk == NULL)
			sx_kafka_client_release_fds();
		destroy_client(client);
		ereport(ERROR, (errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
						errmsg("could not make a Kafka client"), errdetail("%s", message)));
	}
	return client;
}

SxKafkaClient *
sx_kafka_client_open(const SxKafkaOptions *options, int queue_kb)
{
	uint8 fingerprint[PG_SHA256_DIGEST_LENGTH];
	SxKafkaClient *client;

	StaticAssertStmt(sizeof(fingerprint) == sizeof(client->fingerprint), "size of a fingerprint");
	queue_kb = Max(1, Min(queue_kb, QUEUE_MAX_KB));
	(void) sx_kafka_event_fd();
	sx_kafka_client_forget_idle();
	compute_fingerprint(options, queue_kb, fingerprint);
	client = take_idle(fingerprint);
	if (client == NULL)
		client = make_client(options, queue_kb);
	memcpy(client->fingerprint, fingerprint, sizeof(fingerprint));
	client->next = open_clients;
	open_clients = client;
	/* what has gathered while it was idle, such as the loss of the broker */
	sx_kafka_client_serve(client);
	return client;
}

void
sx_kafka_client_close(SxKafkaClient *client)
{
	if (client == NULL || owner_pid != MyProcPid || !unlink_client(&open_clients, client))
		return;
	sx_kafka_client_stop_all(client);
	/* one in trouble would gather events that nobody serves */
	if (client->own.trouble == SX_KAFKA_OK)
	{
		client->idle_since = GetCurrentTimestamp();
		client->next = idle_clients;
		idle_clients = client;
	}
	else
		destroy_client(client);
	sx_kafka_client_forget_idle();
}
