/*
 * table.h
 *		The tables in schema stream_state that hold operator state.
 */
#ifndef STREAM_EXT_STATE_TABLE_H
#define STREAM_EXT_STATE_TABLE_H

#include "access/tupdesc.h"

/*
 * Raises an error if no table can have the columns of 'desc': said when a view is created, so that
 * it does not fail when it is built.
 */
extern void sx_state_table_check(TupleDesc desc);

/*
 * Makes a table for part 'part' of operator 'operator' of 'view', with the columns of 'desc', the
 * first 'nkeys' of which are its primary key. It goes away with the view. Runs DDL as the current
 * user, who must own schema stream_state. Returns its OID.
 */
extern Oid sx_state_table_create(Oid view, int operator, int part, TupleDesc desc, int nkeys);

/* OID of that table, InvalidOid: none. */
extern Oid sx_state_table_find(Oid view, int operator, int part);

/*
 * Drops all state tables of a view. False: 'wait' is false and somebody holds one of them; the
 * caller rolls back.
 */
extern bool sx_state_tables_drop(Oid view, bool wait);

/* Drops the tables in stream_state that no view has, such as those that a restore brought. */
extern void sx_state_tables_drop_orphans(void);

#endif /* STREAM_EXT_STATE_TABLE_H */
