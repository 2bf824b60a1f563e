/*
 * tail_test.c
 *		Drives the tail reader from SQL, for tests.
 *
 * Positions of named readers are kept in table tail_position, changed by the transaction that got
 * the rows, so that its abort discards both. As a worker does, a session keeps the position that it
 * last wrote in memory, with what is not saved in it, and uses it again if the table still says the
 * same. tail_expire() and tail_recycle() do by hand what retention will do.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "stream_ext/catalog/catalog.h"
#include "stream_ext/storage/tail.h"
#include "handout.h"
#include "position.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(tail_poll);
PG_FUNCTION_INFO_V1(tail_poll_time);
PG_FUNCTION_INFO_V1(tail_count);
PG_FUNCTION_INFO_V1(tail_summary);
PG_FUNCTION_INFO_V1(tail_recode);
PG_FUNCTION_INFO_V1(tail_expire);
PG_FUNCTION_INFO_V1(tail_recycle);

/* Young blocks in a row at which expire gives up. */
#define YOUNG_MAX 32

/* The last position of one reader in this session. */
static char *cached_reader = NULL;
static Oid cached_rel = InvalidOid;
static SxTailPosition *cached_position = NULL;
static MemoryContext cached_cxt = NULL;

/* As of now, not as of the statement: the lock on the stream may have waited for a TRUNCATE. */
static uint64
current_generation(Oid rel)
{
	uint64 generation;

	PushActiveSnapshot(GetLatestSnapshot());
	generation = sx_catalog_generation(rel);
	PopActiveSnapshot();
	return generation;
}

