/*
 * operator.h
 *		The interface of all operators: deltas in, deltas out.
 */
#ifndef STREAM_EXT_OPERATOR_OPERATOR_H
#define STREAM_EXT_OPERATOR_OPERATOR_H

#include "storage/itemptr.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/batch/batch.h"

typedef struct SxOperator SxOperator;

/*
 * Life of an operator: create (by its own function); load, once, in the first transaction; then
 * for every cycle any number of push, one flush, and either committed or rolled_back. Operators
 * live in their pipeline's memory context. Expressions are evaluated in whatever user, settings
 * and active snapshot the caller has set up.
 */
typedef struct SxOperatorMethods
{
	const char *name;

	/* Reads the committed state into memory. NULL: the operator has none. */
	void (*load)(SxOperator *op);

	/* Takes a batch and gives what follows from it to 'next'; may keep the rest until flush. */
	void (*push)(SxOperator *op, SxBatch *batch);

	/*
	 * The keyed counterpart of push, for operators above one that keeps a row a key: the row at
	 * *tid (invalid: none yet) becomes 'values', or goes away. The operator writes the row's new
	 * place to *tid, at the latest at its flush; *tid must stay where it is until then.
	 */
	void (*upsert)(SxOperator *op, ItemPointer tid, Datum *values, bool *nulls);
	void (*retract)(SxOperator *op, ItemPointer tid);

	/*
	 * End of the input of this transaction: gives its pending changes to 'next', flushes that, and
	 * writes its state tables, in this order (state refers to the rows of the view).
	 */
	void (*flush)(SxOperator *op);

	/*
	 * Called before the first change of an entry of the state in a transaction, to keep what
	 * rolled_back needs. NULL: no entries.
	 */
	void (*before_image)(SxOperator *op, void *entry);

	/*
	 * After the end of the transaction. rolled_back returns true if the operator stands again as
	 * it did before; false: it cannot tell, and the pipeline is loaded anew.
	 */
	void (*committed)(SxOperator *op);
	bool (*rolled_back)(SxOperator *op);

	/* Entries in memory and their bytes. NULL: none. */
	void (*state_size)(SxOperator *op, uint64 *rows, uint64 *bytes);
} SxOperatorMethods;

struct SxOperator
{
	const SxOperatorMethods *methods;
	SxOperator *next; /* where output goes; NULL: the view itself */
	int id;           /* position in the tree, from 0 at the view */
	uint64 rows_in;   /* since the pipeline was loaded */
	uint64 rows_out;
};

static inline void
sx_operator_push(SxOperator *op, SxBatch *batch)
{
	op->rows_in += batch->nrows;
	op->methods->push(op, batch);
}

#endif /* STREAM_EXT_OPERATOR_OPERATOR_H */
