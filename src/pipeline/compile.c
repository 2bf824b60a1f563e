/*
 * compile.c
 *		From a view's SELECT to a chain of operators.
 *
 * The server's planner does the hard part: it expands inlined functions, pulls up subqueries, and
 * gives expressions whose Vars name columns of the node below. The plan is a chain from one scan
 * up; each node becomes a stage, and each stage an operator:
 *
 *		SeqScan, ForeignScan, Result,
 *		SubqueryScan					project (filter and expressions)
 *		Agg								aggregate
 *		Sort, Material					nothing: the rows of a view have no order
 *
 * Any other node is an error. An Agg may come as hashed or sorted (the planner sorts for DISTINCT
 * and ORDER BY inside aggregates); both are the same operator.
 *
 * As key of the aggregate counts every column that is grouped by or shown outside an aggregate:
 * where a primary key is grouped by, the parser allows to show columns that depend on it, and the
 * planner drops them from the grouping.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteSupport.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/timestamp.h"

#include "stream_ext/operator/aggregate.h"
#include "stream_ext/operator/project.h"
#include "stream_ext/pipeline/check.h"
#include "stream_ext/pipeline/compile.h"
#include "stream_ext/pipeline/dataflow.h"
#include "stream_ext/pipeline/plan.h"
#include "stream_ext/source/kafka_options.h"
#include "stream_ext/view/view.h"

/* One operator to be. */
typedef struct Stage
{
	Plan *plan;            /* the node, for deparsing */
	SxAggregateSpec *spec; /* NULL: a project stage */
	List *targetlist;      /* of a project stage */
	List *qual;
	bool input_is_outer;
	const Bitmapset *needed; /* columns of its output that the stage above reads; NULL: all */
} Stage;

typedef struct Chain
{
	PlannedStmt *stmt;
	Oid source;
	List *stages;    /* the topmost first */
	uint32 policies; /* hash of row-level security, 0: none */
} Chain;

static List *
remove_junk(List *targetlist)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, targetlist)
	{
		TargetEntry *tle = lfirst_node(TargetEntry, lc);

		if (tle->resjunk)
			continue;
		tle = flatCopyTargetEntry(tle);
		tle->resno = list_length(result) + 1;
		result = lappend(result, tle);
	}
	return result;
}

static bool
collect_key_vars(Node *node, void *context)
{
	Bitmapset **attrs = context;

	if (node == NULL || IsA(node, Aggref))
		return false;
	if (IsA(node, Var))
	{
		*attrs = bms_add_member(*attrs, ((Var *) node)->varattno);
		return false;
	}
	return expression_tree_walker(node, collect_key_vars, context);
}

static SxAggregateSpec *
make_aggregate_spec(Agg *agg, List *targetlist)
{
	SxAggregateSpec *spec = palloc0(sizeof(SxAggregateSpec));
	Bitmapset *shown = NULL;
	int a = -1;

	if (agg->groupingSets != NIL || agg->chain != NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("GROUPING SETS are not supported in a continuous view")));
	spec->targetlist = targetlist;
	spec->qual = agg->plan.qual;
	spec->is_plain = agg->numCols == 0;
	for (int i = 0; i < agg->numCols; i++)
		shown = bms_add_member(shown, agg->grpColIdx[i]);
	collect_key_vars((Node *) targetlist, &shown);
	collect_key_vars((Node *) spec->qual, &shown);
	/* direct arguments of ordered-set aggregates depend on the group only, so they add nothing */
	spec->keys = palloc(sizeof(AttrNumber) * Max(bms_num_members(shown), 1));
	spec->equality = palloc0(sizeof(Oid) * Max(bms_num_members(shown), 1));
	for (int i = 0; i < agg->numCols; i++)
	{
		/* in the order of GROUP BY; the rest follows by column */
		spec->equality[spec->nkeys] = agg->grpOperators[i];
		spec->keys[spec->nkeys++] = agg->grpColIdx[i];
		shown = bms_del_member(shown, agg->grpColIdx[i]);
	}
	while ((a = bms_next_member(shown, a)) >= 0)
		spec->keys[spec->nkeys++] = a;
	return spec;
}

