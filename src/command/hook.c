/*
 * hook.c
 *		The utility hook: which statements concern us.
 *
 * Everything else must pass at the cost of one switch, and without a look at the catalog: the hook
 * also sees ROLLBACK in an aborted transaction, and statements in databases that do not have the
 * extension. Each handler finds out whether the statement is about a relation of ours and, if not,
 * hands it on unchanged.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_extension.h"
#include "tcop/utility.h"
#include "utils/acl.h"

#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/command/command.h"
#include "stream_ext/command/statement.h"
#include "stream_ext/worker/launcher.h"

static ProcessUtility_hook_type prev_process_utility = NULL;

/* Hands the statement on: to the next extension, or to PostgreSQL. */
void
sx_statement_run(SxStatement *stmt)
{
	ProcessUtility_hook_type next =
		prev_process_utility ? prev_process_utility : standard_ProcessUtility;

	next(stmt->pstmt, stmt->query_string, stmt->read_only_tree, stmt->context, stmt->params,
		 stmt->query_env, stmt->dest, stmt->qc);
}

/*
 * Replaces the statement by a copy, which the caller may change: the original can belong to a
 * cached plan. Returns the copy's node.
 */
Node *
sx_statement_copy(SxStatement *stmt)
{
	stmt->pstmt = copyObject(stmt->pstmt);
	stmt->read_only_tree = false;
	return stmt->pstmt->utilityStmt;
}

/* pg_upgrade replays definitions without workers. Errors: OBJECT_NOT_IN_PREREQUISITE_STATE. */
void
sx_require_preloaded(void)
{
	if (!IsBinaryUpgrade)
		sx_launcher_require();
}

static void
create_extension(SxStatement *stmt)
{
	sx_statement_run(stmt);
	/* also when it came along by CASCADE */
	if (OidIsValid(sx_extension()) && sx_launcher_available())
	{
		sx_launcher_request_probe(MyDatabaseId);
		sx_wake_launcher_at_commit();
	}
}

/* Does the statement drop our extension, and may the current user do that? */
static bool
drops_extension(const DropStmt *drop)
{
	ListCell *cell;

	if (drop->removeType != OBJECT_EXTENSION || !OidIsValid(sx_extension()))
		return false;
	foreach(cell, drop->objects)
		if (strcmp(strVal(lfirst(cell)), "stream_ext") == 0)
			return object_ownercheck(ExtensionRelationId, sx_extension(), GetUserId());
	return false;
}

static void
drop_objects(SxStatement *stmt)
{
	bool is_ours = drops_extension(castNode(DropStmt, stmt->pstmt->utilityStmt));

	/*
	 * The command locks our tables and the views one after the other, in an order of its own. A
	 * worker in the middle of a cycle holds some and wants others, so it must be gone before.
	 */
	if (is_ours && sx_launcher_available())
		sx_launcher_hold_database(MyDatabaseId);
	sx_statement_run(stmt);
	if (is_ours && !OidIsValid(sx_extension()))
		sx_wake_launcher_at_commit();
}

static void
end_transaction(SxStatement *stmt)
{
	sx_statement_run(stmt);
	/* the prepared transaction does not run commit callbacks; the one around this command does */
	if (castNode(TransactionStmt, stmt->pstmt->utilityStmt)->kind == TRANS_STMT_COMMIT_PREPARED)
		sx_wake_at_commit();
}

static void
command_process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
						ProcessUtilityContext context, ParamListInfo params,
						QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	SxStatement stmt = {pstmt, query_string, read_only_tree, context, params, query_env, dest, qc};

	switch (nodeTag(pstmt->utilityStmt))
	{
		case T_TransactionStmt:
			end_transaction(&stmt);
			break;
		case T_CreateStmt:
			sx_create_table(&stmt);
			break;
		case T_CreateTableAsStmt:
			sx_create_table_as(&stmt);
			break;
		case T_ExplainStmt:
			sx_explain(&stmt);
			break;
		case T_AlterTableStmt:
			sx_alter_table(&stmt);
			break;
		case T_IndexStmt:
			sx_create_index(&stmt);
			break;
		case T_RefreshMatViewStmt:
			sx_refresh(&stmt);
			break;
		case T_CreateExtensionStmt:
			create_extension(&stmt);
			break;
		case T_DropStmt:
			drop_objects(&stmt);
			break;
		case T_CreatedbStmt:
			sx_create_database(&stmt);
			break;
		case T_DropdbStmt:
			sx_drop_database(&stmt);
			break;
		case T_AlterDatabaseStmt:
			sx_alter_database(&stmt);
			break;
		case T_RenameStmt:
			sx_rename(&stmt);
			break;
		default:
			sx_statement_run(&stmt);
			break;
	}
}

/* Called by the script of the extension: without preloading there is nothing to install. */
PG_FUNCTION_INFO_V1(stream_ext_require_preload);
Datum
stream_ext_require_preload(PG_FUNCTION_ARGS)
{
	sx_require_preloaded();
	PG_RETURN_VOID();
}

void
sx_command_init(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = command_process_utility;
	sx_command_guard_init();
	sx_relabel_init();
}
