/*
 * database.c
 *		Commands that need a database for themselves: the workers in it give way.
 *
 * DROP DATABASE, RENAME, SET TABLESPACE and CREATE DATABASE .. TEMPLATE fail while anybody is
 * connected. The launcher ends the workers of the database and keeps them from starting until the
 * command is over, however it ends. Who may not run the command must not be able to stop workers
 * with it, so the rights are looked at first; PostgreSQL checks them for good afterwards.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "utils/syscache.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/command/statement.h"
#include "stream_ext/worker/launcher.h"

/* Runs the statement while no worker is in the database; InvalidOid: there is no such database. */
static void
run_without_workers(SxStatement *stmt, Oid dboid)
{
	if (!OidIsValid(dboid) || !sx_launcher_available())
	{
		sx_statement_run(stmt);
		return;
	}
	sx_launcher_hold_database(dboid);
	PG_TRY();
	{
		sx_statement_run(stmt);
	}
	PG_FINALLY();
	{
		sx_launcher_release_database(dboid);
	}
	PG_END_TRY();
}

/* The database of this name if the current user owns it; else InvalidOid. */
static Oid
owned_database(const char *name)
{
	Oid dboid = get_database_oid(name, true);

	if (OidIsValid(dboid) && !object_ownercheck(DatabaseRelationId, dboid, GetUserId()))
		return InvalidOid;
	return dboid;
}

/* The database of this name if the current user may copy it; else InvalidOid. */
static Oid
copyable_database(const char *name)
{
	Oid dboid = get_database_oid(name, true);
	bool allowed = superuser();
	bool is_template = false;
	HeapTuple tuple;

	if (!OidIsValid(dboid) || allowed)
		return dboid;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (HeapTupleIsValid(tuple))
	{
		allowed = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
		ReleaseSysCache(tuple);
	}
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	if (HeapTupleIsValid(tuple))
	{
		is_template = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
		ReleaseSysCache(tuple);
	}
	if (allowed && (is_template || object_ownercheck(DatabaseRelationId, dboid, GetUserId())))
		return dboid;
	return InvalidOid;
}

/* CREATE DATABASE */
void
sx_create_database(SxStatement *stmt)
{
	CreatedbStmt *create = castNode(CreatedbStmt, stmt->pstmt->utilityStmt);
	const char *template = "template1";
	ListCell *cell;

	foreach(cell, create->options)
	{
		DefElem *def = lfirst_node(DefElem, cell);

		if (strcmp(def->defname, "template") == 0 && def->arg != NULL)
			template = defGetString(def);
	}
	run_without_workers(stmt, copyable_database(template));
	/* the template may have had the extension */
	sx_wake_launcher_at_commit();
}

/* DROP DATABASE */
void
sx_drop_database(SxStatement *stmt)
{
	DropdbStmt *drop = castNode(DropdbStmt, stmt->pstmt->utilityStmt);
	Oid dboid = owned_database(drop->dbname);

	run_without_workers(stmt, dboid);
	if (OidIsValid(dboid) && sx_launcher_available())
		sx_progress_drop_database(dboid);
}

/* ALTER DATABASE .. SET TABLESPACE */
void
sx_alter_database(SxStatement *stmt)
{
	AlterDatabaseStmt *alter = castNode(AlterDatabaseStmt, stmt->pstmt->utilityStmt);
	Oid dboid = InvalidOid;
	ListCell *cell;

	foreach(cell, alter->options)
		if (strcmp(lfirst_node(DefElem, cell)->defname, "tablespace") == 0)
			dboid = owned_database(alter->dbname);
	run_without_workers(stmt, dboid);
}

/* ALTER .. RENAME TO, of a database */
void
sx_rename(SxStatement *stmt)
{
	RenameStmt *rename = castNode(RenameStmt, stmt->pstmt->utilityStmt);
	Oid dboid = InvalidOid;

	if (rename->renameType == OBJECT_DATABASE)
		dboid = owned_database(rename->subname);
	run_without_workers(stmt, dboid);
}
