/*
 * stream_am.c
 *		The table access method "stream": heap, append-only, with blocks handed out.
 *
 * The routine is a copy of heap's with a few members replaced:
 *
 *		inserts						into the block that the process owns (insert.c)
 *		update, delete, lock		refused; guard.c does it first, with a better position, except
 *									for partitions and inheritance children
 *		new storage, truncation		permanent only; a truncation begins a new generation
 *		moves of storage			SET TABLESPACE keeps the blocks and the generation; rewrites are
 *									refused, for they would move rows under the readers
 *		vacuum						never cuts the file: the tail would be refilled with rows
 *		index builds				heap_getnext() insists on heap's own routine
 *		TOAST table					is a heap
 *
 * All else, and the format on disk, is heap's: scans, ANALYZE, VACUUM, standbys and base backups
 * need nothing from us.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/xact.h"
#include "catalog/index.h"
#include "commands/vacuum.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

#include "stream_ext/catalog/catalog.h"
#include "stream_ext/storage/stream_am.h"
#include "handout.h"
#include "stream.h"

PG_FUNCTION_INFO_V1(stream_ext_stream_handler);

static TableAmRoutine routine;
static const TableAmRoutine *heap = NULL;

/* The stream that an index is being built on, whose routine is heap's for that time. */
static Relation building = NULL;

static void
refuse(Relation rel, const char *what)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("%s is not supported on stream \"%s\"", what, sx_guard_table_name(rel)),
					errdetail("A stream is append-only.")));
}

static void
refuse_rewrite(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot rewrite stream \"%s\"", sx_guard_table_name(rel)),
			 errdetail("The positions of its readers point to the rows where they are."),
			 errhint("To keep the rows as an ordinary table, use ALTER TABLE ... SET ACCESS METHOD "
					 "heap.")));
}

static TM_Result
stream_tuple_delete(Relation rel, ItemPointer tid, CommandId cid, Snapshot snapshot,
					Snapshot crosscheck, bool wait, TM_FailureData *tmfd, bool changing_part)
{
	refuse(rel, "DELETE");
	return TM_Invisible;
}

static TM_Result
stream_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
					Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
					LockTupleMode *mode, TU_UpdateIndexes *update_indexes)
{
	refuse(rel, "UPDATE");
	return TM_Invisible;
}

/*
 * Row locks are for rows that change. The one exception is the check of a foreign key from the
 * stream when a referenced row goes: it looks for referencing rows with FOR KEY SHARE.
 */
static TM_Result
stream_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
				  CommandId cid, LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags,
				  TM_FailureData *tmfd)
{
	if (mode != LockTupleKeyShare || !InNoForceRLSOperation())
		refuse(rel, "row locking");
	return heap->tuple_lock(rel, tid, snapshot, slot, cid, mode, wait_policy, flags, tmfd);
}

/*
 * Begins a new generation of the stream: block numbers in positions mean nothing any more. Here
 * and not in an object access hook, which would run before the exclusive lock is taken.
 */
static void
advance_generation(Relation rel)
{
	/* a fresh snapshot: another TRUNCATE may have committed while we waited for the lock */
	PushActiveSnapshot(GetLatestSnapshot());
	sx_catalog_generation_advance(RelationGetRelid(rel));
	PopActiveSnapshot();
}

/* CREATE TABLE (locator is that of 'rel') and TRUNCATE (a new one). */
static void
stream_set_new_filelocator(Relation rel, const RelFileLocator *locator, char persistence,
						   TransactionId *freeze_xid, MultiXactId *minmulti)
{
	if (persistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("stream \"%s\" cannot be %s", sx_guard_table_name(rel),
							   persistence == RELPERSISTENCE_TEMP ? "temporary" : "unlogged"),
						errdetail("A stream is durable and can be read by background workers.")));
	heap->relation_set_new_filelocator(rel, locator, persistence, freeze_xid, minmulti);
	sx_handout_created(locator);
	if (!RelFileLocatorEquals(rel->rd_locator, *locator))
	{
		sx_handout_dropped(&rel->rd_locator);
		advance_generation(rel);
	}
}

/* TRUNCATE of a table whose storage the same transaction made. */
static void
stream_nontransactional_truncate(Relation rel)
{
	heap->relation_nontransactional_truncate(rel);
	sx_handout_reset(rel);
	advance_generation(rel);
}

