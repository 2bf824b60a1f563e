/*
 * statement.h
 *		Between the files of src/command only: one utility statement on its way through the hook.
 */
#ifndef STREAM_EXT_COMMAND_STATEMENT_H
#define STREAM_EXT_COMMAND_STATEMENT_H

#include "nodes/params.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"
#include "utils/relcache.h"

#include "stream_ext/catalog/options.h"

/* The arguments of ProcessUtility. */
typedef struct SxStatement
{
	PlannedStmt *pstmt;
	const char *query_string;
	bool read_only_tree;
	ProcessUtilityContext context;
	ParamListInfo params;
	QueryEnvironment *query_env;
	DestReceiver *dest;
	QueryCompletion *qc;
} SxStatement;

/* hook.c */
extern void sx_statement_run(SxStatement *stmt);
extern Node *sx_statement_copy(SxStatement *stmt);
extern void sx_require_preloaded(void);

/* create.c */
extern Oid sx_target_am(const char *access_method);
extern void sx_create_table(SxStatement *stmt);
extern void sx_create_table_as(SxStatement *stmt);
extern void sx_explain(SxStatement *stmt);

/* alter.c */
extern void sx_alter_table(SxStatement *stmt);
extern void sx_create_index(SxStatement *stmt);
extern void sx_view_forget(Oid view);

/* refresh.c */
extern void sx_refresh(SxStatement *stmt);

/* relabel.c: changes of a label, however they come about */
typedef struct SxOptionChange
{
	const char *name;
	const char *value; /* NULL: reset */
} SxOptionChange;

extern bool sx_options_present(List *options);
extern List *sx_options_extract(List **options);
extern List *sx_options_changes(SxOptionTarget target, List *options, bool reset);
extern List *sx_options_apply(SxOptionTarget target, List *options, List *changes);
extern void sx_relabel(Relation rel, const char *label);
extern void sx_relabel_check(Relation rel, const char *label);
extern void sx_event_time_verify(Relation rel, const char *column);
extern void sx_relabel_init(void);

/* guard.c */
extern void sx_command_guard_init(void);

/* database.c */
extern void sx_drop_database(SxStatement *stmt);
extern void sx_alter_database(SxStatement *stmt);
extern void sx_rename(SxStatement *stmt);
extern void sx_create_database(SxStatement *stmt);

#endif /* STREAM_EXT_COMMAND_STATEMENT_H */
