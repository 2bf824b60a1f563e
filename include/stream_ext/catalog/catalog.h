/*
 * catalog.h
 *		The tables in schema "stream": views, positions, state tables, source generations.
 *
 * Only this module knows their columns. Rows are read and written through the heap and index
 * API under the current snapshot; no SQL, no triggers.
 */
#ifndef STREAM_EXT_CATALOG_CATALOG_H
#define STREAM_EXT_CATALOG_CATALOG_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "storage/itemptr.h"

/* stream.catalog_view: one row a continuous view that was ever populated. */
typedef struct SxViewRow
{
	Oid view;
	char *id;         /* SxViewOptions.id; another id: the row is a dropped view's */
	bool paused;      /* by stream.pause() */
	bool rebuild;     /* REFRESH: forget all and read the sources from the start */
	bool caught_up;   /* has read all there was once; before, it is "building" */
	char *signature;  /* of the operator tree whose state is stored; NULL: nothing built */
	int32 pg_major;   /* of the server that wrote the signature */
	Oid filenumber;   /* of the view's heap that the stored TIDs point into */
	char *error_code; /* SQLSTATE of the last error; NULL: none since */
	char *error_message;
	char *error_detail;
	char *error_hint;
	TimestampTz error_time;
	int32 failures; /* in a row */
} SxViewRow;

/* stream.catalog_state: one row a table in schema stream_state. */
typedef struct SxStateRow
{
	Oid relid;
	Oid view;
	int32 operator; /* number of the operator in the tree */
	int32 part;     /* 0: groups; n: kept inputs of its n-th aggregate that keeps any */
} SxStateRow;

/* Rows of all views (palloc'd list of SxViewRow *), or one; NULL: none. */
extern List *sx_catalog_views(void);
extern SxViewRow *sx_catalog_view(Oid view);

/*
 * Locks the row of a view against changes until the end of the transaction; readers go on. Call
 * it before reading a row in order to change it. Workers do not wait (false: somebody has it).
 */
extern bool sx_catalog_view_lock(Oid view, bool wait);

/* Inserts the row of a new view: not paused, nothing built. */
extern void sx_catalog_view_create(Oid view, const char *id);

/* Sets the columns about errors to "none". */
extern void sx_catalog_view_clear_error(SxViewRow *row);

/* Replaces all columns of the row of row->view. */
extern void sx_catalog_view_update(const SxViewRow *row);

/* Deletes all rows about a view, or a source, that is being dropped. */
extern void sx_catalog_drop_view(Oid view);
extern void sx_catalog_drop_source(Oid source);

/* Position of a view in a source, palloc'd; NULL: none. */
extern bytea *sx_catalog_position(Oid view, Oid source);

/*
 * Inserts or updates. *tid is where the caller found or put the row last, or invalid; it need not be
 * right any more, and is where the row is afterwards.
 */
extern void sx_catalog_position_set(Oid view, Oid source, bytea *position, ItemPointer tid);
extern void sx_catalog_position_delete(Oid view);

/* List of SxStateRow *, of one view or (InvalidOid) of all. */
extern List *sx_catalog_states(Oid view);
extern void sx_catalog_state_add(const SxStateRow *row);
extern void sx_catalog_state_delete(Oid relid);

/* Generation of a stream: counts its TRUNCATEs, transactionally. 0 if it never had one. */
extern PGDLLEXPORT uint64 sx_catalog_generation(Oid source);
extern void sx_catalog_generation_advance(Oid source);

#endif /* STREAM_EXT_CATALOG_CATALOG_H */
