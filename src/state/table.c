/*
 * table.c
 *		Makes, finds and drops the tables that hold operator state.
 *
 * State tables are ordinary heap tables, so that crash recovery, standbys, base backups and
 * pg_upgrade need to know nothing of them. They are no members of the extension, because a member
 * cannot be dropped alone; instead they depend on their view, and go when it goes. Their names are
 * random, so that tables which a pg_restore brings back never collide with those of a view that is
 * already being rebuilt; catalog_state says which table is whose.
 *
 * They belong to the role of the worker, a superuser, and not to the owner of the view: who could
 * write into them could make up states of aggregates. ANALYZE runs the functions of a column's type
 * as the owner of the table, among them subtype_diff of a range type, which any user may have
 * written. No column has statistics, therefore; nobody plans a query over a state table.
 *
 * Locks: creation takes none that a user could hold. Dropping takes AccessExclusiveLock on tables
 * that only the worker writes, but that pg_dump holds for as long as it runs: workers do not wait.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "stream_ext/catalog/catalog.h"
#include "stream_ext/state/table.h"

#define STATE_SCHEMA "stream_state"

static void
run_ddl(const char *sql)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(sql, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\"", sql);
	SPI_finish();
	CommandCounterIncrement();
}

static char *
choose_name(void)
{
	uint64 random;

	if (!pg_strong_random(&random, sizeof(random)))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR),
						errmsg("could not generate a name for a state table")));
	return psprintf("s%016llx", (unsigned long long) random);
}

void
sx_state_table_check(TupleDesc desc)
{
	if (desc->natts > MaxHeapAttributeNumber)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("too many keys and aggregates in a continuous view"),
				 errdetail("Its state would need %d columns, and a table can have at most %d.",
						   desc->natts, MaxHeapAttributeNumber)));
	for (int i = 0; i < desc->natts; i++)
	{
		Oid typid = TupleDescAttr(desc, i)->atttypid;

		if (get_typtype(typid) == TYPTYPE_PSEUDO)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("an aggregate over values of type %s is not supported in a continuous "
							"view",
							format_type_be(typid)),
					 errdetail("Values of this type cannot be stored in a table."),
					 errhint("Cast the value to a named composite type, or to text.")));
	}
}

Oid
sx_state_table_create(Oid view, int operator, int part, TupleDesc desc, int nkeys)
{
	char *name = choose_name();
	StringInfoData sql;
	SxStateRow row = {.view = view, .operator= operator, .part = part };
	ObjectAddress table;
	ObjectAddress owner;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE TABLE " STATE_SCHEMA ".%s (", name);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		appendStringInfo(&sql, "%s%s %s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(att->attname)),
						 format_type_extended(att->atttypid, -1, FORMAT_TYPE_FORCE_QUALIFY));
	}
	appendStringInfoString(&sql, ", PRIMARY KEY (");
	for (int i = 0; i < nkeys; i++)
		appendStringInfo(&sql, "%s%s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(desc, i)->attname)));
	/* half-full pages keep updates of a group on its page */
	appendStringInfoString(&sql, ")) USING heap WITH (fillfactor = 50)");
	run_ddl(sql.data);

	resetStringInfo(&sql);
	appendStringInfo(&sql, "ALTER TABLE " STATE_SCHEMA ".%s ", name);
	for (int i = 0; i < desc->natts; i++)
		appendStringInfo(&sql, "%sALTER COLUMN %s SET STATISTICS 0", i > 0 ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(desc, i)->attname)));
	run_ddl(sql.data);

	row.relid = get_relname_relid(name, get_namespace_oid(STATE_SCHEMA, false));
	ObjectAddressSet(table, RelationRelationId, row.relid);
	ObjectAddressSet(owner, RelationRelationId, view);
	recordDependencyOn(&table, &owner, DEPENDENCY_AUTO);
	sx_catalog_state_add(&row);
	CommandCounterIncrement();
	return row.relid;
}

Oid
sx_state_table_find(Oid view, int operator, int part)
{
	List *rows = sx_catalog_states(view);
	ListCell *lc;

	foreach(lc, rows)
	{
		SxStateRow *row = lfirst(lc);

		if (row->operator== operator&& row->part == part)
			return row->relid;
	}
	return InvalidOid;
}

/* Drops a table, which may be gone. False: 'wait' is false and somebody holds it. */
static bool
drop_table(Oid relid, bool wait)
{
	ObjectAddress table;

	if (wait)
		LockRelationOid(relid, AccessExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, AccessExclusiveLock))
		return false;
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		return true;

	ObjectAddressSet(table, RelationRelationId, relid);
	performDeletion(&table, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	return true;
}

bool
sx_state_tables_drop(Oid view, bool wait)
{
	List *rows = sx_catalog_states(view);
	ListCell *lc;

	foreach(lc, rows)
	{
		SxStateRow *row = lfirst(lc);

		if (!drop_table(row->relid, wait))
			return false;
		sx_catalog_state_delete(row->relid);
	}
	CommandCounterIncrement();
	return true;
}

void
sx_state_tables_drop_orphans(void)
{
	Oid schema = get_namespace_oid(STATE_SCHEMA, true);
	List *known = sx_catalog_states(InvalidOid);
	Oid *relids;
	uint64 n;

	if (!OidIsValid(schema))
		return;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute("SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND "
					"c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n "
					"WHERE n.nspname = '" STATE_SCHEMA "') AND c.relname ~ '^s[0-9a-f]{16}$'",
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list state tables");
	n = SPI_processed;
	relids = SPI_palloc(sizeof(Oid) * Max(n, 1));
	for (uint64 i = 0; i < n; i++)
	{
		bool isnull;

		relids[i] = DatumGetObjectId(
			SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	}
	SPI_finish();
	for (uint64 i = 0; i < n; i++)
	{
		bool is_known = false;
		ListCell *lc;

		foreach(lc, known)
			is_known |= ((SxStateRow *) lfirst(lc))->relid == relids[i];
		/* one that somebody holds stays until the next start */
		if (!is_known)
			(void) drop_table(relids[i], false);
	}
}
