/*
 * create.c
 *		CREATE TABLE .. USING stream, CREATE MATERIALIZED VIEW .. USING continuous.
 *
 * PostgreSQL rejects options of a namespace it does not know, so stream.* options are taken out
 * of a copy of the statement, PostgreSQL creates the relation, and the options become its label.
 *
 * A label is always written, but for a statement that pg_dump would write: access method from
 * default_table_access_method, no stream.* options and no data. There the label follows in a
 * statement of its own; until it does, the relation is "undefined".
 *
 * PostgreSQL must never run a continuous view's query: the view is created without data, then
 * marked populated, and a worker fills it.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/matview.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/command/statement.h"
#include "stream_ext/pipeline/compile.h"

/* Results are updated in place: room for the new version of a row keeps the update HOT. */
#define VIEW_FILLFACTOR 50

static Oid
relation_am(Oid relid)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid am;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	am = ((Form_pg_class) GETSTRUCT(tuple))->relam;
	ReleaseSysCache(tuple);
	return am;
}

/* Access method that a partition takes over from its parent, from PostgreSQL 17 on; or InvalidOid. */
static Oid
parent_am(const CreateStmt *create)
{
	Oid parent;

	if (create->partbound == NULL || create->inhRelations == NIL)
		return InvalidOid;
	parent = RangeVarGetRelid(linitial_node(RangeVar, create->inhRelations), NoLock, true);
	return OidIsValid(parent) ? relation_am(parent) : InvalidOid;
}

/*
 * OID of a table access method, NULL: default_table_access_method. InvalidOid if it is heap, or
 * there is none of that name.
 */
Oid
sx_target_am(const char *access_method)
{
	if (access_method == NULL)
		access_method = default_table_access_method;
	/* by far the most frequent, and needs no look-up */
	if (strcmp(access_method, "heap") == 0)
		return InvalidOid;
	return get_am_oid(access_method, true);
}

static bool
am_is_stream(Oid am)
{
	return OidIsValid(am) && am == sx_stream_am();
}

static bool
am_is_continuous(Oid am)
{
	return OidIsValid(am) && am == sx_continuous_am();
}

static void
refuse_continuous_table(void)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("access method \"continuous\" is for materialized views only"),
					errhint("Use CREATE MATERIALIZED VIEW, or CREATE TABLE .. USING heap.")));
}

static void
refuse_options(List *options, const char *kind, const char *hint)
{
	DefElem *def = linitial_node(DefElem, sx_options_extract(&options));

	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("option \"stream.%s\" cannot be set on %s", def->defname, kind),
					errhint("%s", hint)));
}

/*
 * OID of the relation of this name in the schema where 'rv' would be created; InvalidOid: none.
 * An ordinary look-up could find another one: pg_temp is searched first.
 */
static Oid
find_created(RangeVar *rv)
{
	return get_relname_relid(rv->relname, RangeVarGetCreationNamespace(rv));
}

/* Opens the relation that PostgreSQL has just created for us; NULL if it created none. */
static Relation
open_created(RangeVar *rv)
{
	Oid relid = find_created(rv);
	Relation rel;

	if (!OidIsValid(relid))
		return NULL;
	rel = relation_open(relid, AccessShareLock);
	if (rel->rd_createSubid != InvalidSubTransactionId)
		return rel;
	relation_close(rel, AccessShareLock);
	return NULL;
}

/* Writes the label of a new stream; CREATE TABLE AS has put rows into it, which are looked at. */
static void
label_stream(RangeVar *rv, List *changes)
{
	Relation rel = open_created(rv);

	if (rel == NULL)
		return;
	sx_relabel(rel, sx_label_write(sx_options_apply(SX_ON_STREAM, NIL, changes)));
	relation_close(rel, NoLock);
}

/* CREATE TABLE */
void
sx_create_table(SxStatement *stmt)
{
	CreateStmt *create = castNode(CreateStmt, stmt->pstmt->utilityStmt);
	bool has_options = sx_options_present(create->options);
	bool is_default = false;
	List *changes;
	Oid am = InvalidOid;

	if (create->accessMethod == NULL)
		am = parent_am(create);
	if (!OidIsValid(am))
	{
		am = sx_target_am(create->accessMethod);
		is_default = create->accessMethod == NULL;
	}
	if ((!has_options && !OidIsValid(am)) || !OidIsValid(sx_extension()))
	{
		sx_statement_run(stmt);
		return;
	}
	if (create->partspec != NULL)
	{
		/* it stores nothing; its access method, if any, is for partitions to come */
		if (has_options)
			refuse_options(create->options, "a partitioned table",
						   "Set it on the partitions that are streams.");
		sx_statement_run(stmt);
		return;
	}
	if (am_is_continuous(am))
		refuse_continuous_table();
	if (!am_is_stream(am))
	{
		if (has_options)
			refuse_options(create->options, "an ordinary table",
						   "Use CREATE TABLE .. USING stream.");
		sx_statement_run(stmt);
		return;
	}

	sx_require_preloaded();
	create = (CreateStmt *) sx_statement_copy(stmt);
	changes = sx_options_changes(SX_ON_STREAM, sx_options_extract(&create->options), false);
	if (create->if_not_exists && OidIsValid(find_created(create->relation)))
	{
		sx_statement_run(stmt);
		return;
	}
	sx_statement_run(stmt);
	if (!is_default || changes != NIL)
		label_stream(create->relation, changes);
}

