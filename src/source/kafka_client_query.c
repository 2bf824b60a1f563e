/*
 * kafka_client_query.c
 *		A topic as librdkafka reads it: questions to the brokers.
 *
 * librdkafka's calls cannot be interrupted, so a long wait is made of several shorter ones, each
 * twice as long as the one before up to a second, between which interrupts are looked at. Each asks
 * anew: an answer that was late is not used.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "portability/instr_time.h"

#include "kafka_client_private.h"

#define FIRST_SLICE_MS   100
#define LONGEST_SLICE_MS 1000

/* The time that a question may take in all. */
typedef struct Patience
{
	instr_time start;
	int timeout_ms;
	int slice_ms;
} Patience;

static void
begin_patience(Patience *patience, int timeout_ms)
{
	INSTR_TIME_SET_CURRENT(patience->start);
	patience->timeout_ms = timeout_ms;
	/* short ones are not divided: they would ask twice and wait for neither answer */
	patience->slice_ms = timeout_ms <= LONGEST_SLICE_MS / 2 ? timeout_ms : FIRST_SLICE_MS;
}

/* Milliseconds for the next try; 0: no more. */
static int
next_slice(Patience *patience)
{
	instr_time now;
	int left;
	int slice;

	CHECK_FOR_INTERRUPTS();
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, patience->start);
	left = patience->timeout_ms - (int) INSTR_TIME_GET_MILLISEC(now);
	slice = Min(left, patience->slice_ms);
	patience->slice_ms = Min(patience->slice_ms * 2, LONGEST_SLICE_MS);
	return Max(slice, 0);
}

/* Is it worth asking again after this error? */
static bool
may_heal(rd_kafka_resp_err_t err)
{
	switch (err)
	{
		case RD_KAFKA_RESP_ERR__TIMED_OUT:
		case RD_KAFKA_RESP_ERR__TRANSPORT:
		case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
		case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
		case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
		case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
			return true;
		default:
			return false;
	}
}

/* Takes in what a question has come to; true: there is an answer. */
static bool
take_result(SxKafkaClient *client, rd_kafka_resp_err_t err, int32 partition)
{
	if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		sx_kafka_client_answered(client);
		return true;
	}
	sx_kafka_client_error(client, err, partition, NULL);
	/* what the brokers have refused is told on the main queue */
	(void) rd_kafka_poll(client->rk, 0);
	return false;
}

/* Asks for the metadata of the client's topic, or of all; NULL: no answer. */
static const struct rd_kafka_metadata *
get_metadata(SxKafkaClient *client, bool all, int timeout_ms)
{
	const struct rd_kafka_metadata *metadata;
	Patience patience;
	int slice;

	begin_patience(&patience, timeout_ms);
	while ((slice = next_slice(&patience)) > 0)
	{
		rd_kafka_resp_err_t err =
			rd_kafka_metadata(client->rk, all ? 1 : 0, client->topic, &metadata, slice);

		if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
			return metadata;
		(void) take_result(client, err, -1);
		if (client->status.trouble == SX_KAFKA_FAILING || !may_heal(err))
			break;
	}
	return NULL;
}

int
sx_kafka_client_partitions(SxKafkaClient *client, int timeout_ms)
{
	const struct rd_kafka_metadata *metadata = get_metadata(client, false, timeout_ms);
	int npartitions = -1;

	if (metadata == NULL)
		return -1;
	if (metadata->topic_cnt == 1)
	{
		rd_kafka_resp_err_t err = metadata->topics[0].err;

		if (take_result(client, err, -1))
			npartitions = metadata->topics[0].partition_cnt;
	}
	rd_kafka_metadata_destroy(metadata);
	return npartitions > 0 ? npartitions : -1;
}

bool
sx_kafka_client_range(SxKafkaClient *client, int32 partition, int64 *first, int64 *end,
					  int timeout_ms)
{
	Patience patience;
	int slice;

	begin_patience(&patience, timeout_ms);
	while ((slice = next_slice(&patience)) > 0)
	{
		rd_kafka_resp_err_t err =
			rd_kafka_query_watermark_offsets(client->rk, rd_kafka_topic_name(client->topic),
											 partition, first, end, slice);

		if (take_result(client, err, partition))
			return true;
		if (!may_heal(err))
			break;
	}
	return false;
}

/*
 * The mock cluster of librdkafka answers that there is no such record, always; then it is the end.
 */
bool
sx_kafka_client_offset_at(SxKafkaClient *client, int32 partition, int64 time, int64 *offset,
						  int timeout_ms)
{
	Patience patience;
	int slice;

	begin_patience(&patience, timeout_ms);
	while ((slice = next_slice(&patience)) > 0)
	{
		rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
		rd_kafka_topic_partition_t *entry =
			rd_kafka_topic_partition_list_add(list, rd_kafka_topic_name(client->topic), partition);
		rd_kafka_resp_err_t err;

		entry->offset = time;
		err = rd_kafka_offsets_for_times(client->rk, list, slice);
		if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
			err = entry->err;
		*offset = entry->offset;
		rd_kafka_topic_partition_list_destroy(list);
		if (take_result(client, err, partition))
		{
			int64 first;

			return *offset >= 0 ||
				   sx_kafka_client_range(client, partition, &first, offset, timeout_ms);
		}
		if (!may_heal(err))
			break;
	}
	return false;
}

List *
sx_kafka_client_topics(SxKafkaClient *client, List **npartitions, bool *ok, int timeout_ms)
{
	const struct rd_kafka_metadata *metadata = get_metadata(client, true, timeout_ms);
	List *names = NIL;

	*npartitions = NIL;
	*ok = metadata != NULL;
	if (metadata == NULL)
		return NIL;
	sx_kafka_client_answered(client);
	for (int i = 0; i < metadata->topic_cnt; i++)
	{
		if (metadata->topics[i].err != RD_KAFKA_RESP_ERR_NO_ERROR)
			continue;
		names = lappend(names, pstrdup(metadata->topics[i].topic));
		*npartitions = lappend_int(*npartitions, metadata->topics[i].partition_cnt);
	}
	rd_kafka_metadata_destroy(metadata);
	return names;
}
