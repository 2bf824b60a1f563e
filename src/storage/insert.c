/*
 * insert.c
 *		Puts rows into the block that this process owns.
 *
 * heap's own code does the insert; we only decide into which block. That takes three steps: know
 * the room in our block exactly, move on to another block before heap would find it too small, and
 * tell heap the target. heap must never choose a block by itself: the free space map is off, and
 * the arithmetic below is the one by which heap accepts a page (fill factor, "nearly empty" rule,
 * alignment, line pointers). If they ever disagree heap extends the file; the check of the row's
 * TID then raises an error. So whatever goes wrong can cost a transaction, but never a row.
 *
 * Room is counted down locally, without looking at the page: nobody else inserts into it, and what
 * else changes the page (pruning) only adds room. It is set to "unknown" during each call, so that
 * an error inside leaves nothing wrong, and read from the page again when needed.
 *
 * Wide rows are harder: heap toasts them first, which opens relations, may process invalidations
 * and make the storage manager forget the target. Therefore the block is pinned and passed as the
 * current buffer of a BulkInsertState, which wins over the target; and the room they take is known
 * only afterwards.
 *
 * What an insert needs to know about a relation is cached in rd_amcache, which any invalidation of
 * the relation frees; hence it is looked up again after each call into heap.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "stream_ext/base/stop.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/options.h"
#include "handout.h"
#include "stream.h"

#define ROOM_UNKNOWN (-1)

/* From this free space on heap takes a page as empty, whatever the fill factor says. */
#define NEARLY_EMPTY (MaxHeapTupleSize - (MaxHeapTuplesPerPage / 8 * sizeof(ItemIdData)))

/* The least that a row takes from the room of a page. */
#define ROW_MIN (MAXALIGN(SizeofHeapTupleHeader) + sizeof(ItemIdData))

/* A varlena that toasting cannot make smaller: up to the size of a pointer, plus its alignment. */
#define TOASTED_MAX (MAXALIGN(TOAST_POINTER_SIZE) + MAXIMUM_ALIGNOF)

/* A column that must be stepped over to get at the event time. */
typedef struct StepColumn
{
	int16 length; /* bytes, or -1 for a varlena */
	uint8 align;  /* bytes */
} StepColumn;

/* In rd_amcache; one chunk. */
typedef struct StreamCache
{
	SxHandout *handout;
	uint64 serial;
	BlockNumber block;       /* that this process owns */
	int32 room;              /* bytes left in it, as PageGetHeapFreeSpace(), or ROOM_UNKNOWN */
	int32 save;              /* bytes of a page that the fill factor keeps free */
	AttrNumber event_time;   /* column that must be set; 0: none */
	bool event_time_is_time; /* its type is timestamp or timestamptz */
	/*
	 * Where it is in a row without nulls: nsteps columns from start on, then aligned; nsteps -1: it
	 * must be looked for.
	 */
	uint32 start;
	int nsteps;
	StepColumn steps[FLEXIBLE_ARRAY_MEMBER];
} StreamCache;

/* Bytes of an alignment code. */
static uint8
align_bytes(char align)
{
	return (uint8) att_align_nominal(1, align);
}

/*
 * Prepares the way to the event time: columns of fixed length at the start of the row are one jump,
 * the rest is stepped over one by one.
 */
static void
set_steps(TupleDesc desc, StreamCache *cache)
{
	bool is_fixed = true;

	cache->nsteps = -1;
	cache->start = 0;
	if (!cache->event_time_is_time)
		return;
	cache->nsteps = 0;
	for (int i = 0; i < cache->event_time - 1; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attlen < -1)
		{
			cache->nsteps = -1;
			return;
		}
		is_fixed = is_fixed && att->attlen > 0;
		if (is_fixed)
			cache->start = att_align_nominal(cache->start, att->attalign) + att->attlen;
		else
			cache->steps[cache->nsteps++] =
				(StepColumn){.length = att->attlen, .align = align_bytes(att->attalign)};
	}
}

