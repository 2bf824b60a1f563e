/*
 * check.c
 *		Which queries continuous views accept.
 *
 * A view must return at every commit what its SELECT returns. What cannot be kept true yet is
 * refused here, when the view is created, and the error names the construct and points at it. The
 * analyzed query carries positions of expressions, but not of items in FROM; these are looked up
 * in the source text, which is parsed once more only when an error has been found.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "mb/pg_wchar.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_node.h"
#include "parser/parser.h"
#include "parser/parsetree.h"
#include "tcop/tcopprot.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/pipeline/check.h"
#include "stream_ext/source/kafka_options.h"
#include "stream_ext/time/window.h"

typedef struct CheckContext
{
	const char *source_text;
	bool aggregates; /* a query further out groups or aggregates */
} CheckContext;

/* For ereport(): the cursor position of byte offset 'location' in the source text. */
static int
position(CheckContext *ctx, int location)
{
	if (ctx->source_text == NULL || location < 0)
		return 0;
	return errposition(pg_mbstrlen_with_len(ctx->source_text, location) + 1);
}

/* Raises the error for a construct. 'what' completes "... not supported in a continuous view". */
static void
refuse(CheckContext *ctx, const char *what, int location)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s not supported in a continuous view", what), position(ctx, location)));
}

typedef struct FromContext
{
	const char *relname;
	int skip; /* this many matches are passed over */
	int location;
} FromContext;

static bool
find_from_item(Node *node, void *context)
{
	FromContext *from = context;

	if (node == NULL)
		return false;
	if (IsA(node, RangeVar))
	{
		RangeVar *rv = (RangeVar *) node;

		if (from->relname == NULL || strcmp(rv->relname, from->relname) == 0)
		{
			if (from->skip-- > 0)
				return false;
			from->location = rv->location;
			return true;
		}
		return false;
	}
	return raw_expression_tree_walker(node, find_from_item, context);
}

/*
 * Position of the relation named 'relname' (NULL: any) in FROM of a CREATE MATERIALIZED VIEW in
 * the source text, the one after 'skip' others; -1 if it cannot be found.
 */
static int
locate_from_item(CheckContext *ctx, const char *relname, int skip)
{
	FromContext from = {.relname = relname, .skip = skip, .location = -1};
	List *statements;
	ListCell *lc;

	if (ctx->source_text == NULL)
		return -1;
	statements = raw_parser(ctx->source_text, RAW_PARSE_DEFAULT);
	foreach(lc, statements)
	{
		RawStmt *raw = lfirst_node(RawStmt, lc);

		if (!IsA(raw->stmt, CreateTableAsStmt) ||
			!IsA(((CreateTableAsStmt *) raw->stmt)->query, SelectStmt))
			continue;
		if (raw_expression_tree_walker(((CreateTableAsStmt *) raw->stmt)->query, find_from_item,
									   &from))
			break;
	}
	return from.location;
}

/*
 * Functions that are not volatile for the server, but whose result belongs to a session, a
 * transaction or a place of storage; NULL: none of these.
 */
static const char *
session_function(Oid funcid)
{
	switch (funcid)
	{
		case F_CURRENT_USER:
		case F_SESSION_USER:
		case F_GETPGUSERNAME:
			return "the current user";
		case F_AGE_XID:
		case F_CURRENT_QUERY:
		case F_INET_CLIENT_ADDR:
		case F_INET_CLIENT_PORT:
		case F_INET_SERVER_ADDR:
		case F_INET_SERVER_PORT:
		case F_MXID_AGE:
		case F_NOW:
		case F_PG_BACKEND_PID:
		case F_PG_CLIENT_ENCODING:
		case F_PG_COLUMN_COMPRESSION:
		case F_PG_COLUMN_SIZE:
		case F_PG_CONF_LOAD_TIME:
		case F_PG_CURRENT_SNAPSHOT:
		case F_PG_CURRENT_XACT_ID:
		case F_PG_CURRENT_XACT_ID_IF_ASSIGNED:
		case F_PG_IS_OTHER_TEMP_SCHEMA:
		case F_PG_MY_TEMP_SCHEMA:
		case F_PG_POSTMASTER_START_TIME:
		case F_PG_TRIGGER_DEPTH:
		case F_STATEMENT_TIMESTAMP:
		case F_TRANSACTION_TIMESTAMP:
		case F_TXID_CURRENT:
		case F_TXID_CURRENT_IF_ASSIGNED:
		case F_TXID_CURRENT_SNAPSHOT:
			return psprintf("function %s()", get_func_name(funcid));
		default:
			return NULL;
	}
}

typedef struct FunctionContext
{
	Oid funcid;
} FunctionContext;

