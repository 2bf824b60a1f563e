/*
 * workers.c
 *		stream.stat_workers: the launcher and the workers of all databases.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "stream_ext/worker/launcher.h"

PG_FUNCTION_INFO_V1(stream_ext_get_workers);

/* Columns of stream.get_workers(). */
enum
{
	WORKERS_DATID,
	WORKERS_NUMBER,
	WORKERS_PID,
	WORKERS_STATE,
	WORKERS_SINCE,
	WORKERS_REASON,
	WORKERS_COLUMNS
};

static const char *
state_name(SxWorkerState state)
{
	switch (state)
	{
		case SX_WORKER_QUEUED:
			return "queued";
		case SX_WORKER_STARTING:
			return "starting";
		case SX_WORKER_RUNNING:
			return "running";
		case SX_WORKER_STOPPING:
			return "stopping";
		case SX_WORKER_NO_SLOT:
			return "waiting for a worker slot";
		case SX_WORKER_RETRYING:
			return "retrying";
	}
	return NULL;
}

/* Why a worker does not run, and what to do; NULL if there is nothing to say. */
static char *
state_reason(const SxWorkerInfo *info)
{
	switch (info->state)
	{
		case SX_WORKER_NO_SLOT:
			return psprintf("All %d slots for background workers are taken. Raise "
							"max_worker_processes and restart the server.",
							max_worker_processes);
		case SX_WORKER_RETRYING:
			return psprintf("It has ended %d times in a row, see the server log, and is started "
							"again at %s.",
							info->failures, timestamptz_to_str(info->restart));
		default:
			return NULL;
	}
}

/* stream.get_workers(): the launcher has neither database nor number. */
Datum
stream_ext_get_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, sx_launcher_workers())
	{
		SxWorkerInfo *info = lfirst(lc);
		char *reason = state_reason(info);
		Datum values[WORKERS_COLUMNS] = {0};
		bool nulls[WORKERS_COLUMNS] = {0};

		values[WORKERS_DATID] = ObjectIdGetDatum(info->dboid);
		nulls[WORKERS_DATID] = !OidIsValid(info->dboid);
		values[WORKERS_NUMBER] = Int32GetDatum(info->number);
		nulls[WORKERS_NUMBER] = !OidIsValid(info->dboid);
		values[WORKERS_PID] = Int32GetDatum(info->pid);
		nulls[WORKERS_PID] = info->pid == 0;
		values[WORKERS_STATE] = CStringGetTextDatum(state_name(info->state));
		values[WORKERS_SINCE] = TimestampTzGetDatum(info->since);
		nulls[WORKERS_REASON] = reason == NULL;
		if (reason != NULL)
			values[WORKERS_REASON] = CStringGetTextDatum(reason);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