/* CREATE TABLE AS, SELECT INTO: into a stream */
static void
create_stream_as(SxStatement *stmt)
{
	CreateTableAsStmt *create = (CreateTableAsStmt *) sx_statement_copy(stmt);
	IntoClause *into = create->into;
	List *changes = sx_options_changes(SX_ON_STREAM, sx_options_extract(&into->options), false);

	if (create->if_not_exists && OidIsValid(find_created(into->rel)))
	{
		sx_statement_run(stmt);
		return;
	}
	sx_statement_run(stmt);
	label_stream(into->rel, changes);
}

static bool
has_fillfactor(List *options)
{
	ListCell *cell;

	foreach(cell, options)
	{
		DefElem *def = lfirst_node(DefElem, cell);

		if (def->defnamespace == NULL && strcmp(def->defname, "fillfactor") == 0)
			return true;
	}
	return false;
}

/* Name of a view as a user would write it in a call of ours: quoted, with the schema if needed. */
static char *
view_literal(Relation rel)
{
	Oid relid = RelationGetRelid(rel);
	char *schema = RelationIsVisible(relid) ? NULL : get_namespace_name(RelationGetNamespace(rel));

	return quote_literal_cstr(quote_qualified_identifier(schema, RelationGetRelationName(rel)));
}

/* CREATE MATERIALIZED VIEW .. USING continuous */
static void
create_view(SxStatement *stmt)
{
	CreateTableAsStmt *create = (CreateTableAsStmt *) sx_statement_copy(stmt);
	IntoClause *into = create->into;
	bool is_default = into->accessMethod == NULL;
	bool has_data = !into->skipData;
	bool is_restore;
	List *changes;
	List *identity;
	Relation rel;

	changes = sx_options_changes(SX_ON_VIEW, sx_options_extract(&into->options), false);
	is_restore = is_default && !has_data && changes == NIL;
	if (create->if_not_exists && OidIsValid(find_created(into->rel)))
	{
		sx_statement_run(stmt);
		return;
	}

	/* a dump says what is in it, and its sources may still be without their labels */
	if (!is_restore)
	{
		sx_compile_check(castNode(Query, create->query), stmt->query_string);
		if (!has_fillfactor(into->options))
			into->options =
				lappend(into->options,
						makeDefElem("fillfactor", (Node *) makeInteger(VIEW_FILLFACTOR), -1));
	}
	into->skipData = true;
	sx_statement_run(stmt);
	if (is_restore)
		return;

	rel = open_created(into->rel);
	if (rel == NULL)
		return;
	identity = sx_view_identity();
	sx_relabel(rel, sx_label_write(sx_options_apply(SX_ON_VIEW, identity, changes)));
	if (has_data)
	{
		SetMatViewPopulatedState(rel, true);
		sx_catalog_view_create(RelationGetRelid(rel), sx_option_find(identity, "id"));
		sx_wake_launcher_at_commit();
		ereport(NOTICE, (errmsg("continuous view \"%s\" is being built in the background",
								RelationGetRelationName(rel)),
						 errhint("SELECT stream.wait(%s) waits for it.", view_literal(rel))));
	}
	relation_close(rel, NoLock);
}

/* CREATE MATERIALIZED VIEW, CREATE TABLE AS, SELECT INTO */
void
sx_create_table_as(SxStatement *stmt)
{
	CreateTableAsStmt *create = castNode(CreateTableAsStmt, stmt->pstmt->utilityStmt);
	bool has_options = sx_options_present(create->into->options);
	bool is_view = create->objtype == OBJECT_MATVIEW;
	Oid am = sx_target_am(create->into->accessMethod);

	if ((!has_options && !OidIsValid(am)) || !OidIsValid(sx_extension()))
	{
		sx_statement_run(stmt);
		return;
	}
	if (am_is_continuous(am) && !is_view)
		refuse_continuous_table();
	if (am_is_stream(am) && is_view)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"stream\" is for tables only"),
				 errhint("Use CREATE MATERIALIZED VIEW .. USING continuous, or USING heap.")));
	if (!am_is_continuous(am) && !am_is_stream(am))
	{
		if (has_options)
			refuse_options(create->into->options,
						   is_view ? "an ordinary materialized view" : "an ordinary table",
						   is_view ? "Use CREATE MATERIALIZED VIEW .. USING continuous."
								   : "Use CREATE TABLE .. USING stream.");
		sx_statement_run(stmt);
		return;
	}

	sx_require_preloaded();
	if (is_view)
		create_view(stmt);
	else
		create_stream_as(stmt);
}

/*
 * EXPLAIN ANALYZE CREATE .. AS creates the relation without coming through this hook again, so it
 * would be filled by PostgreSQL and have no label.
 */
void
sx_explain(SxStatement *stmt)
{
	ExplainStmt *explain = castNode(ExplainStmt, stmt->pstmt->utilityStmt);
	Query *query = castNode(Query, explain->query);
	bool analyze = false;
	ListCell *cell;

	if (query->utilityStmt != NULL && IsA(query->utilityStmt, CreateTableAsStmt))
	{
		foreach(cell, explain->options)
		{
			DefElem *def = lfirst_node(DefElem, cell);

			if (strcmp(def->defname, "analyze") == 0)
				analyze = defGetBoolean(def);
		}
	}
	if (analyze && OidIsValid(sx_extension()))
	{
		CreateTableAsStmt *create = castNode(CreateTableAsStmt, query->utilityStmt);
		Oid am = sx_target_am(create->into->accessMethod);

		if (am_is_stream(am) || am_is_continuous(am))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("EXPLAIN ANALYZE cannot create a stream or a continuous view"),
							errhint("Use EXPLAIN ANALYZE with the query alone.")));
	}
	sx_statement_run(stmt);
}
