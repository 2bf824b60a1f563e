/*
 * tail.c
 *		The tail reader: every committed row of a stream exactly once.
 *
 * Two questions are kept apart: which blocks can still get rows, and which rows on a block are not
 * final yet. The answer to the first is the hand-out (handout.c); it is copied, with the length of
 * the file, before the snapshot is taken. The answer to the second is that snapshot, by which every
 * row is judged:
 *
 *		visible										returned
 *		else inserter in progress, or ourselves		pending
 *		else										dead
 *
 * One pass has three phases. The position is right after each block, so a caller may stop anywhere:
 *
 *	1.	Ranges of transactions that were in progress when their blocks were closed, and have ended
 *		since: their visible rows are returned, found by the xid on the tuple (freezing keeps it,
 *		and the commit log may be gone). A range shrinks as it is read.
 *	2.	Open blocks: rows that are visible and not marked as returned. Marks are by line pointer, for
 *		the line pointers of aborted rows are used again. An unchanged page whose pending
 *		transactions all still run is not looked at. A block that is not growable any more is closed:
 *		its pending transactions become ranges.
 *	3.	New blocks from the cursor to the end of the file: a growable one is opened; any other is
 *		read and closed at once.
 *
 * Virgin blocks (page.h) above the highest block that was ever written are never closed, growable
 * or not: after a crash of the machine the file may end earlier and grow again, and after a restart
 * the first user of the stream puts the empty tail into the free list. A block that was written
 * stays so, and is durable before any position that has seen it.
 *
 * The watermark moves at the end of a poll only. A poll is all rows up to the length of the file at
 * its start, over however many transactions: all phases must have been passed in one transaction
 * with the cursor at that length.
 *
 * Known limit: two transactions exactly 2^32 apart that wrote to blocks closer than 64 to each
 * other cannot be told apart by the xid on the tuple, if the later one was in progress for long.
 * On one block they can, and it is kept open.
 *
 * Rows are deformed from a copy of the page, so that no lock or pin is held while values are
 * fetched from TOAST tables or batches are computed.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "stream_ext/base/stop.h"
#include "stream_ext/storage/tail.h"
#include "handout.h"
#include "page.h"
#include "position.h"

/* Blocks that one call looks at, at most, so that callers can look for interrupts and limits. */
#define BLOCKS_PER_CALL 64

/* Bytes after which a batch is full. */
#define BATCH_BYTES (1024 * 1024)

StaticAssertDecl(MaxHeapTuplesPerPage <= SX_BATCH_ROWS, "a batch must hold the rows of a block");

typedef enum Phase
{
	PHASE_RUNNING,
	PHASE_OPEN,
	PHASE_NEW,
	PHASE_DONE
} Phase;

/* A column that the batch wants. */
typedef struct Column
{
	int index; /* attribute number - 1 */
	bool is_varlena;
	bool by_value;
	int16 length;
} Column;

/* What is known about the inserter of the last row looked at. */
typedef enum Verdict
{
	VERDICT_NONE,
	VERDICT_VISIBLE, /* if not deleted */
	VERDICT_PENDING,
	VERDICT_DEAD
} Verdict;

/* Rows chosen on one page, and transactions in progress seen there. */
typedef struct PageScan
{
	int nrows;
	OffsetNumber rows[MaxHeapTuplesPerPage];
	int npending;
	TransactionId pending[MaxHeapTuplesPerPage];
	bool is_virgin;
	XLogRecPtr lsn;
	bool is_ambiguous; /* a returned row has the xid of a pending one */
} PageScan;

struct SxTailReader
{
	Relation rel;
	SxTailPosition *position;
	SxTailTime time;
	int64 time_limit; /* a greater event time does not move the watermark */
	SxGrowable growable;
	Snapshot snapshot;
	FullTransactionId next_xid; /* read after the snapshot was taken */
	BufferAccessStrategy strategy;

	Phase phase;
	int next_running; /* index of the next range */
	int next_open;    /* index of the next open block */
	int kept_open;    /* open blocks before it that stay; between the two is garbage */