/* Finds the column of the stream's event time. */
static void
set_event_time(Relation rel, StreamCache *cache)
{
	SxStreamOptions *options = sx_stream_options(RelationGetRelid(rel));
	Oid type;

	cache->event_time = 0;
	if (options == NULL || options->event_time == NULL)
		return;
	cache->event_time = get_attnum(RelationGetRelid(rel), options->event_time);
	if (cache->event_time <= 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("event time column \"%s\" of stream \"%s\" does not exist",
							   options->event_time, RelationGetRelationName(rel))));
	type = getBaseType(TupleDescAttr(RelationGetDescr(rel), cache->event_time - 1)->atttypid);
	cache->event_time_is_time = type == TIMESTAMPTZOID || type == TIMESTAMPOID;
	set_steps(RelationGetDescr(rel), cache);
}

static pg_noinline StreamCache *
fill_cache(Relation rel)
{
	Size size = offsetof(StreamCache, steps) + sizeof(StepColumn) * RelationGetDescr(rel)->natts;
	StreamCache *filled = palloc0(size);
	StreamCache *cache;

	/* catalog look-ups first: they may process an invalidation of this very relation */
	set_event_time(rel, filled);
	filled->handout = sx_handout_get(rel, &filled->serial);
	filled->block = sx_handout_owned(filled->handout);
	filled->room = ROOM_UNKNOWN;
	filled->save = (int32) RelationGetTargetPageFreeSpace(rel, HEAP_DEFAULT_FILLFACTOR);
	if (rel->rd_amcache != NULL)
		pfree(rel->rd_amcache);
	rel->rd_amcache = NULL;
	cache = MemoryContextAlloc(CacheMemoryContext, size);
	memcpy(cache, filled, size);
	rel->rd_amcache = cache;
	pfree(filled);
	return cache;
}

/*
 * The cache of a stream that is being inserted into. A change of the storage or the options makes
 * the relation cache rebuild its entry and so frees it; the serial tells of changes in shared
 * memory that come without one.
 */
static inline StreamCache *
get_cache(Relation rel)
{
	StreamCache *cache = rel->rd_amcache;

	if (likely(cache != NULL && pg_atomic_read_u64(&cache->handout->serial) == cache->serial))
		return cache;
	return fill_cache(rel);
}

static pg_noinline void
refuse_event_time(Relation rel, AttrNumber attno, bool is_null)
{
	const char *column = NameStr(TupleDescAttr(RelationGetDescr(rel), attno - 1)->attname);

	if (is_null)
		ereport(ERROR, (errcode(ERRCODE_NOT_NULL_VIOLATION),
						errmsg("event time \"%s\" of stream \"%s\" cannot be null", column,
							   RelationGetRelationName(rel)),
						errtablecol(rel, attno)));
	ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
					errmsg("event time \"%s\" of stream \"%s\" must be finite", column,
						   RelationGetRelationName(rel)),
					errtablecol(rel, attno)));
}

/* The row of a slot, owned by the slot or (should_free) by the caller: heap writes its header. */
static inline HeapTuple
fetch_tuple(TupleTableSlot *slot, bool *should_free)
{
	if (likely(TTS_SHOULDFREE(slot) && TTS_IS_BUFFERTUPLE(slot)))
	{
		*should_free = false;
		return ((HeapTupleTableSlot *) slot)->tuple;
	}
	return ExecFetchSlotHeapTuple(slot, true, should_free);
}

/*
 * Finds the event time of a row by stepping over the columns before it. False: it cannot be found
 * that way, and may be null.
 */
