/*
 * rows.c
 *		Writes rows of our own tables and views by remembered TID.
 *
 * SPI cannot write a materialized view, and finding each row again by its key would cost more
 * than the update. So the writer goes to the heap directly: updates by TID with pruning of each
 * block before the first update in it (heap_update alone never prunes, and the heap would grow
 * with every commit), new rows by heap_multi_insert.
 *
 * Index entries are made with UNIQUE_CHECK_NO: the caller is the only writer and keeps keys
 * unique, and the check revisits all dead versions of a row while an old snapshot is held, which
 * is quadratic in the number of commits.
 *
 * Crash behaviour: ordinary heap and index WAL. An abort makes TIDs that were handed out since
 * the last commit wrong; the caller forgets them.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "stream_ext/base/rows.h"

/* Rows and bytes collected before heap_multi_insert is called. */
#define MAX_PENDING_ROWS  500
#define MAX_PENDING_BYTES (1024 * 1024)

struct SxRowWriter
{
	Relation rel;
	MemoryContext cxt;     /* the writer */
	MemoryContext row_cxt; /* one update */
	MemoryContext new_cxt; /* rows collected by sx_rows_insert() */
	EState *estate;        /* for index expressions */
	TupleTableSlot *index_slot;
	int nindexes;
	Relation *indexes;
	IndexInfo **infos;
	ExprState **predicates; /* of partial indexes */
	BlockNumber pruned;     /* block pruned last */
	int npending;
	Size pending_bytes;
	int nslots;
	TupleTableSlot *slots[MAX_PENDING_ROWS];
	ItemPointer tids[MAX_PENDING_ROWS];
};

static void
open_indexes(SxRowWriter *writer)
{
	List *oids = RelationGetIndexList(writer->rel);
	int n = list_length(oids);
	ListCell *lc;

	if (n == 0)
		return;
	writer->indexes = palloc(sizeof(Relation) * n);
	writer->infos = palloc(sizeof(IndexInfo *) * n);
	writer->predicates = palloc0(sizeof(ExprState *) * n);
	foreach(lc, oids)
	{
		Relation index = index_open(lfirst_oid(lc), RowExclusiveLock);
		IndexInfo *info;

		if (!index->rd_index->indisready)
		{
			index_close(index, NoLock);
			continue;
		}
		info = BuildIndexInfo(index);
		if (info->ii_Predicate != NIL || info->ii_Expressions != NIL)
			if (writer->estate == NULL)
				writer->estate = CreateExecutorState();
		if (info->ii_Predicate != NIL)
			writer->predicates[writer->nindexes] =
				ExecPrepareQual(info->ii_Predicate, writer->estate);
		writer->indexes[writer->nindexes] = index;
		writer->infos[writer->nindexes++] = info;
	}
	if (writer->nindexes > 0)
		writer->index_slot =
			MakeSingleTupleTableSlot(RelationGetDescr(writer->rel), &TTSOpsHeapTuple);
}

SxRowWriter *
sx_rows_open(Relation rel)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_ext row writer",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SxRowWriter *writer = palloc0(sizeof(SxRowWriter));

	writer->rel = rel;
	writer->cxt = cxt;
	writer->row_cxt = AllocSetContextCreate(cxt, "stream_ext row", ALLOCSET_DEFAULT_SIZES);
	writer->new_cxt = GenerationContextCreate(cxt, "stream_ext new rows", ALLOCSET_DEFAULT_SIZES);
	writer->pruned = InvalidBlockNumber;
	open_indexes(writer);
	MemoryContextSwitchTo(old);
	return writer;
}

/* Makes the entries of 'tuple' in the indexes: all, or only the summarizing ones. */
static void
insert_index_entries(SxRowWriter *writer, HeapTuple tuple, bool is_update, bool only_summarizing)
{
	ExprContext *econtext = NULL;

	ExecStoreHeapTuple(tuple, writer->index_slot, false);
	if (writer->estate != NULL)
	{
		econtext = GetPerTupleExprContext(writer->estate);
		econtext->ecxt_scantuple = writer->index_slot;
	}
	for (int i = 0; i < writer->nindexes; i++)
	{
		Datum values[INDEX_MAX_KEYS];
		bool nulls[INDEX_MAX_KEYS];

		if (only_summarizing && !sx_index_summarizes(writer->infos[i]))
			continue;
		if (writer->predicates[i] != NULL && !ExecQual(writer->predicates[i], econtext))
			continue;
		FormIndexDatum(writer->infos[i], writer->index_slot, writer->estate, values, nulls);
		index_insert(writer->indexes[i], values, nulls, &tuple->t_self, writer->rel,
					 UNIQUE_CHECK_NO, is_update, writer->infos[i]);
	}
	ExecClearTuple(writer->index_slot);
	if (writer->estate != NULL)
		ResetPerTupleExprContext(writer->estate);
}

