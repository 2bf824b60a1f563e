/*
 * kafka_ask.c
 *		When a worker may ask brokers something.
 *
 * A question makes the worker wait, and with it all of its other views. So nothing is asked while no
 * broker is connected: that is known without waiting. A broker can also be connected and silent
 * (stopped, cut off by a firewall), which shows only by the lack of an answer. After that nobody in
 * the process asks this cluster again until ten times as long has passed as the worker has waited,
 * however many topics of the cluster it reads. The first answer ends that.
 *
 * A cluster is known by a hash of its bootstrap servers. Two that fall together share their pauses,
 * which does no harm. All here is static in the process and small: one entry a cluster.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "kafka_source.h"

/* The pause after a question without an answer, in units of the time that it has taken. */
#define PAUSE_FACTOR 10

typedef struct Cluster
{
	uint32 hash;
	TimestampTz not_before; /* 0: it has answered */
	TimestampTz asked;      /* when the question that is being asked began */
} Cluster;

static List *clusters = NIL; /* Cluster *, in TopMemoryContext */

static Cluster *
find_cluster(const SxKafkaOptions *options)
{
	const char *servers = "";
	MemoryContext old;
	Cluster *cluster;
	ListCell *lc;
	uint32 hash;

	foreach(lc, options->properties)
	{
		const SxKafkaProperty *property = lfirst(lc);

		if (strcmp(property->name, "bootstrap.servers") == 0)
			servers = property->value;
	}
	hash = hash_bytes((const unsigned char *) servers, strlen(servers));
	foreach(lc, clusters)
		if (((Cluster *) lfirst(lc))->hash == hash)
			return lfirst(lc);
	old = MemoryContextSwitchTo(TopMemoryContext);
	cluster = palloc0(sizeof(Cluster));
	cluster->hash = hash;
	clusters = lappend(clusters, cluster);
	MemoryContextSwitchTo(old);
	return cluster;
}

bool
sx_kafka_may_ask(SxKafkaSource *source)
{
	Cluster *cluster = find_cluster(source->options);
	TimestampTz now = GetCurrentTimestamp();

	/* not further ahead than a pause can be: the clock may have been set back */
	if (cluster->not_before > now &&
		cluster->not_before - now <= 10 * PAUSE_FACTOR * SX_KAFKA_ANSWER_MS * INT64CONST(1000))
		return false;
	if (!sx_kafka_client_connected(source->client))
		return false;
	cluster->asked = now;
	return true;
}

void
sx_kafka_asked(SxKafkaSource *source, bool answered)
{
	Cluster *cluster = find_cluster(source->options);
	TimestampTz now = GetCurrentTimestamp();

	cluster->not_before =
		answered ? 0 : now + PAUSE_FACTOR * Max(now - cluster->asked, INT64CONST(0));
}
