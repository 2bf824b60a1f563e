/*
 * kafka_scan.c
 *		Foreign data wrapper "kafka": SELECT.
 *
 * A scan reads each partition from its first record, or from where the table starts, to the end that
 * it had when the scan began, of committed transactions. Later rescans of the same node read to the
 * same ends. It decodes records as the source of a continuous view does; those that cannot be rows
 * are left out and counted, and one warning says so when the scan ends.
 *
 * Brokers that do not answer for a while end the query with an error. All waiting is done in short
 * pieces with a look at interrupts in between.
 *
 * Memory: the scan lives in the query's context, rows in that of the batch until the next one. The
 * client is closed when the query's context goes, so after errors too.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "stream_ext/decode/decode.h"
#include "stream_ext/fdw/fdw.h"
#include "stream_ext/source/kafka_client.h"

/* ms that brokers are given: for an answer, and for the next record while a scan runs. */
#define ANSWER_MS 10000
#define RECORD_MS 30000

/* ms of one piece of waiting, kB read ahead, bytes decoded at once. */
#define SLICE_MS  100
#define QUEUE_KB  4096
#define MAX_BYTES (1024 * 1024)

typedef struct ScanPartition
{
	int64 first; /* there was no record before it when the scan began */
	int64 end;   /* records from here on are not the scan's */
	int64 next;
	int64 stop; /* end, or less by a condition */
	bool is_running;
} ScanPartition;

typedef struct KafkaScan
{
	SxKafkaOptions *options;
	SxDecoder *decoder;
	SxKafkaClient *client;
	SxRecordBuffer *buffer;
	SxBatch *batch;
	int row; /* of the batch, to be returned next */
	int npartitions;
	ScanPartition *partitions; /* NULL: the scan has not begun */
	bool is_positioned;        /* where it starts has been worked out for this pass */
	int nrunning;
	List *bounds;    /* of the plan */
	List *values;    /* ExprState * */
	int64 records;   /* of all passes */
	int64 dead;      /* of this pass */
	int64 most_dead; /* of any pass */
	char *first_dead;
	MemoryContextCallback callback;
} KafkaScan;

/* ---------------------------------------------------------------- begin */

static void
release_scan(void *arg)
{
	KafkaScan *scan = arg;

	if (scan->client != NULL)
		sx_kafka_client_close(scan->client);
	if (scan->buffer != NULL)
		sx_record_buffer_free(scan->buffer);
}

/* Columns that the node reads. */
static Bitmapset *
needed_columns(ForeignScan *plan, TupleDesc desc)
{
	Bitmapset *attrs = NULL;
	Bitmapset *needed = bms_make_singleton(0);
	int a = -1;

	pull_varattnos((Node *) plan->scan.plan.targetlist, plan->scan.scanrelid, &attrs);
	pull_varattnos((Node *) plan->scan.plan.qual, plan->scan.scanrelid, &attrs);
	if (bms_is_member(-FirstLowInvalidHeapAttributeNumber, attrs))
		return bms_add_range(needed, 1, desc->natts);
	while ((a = bms_next_member(attrs, a)) >= 0)
		if (a + FirstLowInvalidHeapAttributeNumber > 0)
			needed = bms_add_member(needed, a + FirstLowInvalidHeapAttributeNumber);
	return needed;
}

/*
 * Decoding uses subtransactions. Planning without parallel workers comes too late for what has been
 * planned before the table was seen: sublinks, CTEs, earlier arms of a UNION. There Gather nodes may
 * have been made, and the statement would run in parallel mode. Without the flag they do their work
 * themselves. It is read when the executor is run, which is after all scans have begun.
 */
static void
refuse_parallel(EState *estate)
{
	if (!sx_parallel_subtransactions)
		estate->es_plannedstmt->parallelModeNeeded = false;
}