/*
 * ALTER TABLE SET TABLESPACE: rows stay in their blocks, so the positions stay right. Who owned a
 * block loses it, as by a restart.
 */
static void
stream_copy_data(Relation rel, const RelFileLocator *locator)
{
	heap->relation_copy_data(rel, locator);
	sx_handout_created(locator);
	sx_handout_dropped(&rel->rd_locator);
}

static void
stream_copy_for_cluster(Relation old, Relation new, Relation index, bool use_sort,
						TransactionId oldest_xmin, TransactionId *xid_cutoff,
						MultiXactId *multi_cutoff, double *num_tuples, double *tups_vacuumed,
						double *tups_recently_dead)
{
	refuse_rewrite(old);
}

static void
stream_vacuum(Relation rel, struct VacuumParams *params, BufferAccessStrategy strategy)
{
	VacuumParams ours = *params;

	ours.truncate = VACOPTVALUE_DISABLED;
	heap->relation_vacuum(rel, &ours, strategy);
}

static Oid
stream_toast_am(Relation rel)
{
	return HEAP_TABLE_AM_OID;
}

/*
 * The relation cache sets the routine again whenever it rebuilds the entry, which a concurrent
 * VACUUM or ANALYZE or an index expression may cause in the middle of the scan.
 */
static void
building_relcache_callback(Datum arg, Oid relid)
{
	if (building != NULL && (relid == InvalidOid || relid == RelationGetRelid(building)))
		building->rd_tableam = heap;
}

static double
stream_index_build_range_scan(Relation table, Relation index, struct IndexInfo *info,
							  bool allow_sync, bool anyvisible, bool progress,
							  BlockNumber start_blockno, BlockNumber numblocks,
							  IndexBuildCallback callback, void *state, TableScanDesc scan)
{
	Relation outer = building;
	double rows;

	building = table;
	PG_TRY();
	{
		table->rd_tableam = heap;
		rows = heap->index_build_range_scan(table, index, info, allow_sync, anyvisible, progress,
											start_blockno, numblocks, callback, state, scan);
	}
	PG_FINALLY();
	{
		table->rd_tableam = &routine;
		building = outer;
	}
	PG_END_TRY();
	return rows;
}

static void
stream_index_validate_scan(Relation table, Relation index, struct IndexInfo *info,
						   Snapshot snapshot, struct ValidateIndexState *state)
{
	Relation outer = building;

	building = table;
	PG_TRY();
	{
		table->rd_tableam = heap;
		heap->index_validate_scan(table, index, info, snapshot, state);
	}
	PG_FINALLY();
	{
		table->rd_tableam = &routine;
		building = outer;
	}
	PG_END_TRY();
}

/* The stream on which this process builds an index just now: it must not be inserted into. */
Oid
sx_stream_under_index_build(void)
{
	return building != NULL ? RelationGetRelid(building) : InvalidOid;
}

/* Address of the routine; a relation is a stream if its rd_tableam is this. */
const TableAmRoutine *
sx_stream_routine(void)
{
	return &routine;
}

/* Called by sx_storage_init(): fills in the routine. */
void
sx_stream_am_init(void)
{
	heap = GetHeapamTableAmRoutine();
	routine = *heap;
	routine.tuple_insert = sx_stream_insert;
	routine.tuple_insert_speculative = sx_stream_insert_speculative;
	routine.multi_insert = sx_stream_multi_insert;
	routine.tuple_delete = stream_tuple_delete;
	routine.tuple_update = stream_tuple_update;
	routine.tuple_lock = stream_tuple_lock;
	routine.relation_set_new_filelocator = stream_set_new_filelocator;
	routine.relation_nontransactional_truncate = stream_nontransactional_truncate;
	routine.relation_copy_data = stream_copy_data;
	routine.relation_copy_for_cluster = stream_copy_for_cluster;
	routine.relation_vacuum = stream_vacuum;
	routine.relation_toast_am = stream_toast_am;
	routine.index_build_range_scan = stream_index_build_range_scan;
	routine.index_validate_scan = stream_index_validate_scan;
	CacheRegisterRelcacheCallback(building_relcache_callback, (Datum) 0);
}

/* Registers shared memory, transaction callbacks and the hooks that guard streams. */
void
sx_storage_init(void)
{
	sx_stream_am_init();
	sx_handout_init();
	sx_guard_init();
}

Datum
stream_ext_stream_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&routine);
}
