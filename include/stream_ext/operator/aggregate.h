/*
 * aggregate.h
 *		The operator for GROUP BY, DISTINCT and aggregates.
 */
#ifndef STREAM_EXT_OPERATOR_AGGREGATE_H
#define STREAM_EXT_OPERATOR_AGGREGATE_H

#include "nodes/execnodes.h"
#include "nodes/plannodes.h"

#include "stream_ext/operator/operator.h"

/*
 * What the compiler found out about an Agg node: its targetlist without junk, and as key every
 * column of the input that it groups by or shows outside an aggregate.
 */
typedef struct SxAggregateSpec
{
	List *targetlist;
	List *qual;
	int nkeys;
	AttrNumber *keys; /* columns of the input */
	Oid *equality;    /* operators; InvalidOid: the type's default */
	bool is_plain;    /* no GROUP BY: one group that always exists */
} SxAggregateSpec;

/*
 * Makes the operator. 'view' and 'id' name its state tables. Lives in the current memory context,
 * which the caller can free when it has ended the operator's executor state.
 */
extern SxOperator *sx_aggregate_create(EState *estate, const SxAggregateSpec *spec, TupleDesc input,
									   Oid view, int id);

/* Columns of the input that the operator reads. */
extern Bitmapset *sx_aggregate_inputs(const SxAggregateSpec *spec, int natts);

/* What its output looks like. */
extern TupleDesc sx_aggregate_output(SxOperator *op);

/* Makes its state tables, and the group of a plain aggregate. The operator is empty and unloaded. */
extern void sx_aggregate_build(SxOperator *op);

/* The rows of the view are gone: gives all of them anew at the next flush. */
extern void sx_aggregate_reemit(SxOperator *op);

/*
 * Locks the state tables in RowExclusiveLock, if they are free; before load and in every later
 * transaction. False: somebody holds one. Errors: one is missing.
 */
extern bool sx_aggregate_lock(SxOperator *op);

/* Has a state table been rewritten or dropped since it was loaded? */
extern bool sx_aggregate_is_stale(SxOperator *op);

/*
 * After rolled_back: are there groups to be read again, and reads them. In a transaction that has
 * locked the state tables, as the view's owner. Errors: DATA_CORRUPTED.
 */
extern bool sx_aggregate_needs_restore(SxOperator *op);
extern void sx_aggregate_restore(SxOperator *op);

/* Words for the layout of the state; equal words, equal layout. */
extern char *sx_aggregate_signature(const SxAggregateSpec *spec, TupleDesc input);

#endif /* STREAM_EXT_OPERATOR_AGGREGATE_H */