	const SxBatch *planned; /* the batch that the columns are for */
	int ncolumns;
	Column *columns;
	int natts;            /* attributes to deform */
	bool copies_to_batch; /* a wanted column points into the copy of the page */
	TupleTableSlot *slot;
	HeapTupleData tuple;
	Verdict verdict;
	TransactionId verdict_xmin;
	bool verdict_frozen;
	PageScan scan;
	PGAlignedBlock page; /* copy of rows of by-value columns only */
};

static int64
time_limit(const SxTailTime *time)
{
	TimestampTz now = GetCurrentTimestamp();

	return time->max_ahead > PG_INT64_MAX - now ? PG_INT64_MAX : now + time->max_ahead;
}

static void
begin_poll(SxTailReader *reader)
{
	reader->position->in_poll = true;
	reader->position->poll_end = reader->growable.nblocks;
	reader->position->poll_time = PG_INT64_MIN;
}

SxTailReader *
sx_tail_begin(Relation rel, SxTailPosition *position, const SxTailTime *time)
{
	SxTailReader *reader = palloc0(sizeof(SxTailReader));

	reader->rel = rel;
	reader->position = position;
	reader->time = *time;
	reader->time_limit = time_limit(time);
	/* the order of these two is the whole proof; see handout.c */
	sx_handout_growable(rel, &reader->growable);
	SX_STOP_POINT("tail_growable");
	reader->snapshot = RegisterSnapshot(GetLatestSnapshot());
	reader->next_xid = ReadNextFullTransactionId();
	SX_STOP_POINT("tail_snapshot");
	if (sx_tail_blocks_behind(reader) > (BlockNumber) NBuffers / 4)
		reader->strategy = GetAccessStrategy(BAS_BULKREAD);
	reader->slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	reader->tuple.t_tableOid = RelationGetRelid(rel);
	reader->phase = PHASE_RUNNING;
	if (!position->in_poll)
		begin_poll(reader);
	return reader;
}

Snapshot
sx_tail_snapshot(SxTailReader *reader)
{
	return reader->snapshot;
}

BlockNumber
sx_tail_blocks_behind(SxTailReader *reader)
{
	BlockNumber cursor = reader->position->cursor;

	return reader->growable.nblocks > cursor ? reader->growable.nblocks - cursor : 0;
}

void
sx_tail_end(SxTailReader *reader)
{
	ExecDropSingleTupleTableSlot(reader->slot);
	UnregisterSnapshot(reader->snapshot);
	if (reader->strategy != NULL)
		FreeAccessStrategy(reader->strategy);
	pfree(reader->growable.blocks);
	if (reader->columns != NULL)
		pfree(reader->columns);
	pfree(reader);
}

/* Finds the columns that the batch wants. */
static void
plan_columns(SxTailReader *reader, const SxBatch *batch)
{
	TupleDesc desc = RelationGetDescr(reader->rel);
	int natts = Min(batch->natts, desc->natts);

	if (reader->columns != NULL)
		pfree(reader->columns);
	reader->columns = palloc(sizeof(Column) * Max(natts, 1));
	reader->ncolumns = 0;
	reader->natts = reader->time.attno;
	reader->copies_to_batch = false;
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (batch->values[i] == NULL)
			continue;
		reader->columns[reader->ncolumns++] = (Column){.index = i,
													   .is_varlena = att->attlen == -1,
													   .by_value = att->attbyval,
													   .length = att->attlen};
		reader->natts = i + 1 > reader->natts ? i + 1 : reader->natts;
		if (!att->attbyval)
			reader->copies_to_batch = true;
	}
	reader->planned = batch;
}

