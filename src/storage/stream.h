/*
 * stream.h
 *		What the files of the stream access method share.
 */
#ifndef STREAM_EXT_STORAGE_STREAM_H
#define STREAM_EXT_STORAGE_STREAM_H

#include "access/tableam.h"

/* stream_am.c */
extern const TableAmRoutine *sx_stream_routine(void);
extern Oid sx_stream_under_index_build(void);
extern void sx_stream_am_init(void);

/* insert.c */
extern void sx_stream_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
							 BulkInsertState bistate);
extern void sx_stream_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid,
										 int options, BulkInsertState bistate, uint32 token);
extern void sx_stream_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid,
								   int options, BulkInsertState bistate);

/* guard.c */
extern void sx_guard_init(void);
extern char *sx_guard_table_name(Relation rel);

#endif /* STREAM_EXT_STORAGE_STREAM_H */
