/*
 * position.c
 *		The position of a stream's reader, in memory and as bytes.
 *
 * The bytes are written in every commit of the reader, so they must be few: an open block takes
 * 3 to 5, a transaction in progress about 8. They are kept for ever (pg_upgrade, restore), hence
 * this exact format. "varint" is LEB128: seven bits a byte, low bits first, the top bit set on all
 * but the last byte; shortest form only, at most 10 bytes. "signed" is a varint of the zigzag form
 * (n << 1) ^ (n >> 63).
 *
 *		byte	version, 1
 *		varint	generation
 *		byte	flags: 1 there is a watermark, 2 a poll is in progress, 4 it has returned an event
 *				time (only with 2); no others
 *		signed	watermark, microseconds			if flag 1
 *		varint	poll end, block number			if flag 2
 *		signed	greatest event time of the poll	if flag 4
 *		varint	cursor, block number
 *		varint	one more than the highest block that was ever written
 *		varint	number of groups of open blocks, and each of them in ascending order:
 *		  varint	blocks between the end of the group before (at first 0) and this one
 *		  varint	kind | n << 2
 *				kind 0	n >= 1 blocks one after the other, none of whose rows was returned
 *				kind 1	one block; the rows of line pointers 1 .. n were returned, n >= 1
 *				kind 2	one block; n >= 1 bytes follow, bit (k & 7) of byte k / 8 says that the row
 *						of line pointer k was returned; the last byte is not 0
 *		varint	number of transactions in progress, and each of them:
 *		  varint	full transaction id (epoch in the upper half)
 *		  varint	first block
 *		  varint	blocks from the first to the last, minus 1
 *
 * A reader in memory also knows the page LSN and a few pending transactions of each open block.
 * These save scans and are not written; after decoding, every open block is scanned once.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "lib/stringinfo.h"
#include "utils/memutils.h"

#include "position.h"

#define POSITION_VERSION 1

#define FLAG_WATERMARK 1
#define FLAG_POLL      2
#define FLAG_POLL_TIME 4
#define FLAG_ALL       7

typedef enum GroupKind
{
	GROUP_EMPTY = 0,
	GROUP_FIRST = 1,
	GROUP_BITMAP = 2
} GroupKind;

/* Bytes that are being decoded. */
typedef struct Input
{
	const uint8 *data;
	const uint8 *end;
} Input;

SxTailPosition *
sx_tail_position_create(uint64 generation)
{
	SxTailPosition *position = palloc0(sizeof(SxTailPosition));

	position->cxt = CurrentMemoryContext;
	position->generation = generation;
	position->watermark = PG_INT64_MIN;
	position->poll_time = PG_INT64_MIN;
	return position;
}

/* Copies all, also what is not written. */
SxTailPosition *
sx_tail_position_copy(const SxTailPosition *position)
{
	SxTailPosition *copy = palloc(sizeof(SxTailPosition));

	*copy = *position;
	copy->cxt = CurrentMemoryContext;
	copy->open_size = position->nopen;
	copy->open = NULL;
	if (position->nopen > 0)
	{
		copy->open = palloc(sizeof(SxOpenBlock) * position->nopen);
		memcpy(copy->open, position->open, sizeof(SxOpenBlock) * position->nopen);
	}
	copy->running_size = position->nrunning;
	copy->running = NULL;
	if (position->nrunning > 0)
	{
		copy->running = palloc(sizeof(SxRunning) * position->nrunning);
		memcpy(copy->running, position->running, sizeof(SxRunning) * position->nrunning);
	}
	return copy;
}

