/*
 * plan.c
 *		Plans a view's query under fixed settings and without statistics.
 *
 * The plan decides the layout of the operators' state. It must come out the same after an ANALYZE,
 * a new index or a changed setting, or state would have to be rebuilt for nothing. So planning is
 * blind: every relation has the same size, no index, no statistics; and the settings that steer
 * the planner are pinned, those of later versions included if the server has them. Two of them
 * guard correctness and not only stability: presorted aggregates would be fed unsorted rows, and
 * a Gather node may be forced on top of any plan.
 *
 * A policy of row-level security may ask for current_user. A view sees what its owner sees, so that
 * is the owner, whose name stands in the plan as a constant.
 *
 * The hooks act only while sx_plan_query() is on the stack.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/selfuncs.h"

#include "stream_ext/pipeline/plan.h"

/* Size of every relation, as the planner is told. */
#define BLIND_PAGES  1000
#define BLIND_TUPLES 100000

static const struct
{
	const char *name;
	const char *value;
} frame[] = {
	{"constraint_exclusion", "off"},
	{"cursor_tuple_fraction", "1"},
	{"debug_parallel_query", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_distinct_reordering", "off"},
	{"enable_gathermerge", "off"},
	{"enable_group_by_reordering", "off"},
	{"enable_hashagg", "on"},
	{"enable_hashjoin", "on"},
	{"enable_incremental_sort", "off"},
	{"enable_indexonlyscan", "off"},
	{"enable_indexscan", "off"},
	{"enable_material", "off"},
	{"enable_memoize", "off"},
	{"enable_mergejoin", "off"},
	{"enable_nestloop", "off"},
	{"enable_partitionwise_aggregate", "off"},
	{"enable_partitionwise_join", "off"},
	{"enable_presorted_aggregate", "off"},
	{"enable_self_join_elimination", "off"},
	{"enable_seqscan", "on"},
	{"enable_sort", "off"},
	{"enable_tidscan", "off"},
	{"force_parallel_mode", "off"},
	{"from_collapse_limit", "1"},
	{"geqo", "off"},
	{"join_collapse_limit", "1"},
	{"max_parallel_workers_per_gather", "0"},
	{"row_security", "on"}, /* a dump turns it off for the session that restores it */
	{"work_mem", "4MB"},
};

static bool is_planning = false;
static get_relation_info_hook_type prev_relation_info = NULL;
static get_relation_stats_hook_type prev_relation_stats = NULL;
static get_index_stats_hook_type prev_index_stats = NULL;

static void
hide_relation_info(PlannerInfo *root, Oid relid, bool inhparent, RelOptInfo *rel)
{
	if (prev_relation_info)
		prev_relation_info(root, relid, inhparent, rel);
	if (!is_planning)
		return;
	rel->pages = BLIND_PAGES;
	rel->tuples = BLIND_TUPLES;
	rel->allvisfrac = 0;
	rel->indexlist = NIL;
	rel->statlist = NIL;
	rel->rel_parallel_workers = 0;
	sx_rel_hide_notnull(rel);
}

static bool
hide_relation_stats(PlannerInfo *root, RangeTblEntry *rte, AttrNumber attnum,
					VariableStatData *vardata)
{
	if (is_planning)
	{
		vardata->statsTuple = NULL;
		return true;
	}
	return prev_relation_stats != NULL && prev_relation_stats(root, rte, attnum, vardata);
}

static bool
hide_index_stats(PlannerInfo *root, Oid index, AttrNumber attnum, VariableStatData *vardata)
{
	if (is_planning)
	{
		vardata->statsTuple = NULL;
		return true;
	}
	return prev_index_stats != NULL && prev_index_stats(root, index, attnum, vardata);
}

void
sx_plan_init(void)
{
	prev_relation_info = get_relation_info_hook;
	get_relation_info_hook = hide_relation_info;
	prev_relation_stats = get_relation_stats_hook;
	get_relation_stats_hook = hide_relation_stats;
	prev_index_stats = get_index_stats_hook;
	get_index_stats_hook = hide_index_stats;
}

/* Puts the name of the current user, who is the view's owner, in place of current_user. */
static Node *
name_current_user(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, SQLValueFunction))
	{
		switch (((SQLValueFunction *) node)->op)
		{
			case SVFOP_CURRENT_ROLE:
			case SVFOP_CURRENT_USER:
			case SVFOP_USER:
				return (Node *) makeConst(
					NAMEOID, -1, C_COLLATION_OID, NAMEDATALEN,
					DirectFunctionCall1(namein,
										CStringGetDatum(GetUserNameFromId(GetUserId(), false))),
					false, false);
			default:
				break;
		}
	}
	return expression_tree_mutator(node, name_current_user, context);
}

/*
 * Fixes the conditions that row-level security has put on the relations of a query, and adds them
 * to a hash.
 */
static bool
fix_policies(Node *node, void *context)
{
	uint32 *hash = context;

	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->securityQuals != NIL)
		{
			char *words;

			rte->securityQuals = (List *) name_current_user((Node *) rte->securityQuals, NULL);
			words = nodeToString(rte->securityQuals);
			*hash = hash_combine(*hash, hash_bytes((unsigned char *) words, strlen(words)));
			pfree(words);
		}
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, fix_policies, context, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, fix_policies, context);
}

PlannedStmt *
sx_plan_query(const Query *query, uint32 *policies)
{
	Query *copy = castNode(Query, copyObjectImpl(query));
	List *rewritten;
	PlannedStmt *stmt = NULL;
	int nest_level = NewGUCNestLevel();

	for (int i = 0; i < lengthof(frame); i++)
	{
		if (GetConfigOption(frame[i].name, true, false) != NULL)
			(void) set_config_option(frame[i].name, frame[i].value, PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_SAVE, true, 0, false);
	}
	/* a stored query holds no locks on its relations yet */
	AcquireRewriteLocks(copy, true, false);
	rewritten = QueryRewrite(copy);
	if (list_length(rewritten) != 1)
		elog(ERROR, "query of a view was rewritten into %d queries", list_length(rewritten));

	*policies = 0;
	(void) fix_policies((Node *) rewritten, policies);

	PG_TRY();
	{
		is_planning = true;
		stmt = pg_plan_query(linitial_node(Query, rewritten), "", 0, NULL);
	}
	PG_FINALLY();
	{
		is_planning = false;
	}
	PG_END_TRY();
	AtEOXact_GUC(true, nest_level);
	return stmt;
}
