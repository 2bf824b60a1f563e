/*
 * batch.c
 *		Column batches: allocation and reset.
 *
 * One allocation holds the column arrays for the life of the batch, a Generation context holds
 * the values of the rows and is reset with it.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "utils/memutils.h"

#include "stream_ext/batch/batch.h"

SxBatch *
sx_batch_create(TupleDesc desc, const Bitmapset *needed)
{
	SxBatch *batch = palloc0(sizeof(SxBatch));

	batch->cxt =
		GenerationContextCreate(CurrentMemoryContext, "stream_ext batch", ALLOCSET_DEFAULT_SIZES);
	batch->desc = desc;
	batch->natts = desc->natts;
	batch->values = palloc0(sizeof(Datum *) * Max(desc->natts, 1));
	batch->nulls = palloc0(sizeof(bool *) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		if (needed != NULL && !bms_is_member(i + 1, needed))
			continue;
		batch->values[i] = palloc(sizeof(Datum) * SX_BATCH_ROWS);
		batch->nulls[i] = palloc(sizeof(bool) * SX_BATCH_ROWS);
	}
	return batch;
}

void
sx_batch_reset(SxBatch *batch)
{
	batch->nrows = 0;
	batch->bytes = 0;
	MemoryContextReset(batch->cxt);
}

void
sx_batch_free(SxBatch *batch)
{
	for (int i = 0; i < batch->natts; i++)
	{
		if (batch->values[i] == NULL)
			continue;
		pfree(batch->values[i]);
		pfree(batch->nulls[i]);
	}
	pfree(batch->values);
	pfree(batch->nulls);
	MemoryContextDelete(batch->cxt);
	pfree(batch);
}