static int
compare_xids(const void *a, const void *b)
{
	uint64 x = *(const uint64 *) a;
	uint64 y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* Transactions, not ranges; a savepoint counts as one. */
static int
count_running(const SxTailPosition *position)
{
	uint64 *xids = palloc(sizeof(uint64) * Max(position->nrunning, 1));
	int n = 0;

	for (int i = 0; i < position->nrunning; i++)
		xids[i] = position->running[i].xid;
	qsort(xids, position->nrunning, sizeof(uint64), compare_xids);
	for (int i = 0; i < position->nrunning; i++)
		if (i == 0 || xids[i] != xids[i - 1])
			n++;
	pfree(xids);
	return n;
}

void
sx_tail_position_summary(const SxTailPosition *position, SxTailSummary *summary)
{
	summary->generation = position->generation;
	summary->cursor = position->cursor;
	summary->open_blocks = position->nopen;
	summary->running_transactions = count_running(position);
	summary->watermark = position->watermark;
}

/* Index of the first open block that is not below 'block'. */
static int
search_open(const SxTailPosition *position, BlockNumber block)
{
	int lo = 0;
	int hi = position->nopen;

	while (lo < hi)
	{
		int mid = (lo + hi) / 2;

		if (position->open[mid].block < block)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The open block, or NULL. Valid until one is added or closed. */
SxOpenBlock *
sx_position_find_open(const SxTailPosition *position, BlockNumber block)
{
	int i = search_open(position, block);

	return i < position->nopen && position->open[i].block == block ? &position->open[i] : NULL;
}

/* Adds an open block with nothing returned yet; it must not be open. */
SxOpenBlock *
sx_position_add_open(SxTailPosition *position, BlockNumber block)
{
	int i = search_open(position, block);

	Assert(i == position->nopen || position->open[i].block != block);
	if (position->nopen == position->open_size)
	{
		int size = position->open_size * 2 + 16;

		if (position->open == NULL)
			position->open = MemoryContextAlloc(position->cxt, sizeof(SxOpenBlock) * size);
		else
			position->open = repalloc(position->open, sizeof(SxOpenBlock) * size);
		position->open_size = size;
	}
	memmove(&position->open[i + 1], &position->open[i],
			sizeof(SxOpenBlock) * (position->nopen - i));
	memset(&position->open[i], 0, sizeof(SxOpenBlock));
	position->open[i].block = block;
	position->nopen++;
	return &position->open[i];
}

static void
append_running(SxTailPosition *position, uint64 xid, BlockNumber lo, BlockNumber hi)
{
	if (position->nrunning == position->running_size)
	{
		int size = position->running_size * 2 + 16;

		if (position->running == NULL)
			position->running = MemoryContextAlloc(position->cxt, sizeof(SxRunning) * size);
		else
			position->running = repalloc(position->running, sizeof(SxRunning) * size);
		position->running_size = size;
	}
	position->running[position->nrunning++] = (SxRunning){.xid = xid, .lo = lo, .hi = hi};
}

/*
 * Remembers that a block which is being closed has rows of a transaction in progress. A bulk load
 * is one range, since its blocks lie together. Ranges of one transaction never overlap, or its rows
 * would be returned twice: all that come close to the new one are merged with it.
 */
void
sx_position_add_running(SxTailPosition *position, uint64 xid, BlockNumber block)
{
	BlockNumber lo = block;
	BlockNumber hi = block;

	for (int i = position->nrunning - 1; i >= 0; i--)
	{
		SxRunning *running = &position->running[i];

		if (running->xid != xid || (uint64) hi + SX_RUNNING_GAP < running->lo ||
			lo > (uint64) running->hi + SX_RUNNING_GAP)
			continue;
		lo = Min(lo, running->lo);
		hi = Max(hi, running->hi);
		position->nrunning--;
		memmove(running, running + 1, sizeof(SxRunning) * (position->nrunning - i));
		/* it has grown, so that ranges that were passed over may be close now */
		i = position->nrunning;
	}
	append_running(position, xid, lo, hi);
}

/* True if the reader will not look at the block again unless it is reopened. */
bool
sx_position_passed(const SxTailPosition *position, BlockNumber block)
{
	if (block >= position->cursor || sx_position_find_open(position, block) != NULL)
		return false;
	for (int i = 0; i < position->nrunning; i++)
		if (block >= position->running[i].lo && block <= position->running[i].hi)
			return false;
	return true;
}

/*
 * Opens a block again that is going to be reused; it is empty and reserved. False: the reader has
 * not come to it yet, or has it open, so there is nothing to do.
 */
bool
sx_position_reopen(SxTailPosition *position, BlockNumber block)
{
	if (block >= position->cursor || sx_position_find_open(position, block) != NULL)
		return false;
	(void) sx_position_add_open(position, block);
	return true;
}

static void
put_varint(StringInfo out, uint64 value)
{
	while (value >= 0x80)
	{
		appendStringInfoCharMacro(out, (char) (value | 0x80));
		value >>= 7;
	}
	appendStringInfoCharMacro(out, (char) value);
}

static void
put_signed(StringInfo out, int64 value)
{
	put_varint(out, ((uint64) value << 1) ^ (uint64) (value >> 63));
}

/* Length of the bitmap up to its last byte that is not 0. */
static int
done_length(const SxOpenBlock *open)
{
	int n = SX_DONE_BYTES;

	while (n > 0 && open->done[n - 1] == 0)
		n--;
	return n;
}

/* Number of rows returned, if they are those of line pointers 1 .. n; else -1. */
static int
done_first(const SxOpenBlock *open)
{
	int n = 0;

	while (n < MaxHeapTuplesPerPage && sx_open_is_done(open, n + 1))
		n++;
	for (int off = n + 1; off <= MaxHeapTuplesPerPage; off++)
		if (sx_open_is_done(open, off))
			return -1;
	return n;
}

/* Writes the group that begins with open block 'i'; returns the index after it. */
static int
put_group(StringInfo out, const SxTailPosition *position, int i, uint64 *next)
{
	const SxOpenBlock *open = &position->open[i];
	int first = done_first(open);
	int n = 1;

	put_varint(out, open->block - *next);
	if (first == 0)
	{
		while (i + n < position->nopen && open[n].block == open->block + n &&
			   done_length(&open[n]) == 0)
			n++;
		put_varint(out, GROUP_EMPTY | (uint64) n << 2);
	}
	else if (first > 0)
		put_varint(out, GROUP_FIRST | (uint64) first << 2);
	else
	{
		int len = done_length(open);

		put_varint(out, GROUP_BITMAP | (uint64) len << 2);
		appendBinaryStringInfo(out, (const char *) open->done, len);
	}
	*next = (uint64) open->block + n;
	return i + n;
}

/* Palloc'd in the current memory context. */
bytea *
sx_tail_position_encode(const SxTailPosition *position)
{
	StringInfoData out;
	StringInfoData groups;
	int ngroups = 0;
	uint64 next = 0;
	uint8 flags = 0;
	bytea *result;

	if (position->watermark != PG_INT64_MIN)
		flags |= FLAG_WATERMARK;
	if (position->in_poll)
		flags |= FLAG_POLL;
	if (position->in_poll && position->poll_time != PG_INT64_MIN)
		flags |= FLAG_POLL_TIME;

	initStringInfo(&groups);
	for (int i = 0; i < position->nopen; ngroups++)
		i = put_group(&groups, position, i, &next);

	initStringInfo(&out);
	appendStringInfoChar(&out, POSITION_VERSION);
	put_varint(&out, position->generation);
	appendStringInfoChar(&out, (char) flags);
	if (flags & FLAG_WATERMARK)
		put_signed(&out, position->watermark);
	if (flags & FLAG_POLL)
		put_varint(&out, position->poll_end);
	if (flags & FLAG_POLL_TIME)
		put_signed(&out, position->poll_time);
	put_varint(&out, position->cursor);
	put_varint(&out, position->written);
	put_varint(&out, ngroups);
	appendBinaryStringInfo(&out, groups.data, groups.len);
	put_varint(&out, position->nrunning);
	for (int i = 0; i < position->nrunning; i++)
	{
		put_varint(&out, position->running[i].xid);
		put_varint(&out, position->running[i].lo);
		put_varint(&out, position->running[i].hi - position->running[i].lo);
	}

	result = palloc(VARHDRSZ + out.len);
	SET_VARSIZE(result, VARHDRSZ + out.len);
	memcpy(VARDATA(result), out.data, out.len);
	pfree(out.data);
	pfree(groups.data);
	return result;
}

static pg_noinline void
refuse_bytes(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED), errmsg("invalid position of a stream's reader"),
			 errdetail("The error is in its %s.", what)));
}

