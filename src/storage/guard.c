/*
 * guard.c
 *		Refuses what a stream or a continuous view cannot do, before anything is done.
 *
 * Two hooks. The one on permission checks sees every query with its relations: UPDATE, DELETE,
 * MERGE with such actions, ON CONFLICT DO UPDATE and all row locks show as required privileges, and
 * are refused even if no row matches. (A partitioned parent carries the privileges itself; there
 * the access method's callbacks refuse, row by row.) The one on object access sees relations and
 * constraints as they are made or dropped.
 *
 * VACUUM FULL, CLUSTER, rewriting ALTER TABLE, SET ACCESS METHOD and REFRESH all make a transient
 * table and swap storage. It is internal and named pg_temp_<OID of the table>; the errors name the
 * table, not the transient.
 *
 * A session that loads the library without preloading has these guards from its first use of
 * either access method on, because that loads the library.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "stream_ext/catalog/identity.h"
#include "handout.h"
#include "stream.h"

#define TRANSIENT_PREFIX "pg_temp_"

static ExecutorCheckPerms_hook_type prev_check_perms = NULL;
static object_access_hook_type prev_object_access = NULL;

/* OID of the table that a transient table will replace; InvalidOid: 'rel' is no transient table. */
static Oid
transient_of(Relation rel)
{
	const char *name = RelationGetRelationName(rel);
	const char *digits = name + strlen(TRANSIENT_PREFIX);
	char *end;
	Oid relid;

	if (strncmp(name, TRANSIENT_PREFIX, strlen(TRANSIENT_PREFIX)) != 0 || *digits == '\0')
		return InvalidOid;
	relid = (Oid) strtoul(digits, &end, 10);
	return *end == '\0' ? relid : InvalidOid;
}

/* The name for error messages: of the table, if 'rel' is its transient table. Palloc'd. */
char *
sx_guard_table_name(Relation rel)
{
	Oid relid = transient_of(rel);
	char *name = OidIsValid(relid) ? get_rel_name(relid) : NULL;

	return name != NULL ? name : pstrdup(RelationGetRelationName(rel));
}

/* Refuses a relation of a query by the privileges that the query needs on it. */
static void
check_relation(const SxRelationPerms *perms)
{
	const char *what;

	if (perms->relid == sx_stream_under_index_build() && (perms->requiredPerms & ACL_INSERT) != 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("cannot insert into stream \"%s\" while an index is built on it",
							   get_rel_name(perms->relid))));
	if (likely((perms->requiredPerms & (ACL_UPDATE | ACL_DELETE)) == 0) ||
		!sx_is_stream(perms->relid))
		return;
	/* a foreign key from the stream looks for referencing rows FOR KEY SHARE; see stream_am.c */
	if ((perms->requiredPerms & ACL_DELETE) == 0 && bms_is_empty(perms->updatedCols) &&
		InNoForceRLSOperation())
		return;
	if ((perms->requiredPerms & ACL_DELETE) != 0)
		what = "DELETE";
	else if (!bms_is_empty(perms->updatedCols))
		what = "UPDATE";
	else
		what = "row locking";
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not supported on stream \"%s\"", what, get_rel_name(perms->relid)),
			 errdetail("A stream is append-only.")));
}

static bool
guard_check_perms(SX_CHECK_PERMS_PARAMS)
{
	ListCell *cell;

	foreach(cell, SX_CHECK_PERMS_LIST)
	{
		SxRelationPerms *perms = lfirst(cell);

		if (SX_PERMS_OF_RELATION(perms))
			check_relation(perms);
	}
	return prev_check_perms != NULL ? prev_check_perms(SX_CHECK_PERMS_ARGS) : true;
}

/* A table of access method "stream" was made. */
static void
check_new_stream(Relation rel, bool is_internal)
{
	Oid replaced = transient_of(rel);

	if (rel->rd_rel->relkind == RELKIND_MATVIEW)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("materialized view \"%s\" cannot use access method \"stream\"",
							   RelationGetRelationName(rel)),
						errhint("Use CREATE TABLE ... USING stream for a stream, or CREATE "
								"MATERIALIZED VIEW ... USING continuous for a continuous view.")));
	if (!is_internal || !OidIsValid(replaced))
		return;
	if (!sx_is_stream(replaced))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot change the access method of \"%s\" to \"stream\"",
							   sx_guard_table_name(rel)),
						errhint("Create a new table USING stream and insert the rows into it.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot rewrite stream \"%s\"", sx_guard_table_name(rel)),
			 errdetail("The positions of its readers point to the rows where they are."),
			 errhint("To keep the rows as an ordinary table, use ALTER TABLE ... SET ACCESS METHOD "
					 "heap.")));
}