static bool
is_growable(const SxTailReader *reader, BlockNumber block)
{
	int lo = 0;
	int hi = reader->growable.n;

	while (lo < hi)
	{
		int mid = (lo + hi) / 2;

		if (reader->growable.blocks[mid] < block)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < reader->growable.n && reader->growable.blocks[lo] == block;
}

/* Is a transaction not final: in progress for the snapshot, or our own? */
static bool
is_running(const SxTailReader *reader, TransactionId xid)
{
	return TransactionIdIsCurrentTransactionId(xid) || XidInMVCCSnapshot(xid, reader->snapshot);
}

/*
 * The same for a remembered transaction. One more than 2^31 old has ended, since what runs holds
 * back the wraparound.
 */
static bool
is_still_running(const SxTailReader *reader, uint64 xid)
{
	uint64 next = U64FromFullTransactionId(reader->next_xid);

	if (xid >= next)
		return true;
	if (next - xid > PG_INT32_MAX)
		return false;
	return is_running(reader, (TransactionId) xid);
}

/* Adds the epoch to the xid of a transaction in progress. */
static uint64
full_xid(const SxTailReader *reader, TransactionId xid)
{
	uint64 next = U64FromFullTransactionId(reader->next_xid);

	return next - (uint32) ((uint32) next - xid);
}

static void
add_pending(PageScan *scan, TransactionId xid)
{
	/* rows of one transaction mostly follow each other */
	for (int i = scan->npending - 1; i >= 0; i--)
		if (scan->pending[i] == xid)
			return;
	scan->pending[scan->npending++] = xid;
}

/*
 * Judges one row. Rows of one transaction get the same answer unless somebody has set their xmax,
 * so the answer is kept for the next row. Caller holds the buffer's content lock.
 */
static Verdict
judge_row(SxTailReader *reader, HeapTuple tuple, Buffer buffer)
{
	HeapTupleHeader header = tuple->t_data;
	TransactionId xmin = HeapTupleHeaderGetRawXmin(header);
	bool frozen = HeapTupleHeaderXminFrozen(header);
	bool undeleted = (header->t_infomask & HEAP_XMAX_INVALID) != 0;
	Verdict verdict;

	if (reader->verdict != VERDICT_NONE && xmin == reader->verdict_xmin &&
		frozen == reader->verdict_frozen && undeleted)
		return reader->verdict;
	if (!frozen && !HeapTupleHeaderXminInvalid(header) && is_running(reader, xmin))
		verdict = VERDICT_PENDING;
	else if (HeapTupleSatisfiesVisibility(tuple, reader->snapshot, buffer))
		verdict = VERDICT_VISIBLE;
	else
		verdict = VERDICT_DEAD;
	if (undeleted)
	{
		reader->verdict = verdict;
		reader->verdict_xmin = xmin;
		reader->verdict_frozen = frozen;
	}
	return verdict;
}

static inline bool
get_row(SxTailReader *reader, Page page, BlockNumber block, OffsetNumber off)
{
	ItemId id = PageGetItemId(page, off);

	if (!ItemIdIsNormal(id))
		return false;
	reader->tuple.t_data = (HeapTupleHeader) PageGetItem(page, id);
	reader->tuple.t_len = ItemIdGetLength(id);
	ItemPointerSet(&reader->tuple.t_self, block, off);
	return true;
}

/* Chooses the rows of a transaction that has ended. Caller holds the buffer's content lock. */
static void
choose_rows_of(SxTailReader *reader, Buffer buffer, BlockNumber block, TransactionId xid)
{
	PageScan *scan = &reader->scan;
	Page page = BufferGetPage(buffer);
	OffsetNumber max = PageIsNew(page) ? 0 : PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		if (get_row(reader, page, block, off) &&
			HeapTupleHeaderGetRawXmin(reader->tuple.t_data) == xid &&
			judge_row(reader, &reader->tuple, buffer) == VERDICT_VISIBLE)
			scan->rows[scan->nrows++] = off;
}

/*
 * Does a returned row have the xid of a pending one? Then it is of an earlier epoch and frozen, and
 * a range could not tell the two apart.
 */
static bool
has_ambiguous_row(SxTailReader *reader, const SxOpenBlock *open, Page page)
{
	const PageScan *scan = &reader->scan;

	for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
	{
		if (!sx_open_is_done(open, off) || !get_row(reader, page, open->block, off))
			continue;
		for (int i = 0; i < scan->npending; i++)
			if (HeapTupleHeaderGetRawXmin(reader->tuple.t_data) == scan->pending[i])
				return true;
	}
	return false;
}

/*
 * Chooses the rows of a block that are visible and were not returned, marks them as returned, and
 * notes what is pending. Caller holds the buffer's content lock.
 */
static void
choose_new_rows(SxTailReader *reader, Buffer buffer, SxOpenBlock *open)
{
	PageScan *scan = &reader->scan;
	Page page = BufferGetPage(buffer);
	OffsetNumber max = PageIsNew(page) ? 0 : PageGetMaxOffsetNumber(page);
	bool all_visible = max > 0 && PageIsAllVisible(page) && !reader->snapshot->takenDuringRecovery;

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		Verdict verdict;

		if (sx_open_is_done(open, off) || !get_row(reader, page, open->block, off))
			continue;
		verdict = all_visible ? VERDICT_VISIBLE : judge_row(reader, &reader->tuple, buffer);
		if (verdict == VERDICT_PENDING)
			add_pending(scan, HeapTupleHeaderGetRawXmin(reader->tuple.t_data));
		else if (verdict == VERDICT_VISIBLE)
			scan->rows[scan->nrows++] = off;
	}
	for (int i = 0; i < scan->nrows; i++)
		sx_open_set_done(open, scan->rows[i]);
	if (unlikely(scan->npending > 0))
		scan->is_ambiguous = has_ambiguous_row(reader, open, page);
}