static void
refuse_plan(const char *what)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("%s is not supported in a continuous view", what)));
}

/* Turns a plan into stages. Errors name what is not supported. */
static Chain *
make_chain(PlannedStmt *stmt)
{
	Chain *chain = palloc0(sizeof(Chain));
	Plan *plan = stmt->planTree;
	bool has_aggregate = false;

	chain->stmt = stmt;
	while (plan != NULL)
	{
		Stage *stage = palloc0(sizeof(Stage));
		List *targetlist = chain->stages == NIL ? remove_junk(plan->targetlist) : plan->targetlist;

		stage->plan = plan;
		stage->targetlist = targetlist;
		stage->qual = plan->qual;
		switch (nodeTag(plan))
		{
			case T_Sort:
			case T_IncrementalSort:
			case T_Material:
				plan = plan->lefttree;
				continue;
			case T_Agg:
				if (has_aggregate)
					refuse_plan("an aggregate, DISTINCT or GROUP BY over another one");
				has_aggregate = true;
				stage->spec = make_aggregate_spec((Agg *) plan, targetlist);
				plan = plan->lefttree;
				break;
			case T_Result:
				if (((Result *) plan)->resconstantqual != NULL)
					refuse_plan("a condition that does not depend on the row");
				stage->input_is_outer = true;
				plan = plan->lefttree;
				break;
			case T_SubqueryScan:
				plan = ((SubqueryScan *) plan)->subplan;
				break;
			case T_SeqScan:
			case T_ForeignScan:
				chain->source = rt_fetch(((Scan *) plan)->scanrelid, stmt->rtable)->relid;
				plan = NULL;
				break;
			case T_Group:
			case T_Unique:
				refuse_plan("GROUP BY or DISTINCT on a value that cannot be hashed");
				break;
			case T_Append:
			case T_MergeAppend:
				refuse_plan("inheritance or partitioning of the stream");
				break;
			default:
				refuse_plan("this kind of query");
				break;
		}
		chain->stages = lappend(chain->stages, stage);
	}
	if (!OidIsValid(chain->source))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("a continuous view must read a stream"),
						errdetail("The planner found that the query returns no row of it.")));
	return chain;
}

/* Number of columns of the stage's input. */
static int
input_width(Chain *chain, int i, TupleDesc source)
{
	Stage *below;

	if (i == list_length(chain->stages) - 1)
		return source->natts;
	below = list_nth(chain->stages, i + 1);
	return list_length(below->targetlist);
}

/* What each stage has to give to the one above; returns the columns read from the source. */
static Bitmapset *
propagate_needed(Chain *chain, TupleDesc source)
{
	const Bitmapset *needed = NULL;
	Bitmapset *read = NULL;

	for (int i = 0; i < list_length(chain->stages); i++)
	{
		Stage *stage = list_nth(chain->stages, i);
		int natts = input_width(chain, i, source);

		stage->needed = needed;
		read = stage->spec != NULL
				   ? sx_aggregate_inputs(stage->spec, natts)
				   : sx_project_inputs(stage->qual, stage->targetlist, needed, natts);
		/* NULL means all columns, but here none: member 0 is no column */
		needed = bms_add_member(bms_copy(read), 0);
	}
	return bms_add_member(read, 0);
}

/*
 * The source as it stands in a signature. What else there is about a topic acts on records that are
 * read from then on, as the columns of a stream do.
 */
