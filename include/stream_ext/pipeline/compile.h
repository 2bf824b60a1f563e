/*
 * compile.h
 *		From a view's SELECT to a tree of operators.
 */
#ifndef STREAM_EXT_PIPELINE_COMPILE_H
#define STREAM_EXT_PIPELINE_COMPILE_H

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/*
 * Checks the analyzed query of CREATE MATERIALIZED VIEW: errors name the first construct that is
 * not supported and its position in 'source_text' (NULL: no position). Also plans it, as the
 * current user, checks the privileges on the sources and that every source is a stream that is
 * defined. The query is not changed. Errors: FEATURE_NOT_SUPPORTED and what the planner says.
 */
extern void sx_compile_check(Query *query, const char *source_text);

/* OIDs of the sources of a view, from its rule. */
extern List *sx_compile_sources(Oid view);

/*
 * Attribute numbers (from 1) of the view's columns that together are its key, as an int list;
 * *has_key is false when the view has none that is visible (then no UNIQUE index is possible).
 */
extern List *sx_compile_key(Oid view, bool *has_key);

/* One line of stream.explain(). */
typedef struct SxExplainRow
{
	int id;
	int parent; /* 0: the view itself */
	char *operator;
	char *detail;
} SxExplainRow;

/* The operator tree of a view as rows, root first; ids are those of SxProgress.operators + 1. */
extern List *sx_compile_explain(Oid view);

#endif /* STREAM_EXT_PIPELINE_COMPILE_H */
