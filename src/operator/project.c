/*
 * project.c
 *		Filter and project: no state, weights pass through.
 *
 * Works column-wise where it can. A column of the output that is a column of the input is not
 * evaluated but shared (no row was filtered out) or gathered. Other expressions are evaluated by
 * the server's own ExprStates, row by row, over a slot in which only the columns that expressions
 * read are set.
 *
 * Memory: values of expressions live in the output batch's context, which is reset when the next
 * batch comes. Everything else lives with the operator.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

#include "stream_ext/operator/project.h"

typedef struct ProjectColumn
{
	int input;       /* column of the input, from 0; -1: expression */
	ExprState *expr; /* NULL if input >= 0 or the column is not needed */
} ProjectColumn;

typedef struct Project
{
	SxOperator base;
	ExprContext *econtext;
	TupleTableSlot *slot; /* the input row as expressions see it */
	ExprState *qual;      /* NULL: no filter */
	int nread;            /* columns that expressions read */
	int *read;
	int ncolumns;
	ProjectColumn *columns;
	SxBatch *out;
	Datum **
		own_values; /* the arrays of 'out'; its values[] point elsewhere while columns are shared */
	bool **own_nulls;
	int selected[SX_BATCH_ROWS];
	MemoryContext row_cxt; /* values of one upsert */
	Datum *row_values;
	bool *row_nulls;
} Project;

typedef struct InputContext
{
	int natts;
	Bitmapset *attrs;
} InputContext;

/* Every Var of a node refers to its one input, whatever its varno says. */
static bool
collect_inputs(Node *node, void *context)
{
	InputContext *ctx = context;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node;

		if (var->varattno == 0) /* the whole row */
			ctx->attrs = bms_add_range(ctx->attrs, 1, ctx->natts);
		else
			ctx->attrs = bms_add_member(ctx->attrs, var->varattno);
		return false;
	}
	return expression_tree_walker(node, collect_inputs, context);
}

Bitmapset *
sx_project_inputs(List *qual, List *targetlist, const Bitmapset *needed, int natts)
{
	InputContext ctx = {.natts = natts, .attrs = NULL};
	ListCell *lc;

	collect_inputs((Node *) qual, &ctx);
	foreach(lc, targetlist)
	{
		TargetEntry *tle = lfirst(lc);

		if (needed == NULL || bms_is_member(tle->resno, needed))
			collect_inputs((Node *) tle->expr, &ctx);
	}
	return ctx.attrs;
}

/* Shares or gathers the columns that are copied. */
static void
copy_columns(Project *op, const SxBatch *in, int n)
{
	bool all = n == in->nrows;
	SxBatch *out = op->out;

	for (int c = 0; c < op->ncolumns; c++)
	{
		int from = op->columns[c].input;

		if (from < 0)
			continue;
		if (all)
		{
			out->values[c] = in->values[from];
			out->nulls[c] = in->nulls[from];
			continue;
		}
		out->values[c] = op->own_values[c];
		out->nulls[c] = op->own_nulls[c];
		for (int i = 0; i < n; i++)
		{
			out->values[c][i] = in->values[from][op->selected[i]];
			out->nulls[c][i] = in->nulls[from][op->selected[i]];
		}
	}
}

static void
project_push(SxOperator *base, SxBatch *in)
{
	Project *op = (Project *) base;
	SxBatch *out = op->out;
	ExprContext *econtext = op->econtext;
	Datum *slot_values = op->slot->tts_values;
	bool *slot_nulls = op->slot->tts_isnull;
	bool has_exprs = op->nread > 0 || op->qual != NULL;
	int n = 0;

	sx_batch_reset(out);
	/* values of expressions must outlive the row, so evaluate right in the batch's memory */
	econtext->ecxt_per_tuple_memory = out->cxt;
	for (int c = 0; c < op->ncolumns && !has_exprs; c++)
		has_exprs = op->columns[c].expr != NULL;
	for (int i = 0; i < in->nrows && has_exprs; i++)
	{
		for (int r = 0; r < op->nread; r++)
		{
			int a = op->read[r];

			slot_values[a] = in->values[a][i];
			slot_nulls[a] = in->nulls[a][i];
		}
		if (op->qual != NULL && !ExecQual(op->qual, econtext))
			continue;
		for (int c = 0; c < op->ncolumns; c++)
		{
			if (op->columns[c].expr == NULL)
				continue;
			out->values[c][n] =
				ExecEvalExprSwitchContext(op->columns[c].expr, econtext, &out->nulls[c][n]);
		}
		op->selected[n++] = i;
	}
	if (!has_exprs)
		n = in->nrows;
	copy_columns(op, in, n);
	out->nrows = n;
	if (n == 0)
		return;
	base->rows_out += n;
	sx_operator_push(base->next, out);
}