static char *
describe_source(Relation source)
{
	if (source->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		return psprintf("kafka(%u, %s)", RelationGetRelid(source),
						quote_literal_cstr(sx_kafka_topic(RelationGetRelid(source))));
	return psprintf("stream(%u)", RelationGetRelid(source));
}

/* Makes the operators, from the source up, and connects them. */
static SxDataflow *
build_flow(Chain *chain, Oid view, Relation source)
{
	int nstages = list_length(chain->stages);
	SxDataflow *flow;
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext dataflow", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	TupleDesc input;
	MemoryContext query_cxt;

	flow = palloc0(sizeof(SxDataflow));
	flow->cxt = cxt;
	flow->estate = CreateExecutorState();
	flow->source = chain->source;
	flow->dependencies = copyObject(chain->stmt->invalItems);
	flow->source_shape = sx_relation_shape(source);
	flow->source_desc = CreateTupleDescCopyConstr(RelationGetDescr(source));
	flow->needed = propagate_needed(chain, flow->source_desc);
	flow->noperators = nstages + 1;
	flow->operators = palloc(sizeof(SxOperator *) * flow->noperators);
	flow->sink = sx_view_create(list_length(((Stage *) linitial(chain->stages))->targetlist));
	flow->operators[0] = flow->sink;
	input = flow->source_desc;
	query_cxt = MemoryContextSwitchTo(flow->estate->es_query_cxt);
	for (int i = nstages - 1; i >= 0; i--)
	{
		Stage *stage = list_nth(chain->stages, i);
		SxOperator *op;

		if (stage->spec != NULL)
		{
			op = sx_aggregate_create(flow->estate, stage->spec, input, view, i + 1);
			flow->aggregate = op;
			flow->signature =
				MemoryContextStrdup(cxt, psprintf("%s %s", describe_source(source),
												  sx_aggregate_signature(stage->spec, input)));
			input = sx_aggregate_output(op);
		}
		else
		{
			op = sx_project_create(flow->estate, input, stage->qual, stage->targetlist,
								   stage->input_is_outer, stage->needed);
			input = sx_project_output(op);
		}
		op->id = i + 1;
		flow->operators[i + 1] = op;
	}
	MemoryContextSwitchTo(query_cxt);
	for (int i = nstages; i > 0; i--)
		flow->operators[i]->next = flow->operators[i - 1];
	flow->first = flow->operators[nstages];
	if (flow->signature == NULL)
		flow->signature = psprintf("%s append", describe_source(source));
	/* rows that were read under other policies are not those that the owner sees */
	if (chain->policies != 0)
		flow->signature = psprintf("%s policies %08x", flow->signature, chain->policies);
	MemoryContextSwitchTo(old);
	return flow;
}

void
sx_dataflow_free(SxDataflow *flow)
{
	FreeExecutorState(flow->estate);
	MemoryContextDelete(flow->cxt);
}

bool
sx_dataflow_uses(SxDataflow *flow, int cacheid, uint32 hashvalue)
{
	ListCell *lc;

	foreach(lc, flow->dependencies)
	{
		PlanInvalItem *item = lfirst_node(PlanInvalItem, lc);

		if (item->cacheId == cacheid && (hashvalue == 0 || item->hashValue == hashvalue))
			return true;
	}
	return false;
}

Size
sx_dataflow_memory(SxDataflow *flow)
{
	return MemoryContextMemAllocated(flow->cxt, true);
}

uint32
sx_relation_shape(Relation rel)
{
	TupleDesc desc = RelationGetDescr(rel);
	uint32 hash = (uint32) desc->natts;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		hash = hash_combine(hash, hash_uint32(att->atttypid));
		hash = hash_combine(hash, hash_uint32((uint32) att->atttypmod));
		hash = hash_combine(hash, hash_uint32(att->attcollation));
		hash = hash_combine(hash, att->attisdropped);
		hash = hash_combine(hash, att->atthasmissing);
	}
	/* SELECT would read children, which the view does not: compiling it anew says so */
	hash = hash_combine(hash, rel->rd_rel->relhassubclass);
	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		hash = hash_combine(hash, sx_kafka_shape(rel));
	/* policies change with the relation's cache entry, so a stream that has any is compiled anew */
	if (rel->rd_rel->relrowsecurity)
		hash = hash_combine(hash, (uint32) GetCurrentTimestamp());
	return hash;
}

/* The analyzed SELECT of a materialized view, from its rule. */
static Query *
get_query(Oid view)
{
	Relation rel = table_open(view, AccessShareLock);
	Query *query;

	if (rel->rd_rel->relkind != RELKIND_MATVIEW || rel->rd_rules == NULL ||
		rel->rd_rules->numLocks != 1)
		elog(ERROR, "\"%s\" has no query", RelationGetRelationName(rel));
	query = linitial_node(Query, rel->rd_rules->rules[0]->actions);
	query = copyObject(query);
	table_close(rel, NoLock);
	return query;
}

