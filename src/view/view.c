/*
 * view.c
 *		Applies deltas to the heap of a continuous view.
 *
 * The view's rows are ordinary heap tuples, written by the one worker that owns the view and read
 * by everybody under MVCC. Rows are replaced by remembered TID (base/rows.c), in the order in which
 * the operator below gives them.
 *
 * Locks: RowExclusiveLock on the view, taken by the caller. Crash behaviour: the heap's.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "utils/snapmgr.h"

#include "stream_ext/base/rows.h"
#include "stream_ext/view/view.h"

typedef struct View
{
	SxOperator base;
	int natts;
	Relation rel;        /* NULL between transactions */
	SxRowWriter *writer; /* NULL until the first row of a transaction */
	Datum *values;
	bool *nulls;
} View;

static SxRowWriter *
get_writer(View *view)
{
	if (view->writer == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		view->writer = sx_rows_open(view->rel);
		MemoryContextSwitchTo(old);
	}
	return view->writer;
}

static void
view_push(SxOperator *base, SxBatch *batch)
{
	View *view = (View *) base;
	SxRowWriter *writer = get_writer(view);

	for (int i = 0; i < batch->nrows; i++)
	{
		for (int a = 0; a < view->natts; a++)
		{
			view->values[a] = batch->values[a][i];
			view->nulls[a] = batch->nulls[a][i];
		}
		sx_rows_insert(writer, view->values, view->nulls, NULL);
	}
	base->rows_out += batch->nrows;
}

static void
view_upsert(SxOperator *base, ItemPointer tid, Datum *values, bool *nulls)
{
	View *view = (View *) base;

	if (ItemPointerIsValid(tid))
		sx_rows_update(get_writer(view), tid, values, nulls);
	else
		sx_rows_insert(get_writer(view), values, nulls, tid);
	base->rows_out++;
}

static void
view_retract(SxOperator *base, ItemPointer tid)
{
	View *view = (View *) base;

	if (!ItemPointerIsValid(tid))
		return;
	sx_rows_delete(get_writer(view), tid);
	base->rows_out++;
}

static void
view_flush(SxOperator *base)
{
	View *view = (View *) base;

	if (view->writer != NULL)
		sx_rows_close(view->writer);
	view->writer = NULL;
}

/* The writer died with the transaction. */
static void
view_committed(SxOperator *base)
{
	View *view = (View *) base;

	view->writer = NULL;
	view->rel = NULL;
}

static bool
view_rolled_back(SxOperator *base)
{
	view_committed(base);
	return true;
}

static const SxOperatorMethods view_methods = {
	.name = "view",
	.push = view_push,
	.upsert = view_upsert,
	.retract = view_retract,
	.flush = view_flush,
	.committed = view_committed,
	.rolled_back = view_rolled_back,
};

SxOperator *
sx_view_create(int natts)
{
	View *view = palloc0(sizeof(View));

	view->base.methods = &view_methods;
	view->natts = natts;
	view->values = palloc(sizeof(Datum) * Max(natts, 1));
	view->nulls = palloc(sizeof(bool) * Max(natts, 1));
	return &view->base;
}

void
sx_view_begin(SxOperator *op, Relation rel)
{
	((View *) op)->rel = rel;
}

void
sx_view_clear(Relation rel)
{
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	SxRowWriter *writer = sx_rows_open(rel);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		ItemPointerData tid = slot->tts_tid;

		CHECK_FOR_INTERRUPTS();
		sx_rows_delete(writer, &tid);
	}
	sx_rows_close(writer);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	CommandCounterIncrement();
}