/* A table of access method "continuous" was made. */
static void
check_new_continuous(Relation rel, bool is_internal)
{
	Oid replaced = transient_of(rel);

	/* heap gives the TOAST table of a relation the same access method */
	if (rel->rd_rel->relkind == RELKIND_MATVIEW || rel->rd_rel->relkind == RELKIND_TOASTVALUE)
		return;
	if (is_internal && OidIsValid(replaced))
	{
		if (sx_is_continuous(replaced))
			return;
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot change the access method of \"%s\" to \"continuous\"",
							   sx_guard_table_name(rel)),
						errhint("Create a continuous view by CREATE MATERIALIZED VIEW ... USING "
								"continuous.")));
	}
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("table \"%s\" cannot use access method \"continuous\"",
						   RelationGetRelationName(rel)),
					errhint("Use CREATE TABLE ... USING stream for a stream, or CREATE "
							"MATERIALIZED VIEW ... USING continuous for a continuous view.")));
}

static void
check_new_relation(Oid relid, bool is_internal)
{
	/* its catalog rows are not visible yet, but the relation cache has it */
	Relation rel = RelationIdGetRelation(relid);

	if (!RelationIsValid(rel))
		return;
	if (rel->rd_tableam == sx_stream_routine())
		check_new_stream(rel, is_internal);
	else if (OidIsValid(rel->rd_rel->relam) && rel->rd_rel->relam != HEAP_TABLE_AM_OID &&
			 rel->rd_tableam != NULL && rel->rd_rel->relam == sx_continuous_am())
		check_new_continuous(rel, is_internal);
	RelationClose(rel);
}

/*
 * Refuses a foreign key to a stream: its check would lock the referenced row, and the row may be
 * removed by retention. Also sees the constraints that a partition inherits.
 */
static void
check_new_constraint(Oid constraint)
{
	Relation pg_constraint = table_open(ConstraintRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	Oid referenced = InvalidOid;
	Oid referencing = InvalidOid;

	ScanKeyInit(&key, Anum_pg_constraint_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(constraint));
	scan = systable_beginscan(pg_constraint, ConstraintOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);

		if (form->contype == CONSTRAINT_FOREIGN)
		{
			referenced = form->confrelid;
			referencing = form->conrelid;
		}
	}
	systable_endscan(scan);
	table_close(pg_constraint, AccessShareLock);
	if (OidIsValid(referenced) && sx_is_stream(referenced))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("foreign key of \"%s\" cannot reference stream \"%s\"",
							   get_rel_name(referencing), get_rel_name(referenced))));
}

/* A relation is being dropped: its storage goes when the transaction commits. */
static void
note_drop(Oid relid)
{
	Relation rel;

	if (!sx_is_stream(relid))
		return;
	rel = RelationIdGetRelation(relid);
	if (!RelationIsValid(rel))
		return;
	sx_handout_dropped(&rel->rd_locator);
	RelationClose(rel);
}

static void
guard_object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (prev_object_access != NULL)
		prev_object_access(access, class_id, object_id, sub_id, arg);
	if (access == OAT_POST_CREATE && class_id == RelationRelationId && sub_id == 0)
		check_new_relation(object_id, ((ObjectAccessPostCreate *) arg)->is_internal);
	else if (access == OAT_POST_CREATE && class_id == ConstraintRelationId)
		check_new_constraint(object_id);
	else if (access == OAT_DROP && class_id == RelationRelationId && sub_id == 0)
		note_drop(object_id);
}

/* Called by sx_storage_init(). */
void
sx_guard_init(void)
{
	prev_check_perms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = guard_check_perms;
	prev_object_access = object_access_hook;
	object_access_hook = guard_object_access;
}
