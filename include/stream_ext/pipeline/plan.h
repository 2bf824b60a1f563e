/*
 * plan.h
 *		Plans the query of a view so that the plan depends on nothing but the query.
 */
#ifndef STREAM_EXT_PIPELINE_PLAN_H
#define STREAM_EXT_PIPELINE_PLAN_H

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/* Installs the planner hooks; they do nothing outside sx_plan_query(). */
extern void sx_plan_init(void);

/*
 * Rewrites and plans a copy of an analyzed query as the current user. Needs an active snapshot.
 * Takes AccessShareLock on the relations in it, until the end of the transaction. *policies becomes
 * a hash of the row-level security policies that apply to the current user, 0: none.
 */
extern PlannedStmt *sx_plan_query(const Query *query, uint32 *policies);

#endif /* STREAM_EXT_PIPELINE_PLAN_H */