static uint8
get_byte(Input *in, const char *what)
{
	if (in->data >= in->end)
		refuse_bytes(what);
	return *in->data++;
}

/* Reads a varint of at most 'max'. */
static uint64
get_varint(Input *in, uint64 max, const char *what)
{
	uint64 value = 0;

	for (int shift = 0; shift < 64; shift += 7)
	{
		uint8 byte = get_byte(in, what);

		if (shift == 63 && byte > 1)
			break;
		value |= (uint64) (byte & 0x7f) << shift;
		if ((byte & 0x80) != 0)
			continue;
		if ((byte == 0 && shift > 0) || value > max)
			break;
		return value;
	}
	refuse_bytes(what);
	return 0;
}

static int64
get_signed(Input *in, const char *what)
{
	uint64 value = get_varint(in, PG_UINT64_MAX, what);
	int64 result = (int64) ((value >> 1) ^ (~(value & 1) + 1));

	if (result == PG_INT64_MIN)
		refuse_bytes(what);
	return result;
}

/* Reads one group; '*next' is the first block that it may begin with. */
static void
get_group(Input *in, SxTailPosition *position, uint64 *next)
{
	const char *what = "open blocks";
	uint64 block = *next + get_varint(in, MaxBlockNumber, what);
	uint64 code = get_varint(in, (uint64) MaxBlockNumber << 2 | 3, what);
	uint64 n = code >> 2;
	GroupKind kind = (GroupKind) (code & 3);
	uint64 blocks = kind == GROUP_EMPTY ? n : 1;
	SxOpenBlock *open;

	if (n == 0 || block + blocks > position->cursor)
		refuse_bytes(what);
	*next = block + blocks;
	if (kind == GROUP_EMPTY)
	{
		for (uint64 i = 0; i < n; i++)
			(void) sx_position_add_open(position, (BlockNumber) (block + i));
		return;
	}
	open = sx_position_add_open(position, (BlockNumber) block);
	switch (kind)
	{
		case GROUP_FIRST:
			if (n > MaxHeapTuplesPerPage)
				refuse_bytes(what);
			for (uint64 off = 1; off <= n; off++)
				sx_open_set_done(open, (OffsetNumber) off);
			break;
		case GROUP_BITMAP:
			if (n > SX_DONE_BYTES || n > (uint64) (in->end - in->data) || in->data[n - 1] == 0)
				refuse_bytes(what);
			memcpy(open->done, in->data, n);
			in->data += n;
			/* line pointers begin at 1, and what has the form of kind 1 is written as such */
			if ((open->done[0] & 1) != 0 || done_first(open) >= 0)
				refuse_bytes(what);
			break;
		default:
			refuse_bytes(what);
	}
}

