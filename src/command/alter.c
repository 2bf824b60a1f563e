/*
 * alter.c
 *		ALTER TABLE and ALTER MATERIALIZED VIEW of ours, and UNIQUE indexes on continuous views.
 *
 * SET and RESET of stream.* options are taken out of a copy of the statement. What is left of it,
 * be it nothing, still goes to PostgreSQL, which checks the owner, the kind of relation and IF
 * EXISTS, and fires event triggers. Options come last, so that they may name a column that the
 * same statement adds.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/command/statement.h"
#include "stream_ext/pipeline/compile.h"
#include "stream_ext/state/table.h"

/* One SET or RESET of a statement, as it was written. */
typedef struct OptionCommand
{
	List *options; /* DefElem */
	bool reset;
} OptionCommand;

/*
 * Forgets all that was computed for a view: its rows in our catalog and its state tables. The
 * caller holds the view in AccessExclusiveLock, so that no worker is in the middle of it.
 */
void
sx_view_forget(Oid view)
{
	(void) sx_state_tables_drop(view, true);
	sx_catalog_drop_view(view);
	sx_wake_at_commit();
}

/* Does the statement say anything that concerns us, on whatever relation? */
static bool
is_interesting(const AlterTableStmt *alter)
{
	ListCell *cell;

	foreach(cell, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, cell);

		switch (cmd->subtype)
		{
			case AT_SetAccessMethod:
				return true;
			case AT_SetRelOptions:
			case AT_ResetRelOptions:
				if (sx_options_present(castNode(List, cmd->def)))
					return true;
				break;
			default:
				break;
		}
	}
	return false;
}

/* SET ACCESS METHOD to one of ours is refused: what is in the relation did not come that way. */
static void
check_access_method(Oid relid, const AlterTableCmd *cmd)
{
	Oid am = sx_target_am(cmd->name);
	const char *name = get_rel_name(relid);

	if (!OidIsValid(am))
		return;
	if (am == sx_stream_am() && !sx_is_stream(relid))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("access method of \"%s\" cannot be changed to \"stream\"", name),
						errhint("Create a stream and copy the rows with INSERT .. SELECT.")));
	if (am == sx_continuous_am() && !sx_is_continuous(relid))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("access method of \"%s\" cannot be changed to \"continuous\"", name),
						errhint("Use CREATE MATERIALIZED VIEW .. USING continuous.")));
}

/* Takes the stream.* options out of the subcommands: list of OptionCommand *. */
static List *
extract_option_commands(AlterTableStmt *alter)
{
	List *commands = NIL;
	List *others = NIL;
	ListCell *cell;

	foreach(cell, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, cell);
		OptionCommand *command;
		List *options;

		if (cmd->subtype != AT_SetRelOptions && cmd->subtype != AT_ResetRelOptions)
		{
			others = lappend(others, cmd);
			continue;
		}
		options = castNode(List, cmd->def);
		command = palloc(sizeof(OptionCommand));
		command->options = sx_options_extract(&options);
		command->reset = cmd->subtype == AT_ResetRelOptions;
		if (command->options != NIL)
			commands = lappend(commands, command);
		if (options != NIL)
		{
			cmd->def = (Node *) options;
			others = lappend(others, cmd);
		}
	}
	alter->cmds = others;
	return commands;
}

static List *
collect_changes(SxOptionTarget target, List *commands)
{
	List *changes = NIL;
	ListCell *cell;

	foreach(cell, commands)
	{
		OptionCommand *command = lfirst(cell);

		changes =
			list_concat(changes, sx_options_changes(target, command->options, command->reset));
	}
	return changes;
}

static bool
changes_event_time(List *changes)
{
	ListCell *cell;

	foreach(cell, changes)
		if (strcmp(((SxOptionChange *) lfirst(cell))->name, "event_time") == 0)
			return true;
	return false;
}

/* Stores the options of a relation; an undefined one is defined by it. */
static void
set_options(Oid relid, SxOptionTarget target, List *changes)
{
	Relation rel = relation_open(relid, NoLock);
	char *label = sx_label_get(relid);
	List *options;

	if (label != NULL)
		options = sx_label_parse(label);
	else
		options = target == SX_ON_VIEW ? sx_view_identity() : NIL;
	sx_relabel(rel, sx_label_write(sx_options_apply(target, options, changes)));
	relation_close(rel, NoLock);
}

/* Refuses to let go of a stream that views are computed from. */
static void
check_no_readers(Oid stream)
{
	ListCell *cell;

	foreach(cell, sx_catalog_views())
	{
		SxViewRow *row = lfirst(cell);

		if (sx_is_continuous(row->view) && list_member_oid(sx_compile_sources(row->view), stream))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("access method of stream \"%s\" cannot be changed",
							get_rel_name(stream)),
					 errdetail("Continuous view \"%s\" reads it.", get_rel_name(row->view)),
					 errhint("Use ALTER MATERIALIZED VIEW .. SET ACCESS METHOD heap, or DROP, "
							 "first.")));
	}
}