static bool
find_unstable(Oid funcid, void *context)
{
	if (session_function(funcid) == NULL && func_volatile(funcid) != PROVOLATILE_VOLATILE)
		return false;
	((FunctionContext *) context)->funcid = funcid;
	return true;
}

static void
check_functions(CheckContext *ctx, Node *node)
{
	FunctionContext fn = {InvalidOid};
	const char *session;

	if (!check_functions_in_node(node, find_unstable, &fn))
		return;
	session = session_function(fn.funcid);
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 session != NULL ? errmsg("%s cannot be used in a continuous view", session)
							 : errmsg("volatile function %s cannot be used in a continuous view",
									  get_func_name(fn.funcid)),
			 errdetail("The view's rows could not be kept equal to its query."),
			 errhint("Store the value in a column of the stream when the row is inserted."),
			 position(ctx, exprLocation(node))));
}

/* The constant that an argument is, NULL if it is none. */
static const NullableDatum *
constant_argument(FuncExpr *call, int i, NullableDatum *value)
{
	Const *con;

	if (i >= list_length(call->args) || !IsA(list_nth(call->args, i), Const))
		return NULL;
	con = list_nth(call->args, i);
	value->value = con->constvalue;
	value->isnull = con->constisnull;
	return value;
}

/* A window of no or negative length must not be found out by the first row. */
static void
check_window(CheckContext *ctx, FuncExpr *call, SxWindowType type)
{
	ParseState *pstate = make_parsestate(NULL);
	ParseCallbackState callback;
	NullableDatum size;
	NullableDatum origin;
	NullableDatum zone;
	Node *folded;

	pstate->p_sourcetext = ctx->source_text;
	setup_parser_errposition_callback(&callback, pstate, call->location);
	/* adds the arguments that were left out */
	folded = eval_const_expressions(NULL, copyObject((Node *) call));
	if (IsA(folded, FuncExpr))
	{
		call = (FuncExpr *) folded;
		sx_window_check_size(type, constant_argument(call, 1, &size),
							 constant_argument(call, 2, &origin),
							 constant_argument(call, 3, &zone));
	}
	cancel_parser_errposition_callback(&callback);
	free_parsestate(pstate);
}

static bool check_expression(Node *node, void *context);
static void check_query(const Query *query, CheckContext *ctx);

/* Do the options of a foreign table fit its columns, and may they be used? */
static void
check_topic(Oid relid)
{
	Relation rel = table_open(relid, AccessShareLock);
	SxKafkaOptions *options = sx_kafka_options(rel, GetUserId());

	sx_format_check(&options->format, RelationGetDescr(rel), RelationGetRelationName(rel));
	table_close(rel, NoLock);
}

static void
check_relation(RangeTblEntry *rte, CheckContext *ctx)
{
	char *name = get_rel_name(rte->relid);

	if (rte->tablesample != NULL)
		refuse(ctx, "TABLESAMPLE is", locate_from_item(ctx, name, 0));
	if (sx_is_kafka(rte->relid))
	{
		check_topic(rte->relid);
		return;
	}
	if (!sx_is_stream(rte->relid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"%s\" is not a stream", name != NULL ? name : "?"),
				 errdetail("This version of stream_ext reads tables created USING stream and "
						   "foreign tables of wrapper kafka."),
				 position(ctx, locate_from_item(ctx, name, 0))));
	if (sx_stream_options(rte->relid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("stream \"%s\" is undefined", name),
				 errdetail("Its options have not been restored or set."),
				 errhint("Use SECURITY LABEL FOR stream ON TABLE .. IS 'v1', or ALTER TABLE .. SET "
						 "(stream.event_time = ..)."),
				 position(ctx, locate_from_item(ctx, name, 0))));
}

/* One item of FROM; entries of the range table that FROM does not name are the rule's own. */
static void
check_from_item(const Query *query, Node *item, CheckContext *ctx)
{
	RangeTblEntry *rte;

	if (!IsA(item, RangeTblRef))
		refuse(ctx, "a join is", locate_from_item(ctx, NULL, 1));
	rte = rt_fetch(((RangeTblRef *) item)->rtindex, query->rtable);
	switch (rte->rtekind)
	{
		case RTE_RELATION:
			check_relation(rte, ctx);
			break;
		case RTE_SUBQUERY:
			check_query(rte->subquery, ctx);
			break;
		case RTE_FUNCTION:
			refuse(ctx, "a function in FROM is",
				   exprLocation(linitial_node(RangeTblFunction, rte->functions)->funcexpr));
			break;
		case RTE_TABLEFUNC:
			refuse(ctx, "XMLTABLE or JSON_TABLE is", exprLocation((Node *) rte->tablefunc));
			break;
		case RTE_VALUES:
			refuse(ctx, "VALUES is", exprLocation((Node *) rte->values_lists));
			break;
		default:
			refuse(ctx, "this item in FROM is", -1);
			break;
	}
}

