/*
 * guard.c
 *		Keeps catalog and labels true when relations and columns change by any way.
 *
 * Statements are the wrong place for this: a column is also renamed through its parent table,
 * dropped with its type, and altered through a composite type. PostgreSQL calls the object access
 * hook for every single object, however the change came about.
 *
 * In the hook the change is done but not yet visible to this command: a syscache look-up still
 * finds the old row, a scan with SnapshotSelf the new one.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_table.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "nodes/makefuncs.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/command/statement.h"

static object_access_hook_type prev_object_access = NULL;

/* Copy of the pg_attribute row as this command left it. */
static Form_pg_attribute
read_altered_column(Oid relid, AttrNumber attno)
{
	Relation rel = table_open(AttributeRelationId, AccessShareLock);
	Form_pg_attribute result = NULL;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;

	ScanKeyInit(&keys[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(attno));
	scan = systable_beginscan(rel, AttributeRelidNumIndexId, true, SnapshotSelf, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		result = palloc(ATTRIBUTE_FIXED_PART_SIZE);
		memcpy(result, GETSTRUCT(tuple), ATTRIBUTE_FIXED_PART_SIZE);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

/* Name of the event time column of a stream or topic, NULL: none. */
static const char *
get_event_time(Oid relid)
{
	ListCell *lc;

	if (sx_is_stream(relid))
	{
		char *label = sx_label_get(relid);

		return label != NULL ? sx_option_find(sx_label_parse(label), "event_time") : NULL;
	}
	foreach(lc, GetForeignTable(relid)->options)
	{
		DefElem *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "event_time") == 0)
			return defGetString(def);
	}
	return NULL;
}

/* Is this column, by its name in the syscache, the event time of the relation? */
static bool
is_event_time(Oid relid, AttrNumber attno, char **column)
{
	const char *event_time = get_event_time(relid);

	*column = get_attname(relid, attno, true);
	return event_time != NULL && *column != NULL && strcmp(event_time, *column) == 0;
}

/* Sets option event_time of a foreign table, as ALTER FOREIGN TABLE .. OPTIONS would. */
static void
set_foreign_event_time(Oid relid, const char *column)
{
	Relation rel = table_open(ForeignTableRelationId, RowExclusiveLock);
	HeapTuple tuple = SearchSysCacheCopy1(FOREIGNTABLEREL, ObjectIdGetDatum(relid));
	DefElem *def = makeDefElem("event_time", (Node *) makeString(pstrdup(column)), -1);
	Datum values[Natts_pg_foreign_table] = {0};
	bool nulls[Natts_pg_foreign_table] = {0};
	bool replace[Natts_pg_foreign_table] = {0};
	bool isnull;
	Datum options;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for foreign table %u", relid);
	options = SysCacheGetAttr(FOREIGNTABLEREL, tuple, Anum_pg_foreign_table_ftoptions, &isnull);
	def->defaction = DEFELEM_SET;
	values[Anum_pg_foreign_table_ftoptions - 1] =
		transformGenericOptions(ForeignTableRelationId, options, list_make1(def), InvalidOid);
	replace[Anum_pg_foreign_table_ftoptions - 1] = true;
	tuple = heap_modify_tuple(tuple, RelationGetDescr(rel), values, nulls, replace);
	CatalogTupleUpdate(rel, &tuple->t_self, tuple);
	table_close(rel, RowExclusiveLock);
}

static void
set_event_time(Oid relid, const char *column)
{
	if (sx_is_stream(relid))
	{
		List *options = sx_label_parse(sx_label_get(relid));

		sx_label_set(relid, sx_label_write(sx_option_set(options, "event_time", column)));
	}
	else
		set_foreign_event_time(relid, column);
	CacheInvalidateRelcacheByRelid(relid);
	sx_wake_at_commit();
}

/* How the user takes the event time away. */
static const char *
reset_hint(Oid relid)
{
	return sx_is_stream(relid) ? "Use ALTER TABLE .. RESET (stream.event_time) first."
							   : "Use ALTER FOREIGN TABLE .. OPTIONS (DROP event_time) first.";
}

static void
column_altered(Oid relid, AttrNumber attno)
{
	char *column;
	Form_pg_attribute altered;

	if (!is_event_time(relid, attno, &column))
		return;
	altered = read_altered_column(relid, attno);
	if (altered == NULL)
		return;
	if (altered->atttypid != get_atttype(relid, attno))
		ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
						errmsg("type of column \"%s\" cannot be changed", column),
						errdetail("It is the event time of stream \"%s\".", get_rel_name(relid)),
						errhint("%s", reset_hint(relid))));
	if (strcmp(NameStr(altered->attname), column) != 0)
		set_event_time(relid, NameStr(altered->attname));
}

static void
column_dropped(Oid relid, AttrNumber attno)
{
	char *column;

	if (is_event_time(relid, attno, &column))
		ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
						errmsg("column \"%s\" cannot be dropped", column),
						errdetail("It is the event time of stream \"%s\".", get_rel_name(relid)),
						errhint("%s", reset_hint(relid))));
}

static bool
is_source(Oid relid)
{
	return sx_is_stream(relid) || sx_is_kafka(relid);
}

static void
guard_object_access(ObjectAccessType access, Oid classid, Oid objectid, int subid, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, classid, objectid, subid, arg);
	if (classid != RelationRelationId)
		return;
	if (access == OAT_POST_ALTER && subid > 0)
	{
		if (is_source(objectid))
			column_altered(objectid, subid);
	}
	else if (access == OAT_DROP && subid > 0)
	{
		if (is_source(objectid))
			column_dropped(objectid, subid);
	}
	else if (access == OAT_DROP)
	{
		if (sx_is_continuous(objectid))
		{
			sx_catalog_drop_view(objectid);
			sx_progress_drop_at_commit(objectid);
			sx_wake_at_commit();
		}
		else if (is_source(objectid))
			sx_catalog_drop_source(objectid);
	}
}

void
sx_command_guard_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = guard_object_access;
}
