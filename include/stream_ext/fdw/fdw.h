/*
 * fdw.h
 *		Inside of module fdw: what planner and executor tell each other about a scan of a topic.
 */
#ifndef STREAM_EXT_FDW_FDW_H
#define STREAM_EXT_FDW_FDW_H

#include "foreign/fdwapi.h"

/* What a condition that bounds a scan compares. */
typedef enum SxBoundColumn
{
	SX_BOUND_PARTITION,
	SX_BOUND_OFFSET,
	SX_BOUND_TIMESTAMP
} SxBoundColumn;

/*
 * A condition "column op value" that spares reading records. It stays a filter as well. In fdw_private
 * of the plan stands for each a list of these four integers, in fdw_exprs its value.
 */
typedef struct SxBound
{
	SxBoundColumn column;
	int strategy;  /* of btree */
	Oid type;      /* of the value, or of the elements if it is an array */
	bool is_array; /* column = ANY (value) */
} SxBound;

/* ---- kafka_plan.c */
extern void sx_fdw_plan_routine(FdwRoutine *routine);

/* ---- kafka_scan.c */
extern void sx_fdw_scan_routine(FdwRoutine *routine);

/* ---- kafka_import.c */
extern List *sx_fdw_import(ImportForeignSchemaStmt *stmt, Oid server);

#endif /* STREAM_EXT_FDW_FDW_H */
