/*
 * groups.h
 *		Hash of the groups of a keyed operator.
 */
#ifndef STREAM_EXT_STATE_GROUPS_H
#define STREAM_EXT_STATE_GROUPS_H

#include "fmgr.h"
#include "storage/itemptr.h"

/* How values of a key column are compared. */
typedef enum SxKeyKind
{
	SX_KEY_BYVAL,   /* equal if the Datum is */
	SX_KEY_FIXED,   /* by reference, fixed length: equal if the bytes are */
	SX_KEY_VARLENA, /* equal if the payload's bytes are */
	SX_KEY_FUNCTION /* by the type's own hash and equality functions */
} SxKeyKind;

typedef struct SxKeyColumn
{
	SxKeyKind kind;
	int16 typlen;
	bool typbyval;
	Oid collation;
	FmgrInfo hash; /* SX_KEY_FUNCTION only */
	FmgrInfo equal;
} SxKeyColumn;

/* A group. Its key and the operator's payload follow; see sx_group_keys(), sx_group_payload(). */
typedef struct SxGroup
{
	int64 id;                  /* names the group in the state tables */
	ItemPointerData row_tid;   /* its row in the view; invalid: none */
	ItemPointerData state_tid; /* its row in the state table; invalid: none yet */
	ItemPointerData saved_tid; /* the same before this transaction, if is_dirty */
	bool is_dirty;             /* changed in this transaction */
	uint32 hash;
} SxGroup;

typedef struct SxGroups
{
	MemoryContext cxt; /* all of the hash and its groups, keys by reference included */
	int nkeys;
	SxKeyColumn *columns;
	Size payload_offset;
	Size group_size;
	uint32 mask; /* of the slots */
	int64 ngroups;
	int64 next_id;
	struct SxGroupSlot *slots;
	char *chunk; /* groups are cut from here */
	Size chunk_left;
} SxGroups;

/* Prepares comparing values of a type by an equality operator (InvalidOid: the type's default).
 * Error if the type cannot be hashed. 'column' lives in the current memory context. */
extern void sx_key_column_init(SxKeyColumn *column, Oid typid, Oid equality, Oid collation);

/* Hash of a value that is not NULL, and equality of two. A varlena must not be compressed. */
extern uint64 sx_key_hash(SxKeyColumn *column, Datum value);
extern bool sx_key_equal(SxKeyColumn *column, Datum a, Datum b);

extern SxGroups *sx_groups_create(int nkeys, SxKeyColumn *columns, Size payload_size);

/*
 * Finds the groups of 'n' rows, given as columns, and makes those that are new: their payload is
 * zeroed, id and key are set, and 'init' is called with 'arg'. Values may be replaced in place by
 * uncompressed ones, allocated in the current memory context.
 */
extern void sx_groups_lookup(SxGroups *groups, Datum **values, bool **nulls, int n,
							 SxGroup **result, void (*init)(void *arg, SxGroup *group), void *arg);

static inline Datum *
sx_group_keys(SxGroup *group)
{
	return (Datum *) ((char *) group + MAXALIGN(sizeof(SxGroup)));
}

static inline bool *
sx_group_nulls(SxGroups *groups, SxGroup *group)
{
	return (bool *) (sx_group_keys(group) + groups->nkeys);
}

static inline void *
sx_group_payload(SxGroups *groups, SxGroup *group)
{
	return (char *) group + groups->payload_offset;
}

/*
 * Takes out the groups whose id is 'first_id' or greater, and gives their ids away again. Their
 * memory is not used again.
 */
extern void sx_groups_remove_from(SxGroups *groups, int64 first_id);

/* Calls 'visit' for every group. */
extern void sx_groups_visit(SxGroups *groups, void (*visit)(void *arg, SxGroup *group), void *arg);

#endif /* STREAM_EXT_STATE_GROUPS_H */