static void
prune_block(SxRowWriter *writer, BlockNumber block)
{
	Buffer buffer = ReadBuffer(writer->rel, block);

	heap_page_prune_opt(writer->rel, buffer);
	ReleaseBuffer(buffer);
	writer->pruned = block;
}

static void
report_lost_row(SxRowWriter *writer, TM_Result result)
{
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("row of \"%s\" was changed by another session",
						   RelationGetRelationName(writer->rel)),
					errdetail_internal("The result of the change is %d.", (int) result)));
}

void
sx_rows_update(SxRowWriter *writer, ItemPointer tid, const Datum *values, const bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(writer->row_cxt);
	TM_FailureData tmfd;
	TM_Result result;
	HeapTuple tuple;
	bool index_all;
	bool index_summarizing;

	if (ItemPointerGetBlockNumber(tid) != writer->pruned)
		prune_block(writer, ItemPointerGetBlockNumber(tid));
	tuple = heap_form_tuple(RelationGetDescr(writer->rel), (Datum *) values, (bool *) nulls);
	tuple->t_tableOid = RelationGetRelid(writer->rel);
	result = sx_heap_update(writer->rel, tid, tuple, GetCurrentCommandId(true), &tmfd, &index_all,
							&index_summarizing);
	if (result != TM_Ok)
		report_lost_row(writer, result);
	*tid = tuple->t_self;
	if (writer->nindexes > 0 && (index_all || index_summarizing))
		insert_index_entries(writer, tuple, true, !index_all);
	MemoryContextSwitchTo(old);
	MemoryContextReset(writer->row_cxt);
}

void
sx_rows_insert(SxRowWriter *writer, const Datum *values, const bool *nulls, ItemPointer tid)
{
	MemoryContext old;
	HeapTuple tuple;

	if (writer->npending == MAX_PENDING_ROWS || writer->pending_bytes > MAX_PENDING_BYTES)
		sx_rows_flush(writer);
	if (writer->npending == writer->nslots)
	{
		old = MemoryContextSwitchTo(writer->cxt);
		writer->slots[writer->nslots++] =
			MakeSingleTupleTableSlot(RelationGetDescr(writer->rel), &TTSOpsHeapTuple);
		MemoryContextSwitchTo(old);
	}
	old = MemoryContextSwitchTo(writer->new_cxt);
	tuple = heap_form_tuple(RelationGetDescr(writer->rel), (Datum *) values, (bool *) nulls);
	MemoryContextSwitchTo(old);
	tuple->t_tableOid = RelationGetRelid(writer->rel);
	ExecStoreHeapTuple(tuple, writer->slots[writer->npending], false);
	writer->tids[writer->npending++] = tid;
	writer->pending_bytes += tuple->t_len;
}

void
sx_rows_delete(SxRowWriter *writer, ItemPointer tid)
{
	TM_FailureData tmfd;
	TM_Result result;

	result = heap_delete(writer->rel, tid, GetCurrentCommandId(true), InvalidSnapshot, true, &tmfd,
						 false);
	if (result != TM_Ok)
		report_lost_row(writer, result);
	ItemPointerSetInvalid(tid);
}

void
sx_rows_flush(SxRowWriter *writer)
{
	MemoryContext old;

	if (writer->npending == 0)
		return;
	old = MemoryContextSwitchTo(writer->row_cxt);
	/* no BulkInsertState: its small ring of buffers would be written out long before a checkpoint */
	heap_multi_insert(writer->rel, writer->slots, writer->npending, GetCurrentCommandId(true), 0,
					  NULL);
	for (int i = 0; i < writer->npending; i++)
	{
		HeapTuple tuple = ExecFetchSlotHeapTuple(writer->slots[i], false, NULL);

		/* a toasted row was written from a copy, so that only the slot knows its place */
		tuple->t_self = writer->slots[i]->tts_tid;
		if (writer->nindexes > 0)
			insert_index_entries(writer, tuple, false, false);
		if (writer->tids[i] != NULL)
			*writer->tids[i] = tuple->t_self;
		ExecClearTuple(writer->slots[i]);
	}
	writer->npending = 0;
	writer->pending_bytes = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(writer->row_cxt);
	MemoryContextReset(writer->new_cxt);
}

void
sx_rows_close(SxRowWriter *writer)
{
	sx_rows_flush(writer);
	for (int i = 0; i < writer->nslots; i++)
		ExecDropSingleTupleTableSlot(writer->slots[i]);
	if (writer->index_slot != NULL)
		ExecDropSingleTupleTableSlot(writer->index_slot);
	for (int i = 0; i < writer->nindexes; i++)
	{
		index_insert_cleanup(writer->indexes[i], writer->infos[i]);
		index_close(writer->indexes[i], NoLock);
	}
	if (writer->estate != NULL)
		FreeExecutorState(writer->estate);
	MemoryContextDelete(writer->cxt);
}