static void
kafka_begin_scan(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = castNode(ForeignScan, node->ss.ps.plan);
	Relation rel = node->ss.ss_currentRelation;
	KafkaScan *scan = palloc0(sizeof(KafkaScan));

	/*
	 * Other parts of the plan may be parallel, but the leader does all of it unless the executor enters
	 * parallel mode, in which decoding would have no subtransactions. The plan may be a cached one:
	 * what is changed holds for each of its executions.
	 */
	node->ss.ps.state->es_plannedstmt->parallelModeNeeded = false;
	node->fdw_state = scan;
	scan->bounds = plan->fdw_private;
	scan->options = sx_kafka_options(rel, sx_foreign_scan_user(node));
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	refuse_parallel(node->ss.ps.state);
	scan->values = ExecInitExprList(plan->fdw_exprs, (PlanState *) node);
	scan->decoder = sx_decoder_create(rel, &scan->options->format);
	scan->batch =
		sx_batch_create(RelationGetDescr(rel), needed_columns(plan, RelationGetDescr(rel)));
	scan->callback.func = release_scan;
	scan->callback.arg = scan;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &scan->callback);
	scan->buffer = sx_record_buffer_create(SX_BATCH_ROWS,
										   sx_format_has(&scan->options->format, SX_FROM_HEADERS));
}

static void
refuse_scan(KafkaScan *scan, const char *what)
{
	const SxKafkaStatus *status = sx_kafka_client_status(scan->client);

	ereport(ERROR, (errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
					errmsg("could not read topic \"%s\"", scan->options->topic),
					errdetail_internal("%s", status->message[0] != '\0' ? status->message : what)));
}

/* Opens the topic and finds out what there is. */
static void
open_scan(KafkaScan *scan)
{
	SxKafkaProperty *wait = palloc(sizeof(SxKafkaProperty));
	int npartitions;

	/* no record is waited for that is not there yet, and questions would wait behind one */
	wait->name = "fetch.wait.max.ms";
	wait->value = "5";
	scan->options->properties = lappend(scan->options->properties, wait);
	scan->client = sx_kafka_client_open(scan->options, QUEUE_KB);
	npartitions = sx_kafka_client_partitions(scan->client, ANSWER_MS);
	if (npartitions < 0)
		refuse_scan(scan, "No broker answered.");
	scan->npartitions = npartitions;
	scan->partitions = palloc0(sizeof(ScanPartition) * npartitions);
	for (int i = 0; i < npartitions; i++)
	{
		ScanPartition *p = &scan->partitions[i];

		if (!sx_kafka_client_range(scan->client, i, &p->first, &p->end, ANSWER_MS))
			refuse_scan(scan, "No broker answered.");
		if (scan->options->start == SX_START_TIME &&
			!sx_kafka_client_offset_at(scan->client, i, scan->options->start_time, &p->first,
									   ANSWER_MS))
			refuse_scan(scan, "No broker answered.");
	}
}

/* ---------------------------------------------------------------- bounds */

static int64
integer_value(Datum value, Oid type)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		default:
			return DatumGetInt64(value);
	}
}

/* Leaves out of a partition's range what 'offset op value' leaves out. */
static void
bound_offsets(ScanPartition *p, int strategy, int64 value)
{
	switch (strategy)
	{
		case BTLessStrategyNumber:
			p->stop = Min(p->stop, value);
			break;
		case BTLessEqualStrategyNumber:
			p->stop = Min(p->stop, value == PG_INT64_MAX ? value : value + 1);
			break;
		case BTEqualStrategyNumber:
			p->next = Max(p->next, value);
			p->stop = Min(p->stop, value == PG_INT64_MAX ? value : value + 1);
			break;
		case BTGreaterEqualStrategyNumber:
			p->next = Max(p->next, value);
			break;
		case BTGreaterStrategyNumber:
			p->next = Max(p->next, value == PG_INT64_MAX ? value : value + 1);
			break;
	}
}

static bool
partition_fits(int64 partition, int strategy, int64 value)
{
	switch (strategy)
	{
		case BTLessStrategyNumber:
			return partition < value;
		case BTLessEqualStrategyNumber:
			return partition <= value;
		case BTEqualStrategyNumber:
			return partition == value;
		case BTGreaterEqualStrategyNumber:
			return partition >= value;
		default:
			return partition > value;
	}
}