/*
 * Copies the chosen rows, so that the buffer can be let go, and returns the base to which
 * '*offsets' are relative. Few rows are copied one by one, many with their page. The copy lives
 * with the batch if a value can point into it. Caller holds the buffer's content lock.
 */
static char *
copy_rows(SxTailReader *reader, Page page, SxBatch *batch, uint16 *offsets, uint16 *lengths)
{
	const PageScan *scan = &reader->scan;
	Size size = 0;
	char *base;

	for (int i = 0; i < scan->nrows; i++)
	{
		ItemId id = PageGetItemId(page, scan->rows[i]);

		offsets[i] = ItemIdGetOffset(id);
		lengths[i] = ItemIdGetLength(id);
		size += MAXALIGN(lengths[i]);
	}
	if (size > BLCKSZ / 4)
		size = BLCKSZ;
	base = reader->copies_to_batch ? MemoryContextAlloc(batch->cxt, size) : reader->page.data;
	if (size == BLCKSZ)
		memcpy(base, page, BLCKSZ);
	else
	{
		size = 0;
		for (int i = 0; i < scan->nrows; i++)
		{
			memcpy(base + size, (char *) page + offsets[i], lengths[i]);
			offsets[i] = (uint16) size;
			size += MAXALIGN(lengths[i]);
		}
	}
	return base;
}

static void
observe_time(SxTailReader *reader, Datum value)
{
	int64 time = DatumGetInt64(value);

	if (TIMESTAMP_NOT_FINITE(time) || time > reader->time_limit)
		return;
	if (time > reader->position->poll_time)
		reader->position->poll_time = time;
}

/* Makes a by-reference value that does not point into the copy of the page last with the batch. */
static Datum
keep_value(SxBatch *batch, const Column *column, Datum value)
{
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);

	if (column->is_varlena && VARATT_IS_EXTERNAL(DatumGetPointer(value)))
		value = PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(value)));
	else
		value = datumCopy(value, column->by_value, column->length);
	MemoryContextSwitchTo(old);
	return value;
}

/* Adds one row to the batch. */
static inline void
emit_row(SxTailReader *reader, SxBatch *batch)
{
	TupleTableSlot *slot = reader->slot;
	int present = HeapTupleHeaderGetNatts(reader->tuple.t_data);
	int row = batch->nrows++;

	batch->bytes += reader->tuple.t_len;
	if (reader->natts == 0)
		return;
	ExecStoreHeapTuple(&reader->tuple, slot, false);
	slot_getsomeattrs(slot, reader->natts);
	for (int i = 0; i < reader->ncolumns; i++)
	{
		const Column *column = &reader->columns[i];
		Datum value = slot->tts_values[column->index];
		bool is_null = slot->tts_isnull[column->index];

		if (!column->by_value && !is_null)
		{
			/* a column that was added later has its value in the relation cache */
			if (unlikely(column->index >= present))
				value = keep_value(batch, column, value);
			else if (column->is_varlena && VARATT_IS_EXTERNAL(DatumGetPointer(value)))
			{
				value = keep_value(batch, column, value);
				batch->bytes += VARSIZE_ANY(DatumGetPointer(value));
			}
		}
		batch->values[column->index][row] = value;
		batch->nulls[column->index][row] = is_null;
	}
	if (reader->time.attno > 0 && !slot->tts_isnull[reader->time.attno - 1])
		observe_time(reader, slot->tts_values[reader->time.attno - 1]);
}

