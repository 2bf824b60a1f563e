/*
 * continuous_am.c
 *		The access method of continuous views: heap under another name.
 *
 * The name is what tells the DDL hooks, the worker and pg_dump that a materialized view is kept up
 * to date. The routine is heap's own, not a copy: heap code that insists on its routine
 * (heap_getnext) must go on working on these relations. What must not be done to a view is refused
 * by core itself (no INSERT, UPDATE, DELETE on materialized views) and by guard.c.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

PG_FUNCTION_INFO_V1(stream_ext_continuous_handler);

Datum
stream_ext_continuous_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(GetHeapamTableAmRoutine());
}