static void
get_running(Input *in, SxTailPosition *position)
{
	const char *what = "transactions in progress";
	uint64 xid = get_varint(in, PG_UINT64_MAX, what);
	uint64 lo = get_varint(in, MaxBlockNumber, what);
	uint64 hi = lo + get_varint(in, MaxBlockNumber, what);

	if (hi >= position->cursor || !TransactionIdIsNormal((TransactionId) xid))
		refuse_bytes(what);
	for (int i = 0; i < position->nrunning; i++)
		if (position->running[i].xid == xid && lo <= position->running[i].hi &&
			hi >= position->running[i].lo)
			refuse_bytes(what);
	append_running(position, xid, (BlockNumber) lo, (BlockNumber) hi);
}

/*
 * Reads what sx_tail_position_encode() wrote. Errors: DATA_CORRUPTED for anything else, and
 * FEATURE_NOT_SUPPORTED for another version.
 */
SxTailPosition *
sx_tail_position_decode(const char *data, Size len)
{
	Input in = {.data = (const uint8 *) data, .end = (const uint8 *) data + len};
	SxTailPosition *position = sx_tail_position_create(0);
	uint8 version = get_byte(&in, "version");
	uint8 flags;
	uint64 n;
	uint64 next = 0;

	if (version != POSITION_VERSION)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("position of a stream's reader has unknown version %d", version),
						errhint("It was written by a later version of stream_ext.")));
	position->generation = get_varint(&in, PG_UINT64_MAX, "generation");
	flags = get_byte(&in, "flags");
	if ((flags & ~FLAG_ALL) != 0 || ((flags & FLAG_POLL_TIME) != 0 && (flags & FLAG_POLL) == 0))
		refuse_bytes("flags");
	if (flags & FLAG_WATERMARK)
		position->watermark = get_signed(&in, "watermark");
	position->in_poll = (flags & FLAG_POLL) != 0;
	if (flags & FLAG_POLL)
		position->poll_end = (BlockNumber) get_varint(&in, InvalidBlockNumber, "poll end");
	if (flags & FLAG_POLL_TIME)
		position->poll_time = get_signed(&in, "event time");
	/* the file can be MaxBlockNumber + 1 blocks long */
	position->cursor = (BlockNumber) get_varint(&in, InvalidBlockNumber, "cursor");
	position->written = (BlockNumber) get_varint(&in, InvalidBlockNumber, "highest block");

	n = get_varint(&in, position->cursor, "open blocks");
	while (n-- > 0)
		get_group(&in, position, &next);
	n = get_varint(&in, PG_INT32_MAX, "transactions in progress");
	while (n-- > 0)
		get_running(&in, position);
	if (in.data != in.end)
		refuse_bytes("end");
	return position;
}
