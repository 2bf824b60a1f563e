/*
 * kafka_fdw.c
 *		Foreign data wrapper "kafka": handler and validator.
 *
 * Topics can be read with SELECT, which is what the result of a continuous view is compared with.
 * They cannot be written: rows that go to a topic do so through a sink, exactly once.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/reloptions.h"
#include "fmgr.h"

#include "stream_ext/fdw/fdw.h"
#include "stream_ext/source/kafka_options.h"

PG_FUNCTION_INFO_V1(stream_ext_kafka_handler);
PG_FUNCTION_INFO_V1(stream_ext_kafka_validator);

/* stream.kafka_handler() returns fdw_handler */
Datum
stream_ext_kafka_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	sx_fdw_plan_routine(routine);
	sx_fdw_scan_routine(routine);
	routine->ImportForeignSchema = sx_fdw_import;
	PG_RETURN_POINTER(routine);
}

/* stream.kafka_validator(options text[], catalog oid) */
Datum
stream_ext_kafka_validator(PG_FUNCTION_ARGS)
{
	sx_kafka_options_check(untransformRelOptions(PG_GETARG_DATUM(0)), PG_GETARG_OID(1));
	PG_RETURN_VOID();
}
