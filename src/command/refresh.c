/*
 * refresh.c
 *		REFRESH MATERIALIZED VIEW of a continuous view.
 *
 * PostgreSQL would run the query and put its result in place of the view, behind the back of the
 * worker. Instead the wish is written down, and the worker replays the sources once this
 * transaction has committed. The command cannot wait for it: the worker does not see it before.
 *
 * WITH NO DATA is PostgreSQL's own: an empty file in place of the old one. Its exclusive lock keeps
 * the worker away while the view's rows in our catalog go.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/matview.h"
#include "commands/tablecmds.h"
#include "rewrite/prs2lock.h"
#include "utils/lsyscache.h"

#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/command/statement.h"
#include "stream_ext/pipeline/compile.h"

/* Called before the lock is taken, so that nobody locks what he may not refresh. */
static void
check_may_refresh(const RangeVar *rv, Oid relid, Oid old_relid, void *arg)
{
	if (!OidIsValid(relid))
		return;
	if (object_ownercheck(RelationRelationId, relid, GetUserId()))
		return;
#ifdef ACL_MAINTAIN
	if (pg_class_aclcheck(relid, GetUserId(), ACL_MAINTAIN) == ACLCHECK_OK)
		return;
#endif
	aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_MATVIEW, rv->relname);
}

/* The view's query, copied from its rule. */
static Query *
copy_view_query(Relation rel)
{
	RewriteRule *rule;

	if (rel->rd_rules == NULL || rel->rd_rules->numLocks != 1)
		elog(ERROR, "continuous view \"%s\" has no single rule", RelationGetRelationName(rel));
	rule = rel->rd_rules->rules[0];
	return copyObject(linitial_node(Query, rule->actions));
}

/*
 * Checks the query once more, as the owner: what it needs may have changed, and a view that comes
 * from a dump has not been checked at all.
 */
static void
check_query(Relation rel)
{
	Oid save_userid;
	int save_sec_context;

	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner, save_sec_context);
	sx_compile_check(copy_view_query(rel), NULL);
	SetUserIdAndSecContext(save_userid, save_sec_context);
}

/* Asks for a rebuild of a view that has been running, or starts one that has not. */
static void
request_build(Relation rel, const char *id)
{
	Oid relid = RelationGetRelid(rel);
	SxViewRow *row;

	(void) sx_catalog_view_lock(relid, true);
	row = sx_catalog_view(relid);
	if (RelationIsPopulated(rel) && row != NULL && strcmp(row->id, id) == 0)
	{
		row->rebuild = true;
		/* an error of the old run says nothing about the new one */
		sx_catalog_view_clear_error(row);
		sx_catalog_view_update(row);
	}
	else
	{
		if (!RelationIsPopulated(rel))
			SetMatViewPopulatedState(rel, true);
		sx_catalog_view_create(relid, id);
	}
	sx_wake_launcher_at_commit();
}

static void
refresh_with_data(SxStatement *stmt, RefreshMatViewStmt *refresh)
{
	SxViewOptions *options;
	Relation rel;
	Oid relid;

	if (refresh->concurrent)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("REFRESH MATERIALIZED VIEW CONCURRENTLY is not supported for continuous "
						"view \"%s\"",
						refresh->relation->relname),
				 errhint("Use it without CONCURRENTLY: the view can be read while it is built.")));
	PreventCommandIfReadOnly("REFRESH MATERIALIZED VIEW");
	PreventCommandIfParallelMode("REFRESH MATERIALIZED VIEW");

	/* keeps other commands out, not readers and not the worker */
	relid = RangeVarGetRelidExtended(refresh->relation, ShareUpdateExclusiveLock, 0,
									 check_may_refresh, NULL);
	if (!sx_is_continuous(relid))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("materialized view \"%s\" was changed concurrently",
							   refresh->relation->relname)));
	options = sx_view_options(relid);
	if (options == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("continuous view \"%s\" is undefined", refresh->relation->relname),
				 errdetail("It was created without options, as by a dump whose security labels "
						   "were left out."),
				 errhint("ALTER MATERIALIZED VIEW .. RESET (stream.emit) defines it with all "
						 "defaults.")));
	rel = table_open(relid, NoLock);
	check_query(rel);
	request_build(rel, options->id);
	table_close(rel, NoLock);
}

static void
refresh_without_data(SxStatement *stmt, Oid relid)
{
	sx_statement_run(stmt);
	sx_view_forget(relid);
}

/* REFRESH MATERIALIZED VIEW */
void
sx_refresh(SxStatement *stmt)
{
	RefreshMatViewStmt *refresh = castNode(RefreshMatViewStmt, stmt->pstmt->utilityStmt);
	Oid relid = InvalidOid;

	if (OidIsValid(sx_continuous_am()))
		relid = RangeVarGetRelid(refresh->relation, NoLock, true);
	if (!OidIsValid(relid) || !sx_is_continuous(relid))
	{
		sx_statement_run(stmt);
		return;
	}
	sx_require_preloaded();
	PreventCommandDuringRecovery("REFRESH MATERIALIZED VIEW");
	if (refresh->skipData && !refresh->concurrent)
	{
		/* by the same name, but with the lock and the check that PostgreSQL is going to use */
		relid = RangeVarGetRelidExtended(refresh->relation, AccessExclusiveLock, 0,
										 check_may_refresh, NULL);
		refresh_without_data(stmt, relid);
	}
	else
		refresh_with_data(stmt, refresh);
}