/* Is the partition one of the elements of an array? */
static bool
partition_is_in(int64 partition, Datum array, Oid type)
{
	Datum *elements;
	bool *nulls;
	int n;
	int16 typlen;
	bool typbyval;
	char typalign;

	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	deconstruct_array(DatumGetArrayTypeP(array), type, typlen, typbyval, typalign, &elements,
					  &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i] && integer_value(elements[i], type) == partition)
			return true;
	return false;
}

/*
 * Timestamps of records are in no order, but the first record at or after a time is known to the
 * broker, and all before it are earlier. An upper bound spares nothing.
 */
static void
bound_timestamps(KafkaScan *scan, int partition, int strategy, int64 value, Oid type)
{
	ScanPartition *p = &scan->partitions[partition];
	int64 time = value;
	int64 offset;

	if (strategy == BTLessStrategyNumber || strategy == BTLessEqualStrategyNumber)
		return;
	if (type == TIMESTAMPTZOID || type == TIMESTAMPOID)
	{
		if (TIMESTAMP_IS_NOBEGIN(value))
			return;
		if (TIMESTAMP_IS_NOEND(value))
		{
			p->stop = p->next;
			return;
		}
		/* rounded down: a bound may be wider than its condition */
		time = value / 1000 - (value % 1000 < 0 ? 1 : 0) +
			   (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * INT64CONST(1000);
	}
	if (time <= 0)
		return;
	if (!sx_kafka_client_offset_at(scan->client, partition, time, &offset, ANSWER_MS))
		refuse_scan(scan, "No broker answered.");
	p->next = Max(p->next, offset);
}

static void
apply_bound(KafkaScan *scan, const SxBound *bound, Datum value, bool isnull)
{
	for (int i = 0; i < scan->npartitions; i++)
	{
		ScanPartition *p = &scan->partitions[i];
		bool fits = true;

		if (p->next >= p->stop)
			continue;
		if (isnull)
			fits = false;
		else if (bound->is_array)
			fits = partition_is_in(i, value, bound->type);
		else if (bound->column == SX_BOUND_PARTITION)
			fits = partition_fits(i, bound->strategy, integer_value(value, bound->type));
		else if (bound->column == SX_BOUND_OFFSET)
			bound_offsets(p, bound->strategy, integer_value(value, bound->type));
		else
			bound_timestamps(scan, i, bound->strategy,
							 bound->type == TIMESTAMPTZOID || bound->type == TIMESTAMPOID
								 ? DatumGetTimestampTz(value)
								 : integer_value(value, bound->type),
							 bound->type);
		if (!fits)
			p->stop = p->next;
	}
}

/* Works out where the partitions are read from, and starts them. */
static void
position_scan(ForeignScanState *node, KafkaScan *scan)
{
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	MemoryContext old;
	ListCell *lc;
	ListCell *lc2;

	for (int i = 0; i < scan->npartitions; i++)
	{
		scan->partitions[i].next = scan->partitions[i].first;
		scan->partitions[i].stop = scan->partitions[i].end;
	}
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	forboth(lc, scan->bounds, lc2, scan->values)
	{
		List *numbers = lfirst(lc);
		SxBound bound = {(SxBoundColumn) linitial_int(numbers), lsecond_int(numbers),
						 (Oid) lthird_int(numbers), lfourth_int(numbers) != 0};
		bool isnull;
		Datum value = ExecEvalExpr((ExprState *) lfirst(lc2), econtext, &isnull);

		apply_bound(scan, &bound, value, isnull);
	}
	MemoryContextSwitchTo(old);
	scan->nrunning = 0;
	for (int i = 0; i < scan->npartitions; i++)
	{
		ScanPartition *p = &scan->partitions[i];

		p->is_running = p->next < p->stop;
		if (!p->is_running)
			continue;
		sx_kafka_client_start(scan->client, i, p->next);
		scan->nrunning++;
	}
	scan->is_positioned = true;
}

/* ---------------------------------------------------------------- records */

static void
finish_partition(KafkaScan *scan, int partition)
{
	if (!scan->partitions[partition].is_running)
		return;
	scan->partitions[partition].is_running = false;
	scan->nrunning--;
	sx_kafka_client_stop(scan->client, partition);
}

/* Leaves those records in the buffer that belong to the scan. */
static void
select_records(KafkaScan *scan)
{
	SxRecordBuffer *buffer = scan->buffer;
	int kept = 0;

	for (int i = 0; i < buffer->nrecords; i++)
	{
		SxRecord *record = &buffer->records[i];
		ScanPartition *p = &scan->partitions[record->partition];

		if (!p->is_running)
			continue;
		if (record->offset < p->stop)
			buffer->records[kept++] = *record;
		p->next = record->offset + 1;
		if (p->next >= p->stop)
			finish_partition(scan, record->partition);
	}
	buffer->nrecords = kept;
}

/* Ends that have been reached, also behind markers of transactions. */
static void
pass_ends(KafkaScan *scan)
{
	for (int i = 0; i < scan->npartitions; i++)
		if (scan->partitions[i].is_running &&
			sx_kafka_client_end_reached(scan->client, i) >= scan->partitions[i].stop)
			finish_partition(scan, i);
}

/* Records were deleted before the scan came to them: they are not there. */
static void
pass_gap(KafkaScan *scan)
{
	int partition = sx_kafka_client_status(scan->client)->partition;
	ScanPartition *p;
	int64 first;
	int64 end;

	if (partition < 0 || partition >= scan->npartitions)
		return;
	p = &scan->partitions[partition];
	if (!sx_kafka_client_range(scan->client, partition, &first, &end, ANSWER_MS))
		refuse_scan(scan, "No broker answered.");
	p->next = Max(p->next, first);
	if (p->next >= Min(p->stop, end))
		finish_partition(scan, partition);
	else
		sx_kafka_client_start(scan->client, partition, p->next);
}

/* Waits for records; false: there are no more. */
static bool
fetch_records(KafkaScan *scan)
{
	TimestampTz since = GetCurrentTimestamp();

	sx_record_buffer_reset(scan->buffer);
	while (scan->nrunning > 0)
	{
		const SxKafkaStatus *status = sx_kafka_client_status(scan->client);
		int64 waited;

		CHECK_FOR_INTERRUPTS();
		(void) sx_kafka_client_poll(scan->client, scan->buffer, MAX_BYTES, SLICE_MS);
		select_records(scan);
		if (scan->buffer->nrecords > 0)
			return true;
		sx_record_buffer_reset(scan->buffer);
		pass_ends(scan);
		waited = (GetCurrentTimestamp() - since) / 1000;
		if (status->trouble == SX_KAFKA_OUT_OF_RANGE)
			pass_gap(scan);
		else if (status->trouble == SX_KAFKA_FATAL || waited > RECORD_MS ||
				 (status->trouble == SX_KAFKA_FAILING && waited > ANSWER_MS))
			refuse_scan(scan, "No record came for a while.");
	}
	return false;
}

static void
count_dead(KafkaScan *scan, const SxDecodeResult *result, MemoryContext cxt)
{
	SxDeadRecord *first;

	if (result->dead == NIL)
		return;
	scan->dead += list_length(result->dead);
	scan->most_dead = Max(scan->most_dead, scan->dead);
	if (scan->first_dead != NULL)
		return;
	first = linitial(result->dead);
	scan->first_dead =
		MemoryContextStrdup(cxt, psprintf("The first one, in partition %d at offset " INT64_FORMAT
										  ": %s (%s).",
										  first->record->partition, (int64) first->record->offset,
										  first->message, unpack_sql_state(first->sqlerrcode)));
}

/* Fills the batch with rows; false: there are no more. */
static bool
next_batch(ForeignScanState *node, KafkaScan *scan)
{
	MemoryContext query_cxt = node->ss.ps.state->es_query_cxt;
	MemoryContext old = MemoryContextSwitchTo(query_cxt);

	if (scan->partitions == NULL)
		open_scan(scan);
	if (!scan->is_positioned)
		position_scan(node, scan);
	scan->row = 0;
	sx_batch_reset(scan->batch);
	MemoryContextSwitchTo(scan->batch->cxt);
	while (scan->batch->nrows == 0)
	{
		SxDecodeResult result;

		result.ntombstones = 0;
		result.dead = NIL;
		if (!fetch_records(scan))
			break;
		scan->records += scan->buffer->nrecords;
		sx_decode(scan->decoder, scan->buffer->records, scan->buffer->nrecords, scan->batch,
				  &result);
		count_dead(scan, &result, query_cxt);
		/* what is dead has left its messages */
		if (scan->batch->nrows == 0)
			sx_batch_reset(scan->batch);
	}
	MemoryContextSwitchTo(old);
	return scan->batch->nrows > 0;
}

static TupleTableSlot *
kafka_iterate(ForeignScanState *node)
{
	KafkaScan *scan = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	if (scan->row >= scan->batch->nrows && !next_batch(node, scan))
		return slot;
	for (int i = 0; i < scan->batch->natts; i++)
	{
		bool isnull = scan->batch->values[i] == NULL || scan->batch->nulls[i][scan->row];

		slot->tts_isnull[i] = isnull;
		slot->tts_values[i] = isnull ? (Datum) 0 : scan->batch->values[i][scan->row];
	}
	scan->row++;
	return ExecStoreVirtualTuple(slot);
}

static void
kafka_rescan(ForeignScanState *node)
{
	KafkaScan *scan = node->fdw_state;

	for (int i = 0; scan->partitions != NULL && i < scan->npartitions; i++)
		finish_partition(scan, i);
	sx_record_buffer_reset(scan->buffer);
	sx_batch_reset(scan->batch);
	scan->row = 0;
	scan->dead = 0;
	scan->is_positioned = false;
}

/* Messages about records quote them, so they are for those who may read the whole table. */
static bool
may_see_records(ForeignScanState *node)
{
	return pg_class_aclcheck(RelationGetRelid(node->ss.ss_currentRelation), GetUserId(),
							 ACL_SELECT) == ACLCHECK_OK;
}

static void
kafka_end_scan(ForeignScanState *node)
{
	KafkaScan *scan = node->fdw_state;

	if (scan == NULL || scan->client == NULL)
		return;
	sx_kafka_client_close(scan->client);
	scan->client = NULL;
	if (scan->most_dead > 0)
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg_plural("%lld record of topic \"%s\" could not be decoded and was left out",
							   "%lld records of topic \"%s\" could not be decoded and were left "
							   "out",
							   (unsigned long) scan->most_dead, (long long) scan->most_dead,
							   scan->options->topic),
				 may_see_records(node) ? errdetail_internal("%s", scan->first_dead) : 0));
}

