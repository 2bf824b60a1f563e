/*
 * constraint.c
 *		What a row of the relation has to fulfil: NOT NULL, CHECK, a finite event time.
 *
 * Foreign tables only declare their constraints for the planner. Here they are enforced: a record
 * that breaks one is no row, so the planner's belief is true.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/tupdesc.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "decode_internal.h"

/* Planning folds constants, which runs functions, so this is done as the owner. */
static void
plan_checks(SxDecoder *decoder)
{
	for (int i = 0; i < decoder->nchecks; i++)
		decoder->checks[i].expr = (Node *) expression_planner((Expr *) decoder->checks[i].expr);
}

void
sx_constraints_init(SxDecoder *decoder, Relation rel)
{
	TupleConstr *constraints = RelationGetDescr(rel)->constr;

	for (int i = 0; i < decoder->natts; i++)
		decoder->has_not_null |= decoder->columns[i].not_null;
	if (constraints == NULL || constraints->num_check == 0)
		return;
	decoder->checks = palloc0(sizeof(SxCheck) * constraints->num_check);
	for (int i = 0; i < constraints->num_check; i++)
	{
		SxCheck *check = &decoder->checks[decoder->nchecks];

		if (!sx_check_is_enforced(&constraints->check[i]))
			continue;
		check->name = pstrdup(constraints->check[i].ccname);
		check->expr = stringToNode(constraints->check[i].ccbin);
		decoder->nchecks++;
	}
	if (decoder->nchecks == 0)
		return;
	decoder->slot = MakeSingleTupleTableSlot(decoder->desc, &TTSOpsVirtual);
	decoder->slot->tts_tableOid = RelationGetRelid(rel);
	sx_protect_as_owner(decoder, plan_checks);
}

static void
check_event_time(SxDecoder *decoder)
{
	const SxColumn *column = &decoder->columns[decoder->event_time];

	if (decoder->nulls[decoder->event_time])
		sx_kill(decoder, ERRCODE_NULL_VALUE_NOT_ALLOWED, "event time \"%s\" is null", column->name);
	else if (TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(decoder->values[decoder->event_time])))
		sx_kill(decoder, ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "event time \"%s\" is not finite",
				column->name);
}

void
sx_constraints_columns(SxDecoder *decoder)
{
	if (decoder->event_time >= 0)
	{
		check_event_time(decoder);
		if (decoder->dead_code != 0)
			return;
	}
	if (!decoder->has_not_null)
		return;
	for (int i = 0; i < decoder->natts; i++)
	{
		if (decoder->columns[i].not_null && decoder->nulls[i])
		{
			sx_kill(decoder, ERRCODE_NOT_NULL_VIOLATION, "column \"%s\" is null but must not be",
					decoder->columns[i].name);
			return;
		}
	}
}

static void
prepare(SxDecoder *decoder, SxCheck *check)
{
	MemoryContext old;

	decoder->running_check = check;
	if (check->is_ready)
		return;
	if (check->cxt == NULL)
		check->cxt = AllocSetContextCreate(decoder->cxt, "stream_ext check", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(check->cxt);
	old = MemoryContextSwitchTo(check->cxt);
	check->state = ExecInitExpr((Expr *) check->expr, NULL);
	check->econtext = CreateStandaloneExprContext();
	MemoryContextSwitchTo(old);
	check->is_ready = true;
}

void
sx_constraints_checks(SxDecoder *decoder)
{
	TupleTableSlot *slot = decoder->slot;

	ExecClearTuple(slot);
	memcpy(slot->tts_values, decoder->values, sizeof(Datum) * decoder->natts);
	memcpy(slot->tts_isnull, decoder->nulls, sizeof(bool) * decoder->natts);
	ExecStoreVirtualTuple(slot);
	for (int i = 0; i < decoder->nchecks; i++)
	{
		SxCheck *check = &decoder->checks[i];

		prepare(decoder, check);
		ResetExprContext(check->econtext);
		check->econtext->ecxt_scantuple = slot;
		/* NULL holds */
		if (ExecCheck(check->state, check->econtext))
			continue;
		sx_kill(decoder, ERRCODE_CHECK_VIOLATION, "row violates check constraint \"%s\"",
				check->name);
		return;
	}
}
