/*
 * check.h
 *		Which queries continuous views accept.
 */
#ifndef STREAM_EXT_PIPELINE_CHECK_H
#define STREAM_EXT_PIPELINE_CHECK_H

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/*
 * Raises an error for the first construct of an analyzed query that is not supported, with its
 * position in 'source_text' (NULL: no position).
 */
extern void sx_check_query(const Query *query, const char *source_text);

/* The same for what shows only in the plan, such as a function that inlining brought in. */
extern void sx_check_plan(PlannedStmt *stmt);

#endif /* STREAM_EXT_PIPELINE_CHECK_H */