static inline bool
step_to_event_time(const StreamCache *cache, HeapTuple tuple, int64 *value)
{
	char *data = (char *) tuple->t_data + tuple->t_data->t_hoff;
	uintptr_t offset = cache->start;

	if (unlikely(!HeapTupleNoNulls(tuple) || cache->nsteps < 0 ||
				 HeapTupleHeaderGetNatts(tuple->t_data) < cache->event_time))
		return false;
	for (int i = 0; i < cache->nsteps; i++)
	{
		StepColumn step = cache->steps[i];

		if (step.length > 0)
			offset = TYPEALIGN(step.align, offset) + step.length;
		else
		{
			/* a varlena with a short header is not aligned, and its first byte is not 0 */
			if (!VARATT_NOT_PAD_BYTE(data + offset))
				offset = TYPEALIGN(step.align, offset);
			offset += VARSIZE_ANY(data + offset);
		}
	}
	*value = *(int64 *) (data + TYPEALIGN(ALIGNOF_DOUBLE, offset));
	return true;
}

/* Checks the event time of any row. */
static pg_noinline void
check_event_time_of(Relation rel, const StreamCache *cache, HeapTuple tuple)
{
	bool is_null;
	int64 stepped;
	Datum value;

	if (step_to_event_time(cache, tuple, &stepped) && !TIMESTAMP_NOT_FINITE(stepped))
		return;
	value = heap_getattr(tuple, cache->event_time, RelationGetDescr(rel), &is_null);
	if (is_null || (cache->event_time_is_time && TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(value))))
		refuse_event_time(rel, cache->event_time, is_null);
}

/* Checks the event time of a single row; its columns may have been looked at before. */
static inline void
check_event_time(Relation rel, const StreamCache *cache, TupleTableSlot *slot, HeapTuple tuple)
{
	int i = cache->event_time - 1;

	if (i < 0 || (cache->event_time_is_time && slot->tts_nvalid > i && !slot->tts_isnull[i] &&
				  !TIMESTAMP_NOT_FINITE(DatumGetInt64(slot->tts_values[i]))))
		return;
	check_event_time_of(rel, cache, tuple);
}

/* The same for one of many rows, which COPY hands over as bare tuples. */
static inline void
check_event_time_multi(Relation rel, const StreamCache *cache, HeapTuple tuple)
{
	int64 value;

	if (cache->event_time != 0 &&
		unlikely(!step_to_event_time(cache, tuple, &value) || TIMESTAMP_NOT_FINITE(value)))
		check_event_time_of(rel, cache, tuple);
}

/*
 * Reads the true room of a block: what heap will find, but not more than lets the counting by bytes
 * stop before the page runs out of line pointers. With all of them unused the bytes run out first.
 */
static int32
read_room(Relation rel, BlockNumber block)
{
	Buffer buffer = ReadBuffer(rel, block);
	Page page;
	int32 room;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (PageIsNew(page))
		room = BLCKSZ - SizeOfPageHeaderData - sizeof(ItemIdData);
	else
	{
		OffsetNumber max = PageGetMaxOffsetNumber(page);
		int pointers = MaxHeapTuplesPerPage - max;

		for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
			if (!ItemIdIsUsed(PageGetItemId(page, off)))
				pointers++;
		room = (int32) PageGetHeapFreeSpace(page);
		if (pointers < MaxHeapTuplesPerPage)
			room = Min(room, (int32) (pointers * ROW_MIN) - 1);
	}
	UnlockReleaseBuffer(buffer);
	return Max(room, 0);
}

/*
 * The most that a wide row can be after toasting; a whole page where that has no bound.
 */
static Size
wide_row_bound(Relation rel, HeapTuple tuple)
{
	TupleDesc desc = RelationGetDescr(rel);
	Size bound = MAXALIGN(SizeofHeapTupleHeader + BITMAPLEN(desc->natts));

	if (!OidIsValid(rel->rd_rel->reltoastrelid))
		return HeapTupleHasExternal(tuple) ? MaxHeapTupleSize : MAXALIGN(tuple->t_len);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attlen > 0)
			bound += att->attlen + MAXIMUM_ALIGNOF;
		else if (att->attlen == -1 &&
				 (att->attstorage == TYPSTORAGE_EXTENDED || att->attstorage == TYPSTORAGE_EXTERNAL))
			bound += TOASTED_MAX;
		else
			return MaxHeapTupleSize;
	}
	bound = Max(bound, TOAST_TUPLE_THRESHOLD);
	bound = Max(bound, RelationGetToastTupleTarget(rel, TOAST_TUPLE_TARGET));
	return MAXALIGN(bound);
}