static Chain *
compile(Query *query, const char *source_text)
{
	PlannedStmt *stmt;
	Chain *chain;
	uint32 policies;

	sx_check_query(query, source_text);
	stmt = sx_plan_query(query, &policies);
	sx_check_plan(stmt);
	sx_check_permissions(stmt);
	chain = make_chain(stmt);
	chain->policies = policies;
	return chain;
}

/*
 * Compiles the query of a view for a command, as the view's owner: constant calls of the owner's
 * functions are evaluated by the planner, and whoever runs the command must not lend his rights to
 * them.
 */
static Chain *
compile_as_owner(Oid view)
{
	Relation rel = table_open(view, AccessShareLock);
	Chain *chain;
	Oid save_userid;
	int save_sec_context;
	int save_nestlevel;

	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner, save_sec_context | SECURITY_RESTRICTED_OPERATION);
	save_nestlevel = NewGUCNestLevel();
	chain = compile(get_query(view), NULL);
	AtEOXact_GUC(false, save_nestlevel);
	SetUserIdAndSecContext(save_userid, save_sec_context);
	table_close(rel, NoLock);
	return chain;
}

/* In a security-restricted operation, as the server plans what a materialized view is made from. */
void
sx_compile_check(Query *query, const char *source_text)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext compile", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Chain *chain;
	Relation source;
	Oid userid;
	int save_sec_context;
	int save_nestlevel;

	GetUserIdAndSecContext(&userid, &save_sec_context);
	SetUserIdAndSecContext(userid, save_sec_context | SECURITY_RESTRICTED_OPERATION);
	save_nestlevel = NewGUCNestLevel();
	chain = compile(query, source_text);
	source = table_open(chain->source, AccessShareLock);

	/* what an operator cannot do shows when it is made */
	sx_dataflow_free(build_flow(chain, InvalidOid, source));
	AtEOXact_GUC(false, save_nestlevel);
	SetUserIdAndSecContext(userid, save_sec_context);
	table_close(source, NoLock);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

SxDataflow *
sx_dataflow_create(Oid view)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext compile", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Chain *chain = compile(get_query(view), NULL);
	Relation source = table_open(chain->source, AccessShareLock);
	SxDataflow *flow;

	MemoryContextSwitchTo(old);
	flow = build_flow(chain, view, source);
	table_close(source, NoLock);
	/* expressions refer to the plan, so it stays as long as the operators */
	MemoryContextSetParent(cxt, flow->cxt);
	return flow;
}

static bool
collect_sources(Node *node, void *context)
{
	List **sources = context;

	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_RELATION)
			*sources = list_append_unique_oid(*sources, rte->relid);
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, collect_sources, context, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, collect_sources, context);
}

List *
sx_compile_sources(Oid view)
{
	List *sources = NIL;
	Query *query = get_query(view);

	/* the rule of a materialized view has entries for the view itself before PostgreSQL 17 */
	collect_sources((Node *) query, &sources);
	return list_delete_oid(sources, view);
}

List *
sx_compile_key(Oid view, bool *has_key)
{
	Chain *chain = compile_as_owner(view);
	Stage *top = linitial(chain->stages);
	List *columns = NIL;
	Bitmapset *missing = NULL;
	Stage *agg_stage = NULL;
	int depth = 0;
	ListCell *lc;

	*has_key = false;
	foreach(lc, chain->stages)
	{
		agg_stage = lfirst(lc);
		if (agg_stage->spec != NULL)
			break;
		depth++;
	}
	if (agg_stage->spec == NULL)
		return NIL;
	for (int k = 0; k < agg_stage->spec->nkeys; k++)
		missing = bms_add_member(missing, agg_stage->spec->keys[k]);
	foreach(lc, top->targetlist)
	{
		TargetEntry *tle = lfirst(lc);
		Node *expr = (Node *) tle->expr;

		/* follow the column down to the aggregate's input */
		for (int d = 0; d < depth && IsA(expr, Var); d++)
		{
			Stage *below = list_nth(chain->stages, d + 1);

			expr =
				(Node *) list_nth_node(TargetEntry, below->targetlist, ((Var *) expr)->varattno - 1)
					->expr;
		}
		if (!IsA(expr, Var) || !bms_is_member(((Var *) expr)->varattno, missing))
			continue;
		missing = bms_del_member(missing, ((Var *) expr)->varattno);
		columns = lappend_int(columns, tle->resno);
	}
	*has_key = bms_is_empty(missing);
	return columns;
}