static bool
same_bytes(const bytea *a, const bytea *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		   memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

static void
run(const char *sql, int nargs, Oid *types, Datum *args, int expected)
{
	if (SPI_execute_with_args(sql, nargs, types, args, NULL, false, 0) != expected)
		elog(ERROR, "unexpected result of: %s", sql);
}

/*
 * Locks the reader's row, made if needed, and returns its bytes in 'cxt'. Needs SPI. A row must be
 * committed before the first poll if blocks can be recycled meanwhile (see tail_recycle()).
 */
static bytea *
lock_position(const char *reader, Oid rel, MemoryContext cxt)
{
	Oid types[] = {TEXTOID, OIDOID, BYTEAOID};
	Datum args[] = {CStringGetTextDatum(reader), ObjectIdGetDatum(rel),
					PointerGetDatum(
						sx_tail_position_encode(sx_tail_position_create(current_generation(rel))))};
	MemoryContext old;
	bytea *bytes;
	bool is_null;

	run("insert into tail_test.tail_position values ($1, $2, $3) on conflict do nothing", 3, types,
		args, SPI_OK_INSERT);
	run("select position from tail_test.tail_position where reader = $1 and rel = $2 for update", 2,
		types, args, SPI_OK_SELECT);
	if (SPI_processed != 1)
		elog(ERROR, "no position of reader %s", reader);
	old = MemoryContextSwitchTo(cxt);
	bytes = DatumGetByteaPCopy(
		SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
	MemoryContextSwitchTo(old);
	return bytes;
}

static void
save_position(const char *reader, Oid rel, bytea *bytes)
{
	Oid types[] = {TEXTOID, OIDOID, BYTEAOID};
	Datum args[] = {CStringGetTextDatum(reader), ObjectIdGetDatum(rel), PointerGetDatum(bytes)};

	run("update tail_test.tail_position set position = $3 where reader = $1 and rel = $2", 3, types,
		args, SPI_OK_UPDATE);
}

/* The position to read from: what the session remembers, or what the table says. */
static SxTailPosition *
load_position(const char *reader, Oid rel, const bytea *bytes)
{
	SxTailPosition *position;
	SxTailSummary summary;
	uint64 generation = current_generation(rel);

	if (cached_position != NULL && rel == cached_rel && strcmp(reader, cached_reader) == 0 &&
		same_bytes(sx_tail_position_encode(cached_position), bytes))
		position = sx_tail_position_copy(cached_position);
	else
		position = sx_tail_position_decode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
	sx_tail_position_summary(position, &summary);
	if (summary.generation != generation)
		position = sx_tail_position_create(generation);
	return position;
}

static void
remember_position(const char *reader, Oid rel, const SxTailPosition *position)
{
	MemoryContext old;

	cached_position = NULL;
	if (cached_cxt == NULL)
		cached_cxt =
			AllocSetContextCreate(TopMemoryContext, "tail_test position", ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(cached_cxt);
	old = MemoryContextSwitchTo(cached_cxt);
	cached_reader = pstrdup(reader);
	cached_rel = rel;
	cached_position = sx_tail_position_copy(position);
	MemoryContextSwitchTo(old);
}

/* Raises an error if a row's payload is not what its length says. */
static void
check_row(const SxBatch *batch, int row, int len, int payload)
{
	int expected;

	if (len < 0 || payload < 0 || batch->nulls[len][row])
		return;
	expected = DatumGetInt32(batch->values[len][row]);
	if (VARATT_IS_EXTERNAL(DatumGetPointer(batch->values[payload][row])))
		elog(ERROR, "payload is external");
	if (VARSIZE_ANY_EXHDR(PG_DETOAST_DATUM_PACKED(batch->values[payload][row])) != expected)
		elog(ERROR, "payload is not %d bytes long", expected);
}

/* Polls; rows go to 'store' (their first column), or are only counted. */
static int64
poll(const char *reader, Oid relid, const SxTailTime *time, int batches, Tuplestorestate *store,
	 TupleDesc store_desc)
{
	Relation rel = table_open(relid, AccessShareLock);
	MemoryContext cxt = CurrentMemoryContext;
	int len = get_attnum(relid, "len") - 1;
	int payload = get_attnum(relid, "payload") - 1;
	SxTailPosition *position;
	SxTailReader *tail;
	SxBatch *batch;
	bytea *before;
	bytea *after;
	int64 nrows = 0;

	SPI_connect();
	before = lock_position(reader, relid, cxt);
	position = load_position(reader, relid, before);
	batch = sx_batch_create(RelationGetDescr(rel), NULL);
	tail = sx_tail_begin(rel, position, time);
	for (int n = 0; (batches == 0 || n < batches) && sx_tail_next(tail, batch); n++)
	{
		for (int row = 0; row < batch->nrows; row++)
		{
			check_row(batch, row, len, payload);
			if (store != NULL)
				tuplestore_putvalues(store, store_desc, &batch->values[0][row],
									 &batch->nulls[0][row]);
		}
		nrows += batch->nrows;
		sx_batch_reset(batch);
	}
	sx_tail_end(tail);
	sx_batch_free(batch);
	after = sx_tail_position_encode(position);
	if (!same_bytes(before, after))
		save_position(reader, relid, after);
	remember_position(reader, relid, position);
	SPI_finish();
	table_close(rel, NoLock);
	return nrows;
}

static Datum
poll_set(FunctionCallInfo fcinfo, const SxTailTime *time, int batches)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
	TupleDesc desc = CreateTemplateTupleDesc(1);

	TupleDescInitEntry(desc, 1, "id", INT8OID, -1, 0);
	result->returnMode = SFRM_Materialize;
	result->setDesc = desc;
	result->setResult = tuplestore_begin_heap(false, false, work_mem);
	MemoryContextSwitchTo(old);
	(void) poll(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_OID(1), time, batches,
				result->setResult, desc);
	return (Datum) 0;
}

Datum
tail_poll(PG_FUNCTION_ARGS)
{
	SxTailTime time = {0};

	return poll_set(fcinfo, &time, PG_GETARG_INT32(2));
}

Datum
tail_poll_time(PG_FUNCTION_ARGS)
{
	SxTailTime time = {.attno = get_attnum(PG_GETARG_OID(1), NameStr(*PG_GETARG_NAME(2))),
					   .has_watermark = true,
					   .delay = PG_GETARG_INT64(3),
					   .max_ahead = PG_GETARG_INT64(4)};

	return poll_set(fcinfo, &time, PG_GETARG_INT32(5));
}

Datum
tail_count(PG_FUNCTION_ARGS)
{
	SxTailTime time = {0};

	PG_RETURN_INT64(
		poll(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_OID(1), &time, 0, NULL, NULL));
}

Datum
tail_summary(PG_FUNCTION_ARGS)
{
	SxTailSummary summary;
	TupleDesc desc;
	Datum values[5];
	bool nulls[5] = {false};
	bytea *bytes;
	MemoryContext cxt = CurrentMemoryContext;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	SPI_connect();
	bytes = lock_position(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_OID(1), cxt);
	SPI_finish();
	sx_tail_position_summary(sx_tail_position_decode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes)),
							 &summary);
	values[0] = Int64GetDatum((int64) summary.generation);
	values[1] = Int64GetDatum((int64) summary.cursor);
	values[2] = Int32GetDatum(summary.open_blocks);
	values[3] = Int32GetDatum(summary.running_transactions);
	values[4] = TimestampTzGetDatum(summary.watermark);
	nulls[4] = summary.watermark == PG_INT64_MIN;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

Datum
tail_recode(PG_FUNCTION_ARGS)
{
	bytea *bytes = PG_GETARG_BYTEA_PP(0);

	PG_RETURN_BYTEA_P(sx_tail_position_encode(
		sx_tail_position_decode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes))));
}

