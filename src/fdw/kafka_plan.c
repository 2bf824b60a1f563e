/*
 * kafka_plan.c
 *		Foreign data wrapper "kafka": what the planner asks.
 *
 * Planning never asks a broker: plans are made while brokers are down, and by CREATE of continuous
 * views. Conditions on partition, offset and timestamp of records bound what a scan reads. All
 * conditions stay filters of the scan node too, so a bound may be wider than its condition.
 *
 * Decoding uses subtransactions, which a parallel query cannot have, also in its leader and also for
 * another part of the plan. So a query that reads a topic is planned without parallel workers. Parts
 * that are planned before the planner comes to the topic may be parallel all the same: see
 * kafka_begin_scan().
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/stratnum.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "stream_ext/fdw/fdw.h"
#include "stream_ext/source/kafka_options.h"

/* A topic whose size nobody has told. */
#define DEFAULT_TUPLES 100000.0

/* Cost of the first answer of a broker, in units of a sequential page, and of decoding a row. */
#define STARTUP_COST 100.0
#define ROW_COST     0.05

static void
refuse_parallel(PlannerInfo *root)
{
	root->glob->parallelModeOK = false;
	/* relations that came before this one, also outside of a subquery, were found fit already */
	for (; root != NULL; root = root->parent_root)
		for (int i = 1; i < root->simple_rel_array_size; i++)
			if (root->simple_rel_array[i] != NULL)
				root->simple_rel_array[i]->consider_parallel = false;
}

static void
kafka_rel_size(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	refuse_parallel(root);
	if (rel->tuples <= 0)
		rel->tuples = DEFAULT_TUPLES;
	rel->rows = clamp_row_est(
		rel->tuples * clauselist_selectivity(root, rel->baserestrictinfo, 0, JOIN_INNER, NULL));
}

static void
kafka_paths(PlannerInfo *root, RelOptInfo *rel, Oid relid)
{
	Cost startup = STARTUP_COST + rel->baserestrictcost.startup;
	Cost total = startup + rel->tuples * (ROW_COST + rel->baserestrictcost.per_tuple);

	add_path(rel, (Path *) sx_create_foreignscan_path(root, rel, rel->rows, startup, total,
													  rel->lateral_relids));
}

/* The meta column of a Var of the scanned relation, if it bounds a scan. */
static bool
bound_column(Node *node, Index relid, Oid foreigntable, const char **meta)
{
	Var *var = (Var *) node;
	ListCell *lc;

	if (!IsA(node, Var) || var->varno != relid || var->varattno <= 0 || var->varlevelsup != 0)
		return false;
	foreach(lc, GetForeignColumnOptions(foreigntable, var->varattno))
	{
		DefElem *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "meta") != 0)
			continue;
		*meta = strVal(def->arg);
		return true;
	}
	return false;
}

/* Can the value be computed before the scan? */
static bool
is_value(Node *node)
{
	return !contain_var_clause(node) && !contain_volatile_functions(node) &&
		   !contain_subplans(node);
}

/*
 * Fills in a bound for "column op value", and true, if the operator is one of btree's on a type that
 * can be compared. 'type' is that of one value.
 */
static bool
make_bound(SxBound *bound, Oid opno, const char *meta, Oid column_type, Oid type)
{
	Oid family = INTEGER_BTREE_FAM_OID;

	if (strcmp(meta, "partition") == 0)
		bound->column = SX_BOUND_PARTITION;
	else if (strcmp(meta, "offset") == 0)
		bound->column = SX_BOUND_OFFSET;
	else if (strcmp(meta, "timestamp") == 0)
		bound->column = SX_BOUND_TIMESTAMP;
	else
		return false;
	if (bound->column == SX_BOUND_TIMESTAMP && column_type != INT8OID)
	{
		family = get_opclass_family(GetDefaultOpClass(TIMESTAMPTZOID, BTREE_AM_OID));
		if (type != column_type || (type != TIMESTAMPTZOID && type != TIMESTAMPOID))
			return false;
	}
	else if (type != INT2OID && type != INT4OID && type != INT8OID)
		return false;
	bound->strategy = get_op_opfamily_strategy(opno, family);
	bound->type = type;
	return bound->strategy != InvalidStrategy;
}

/* Looks for a bound in a condition; its value goes to *value. */
static bool
find_bound(Expr *clause, Index relid, Oid foreigntable, SxBound *bound, Node **value)
{
	const char *meta;

	if (IsA(clause, OpExpr) && list_length(((OpExpr *) clause)->args) == 2)
	{
		Oid opno = ((OpExpr *) clause)->opno;
		Node *left = linitial(((OpExpr *) clause)->args);
		Node *right = lsecond(((OpExpr *) clause)->args);

		if (!bound_column(left, relid, foreigntable, &meta))
		{
			Node *swap = left;

			left = right;
			right = swap;
			opno = get_commutator(opno);
			if (!OidIsValid(opno) || !bound_column(left, relid, foreigntable, &meta))
				return false;
		}
		*value = right;
		bound->is_array = false;
		return is_value(right) && make_bound(bound, opno, meta, exprType(left), exprType(right));
	}
	if (IsA(clause, ScalarArrayOpExpr) && ((ScalarArrayOpExpr *) clause)->useOr)
	{
		ScalarArrayOpExpr *any = (ScalarArrayOpExpr *) clause;
		Node *left = linitial(any->args);

		*value = lsecond(any->args);
		bound->is_array = true;
		return bound_column(left, relid, foreigntable, &meta) && is_value(*value) &&
			   strcmp(meta, "partition") == 0 &&
			   make_bound(bound, any->opno, meta, exprType(left),
						  get_element_type(exprType(*value))) &&
			   bound->strategy == BTEqualStrategyNumber;
	}
	return false;
}

static ForeignScan *
kafka_plan(PlannerInfo *root, RelOptInfo *rel, Oid relid, ForeignPath *path, List *tlist,
		   List *scan_clauses, Plan *outer_plan)
{
	List *clauses = extract_actual_clauses(scan_clauses, false);
	List *bounds = NIL;
	List *values = NIL;
	ListCell *lc;

	foreach(lc, clauses)
	{
		SxBound bound;
		Node *value;

		if (!find_bound(lfirst(lc), rel->relid, relid, &bound, &value))
			continue;
		bounds = lappend(bounds, list_make4_int((int) bound.column, bound.strategy,
												(int) bound.type, bound.is_array));
		values = lappend(values, value);
	}
	return make_foreignscan(tlist, clauses, rel->relid, values, bounds, NIL, NIL, outer_plan);
}

void
sx_fdw_plan_routine(FdwRoutine *routine)
{
	routine->GetForeignRelSize = kafka_rel_size;
	routine->GetForeignPaths = kafka_paths;
	routine->GetForeignPlan = kafka_plan;
}