/* ---------------------------------------------------------------- stream.explain() */

static void
append_expressions(StringInfo out, const char *label, List *exprs, List *context)
{
	ListCell *lc;
	bool first = true;

	if (exprs == NIL)
		return;
	if (out->len > 0)
		appendStringInfoString(out, "; ");
	appendStringInfo(out, "%s: ", label);
	foreach(lc, exprs)
	{
		appendStringInfo(out, "%s%s",
						 first                           ? ""
						 : strcmp(label, "columns") == 0 ? ", "
														 : " AND ",
						 deparse_expression(lfirst(lc), context, false, false));
		first = false;
	}
}

static char *
describe_stage(Chain *chain, Stage *stage)
{
	List *rtable = chain->stmt->rtable;
	Bitmapset *all = bms_add_range(NULL, 1, list_length(rtable));
	List *names = select_rtable_names_for_explain(rtable, all);
	List *context = deparse_context_for_plan_tree(chain->stmt, names);
	StringInfoData out;
	List *columns = NIL;
	ListCell *lc;

	context = set_deparse_context_plan(context, stage->plan, NIL);
	initStringInfo(&out);
	if (stage->spec != NULL)
	{
		appendStringInfoString(&out, stage->spec->is_plain ? "one group" : "by: ");
		for (int k = 0; k < stage->spec->nkeys; k++)
		{
			TargetEntry *tle =
				list_nth(stage->plan->lefttree->targetlist, stage->spec->keys[k] - 1);
			Var *var =
				makeVar(OUTER_VAR, stage->spec->keys[k], exprType((Node *) tle->expr),
						exprTypmod((Node *) tle->expr), exprCollation((Node *) tle->expr), 0);

			appendStringInfo(&out, "%s%s", k > 0 ? ", " : "",
							 deparse_expression((Node *) var, context, false, false));
		}
	}
	foreach(lc, stage->targetlist)
	{
		TargetEntry *tle = lfirst(lc);

		if (stage->needed != NULL && !bms_is_member(tle->resno, stage->needed))
			continue;
		/* keys stand in "by" already */
		if (stage->spec == NULL || !IsA(tle->expr, Var))
			columns = lappend(columns, tle->expr);
	}
	append_expressions(&out, "columns", columns, context);
	append_expressions(&out, stage->spec != NULL ? "having" : "filter",
					   stage->spec != NULL ? stage->spec->qual : stage->qual, context);
	return out.data;
}

static SxExplainRow *
make_explain_row(int id, char *name, char *detail)
{
	SxExplainRow *row = palloc0(sizeof(SxExplainRow));

	row->id = id;
	row->parent = id - 1;
	row->operator= name;
	row->detail = detail;
	return row;
}

List *
sx_compile_explain(Oid view)
{
	Chain *chain = compile_as_owner(view);
	Relation source = table_open(chain->source, AccessShareLock);
	List *rows = list_make1(make_explain_row(1, "view", get_rel_name(view)));
	ListCell *lc;

	(void) propagate_needed(chain, RelationGetDescr(source));
	foreach(lc, chain->stages)
	{
		Stage *stage = lfirst(lc);

		rows = lappend(rows, make_explain_row(list_length(rows) + 1,
											  stage->spec != NULL ? "aggregate" : "project",
											  describe_stage(chain, stage)));
	}
	rows = lappend(rows,
				   make_explain_row(
					   list_length(rows) + 1,
					   source->rd_rel->relkind == RELKIND_FOREIGN_TABLE ? "kafka" : "stream",
					   quote_qualified_identifier(get_namespace_name(source->rd_rel->relnamespace),
												  RelationGetRelationName(source))));
	table_close(source, NoLock);
	return rows;
}