/* All positions of readers of a stream, locked. */
typedef struct Readers
{
	int n;
	char **names;
	SxTailPosition **positions;
} Readers;

/* Needs SPI. Readers of another generation have passed nothing. */
static void
lock_readers(Oid relid, Readers *readers, MemoryContext cxt)
{
	Oid types[] = {OIDOID};
	Datum args[] = {ObjectIdGetDatum(relid)};
	uint64 generation = current_generation(relid);
	MemoryContext old;

	run("select reader, position from tail_test.tail_position where rel = $1 order by reader "
		"for update",
		1, types, args, SPI_OK_SELECT);
	old = MemoryContextSwitchTo(cxt);
	readers->n = (int) SPI_processed;
	readers->names = palloc(sizeof(char *) * readers->n);
	readers->positions = palloc(sizeof(SxTailPosition *) * readers->n);
	for (int i = 0; i < readers->n; i++)
	{
		bool is_null;
		bytea *bytes = DatumGetByteaPP(
			SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &is_null));
		SxTailPosition *position =
			sx_tail_position_decode(VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));

		if (position->generation != generation)
			position = sx_tail_position_create(generation);
		readers->positions[i] = position;
		readers->names[i] = pstrdup(SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
	}
	MemoryContextSwitchTo(old);
}

/* Blocks below it have been seen by all readers. */
static BlockNumber
least_cursor(const Readers *readers, BlockNumber nblocks)
{
	BlockNumber cursor = nblocks;

	for (int i = 0; i < readers->n; i++)
		cursor = Min(cursor, readers->positions[i]->cursor);
	return cursor;
}

static bool
all_passed(const Readers *readers, const SxGrowable *growable, BlockNumber block)
{
	for (int i = 0; i < growable->n; i++)
		if (growable->blocks[i] == block)
			return false;
	for (int i = 0; i < readers->n; i++)
		if (!sx_position_passed(readers->positions[i], block))
			return false;
	return true;
}

static void
load_ring(Oid relid, BlockNumber *head, BlockNumber *rec)
{
	Oid types[] = {OIDOID};
	Datum args[] = {ObjectIdGetDatum(relid)};
	bool is_null;

	run("insert into tail_test.tail_retention values ($1, 0, 0) on conflict do nothing", 1, types,
		args, SPI_OK_INSERT);
	run("select head, rec from tail_test.tail_retention where rel = $1 for update", 1, types, args,
		SPI_OK_SELECT);
	*head = (BlockNumber) DatumGetInt64(
		SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
	*rec = (BlockNumber) DatumGetInt64(
		SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &is_null));
}

static void
save_ring(Oid relid, BlockNumber head, BlockNumber rec)
{
	Oid types[] = {OIDOID, INT8OID, INT8OID};
	Datum args[] = {ObjectIdGetDatum(relid), Int64GetDatum((int64) head),
					Int64GetDatum((int64) rec)};

	run("update tail_test.tail_retention set head = $2, rec = $3 where rel = $1", 3, types, args,
		SPI_OK_UPDATE);
}

/* Visible rows of a block; -1 if one of them is not older than the cutoff. */
static int
find_old_rows(Relation rel, BlockNumber block, Snapshot snapshot, AttrNumber attno,
			  TimestampTz cutoff, ItemPointerData *tids)
{
	Buffer buffer = ReadBuffer(rel, block);
	Page page;
	int n = 0;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	for (OffsetNumber off = 1; !PageIsNew(page) && off <= PageGetMaxOffsetNumber(page); off++)
	{
		ItemId id = PageGetItemId(page, off);
		HeapTupleData tuple;
		bool is_null;

		if (!ItemIdIsNormal(id))
			continue;
		tuple.t_tableOid = RelationGetRelid(rel);
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, id);
		tuple.t_len = ItemIdGetLength(id);
		ItemPointerSet(&tuple.t_self, block, off);
		if (!HeapTupleSatisfiesVisibility(&tuple, snapshot, buffer))
			continue;
		if (DatumGetTimestampTz(heap_getattr(&tuple, attno, RelationGetDescr(rel), &is_null)) >=
			cutoff)
		{
			n = -1;
			break;
		}
		tids[n++] = tuple.t_self;
	}
	UnlockReleaseBuffer(buffer);
	return n;
}