static void
check_from(const Query *query, CheckContext *ctx)
{
	List *items = query->jointree->fromlist;

	if (items == NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("a continuous view must read a stream"),
						errhint("Name a table created USING stream, or a foreign table of wrapper "
								"kafka, in FROM.")));
	if (list_length(items) > 1)
		refuse(ctx, "a join is", locate_from_item(ctx, NULL, 1));
	check_from_item(query, linitial(items), ctx);
}

/* Position of the first output column. */
static int
target_location(const Query *query)
{
	return exprLocation(sx_flatten_group_exprs(unconstify(Query *, query), query->targetList));
}

static void
check_query(const Query *query, CheckContext *ctx)
{
	if (query->commandType != CMD_SELECT)
		refuse(ctx, "a statement that changes data is", -1);
	if (query->cteList != NIL)
		refuse(ctx, "WITH is", linitial_node(CommonTableExpr, query->cteList)->location);
	if (query->setOperations != NULL)
		refuse(ctx, "UNION, INTERSECT or EXCEPT is", locate_from_item(ctx, NULL, 1));
	if (query->limitCount != NULL || query->limitOffset != NULL)
		refuse(ctx, "LIMIT is",
			   exprLocation(query->limitCount != NULL ? query->limitCount : query->limitOffset));
	if (query->hasDistinctOn)
		refuse(ctx, "DISTINCT ON is", target_location(query));
	if (query->groupingSets != NIL)
		refuse(ctx, "GROUPING SETS, ROLLUP or CUBE is",
			   linitial_node(GroupingSet, query->groupingSets)->location);
	if (query->hasAggs || query->groupClause != NIL || query->distinctClause != NIL)
	{
		bool twice = query->distinctClause != NIL && (query->hasAggs || query->groupClause != NIL);

		if (ctx->aggregates || twice)
			refuse(ctx, "an aggregate, GROUP BY or DISTINCT over another one is",
				   target_location(query));
		ctx->aggregates = true;
	}
	if (query->rowMarks != NIL)
		refuse(ctx, "FOR UPDATE or FOR SHARE is", -1);
	check_from(query, ctx);
	check_expression(sx_flatten_group_exprs((Query *) query, query->targetList), ctx);
	check_expression(query->jointree->quals, ctx);
	check_expression(sx_flatten_group_exprs((Query *) query, query->havingQual), ctx);
}

static bool
check_expression(Node *node, void *context)
{
	CheckContext *ctx = context;
	SxWindowType window;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_SubLink:
			refuse(ctx, "a subquery in an expression is", exprLocation(node));
			break;
		case T_SubPlan:
		case T_AlternativeSubPlan:
			refuse(ctx, "a subquery in an expression is", -1);
			break;
		case T_WindowFunc:
			refuse(ctx, "a window function with OVER is", exprLocation(node));
			break;
		case T_SQLValueFunction:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("the current time, user or schema cannot be used in a continuous view"),
					 errdetail("The view's rows could not be kept equal to its query."),
					 errhint("Store the value in a column of the stream when the row is inserted."),
					 position(ctx, exprLocation(node))));
			break;
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcretset)
				refuse(ctx, "a set-returning function is", exprLocation(node));
			if (sx_window_is_tumble(((FuncExpr *) node)->funcid, &window))
				check_window(ctx, (FuncExpr *) node, window);
			break;
		case T_OpExpr:
			if (((OpExpr *) node)->opretset)
				refuse(ctx, "a set-returning operator is", exprLocation(node));
			break;
		case T_Var:
			if (((Var *) node)->varattno < 0)
				refuse(ctx, "a system column is", exprLocation(node));
			break;
		default:
			break;
	}
	check_functions(ctx, node);
	return expression_tree_walker(node, check_expression, context);
}

void
sx_check_query(const Query *query, const char *source_text)
{
	CheckContext ctx = {.source_text = source_text};

	check_query(query, &ctx);
}

void
sx_check_plan(PlannedStmt *stmt)
{
	CheckContext ctx = {.source_text = NULL};
	Plan *plan = stmt->planTree;

	if (stmt->subplans != NIL)
		refuse(&ctx, "a subquery in an expression is", -1);
	while (plan != NULL)
	{
		check_expression((Node *) plan->targetlist, &ctx);
		check_expression((Node *) plan->qual, &ctx);
		plan = IsA(plan, SubqueryScan) ? ((SubqueryScan *) plan)->subplan : plan->lefttree;
	}
}