static inline bool
is_wide(HeapTuple tuple)
{
	return tuple->t_len > TOAST_TUPLE_THRESHOLD || HeapTupleHasExternal(tuple);
}

/* The free space that heap wants to see on a page for this row. */
static inline int32
needed_room(Relation rel, const StreamCache *cache, HeapTuple tuple, bool wide)
{
	Size len = MAXALIGN(tuple->t_len);
	Size save = cache->save;

	if (unlikely(wide))
		len = Min(wide_row_bound(rel, tuple), MaxHeapTupleSize);
	/* heap itself refuses a row that is too big for any page */
	len = Min(len, MaxHeapTupleSize);
	if (len + save > NEARLY_EMPTY)
		return (int32) Max(len, NEARLY_EMPTY);
	return (int32) (len + save);
}

/* Moves to a block with enough room. The number of tries is a cannot-happen limit. */
static pg_noinline void
move_on(Relation rel, StreamCache *cache, int32 need, BulkInsertState bistate)
{
	for (int tries = 0; tries < SX_HANDOUT_FREE + MaxBackends; tries++)
	{
		if (cache->block == InvalidBlockNumber || cache->room != ROOM_UNKNOWN)
			cache->block = sx_handout_take(rel, cache->handout, bistate);
		cache->room = read_room(rel, cache->block);
		if (cache->room >= need)
			return;
	}
	elog(ERROR, "no block with %d bytes in stream \"%s\"", need, RelationGetRelationName(rel));
}

/*
 * Makes heap insert into our block: moves on if it has less than 'need' bytes, sets the target, and
 * for a wide row pins the block. Returns the state to call heap with; 'own' is used if the caller
 * has none. Room is unknown until keep_room().
 */
static inline BulkInsertState
aim(Relation rel, StreamCache *cache, int32 need, bool wide, BulkInsertState bistate,
	BulkInsertStateData *own)
{
	if (unlikely(cache->block == InvalidBlockNumber || cache->room < need))
		move_on(rel, cache, need, bistate);
	if (bistate != NULL && bistate->current_buf != InvalidBuffer &&
		BufferGetBlockNumber(bistate->current_buf) != cache->block)
		ReleaseBulkInsertStatePin(bistate);
	RelationSetTargetBlock(rel, cache->block);
	if (unlikely(wide))
	{
		if (bistate == NULL)
		{
			sx_bulk_state_init(own, ReadBuffer(rel, cache->block));
			return own;
		}
		if (bistate->current_buf == InvalidBuffer)
			bistate->current_buf = ReadBuffer(rel, cache->block);
	}
	return bistate;
}

/* Remembers the room that is left after an insert, if the cache is still there. */
static inline void
keep_room(Relation rel, BlockNumber block, int32 room)
{
	StreamCache *cache = rel->rd_amcache;

	if (likely(cache != NULL && cache->block == block))
		cache->room = room;
}

static pg_noinline void
refuse_block(Relation rel, ItemPointer tid, BlockNumber block)
{
	elog(ERROR, "row of stream \"%s\" landed in block %u instead of %u",
		 RelationGetRelationName(rel), ItemPointerGetBlockNumberNoCheck(tid), block);
}