/* The relation has another access method now: it keeps its rows and is not ours any more. */
static void
release_relation(Oid relid, bool was_view)
{
	if (sx_label_get(relid) != NULL)
		sx_label_set(relid, NULL);
	if (was_view)
	{
		sx_view_forget(relid);
		sx_progress_drop_at_commit(relid);
	}
	else
	{
		check_no_readers(relid);
		sx_catalog_drop_source(relid);
	}
	sx_wake_at_commit();
}

/* ALTER TABLE, ALTER MATERIALIZED VIEW */
void
sx_alter_table(SxStatement *stmt)
{
	AlterTableStmt *alter = castNode(AlterTableStmt, stmt->pstmt->utilityStmt);
	SxOptionTarget target;
	List *commands;
	List *changes = NIL;
	ListCell *cell;
	bool was_stream;
	bool was_view;
	Oid relid;

	if (!is_interesting(alter) || !OidIsValid(sx_extension()))
	{
		sx_statement_run(stmt);
		return;
	}
	relid = RangeVarGetRelid(alter->relation, NoLock, true);
	if (!OidIsValid(relid))
	{
		/* for the error, or the notice of IF EXISTS */
		alter = (AlterTableStmt *) sx_statement_copy(stmt);
		(void) extract_option_commands(alter);
		sx_statement_run(stmt);
		return;
	}

	was_stream = sx_is_stream(relid);
	was_view = sx_is_continuous(relid);
	target = was_view ? SX_ON_VIEW : SX_ON_STREAM;
	alter = (AlterTableStmt *) sx_statement_copy(stmt);
	foreach(cell, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, cell);

		if (cmd->subtype == AT_SetAccessMethod)
			check_access_method(relid, cmd);
	}
	commands = extract_option_commands(alter);
	if (commands != NIL)
	{
		if (!was_stream && !was_view)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"stream.%s\" cannot be set on \"%s\"",
							linitial_node(DefElem, ((OptionCommand *) linitial(commands))->options)
								->defname,
							alter->relation->relname),
					 errdetail("It is neither a stream nor a continuous view.")));
		sx_require_preloaded();
		PreventCommandDuringRecovery(CreateCommandName((Node *) alter));
		changes = collect_changes(target, commands);

		/* before PostgreSQL takes a weaker lock: raising one is how deadlocks are made */
		relid = RangeVarGetRelidExtended(alter->relation,
										 changes_event_time(changes) ? ShareRowExclusiveLock
																	 : ShareUpdateExclusiveLock,
										 alter->missing_ok ? RVR_MISSING_OK : 0,
										 RangeVarCallbackOwnsRelation, NULL);
	}

	sx_statement_run(stmt);
	if (!OidIsValid(relid))
		return;
	if ((was_stream && !sx_is_stream(relid)) || (was_view && !sx_is_continuous(relid)))
	{
		if (commands != NIL)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("options \"stream.*\" cannot be set together with the access "
								   "method")));
		release_relation(relid, was_view);
	}
	else if (commands != NIL)
		set_options(relid, target, changes);
}

/* Names of columns for a message. */
static char *
list_columns(Oid relid, List *attnos)
{
	StringInfoData buf;
	ListCell *cell;

	initStringInfo(&buf);
	foreach(cell, attnos)
		appendStringInfo(&buf, "%s%s", buf.len > 0 ? ", " : "",
						 quote_identifier(get_attname(relid, lfirst_int(cell), false)));
	return buf.data;
}

static bool
index_has_column(const IndexStmt *index, const char *column)
{
	ListCell *cell;

	foreach(cell, index->indexParams)
	{
		IndexElem *elem = lfirst_node(IndexElem, cell);

		/* another collation or operator class may take different keys for equal */
		if (elem->name != NULL && strcmp(elem->name, column) == 0 && elem->collation == NIL &&
			elem->opclass == NIL)
			return true;
	}
	return false;
}

/*
 * CREATE UNIQUE INDEX. Workers do not check for duplicates when they write a view, but the planner
 * believes in the index: so it must follow from the view's key.
 */
void
sx_create_index(SxStatement *stmt)
{
	IndexStmt *index = castNode(IndexStmt, stmt->pstmt->utilityStmt);
	ListCell *cell;
	bool has_key;
	List *key;
	Oid relid;

	if (index->unique && OidIsValid(sx_continuous_am()))
	{
		relid = RangeVarGetRelid(index->relation, NoLock, true);
		if (OidIsValid(relid) && sx_is_continuous(relid))
		{
			relid = RangeVarGetRelidExtended(index->relation, AccessShareLock, 0,
											 RangeVarCallbackOwnsRelation, NULL);
			key = sx_compile_key(relid, &has_key);
			if (!has_key)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("unique index on continuous view \"%s\" is not possible",
								index->relation->relname),
						 errdetail("The columns of the view contain no key."),
						 errhint("Create the index without UNIQUE, or add the columns of GROUP BY "
								 "to the view.")));
			foreach(cell, key)
				if (!index_has_column(index, get_attname(relid, lfirst_int(cell), false)))
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("unique index on continuous view \"%s\" must contain its key",
									index->relation->relname),
							 errdetail("The key is (%s).", list_columns(relid, key)),
							 errhint("Add these columns as they are, or create the index without "
									 "UNIQUE.")));
		}
	}
	sx_statement_run(stmt);
}