/* ---------------------------------------------------------------- EXPLAIN */

static void
kafka_explain(ForeignScanState *node, ExplainState *es)
{
	static const char *const columns[] = {"partition", "offset", "timestamp"};
	static const char *const operators[] = {"", "<", "<=", "=", ">=", ">"};
	KafkaScan *scan = node->fdw_state;
	List *bounds = NIL;
	ListCell *lc;

	ExplainPropertyText("Topic", scan->options->topic, es);
	foreach(lc, scan->bounds)
	{
		List *numbers = lfirst(lc);

		bounds = lappend(bounds, psprintf("%s %s%s", columns[linitial_int(numbers)],
										  operators[lsecond_int(numbers)],
										  lfourth_int(numbers) != 0 ? " any" : ""));
	}
	if (bounds != NIL)
		ExplainPropertyList("Bounds", bounds, es);
	if (es->analyze)
		ExplainPropertyInteger("Records Read", NULL, scan->records, es);
}

void
sx_fdw_scan_routine(FdwRoutine *routine)
{
	routine->BeginForeignScan = kafka_begin_scan;
	routine->IterateForeignScan = kafka_iterate;
	routine->ReScanForeignScan = kafka_rescan;
	routine->EndForeignScan = kafka_end_scan;
	routine->ExplainForeignScan = kafka_explain;
}