/* Lets go of the buffer, which is locked, and adds the chosen rows to the batch. */
static void
emit_rows(SxTailReader *reader, Buffer buffer, BlockNumber block, SxBatch *batch)
{
	const PageScan *scan = &reader->scan;
	uint16 offsets[MaxHeapTuplesPerPage];
	uint16 lengths[MaxHeapTuplesPerPage];
	char *base = NULL;

	if (scan->nrows > 0)
		base = copy_rows(reader, BufferGetPage(buffer), batch, offsets, lengths);
	UnlockReleaseBuffer(buffer);
	for (int i = 0; i < scan->nrows; i++)
	{
		reader->tuple.t_data = (HeapTupleHeader) (base + offsets[i]);
		reader->tuple.t_len = lengths[i];
		ItemPointerSet(&reader->tuple.t_self, block, scan->rows[i]);
		emit_row(reader, batch);
	}
	ExecClearTuple(reader->slot);
}

static Buffer
read_block(SxTailReader *reader, BlockNumber block)
{
	PageScan *scan = &reader->scan;
	Buffer buffer =
		ReadBufferExtended(reader->rel, MAIN_FORKNUM, block, RBM_NORMAL, reader->strategy);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	scan->nrows = 0;
	scan->npending = 0;
	scan->is_ambiguous = false;
	scan->is_virgin = sx_page_is_virgin(BufferGetPage(buffer));
	scan->lsn = BufferGetLSNAtomic(buffer);
	return buffer;
}

/* Is all that the last scan of this block found still true? Caller has its LSN in the scan. */
static bool
is_unchanged(const SxTailReader *reader, const SxOpenBlock *open)
{
	if (XLogRecPtrIsInvalid(open->lsn) || open->lsn != reader->scan.lsn ||
		open->npending > SX_PENDING_MAX)
		return false;
	for (int i = 0; i < open->npending; i++)
		if (!is_running(reader, open->pending[i]))
			return false;
	return true;
}

/*
 * Reads one block that is open or being opened, and decides whether it is closed. If so its pending
 * transactions are remembered; the caller takes it out of the open blocks.
 */
static bool
visit_block(SxTailReader *reader, SxOpenBlock *open, SxBatch *batch)
{
	SxTailPosition *position = reader->position;
	PageScan *scan = &reader->scan;
	bool growable = is_growable(reader, open->block);
	Buffer buffer = read_block(reader, open->block);

	/* when it is closed with something pending, the whole page must be looked at */
	if (is_unchanged(reader, open) && (growable || open->npending == 0))
		UnlockReleaseBuffer(buffer);
	else
	{
		choose_new_rows(reader, buffer, open);
		open->lsn = scan->lsn;
		open->npending = scan->npending;
		memcpy(open->pending, scan->pending,
			   sizeof(TransactionId) * Min(scan->npending, SX_PENDING_MAX));
		emit_rows(reader, buffer, open->block, batch);
	}
	if (!scan->is_virgin && open->block >= position->written)
		position->written = open->block + 1;

	if (growable || open->block >= position->written || scan->is_ambiguous ||
		position->nrunning + scan->npending > SX_RUNNING_MAX)
		return false;
	for (int i = 0; i < scan->npending; i++)
		sx_position_add_running(position, full_xid(reader, scan->pending[i]), open->block);
	return true;
}

/* Phase 1: reads one block of a range whose transaction has ended. False: no more. */
static bool
next_running_block(SxTailReader *reader, SxBatch *batch)
{
	SxTailPosition *position = reader->position;
	SxRunning *running;

	while (reader->next_running < position->nrunning &&
		   is_still_running(reader, position->running[reader->next_running].xid))
		reader->next_running++;
	if (reader->next_running >= position->nrunning)
		return false;
	running = &position->running[reader->next_running];
	/* what is open has marks of its own */
	if (running->lo < reader->growable.nblocks &&
		sx_position_find_open(position, running->lo) == NULL)
	{
		Buffer buffer = read_block(reader, running->lo);

		choose_rows_of(reader, buffer, running->lo, (TransactionId) running->xid);
		emit_rows(reader, buffer, running->lo, batch);
	}
	if (running->lo < running->hi)
		running->lo++;
	else
	{
		position->nrunning--;
		memmove(running, running + 1,
				sizeof(SxRunning) * (position->nrunning - reader->next_running));
	}
	return true;
}

