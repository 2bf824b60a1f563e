/*
 * aggregate_internal.h
 *		What the files of the aggregate operator share.
 */
#ifndef STREAM_EXT_OPERATOR_AGGREGATE_INTERNAL_H
#define STREAM_EXT_OPERATOR_AGGREGATE_INTERNAL_H

#include "executor/nodeAgg.h"

#include "stream_ext/operator/aggregate.h"
#include "stream_ext/operator/inputs.h"
#include "stream_ext/state/groups.h"

/* How the value of one transition is stored. */
typedef struct SxTransColumn
{
	bool is_serialized; /* "internal": stored as bytea through these functions */
	FmgrInfo serialize;
	FmgrInfo deserialize;
	FmgrInfo combine; /* makes of a deserialized value one that can be continued */
} SxTransColumn;

typedef struct SxAggregate
{
	SxOperator base;
	Oid view;
	bool is_plain;
	MemoryContext groups_cxt; /* the hash, and bags */
	MemoryContext flush_cxt;  /* reset after each flush */
	SxGroups *groups;
	int nkeys;
	AttrNumber *keys;

	AggState *agg;
	int natts;                /* columns of the input */
	ExprContext *agg_cxt;     /* memory of transition values */
	TupleTableSlot *input;    /* a row of the input, for transitions */
	TupleTableSlot *key_slot; /* a row of the input with only the key set, for output */
	int nread;                /* columns that transitions and kept inputs read */
	int *read;
	SxTransColumn *columns; /* [numtrans] */

	int ninputs; /* aggregates that keep their inputs */
	SxInputs **inputs;
	TupleTableSlot *inputs_slot; /* their results */
	Size bags_offset;            /* of the payload */

	SxGroup **dirty;
	int64 ndirty;
	int64 dirty_capacity;
	int64 committed_id; /* groups from this id on are of the present transaction */
	bool needs_restore; /* dirty groups are to be read again before anything else */
	bool has_reemitted; /* the present transaction gives all rows anew */
	int64 nabandoned;   /* groups whose old values have been left behind in memory */

	TupleDesc state_desc;
	Oid *state_relids; /* [1 + ninputs]: groups, then inputs; InvalidOid until first locked */
	RelFileNumber state_file; /* the file that state_tid of groups points into */
	bool reemit;              /* rows of the view are gone */
} SxAggregate;

static inline AggStatePerGroup
transitions_of(SxAggregate *op, SxGroup *group)
{
	return sx_group_payload(op->groups, group);
}

static inline SxInputBag *
bags_of(SxAggregate *op, SxGroup *group)
{
	return (SxInputBag *) ((char *) sx_group_payload(op->groups, group) + op->bags_offset);
}

/* ---- aggregate_plan.c */

/* The aggregates of an Agg node, split by how they are computed. */
typedef struct SxAggregateSplit
{
	int natts;    /* columns of the input; after them come flags of sets, by their place */
	List *kept;   /* Aggref that keep inputs, one of each place */
	List *places; /* what each place is for: see place_of_inputs() */
	List *aggnos; /* of those with a transition value: new number = place in the list */
	List *transnos;
} SxAggregateSplit;

/* Takes aggregates that keep their inputs out of an expression, and numbers the others anew. */
extern Node *sx_aggregate_split(Node *node, void *split);

/* Columns of the input that arguments and filters of aggregates read; a tree walker. */
extern bool sx_aggregate_argument_vars(Node *node, void *attrs);

/* ---- aggregate_state.c */

/* Sets how each transition value is stored, and the columns of the state table. */
extern void sx_aggregate_init_columns(SxAggregate *op, TupleDesc input);

/* Writes the changed groups into the state tables. */
extern void sx_aggregate_write_state(SxAggregate *op);

/* Reads the state tables, as the latest snapshot sees them. */
extern void sx_aggregate_read_state(SxAggregate *op);

/* Reads the state of the dirty groups again. Errors: a row is not there. */
extern void sx_aggregate_reread_state(SxAggregate *op);

#endif /* STREAM_EXT_OPERATOR_AGGREGATE_INTERNAL_H */