/* Inserts one row. 'token' is that of a speculative insertion, or 0. */
static inline void
insert_row(Relation rel, TupleTableSlot *slot, CommandId cid, int options, BulkInsertState bistate,
		   uint32 token)
{
	StreamCache *cache = get_cache(rel);
	BulkInsertStateData own;
	BulkInsertState state;
	bool should_free;
	HeapTuple tuple = fetch_tuple(slot, &should_free);
	bool wide = is_wide(tuple);
	BlockNumber block;
	int32 room;

	check_event_time(rel, cache, slot, tuple);
	slot->tts_tableOid = RelationGetRelid(rel);
	tuple->t_tableOid = slot->tts_tableOid;
	if (token != 0)
		HeapTupleHeaderSetSpeculativeToken(tuple->t_data, token);
	state = aim(rel, cache, needed_room(rel, cache, tuple, wide), wide, bistate, &own);
	block = cache->block;
	room = cache->room;
	cache->room = ROOM_UNKNOWN;
	heap_insert(rel, tuple, cid, options | HEAP_INSERT_SKIP_FSM, state);
	if (unlikely(state == &own))
		ReleaseBuffer(own.current_buf);
	ItemPointerCopy(&tuple->t_self, &slot->tts_tid);
	if (unlikely(ItemPointerGetBlockNumber(&tuple->t_self) != block))
		refuse_block(rel, &tuple->t_self, block);
	if (likely(!wide))
		keep_room(rel, block, room - (int32) (MAXALIGN(tuple->t_len) + sizeof(ItemIdData)));
	if (should_free)
		pfree(tuple);
	sx_wake_at_commit();
	SX_STOP_POINT("insert_done");
}

/* TableAmRoutine.tuple_insert */
void
sx_stream_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
				 BulkInsertState bistate)
{
	insert_row(rel, slot, cid, options, bistate, 0);
}

/* TableAmRoutine.tuple_insert_speculative; heap's own completes or takes back the row. */
void
sx_stream_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
							 BulkInsertState bistate, uint32 token)
{
	insert_row(rel, slot, cid, options | HEAP_INSERT_SPECULATIVE, bistate, token);
}

/*
 * TableAmRoutine.multi_insert: cuts the rows into pieces that each fill up one block, because heap
 * would go on in a block of its own choice.
 */
void
sx_stream_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid, int options,
					   BulkInsertState bistate)
{
	bool should_free; /* never: the slots are of the table's kind and hold their rows */

	for (int start = 0; start < nslots;)
	{
		StreamCache *cache = get_cache(rel);
		BulkInsertStateData own;
		BulkInsertState state;
		HeapTuple tuple = fetch_tuple(slots[start], &should_free);
		bool wide = is_wide(tuple);
		BlockNumber block;
		int32 room;
		int end = start + 1;

		check_event_time_multi(rel, cache, tuple);
		state = aim(rel, cache, needed_room(rel, cache, tuple, wide), wide, bistate, &own);
		block = cache->block;
		room = cache->room - (int32) (MAXALIGN(tuple->t_len) + sizeof(ItemIdData));
		cache->room = ROOM_UNKNOWN;
		for (; !wide && end < nslots; end++)
		{
			tuple = fetch_tuple(slots[end], &should_free);
			if (is_wide(tuple) || room < (int32) MAXALIGN(tuple->t_len) + cache->save)
				break;
			check_event_time_multi(rel, cache, tuple);
			room -= (int32) (MAXALIGN(tuple->t_len) + sizeof(ItemIdData));
		}
		heap_multi_insert(rel, &slots[start], end - start, cid, options | HEAP_INSERT_SKIP_FSM,
						  state);
		if (unlikely(state == &own))
			ReleaseBuffer(own.current_buf);
		for (int i = start; i < end; i++)
			if (unlikely(ItemPointerGetBlockNumber(&slots[i]->tts_tid) != block))
				refuse_block(rel, &slots[i]->tts_tid, block);
		if (!wide)
			keep_room(rel, block, room);
		start = end;
	}
	sx_wake_at_commit();
	SX_STOP_POINT("insert_done");
}