/* Phase 2: reads one open block. False: no more. */
static bool
next_open_block(SxTailReader *reader, SxBatch *batch)
{
	SxTailPosition *position = reader->position;
	SxOpenBlock *open;

	if (reader->next_open >= position->nopen)
		return false;
	open = &position->open[reader->next_open++];
	if (open->block < reader->growable.nblocks && visit_block(reader, open, batch))
		return true;
	if (&position->open[reader->kept_open] != open)
		position->open[reader->kept_open] = *open;
	reader->kept_open++;
	return true;
}

/* Takes the closed blocks out of the open ones, as far as phase 2 has come. */
static void
drop_closed(SxTailReader *reader)
{
	SxTailPosition *position = reader->position;
	int closed = reader->next_open - reader->kept_open;

	if (closed == 0)
		return;
	memmove(&position->open[reader->kept_open], &position->open[reader->next_open],
			sizeof(SxOpenBlock) * (position->nopen - reader->next_open));
	position->nopen -= closed;
	reader->next_open = reader->kept_open;
}

/* Phase 3: reads the block at the cursor. */
static void
next_new_block(SxTailReader *reader, SxBatch *batch)
{
	SxTailPosition *position = reader->position;
	BlockNumber block = position->cursor;

	if (sx_position_find_open(position, block) == NULL)
	{
		SxOpenBlock open = {.block = block};

		if (!visit_block(reader, &open, batch))
			*sx_position_add_open(position, block) = open;
	}
	position->cursor = block + 1;
}

/* Moves the watermark to the greatest event time of the poll, less the delay. */
static void
end_poll(SxTailReader *reader)
{
	SxTailPosition *position = reader->position;
	int64 time = position->poll_time;

	position->in_poll = false;
	if (!reader->time.has_watermark || time == PG_INT64_MIN)
		return;
	/* PG_INT64_MIN means none */
	time =
		time < PG_INT64_MIN + 1 + reader->time.delay ? PG_INT64_MIN + 1 : time - reader->time.delay;
	if (time > position->watermark)
		position->watermark = time;
}

static bool
is_full(const SxBatch *batch)
{
	return batch->nrows > SX_BATCH_ROWS - MaxHeapTuplesPerPage || batch->bytes >= BATCH_BYTES;
}

/*
 * Reads the next block. False: none left in this poll, which has then ended, or the batch must be
 * taken before it may end, because its rows belong to the poll.
 */
static bool
next_block(SxTailReader *reader, SxBatch *batch)
{
	SxTailPosition *position = reader->position;
	BlockNumber end = reader->growable.nblocks;

	switch (reader->phase)
	{
		case PHASE_RUNNING:
			if (!next_running_block(reader, batch))
				reader->phase = PHASE_OPEN;
			return true;
		case PHASE_OPEN:
			if (!next_open_block(reader, batch))
			{
				drop_closed(reader);
				reader->phase = PHASE_NEW;
			}
			return true;
		case PHASE_NEW:
			if (position->cursor < Min(position->poll_end, end))
			{
				next_new_block(reader, batch);
				return true;
			}
			if (batch->nrows > 0)
				return false;
			end_poll(reader);
			if (position->cursor < end)
			{
				begin_poll(reader);
				return true;
			}
			reader->phase = PHASE_DONE;
			return false;
		case PHASE_DONE:
			break;
	}
	return false;
}

bool
sx_tail_next(SxTailReader *reader, SxBatch *batch)
{
	bool more = true;

	Assert(batch->nrows == 0);
	if (reader->planned != batch)
		plan_columns(reader, batch);
	for (int blocks = 0; more && blocks < BLOCKS_PER_CALL && !is_full(batch); blocks++)
	{
		CHECK_FOR_INTERRUPTS();
		more = next_block(reader, batch);
		SX_STOP_POINT("tail_block");
	}
	if (reader->phase == PHASE_OPEN)
		drop_closed(reader);
	return reader->phase != PHASE_DONE;
}
