/*
 * groups.c
 *		Hash of the groups of a keyed operator.
 *
 * Open addressing over slots of (hash, pointer); groups never move, so that their addresses can be
 * kept in lists. A batch is looked up in two passes: hash all rows column by column, then probe
 * while the slots of the rows ahead are being prefetched; with many keys the time goes to cache
 * misses, not to comparing.
 *
 * Most types are equal exactly when their bytes are (their btree operator class says so), and are
 * compared as bytes; others (numeric, floats, nondeterministic collations, ..) by their own
 * functions. NULL equals NULL. The key that is kept is the first one seen.
 *
 * Memory: everything lives in the hash's own context and is freed with it.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/detoast.h"
#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "stream_ext/batch/batch.h"
#include "stream_ext/state/groups.h"

#define INITIAL_SLOTS     1024
#define CHUNK_BYTES       (256 * 1024)
#define PREFETCH_DISTANCE 8

typedef struct SxGroupSlot
{
	uint32 hash;
	SxGroup *group; /* NULL: free */
} SxGroupSlot;

/* Does the type's default btree operator class promise that equal values have equal bytes? */
static bool
equal_means_same_bytes(Oid typid, Oid equality, Oid collation)
{
	TypeCacheEntry *type = lookup_type_cache(typid, TYPECACHE_BTREE_OPFAMILY | TYPECACHE_EQ_OPR);
	Oid proc;

	if (OidIsValid(equality) && equality != type->eq_opr)
		return false;
	/* trailing blanks do not count in bpchar, whatever its class says */
	if (!OidIsValid(type->btree_opf) || typid == BPCHAROID)
		return false;
	/* ranges of these have one representation for each value, though their class does not say so */
	if (typid == TSTZRANGEOID || typid == TSRANGEOID || typid == INT8RANGEOID)
		return true;
	proc = get_opfamily_proc(type->btree_opf, type->btree_opintype, type->btree_opintype,
							 BTEQUALIMAGE_PROC);
	if (!OidIsValid(proc))
		return false;
	return DatumGetBool(
		OidFunctionCall1Coll(proc, collation, ObjectIdGetDatum(type->btree_opintype)));
}

void
sx_key_column_init(SxKeyColumn *column, Oid typid, Oid equality, Oid collation)
{
	Oid base = getBaseType(typid);
	Oid left;
	Oid right;

	memset(column, 0, sizeof(SxKeyColumn));
	get_typlenbyval(typid, &column->typlen, &column->typbyval);
	column->collation = collation;
	if (!OidIsValid(equality))
	{
		TypeCacheEntry *type = lookup_type_cache(typid, TYPECACHE_EQ_OPR);

		equality = type->eq_opr;
	}
	if (!OidIsValid(equality) || !get_op_hash_functions(equality, &left, &right) ||
		!op_hashjoinable(equality, base))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot group by a value of type %s in a continuous view",
							   format_type_be(typid)),
						errdetail("The type cannot be hashed.")));
	if (equal_means_same_bytes(base, equality, collation))
	{
		column->kind = column->typbyval       ? SX_KEY_BYVAL
					   : column->typlen > 0   ? SX_KEY_FIXED
					   : column->typlen == -1 ? SX_KEY_VARLENA
											  : SX_KEY_FUNCTION;
		if (column->kind != SX_KEY_FUNCTION)
			return;
	}
	column->kind = SX_KEY_FUNCTION;
	fmgr_info(left, &column->hash);
	fmgr_info(get_opcode(equality), &column->equal);
}

SxGroups *
sx_groups_create(int nkeys, SxKeyColumn *columns, Size payload_size)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext groups", ALLOCSET_DEFAULT_SIZES);
	SxGroups *groups = MemoryContextAllocZero(cxt, sizeof(SxGroups));

	groups->cxt = cxt;
	groups->nkeys = nkeys;
	groups->columns = columns;
	groups->payload_offset =
		MAXALIGN(MAXALIGN(sizeof(SxGroup)) + nkeys * (sizeof(Datum) + sizeof(bool)));
	groups->group_size = MAXALIGN(groups->payload_offset + payload_size);
	groups->mask = INITIAL_SLOTS - 1;
	groups->slots = MemoryContextAllocZero(cxt, sizeof(SxGroupSlot) * INITIAL_SLOTS);
	groups->next_id = 1;
	return groups;
}