/* One row of a keyed operator below: a row that the filter rejects is no row of the view. */
static void
project_upsert(SxOperator *base, ItemPointer tid, Datum *values, bool *nulls)
{
	Project *op = (Project *) base;
	ExprContext *econtext = op->econtext;
	Datum *out_values = op->row_values;
	bool *out_nulls = op->row_nulls;

	MemoryContextReset(op->row_cxt);
	econtext->ecxt_per_tuple_memory = op->row_cxt;
	for (int r = 0; r < op->nread; r++)
	{
		int a = op->read[r];

		op->slot->tts_values[a] = values[a];
		op->slot->tts_isnull[a] = nulls[a];
	}
	if (op->qual != NULL && !ExecQual(op->qual, econtext))
	{
		base->next->methods->retract(base->next, tid);
		return;
	}
	for (int c = 0; c < op->ncolumns; c++)
	{
		if (op->columns[c].expr != NULL)
			out_values[c] = ExecEvalExprSwitchContext(op->columns[c].expr, econtext, &out_nulls[c]);
		else if (op->columns[c].input >= 0)
		{
			out_values[c] = values[op->columns[c].input];
			out_nulls[c] = nulls[op->columns[c].input];
		}
	}
	base->rows_out++;
	base->next->rows_in++;
	base->next->methods->upsert(base->next, tid, out_values, out_nulls);
}

static void
project_retract(SxOperator *base, ItemPointer tid)
{
	base->next->methods->retract(base->next, tid);
}

static void
project_flush(SxOperator *base)
{
	base->next->methods->flush(base->next);
}

static void
project_committed(SxOperator *base)
{
	if (base->next->methods->committed != NULL)
		base->next->methods->committed(base->next);
}

static bool
project_rolled_back(SxOperator *base)
{
	return base->next->methods->rolled_back == NULL || base->next->methods->rolled_back(base->next);
}

static const SxOperatorMethods project_methods = {
	.name = "project",
	.push = project_push,
	.upsert = project_upsert,
	.retract = project_retract,
	.flush = project_flush,
	.committed = project_committed,
	.rolled_back = project_rolled_back,
};

static TupleDesc
make_output(List *targetlist)
{
	TupleDesc desc = CreateTemplateTupleDesc(list_length(targetlist));
	ListCell *lc;

	foreach(lc, targetlist)
	{
		TargetEntry *tle = lfirst(lc);
		Node *expr = (Node *) tle->expr;

		TupleDescInitEntry(desc, tle->resno, tle->resname, exprType(expr), exprTypmod(expr), 0);
		TupleDescInitEntryCollation(desc, tle->resno, exprCollation(expr));
	}
	return desc;
}

SxOperator *
sx_project_create(EState *estate, TupleDesc input, List *qual, List *targetlist,
				  bool input_is_outer, const Bitmapset *needed)
{
	Project *op = palloc0(sizeof(Project));
	List *exprs = NIL;
	InputContext ctx = {.natts = input->natts};
	ListCell *lc;
	int a = -1;

	op->base.methods = &project_methods;
	op->econtext = CreateExprContext(estate);
	op->slot = MakeSingleTupleTableSlot(input, &TTSOpsVirtual);
	ExecStoreAllNullTuple(op->slot);
	if (input_is_outer)
		op->econtext->ecxt_outertuple = op->slot;
	else
		op->econtext->ecxt_scantuple = op->slot;
	op->qual = ExecInitQual(qual, NULL);
	op->ncolumns = list_length(targetlist);
	op->columns = palloc0(sizeof(ProjectColumn) * Max(op->ncolumns, 1));
	op->out = sx_batch_create(make_output(targetlist), needed);
	op->own_values = palloc(sizeof(Datum *) * Max(op->ncolumns, 1));
	op->own_nulls = palloc(sizeof(bool *) * Max(op->ncolumns, 1));
	memcpy(op->own_values, op->out->values, sizeof(Datum *) * op->ncolumns);
	memcpy(op->own_nulls, op->out->nulls, sizeof(bool *) * op->ncolumns);
	op->row_cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext project", ALLOCSET_SMALL_SIZES);
	op->row_values = palloc0(sizeof(Datum) * Max(op->ncolumns, 1));
	op->row_nulls = palloc0(sizeof(bool) * Max(op->ncolumns, 1));
	foreach(lc, targetlist)
	{
		TargetEntry *tle = lfirst(lc);
		ProjectColumn *column = &op->columns[tle->resno - 1];

		column->input = -1;
		if (needed != NULL && !bms_is_member(tle->resno, needed))
			continue;
		if (IsA(tle->expr, Var) && ((Var *) tle->expr)->varattno > 0)
		{
			column->input = ((Var *) tle->expr)->varattno - 1;
			continue;
		}
		column->expr = ExecInitExpr(tle->expr, NULL);
		exprs = lappend(exprs, tle->expr);
	}
	collect_inputs((Node *) list_make2(qual, exprs), &ctx);
	op->read = palloc(sizeof(int) * Max(bms_num_members(ctx.attrs), 1));
	while ((a = bms_next_member(ctx.attrs, a)) >= 0)
		op->read[op->nread++] = a - 1;
	return &op->base;
}

TupleDesc
sx_project_output(SxOperator *op)
{
	return ((Project *) op)->out->desc;
}
