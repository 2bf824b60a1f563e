/*
 * explain.c
 *		stream.explain(): the dataflow of a view with the counters of its operators.
 *
 * The tree is compiled anew from the view's definition, which gives the same operators in the
 * same order as in the worker; the counters are found by the operator's number. They are NULL
 * where there are none: no worker has run the view yet, or the operator is beyond those counted.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "funcapi.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/monitor/visible.h"
#include "stream_ext/pipeline/compile.h"

PG_FUNCTION_INFO_V1(stream_ext_explain);

/* Columns of stream.explain(). */
enum
{
	EXPLAIN_ID,
	EXPLAIN_PARENT,
	EXPLAIN_OPERATOR,
	EXPLAIN_DETAIL,
	EXPLAIN_ROWS_IN,
	EXPLAIN_ROWS_OUT,
	EXPLAIN_STATE_ROWS,
	EXPLAIN_STATE_BYTES,
	EXPLAIN_COLUMNS
};

static void
put_operator(ReturnSetInfo *rsinfo, const SxExplainRow *row, SxProgress *progress)
{
	Datum values[EXPLAIN_COLUMNS] = {0};
	bool nulls[EXPLAIN_COLUMNS] = {0};

	values[EXPLAIN_ID] = Int32GetDatum(row->id);
	values[EXPLAIN_PARENT] = Int32GetDatum(row->parent);
	nulls[EXPLAIN_PARENT] = row->parent == 0;
	values[EXPLAIN_OPERATOR] = CStringGetTextDatum(row->operator);
	nulls[EXPLAIN_DETAIL] = row->detail == NULL;
	if (row->detail != NULL)
		values[EXPLAIN_DETAIL] = CStringGetTextDatum(row->detail);
	if (progress != NULL && row->id >= 1 && row->id <= SX_PROGRESS_OPERATORS)
	{
		SxOperatorCounters *counters = &progress->operators[row->id - 1];

		values[EXPLAIN_ROWS_IN] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->rows_in));
		values[EXPLAIN_ROWS_OUT] = Int64GetDatum((int64) pg_atomic_read_u64(&counters->rows_out));
		values[EXPLAIN_STATE_ROWS] =
			Int64GetDatum((int64) pg_atomic_read_u64(&counters->state_rows));
		values[EXPLAIN_STATE_BYTES] =
			Int64GetDatum((int64) pg_atomic_read_u64(&counters->state_bytes));
	}
	else
	{
		for (int i = EXPLAIN_ROWS_IN; i < EXPLAIN_COLUMNS; i++)
			nulls[i] = true;
	}
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* stream.explain(view regclass): a row an operator, root first. */
Datum
stream_ext_explain(PG_FUNCTION_ARGS)
{
	Oid view = PG_GETARG_OID(0);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation rel = relation_open(view, AccessShareLock);
	SxProgress *progress;
	ListCell *lc;

	if (!sx_is_continuous(view))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a continuous view", RelationGetRelationName(rel))));
	if (!sx_monitor_sees(rel->rd_rel->relowner))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_MATVIEW, RelationGetRelationName(rel));

	InitMaterializedSRF(fcinfo, 0);
	progress = sx_progress_get(view, false);
	foreach(lc, sx_compile_explain(view))
		put_operator(rsinfo, lfirst(lc), progress);
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}