static void
grow(SxGroups *groups)
{
	uint64 nslots = ((uint64) groups->mask + 1) * 2;
	uint32 mask = (uint32) (nslots - 1);
	SxGroupSlot *slots;

	if (nslots > PG_UINT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many groups in a view")));
	slots = MemoryContextAllocExtended(groups->cxt, sizeof(SxGroupSlot) * nslots,
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint64 i = 0; i <= groups->mask; i++)
	{
		uint32 pos;

		if (groups->slots[i].group == NULL)
			continue;
		pos = groups->slots[i].hash & mask;
		while (slots[pos].group != NULL)
			pos = (pos + 1) & mask;
		slots[pos] = groups->slots[i];
	}
	pfree(groups->slots);
	groups->slots = slots;
	groups->mask = mask;
}

static inline uint64
mix(uint64 a, uint64 b)
{
#ifdef HAVE_INT128
	uint128 product =
		(uint128) (a ^ UINT64CONST(0x9E3779B97F4A7C15)) * (b ^ UINT64CONST(0xD1B54A32D192ED03));

	return (uint64) product ^ (uint64) (product >> 64);
#else
	uint64 x = (a ^ UINT64CONST(0x9E3779B97F4A7C15)) + b * UINT64CONST(0xD1B54A32D192ED03);

	x = (x ^ (x >> 32)) * UINT64CONST(0xD6E8FEB86659FD93);
	return x ^ (x >> 32);
#endif
}

static inline uint64
hash_bytes_fast(const char *bytes, Size len)
{
	uint64 hash = len;
	uint64 word;

	for (; len >= sizeof(word); len -= sizeof(word), bytes += sizeof(word))
	{
		memcpy(&word, bytes, sizeof(word));
		hash = mix(hash, word);
	}
	if (len > 0)
	{
		word = 0;
		memcpy(&word, bytes, len);
		hash = mix(hash, word);
	}
	return hash;
}

/* The Datum with only the bits that belong to the type: the rest may be sign- or zero-extended. */
static inline uint64
significant_bits(Datum value, int16 typlen)
{
	return typlen == sizeof(Datum) ? value : value & ((UINT64CONST(1) << (typlen * 8)) - 1);
}

/* Adds the hashes of one column to those of its rows. */
static void
hash_column(SxKeyColumn *column, Datum *values, const bool *nulls, int n, uint64 *hashes)
{
	for (int i = 0; i < n; i++)
	{
		uint64 h;

		if (nulls[i])
		{
			hashes[i] = mix(hashes[i], 1);
			continue;
		}
		switch (column->kind)
		{
			case SX_KEY_BYVAL:
				h = significant_bits(values[i], column->typlen);
				break;
			case SX_KEY_FIXED:
				h = hash_bytes_fast(DatumGetPointer(values[i]), column->typlen);
				break;
			case SX_KEY_VARLENA:
				if (VARATT_IS_COMPRESSED(DatumGetPointer(values[i])) ||
					VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
					values[i] = PointerGetDatum(PG_DETOAST_DATUM(values[i]));
				h = hash_bytes_fast(VARDATA_ANY(DatumGetPointer(values[i])),
									VARSIZE_ANY_EXHDR(DatumGetPointer(values[i])));
				break;
			default:
				h = DatumGetUInt32(FunctionCall1Coll(&column->hash, column->collation, values[i]));
				break;
		}
		hashes[i] = mix(hashes[i], h);
	}
}

static inline bool
is_equal(SxKeyColumn *column, Datum a, Datum b)
{
	switch (column->kind)
	{
		case SX_KEY_BYVAL:
			return significant_bits(a, column->typlen) == significant_bits(b, column->typlen);
		case SX_KEY_FIXED:
			return memcmp(DatumGetPointer(a), DatumGetPointer(b), column->typlen) == 0;
		case SX_KEY_VARLENA:
		{
			Size len = VARSIZE_ANY_EXHDR(DatumGetPointer(a));

			return len == VARSIZE_ANY_EXHDR(DatumGetPointer(b)) &&
				   memcmp(VARDATA_ANY(DatumGetPointer(a)), VARDATA_ANY(DatumGetPointer(b)), len) ==
					   0;
		}
		default:
			return DatumGetBool(FunctionCall2Coll(&column->equal, column->collation, a, b));
	}
}

uint64
sx_key_hash(SxKeyColumn *column, Datum value)
{
	uint64 hash = 0;
	bool isnull = false;

	hash_column(column, &value, &isnull, 1, &hash);
	return hash;
}

bool
sx_key_equal(SxKeyColumn *column, Datum a, Datum b)
{
	return is_equal(column, a, b);
}

static bool
matches(SxGroups *groups, SxGroup *group, Datum **values, bool **nulls, int row)
{
	Datum *keys = sx_group_keys(group);
	bool *key_nulls = sx_group_nulls(groups, group);

	for (int k = 0; k < groups->nkeys; k++)
	{
		if (key_nulls[k] != nulls[k][row])
			return false;
		if (!key_nulls[k] && !is_equal(&groups->columns[k], keys[k], values[k][row]))
			return false;
	}
	return true;
}

static SxGroup *
add_group(SxGroups *groups, Datum **values, bool **nulls, int row, uint32 hash)
{
	MemoryContext old = MemoryContextSwitchTo(groups->cxt);
	SxGroup *group;
	Datum *keys;
	bool *key_nulls;

	if (groups->chunk_left < groups->group_size)
	{
		groups->chunk_left = Max(CHUNK_BYTES, groups->group_size);
		groups->chunk = palloc(groups->chunk_left);
	}
	group = (SxGroup *) groups->chunk;
	groups->chunk += groups->group_size;
	groups->chunk_left -= groups->group_size;
	memset(group, 0, groups->group_size);
	group->hash = hash;
	ItemPointerSetInvalid(&group->row_tid);
	ItemPointerSetInvalid(&group->state_tid);
	keys = sx_group_keys(group);
	key_nulls = sx_group_nulls(groups, group);
	for (int k = 0; k < groups->nkeys; k++)
	{
		key_nulls[k] = nulls[k][row];
		if (!key_nulls[k])
			keys[k] =
				datumCopy(values[k][row], groups->columns[k].typbyval, groups->columns[k].typlen);
	}
	group->id = groups->next_id++;
	groups->ngroups++;
	MemoryContextSwitchTo(old);
	return group;
}

void
sx_groups_lookup(SxGroups *groups, Datum **values, bool **nulls, int n, SxGroup **result,
				 void (*init)(void *arg, SxGroup *group), void *arg)
{
	uint64 hashes[SX_BATCH_ROWS];

	Assert(n <= SX_BATCH_ROWS);
	memset(hashes, 0, sizeof(uint64) * n);
	for (int k = 0; k < groups->nkeys; k++)
		hash_column(&groups->columns[k], values[k], nulls[k], n, hashes);
	for (int i = 0; i < n; i++)
	{
		uint32 hash = (uint32) hashes[i];
		uint32 pos;

		if (i + PREFETCH_DISTANCE < n)
			__builtin_prefetch(
				&groups->slots[(uint32) hashes[i + PREFETCH_DISTANCE] & groups->mask]);
		pos = hash & groups->mask;
		for (;;)
		{
			SxGroupSlot *slot = &groups->slots[pos];

			if (slot->group == NULL)
			{
				SxGroup *group = add_group(groups, values, nulls, i, hash);

				slot->hash = hash;
				slot->group = group;
				result[i] = group;
				init(arg, group);
				if (groups->ngroups * 2 > groups->mask)
					grow(groups);
				break;
			}
			if (slot->hash == hash && matches(groups, slot->group, values, nulls, i))
			{
				result[i] = slot->group;
				break;
			}
			pos = (pos + 1) & groups->mask;
		}
		__builtin_prefetch(sx_group_payload(groups, result[i]), 1);
	}
}

void
sx_groups_visit(SxGroups *groups, void (*visit)(void *arg, SxGroup *group), void *arg)
{
	for (uint64 i = 0; i <= groups->mask; i++)
		if (groups->slots[i].group != NULL)
			visit(arg, groups->slots[i].group);
}

void
sx_groups_remove_from(SxGroups *groups, int64 first_id)
{
	Size size = sizeof(SxGroupSlot) * ((Size) groups->mask + 1);
	SxGroupSlot *old = groups->slots;

	if (groups->next_id == first_id)
		return;
	/* open addressing leaves no holes, so those that stay are put in anew */
	groups->slots =
		MemoryContextAllocExtended(groups->cxt, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	groups->ngroups = 0;
	groups->next_id = first_id;
	for (uint64 i = 0; i <= groups->mask; i++)
	{
		uint32 pos = old[i].hash & groups->mask;

		if (old[i].group == NULL || old[i].group->id >= first_id)
			continue;
		while (groups->slots[pos].group != NULL)
			pos = (pos + 1) & groups->mask;
		groups->slots[pos] = old[i];
		groups->ngroups++;
	}
	pfree(old);
}