Datum
tail_expire(PG_FUNCTION_ARGS)
{
	Oid relid = PG_GETARG_OID(0);
	AttrNumber attno = get_attnum(relid, NameStr(*PG_GETARG_NAME(1)));
	TimestampTz cutoff = PG_GETARG_TIMESTAMPTZ(2);
	int max_blocks = PG_GETARG_INT32(3);
	Relation rel = table_open(relid, RowExclusiveLock);
	MemoryContext cxt = CurrentMemoryContext;
	ItemPointerData tids[MaxHeapTuplesPerPage];
	Readers readers;
	SxGrowable growable;
	Snapshot snapshot;
	BlockNumber head;
	BlockNumber rec;
	BlockNumber first_young = 0;
	BlockNumber end;
	int young = 0;
	int done = 0;

	SPI_connect();
	load_ring(relid, &head, &rec);
	lock_readers(relid, &readers, cxt);
	sx_handout_growable(rel, &growable);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	end = least_cursor(&readers, growable.nblocks);
	for (BlockNumber steps = 0; steps < end && done < max_blocks && young < YOUNG_MAX; steps++)
	{
		BlockNumber block = head >= end ? 0 : head;
		int n;

		CHECK_FOR_INTERRUPTS();
		head = block + 1;
		if (!all_passed(&readers, &growable, block))
			continue;
		n = find_old_rows(rel, block, snapshot, attno, cutoff, tids);
		if (n < 0)
		{
			if (young++ == 0)
				first_young = block;
			continue;
		}
		young = 0;
		for (int i = 0; i < n; i++)
		{
			TM_FailureData failure;

			if (heap_delete(rel, &tids[i], GetCurrentCommandId(true), InvalidSnapshot, true,
							&failure, false) != TM_Ok)
				elog(ERROR, "could not delete an expired row");
		}
		if (n > 0)
			done++;
	}
	if (young >= YOUNG_MAX)
		head = first_young;
	UnregisterSnapshot(snapshot);
	save_ring(relid, head, rec);
	SPI_finish();
	table_close(rel, NoLock);
	PG_RETURN_INT32(done);
}

/* Has the block no line pointer in use, and was it written? */
static bool
is_emptied(Relation rel, BlockNumber block)
{
	Buffer buffer = ReadBuffer(rel, block);
	Page page;
	bool empty;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	empty = !PageIsNew(page);
	for (OffsetNumber off = 1; empty && off <= PageGetMaxOffsetNumber(page); off++)
		if (ItemIdIsUsed(PageGetItemId(page, off)))
			empty = false;
	UnlockReleaseBuffer(buffer);
	return empty;
}

Datum
tail_recycle(PG_FUNCTION_ARGS)
{
	Oid relid = PG_GETARG_OID(0);
	int max_blocks = Min(PG_GETARG_INT32(1), SX_HANDOUT_RESERVED);
	Relation rel = table_open(relid, RowExclusiveLock);
	MemoryContext cxt = CurrentMemoryContext;
	BlockNumber *blocks = palloc(sizeof(BlockNumber) * Max(max_blocks, 1));
	Readers readers;
	SxGrowable growable;
	BlockNumber head;
	BlockNumber rec;
	BlockNumber end;
	int n = 0;

	SPI_connect();
	load_ring(relid, &head, &rec);
	lock_readers(relid, &readers, cxt);
	sx_handout_growable(rel, &growable);
	end = least_cursor(&readers, growable.nblocks);
	for (BlockNumber steps = 0; steps < end && n < max_blocks; steps++)
	{
		BlockNumber block = rec >= end ? 0 : rec;

		CHECK_FOR_INTERRUPTS();
		rec = block + 1;
		if (all_passed(&readers, &growable, block) && is_emptied(rel, block))
			blocks[n++] = block;
	}
	if (n > 0)
		n = sx_handout_reserve(rel, blocks, n);
	/*
	 * Only now all positions: a poll that copied the growable blocks before the reservation has its
	 * position locked, or had it committed when it began.
	 */
	lock_readers(relid, &readers, cxt);
	for (int i = 0; n > 0 && i < readers.n; i++)
	{
		for (int k = 0; k < n; k++)
			(void) sx_position_reopen(readers.positions[i], blocks[k]);
		save_position(readers.names[i], relid, sx_tail_position_encode(readers.positions[i]));
	}
	save_ring(relid, head, rec);
	SPI_finish();
	table_close(rel, NoLock);
	PG_RETURN_INT32(n);
}
