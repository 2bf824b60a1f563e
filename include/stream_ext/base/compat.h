/*
 * compat.h
 *		What differs between PostgreSQL 15, 17 and 18, and nothing else.
 *
 * This is the only file that looks at PG_VERSION_NUM. Shims have the shape of the newest
 * version, so that dropping an old version deletes branches here and changes no code elsewhere.
 * A macro named like a core function must come after the header that declares it; hence every
 * .c file includes this header right after postgres.h.
 */
#ifndef STREAM_EXT_BASE_COMPAT_H
#define STREAM_EXT_BASE_COMPAT_H

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "stream_ext needs PostgreSQL 15, 16, 17 or 18"
#endif

#include "access/genam.h"
#include "access/heapam.h"
#include "access/hio.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/rangetypes.h"
#include "utils/rel.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "nodes/miscnodes.h"
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "storage/waiteventset.h"
#endif

#if PG_VERSION_NUM < 160000
#include "storage/relfilenode.h"
typedef RelFileNode RelFileLocator;
typedef Oid RelFileNumber;
typedef bool TU_UpdateIndexes;
#define rd_locator                       rd_node
#define relNumber                        relNode
#define RelFileLocatorEquals(a, b)       RelFileNodeEquals(a, b)
#define relation_set_new_filelocator     relation_set_new_filenode
#define make_range(t, l, u, e, c)        make_range(t, l, u, e)
#define object_ownercheck(classid, o, r) sx_object_ownercheck(classid, o, r)
#endif

#if PG_VERSION_NUM < 170000
#define index_insert_cleanup(index, info) ((void) 0)
#define MyProcNumber                      (MyProc->pgprocno)
#define WaitEventExtensionNew(name)       PG_WAIT_EXTENSION
#endif

/* A wait event set for the life of the process. */
#if PG_VERSION_NUM >= 170000
#define sx_create_wait_event_set(nevents) CreateWaitEventSet(NULL, nevents)
#else
#define sx_create_wait_event_set(nevents) CreateWaitEventSet(TopMemoryContext, nevents)
#endif

/* A path of a foreign scan without pathkeys, parameters but lateral ones, or private data. */
#if PG_VERSION_NUM >= 180000
#define sx_create_foreignscan_path(root, rel, rows, startup, total, lateral) \
	create_foreignscan_path(root, rel, NULL, rows, 0, startup, total, NIL, lateral, NULL, NIL, NIL)
#elif PG_VERSION_NUM >= 170000
#define sx_create_foreignscan_path(root, rel, rows, startup, total, lateral) \
	create_foreignscan_path(root, rel, NULL, rows, startup, total, NIL, lateral, NULL, NIL, NIL)
#else
#define sx_create_foreignscan_path(root, rel, rows, startup, total, lateral) \
	create_foreignscan_path(root, rel, NULL, rows, startup, total, NIL, lateral, NULL, NIL)
#endif

/* Whose user mapping a foreign scan uses. */
static inline Oid
sx_foreign_scan_user(ForeignScanState *node)
{
#if PG_VERSION_NUM >= 160000
	Oid user = ((ForeignScan *) node->ss.ps.plan)->checkAsUser;
#else
	Oid user =
		exec_rt_fetch(((Scan *) node->ss.ps.plan)->scanrelid, node->ss.ps.state)->checkAsUser;
#endif

	return OidIsValid(user) ? user : GetUserId();
}

/* Indexes such as BRIN that need an entry also when an update was heap-only: since 16. */
#if PG_VERSION_NUM >= 160000
#define sx_index_summarizes(info) ((info)->ii_Summarizing)
#else
#define sx_index_summarizes(info) ((void) (info), false)
#endif

/*
 * Since 16 the planner may mark an aggregate as getting its input presorted; we feed it unsorted.
 */
#if PG_VERSION_NUM >= 160000
#define sx_aggref_clear_presorted(aggref) ((aggref)->aggpresorted = false)
#else
#define sx_aggref_clear_presorted(aggref) ((void) (aggref))
#endif

/* Since 17 the planner folds tests for NULL by the columns that are NOT NULL at the moment. */
#if PG_VERSION_NUM >= 170000
#define sx_rel_hide_notnull(rel) ((rel)->notnullattnums = NULL)
#else
#define sx_rel_hide_notnull(rel) ((void) (rel))
#endif

/* Does the current user have the privileges that a plan needs? Error if not. */
#if PG_VERSION_NUM >= 160000
#define sx_check_permissions(stmt) \
	((void) ExecCheckPermissions((stmt)->rtable, (stmt)->permInfos, true))
#else
#define sx_check_permissions(stmt) ((void) ExecCheckRTPerms((stmt)->rtable, true))
#endif

/* Since 18 target list and HAVING refer to group keys through an entry of the range table. */
#if PG_VERSION_NUM >= 180000
#define sx_flatten_group_exprs(query, node) \
	((query)->hasGroupRTE ? flatten_group_exprs(NULL, (query), (Node *) (node)) : (Node *) (node))
#else
#define sx_flatten_group_exprs(query, node) ((Node *) (node))
#endif

/* Subtransactions while a parallel plan runs: since 17. */
#if PG_VERSION_NUM >= 170000
#define sx_parallel_subtransactions true
#else
#define sx_parallel_subtransactions false
#endif

/* CHECK constraints that are NOT ENFORCED: since 18. */
#if PG_VERSION_NUM >= 180000
#define sx_check_is_enforced(check) ((check)->ccenforced)
#else
#define sx_check_is_enforced(check) ((void) (check), true)
#endif

/* Interval values were finite before PostgreSQL 17. */
#ifndef INTERVAL_NOT_FINITE
#define INTERVAL_NOT_FINITE(i) false
#endif

#if PG_VERSION_NUM < 160000
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
static inline bool
sx_object_ownercheck(Oid classid, Oid objectid, Oid roleid)
{
	if (classid == RelationRelationId)
		return pg_class_ownercheck(objectid, roleid);
	if (classid == NamespaceRelationId)
		return pg_namespace_ownercheck(objectid, roleid);
	if (classid == DatabaseRelationId)
		return pg_database_ownercheck(objectid, roleid);
	if (classid == ExtensionRelationId)
		return pg_extension_ownercheck(objectid, roleid);
	Assert(classid == ProcedureRelationId);
	return pg_proc_ownercheck(objectid, roleid);
}
#endif

/*
 * heap_update() without crosscheck, waiting for nobody: the callers are the only writers of their
 * tables. *index_all says that all indexes need an entry, *index_summarizing only BRIN-like ones.
 */
static inline TM_Result
sx_heap_update(Relation rel, ItemPointer otid, HeapTuple tup, CommandId cid, TM_FailureData *tmfd,
			   bool *index_all, bool *index_summarizing)
{
	LockTupleMode mode;
	TM_Result result;

#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes update = TU_None;

	result = heap_update(rel, otid, tup, cid, InvalidSnapshot, true, tmfd, &mode, &update);
	*index_all = update == TU_All;
	*index_summarizing = update == TU_Summarizing;
#else
	result = heap_update(rel, otid, tup, cid, InvalidSnapshot, true, tmfd, &mode);
	*index_all = result == TM_Ok && !HeapTupleIsHeapOnly(tup);
	*index_summarizing = false;
#endif
	return result;
}

/* Processes outside a backend slot have no number; used where a relation is not temporary. */
#if PG_VERSION_NUM < 170000
#define INVALID_PROC_NUMBER InvalidBackendId
#endif

/*
 * ExecutorCheckPerms_hook: its arguments, and a loop over the relations with what is required of
 * them (relid, requiredPerms, updatedCols).
 */
#if PG_VERSION_NUM >= 160000
#include "parser/parse_relation.h"
#define SX_CHECK_PERMS_PARAMS List *range_table, List *perm_infos, bool violation
#define SX_CHECK_PERMS_ARGS   range_table, perm_infos, violation
#define SX_CHECK_PERMS_LIST   perm_infos
typedef RTEPermissionInfo SxRelationPerms;
#define SX_PERMS_OF_RELATION(perms) OidIsValid((perms)->relid)
#else
#define SX_CHECK_PERMS_PARAMS       List *range_table, bool violation
#define SX_CHECK_PERMS_ARGS         range_table, violation
#define SX_CHECK_PERMS_LIST         range_table
typedef RangeTblEntry SxRelationPerms;
#define SX_PERMS_OF_RELATION(perms) ((perms)->rtekind == RTE_RELATION)
#endif

/* Sets up a BulkInsertState on the stack that holds the pin 'buffer'. */
static inline void
sx_bulk_state_init(BulkInsertStateData *bistate, Buffer buffer)
{
	memset(bistate, 0, sizeof(*bistate));
	bistate->current_buf = buffer;
#if PG_VERSION_NUM >= 160000
	bistate->next_free = InvalidBlockNumber;
	bistate->last_free = InvalidBlockNumber;
#endif
}

/*
 * Adds up to 'n' zeroed blocks to the main fork and returns how many, at least 1; *first is the
 * first of them. The caller holds the relation extension lock.
 */
static inline uint32
sx_extend_relation(Relation rel, BufferAccessStrategy strategy, uint32 n, BlockNumber *first)
{
#if PG_VERSION_NUM >= 160000
	Buffer buffers[64];
	uint32 extended = 0;

	*first = ExtendBufferedRelBy(BMR_REL(rel), MAIN_FORKNUM, strategy, EB_SKIP_EXTENSION_LOCK,
								 Min(n, lengthof(buffers)), buffers, &extended);
	for (uint32 i = 0; i < extended; i++)
		ReleaseBuffer(buffers[i]);
	return extended;
#else
	Buffer buffer = ReadBufferExtended(rel, MAIN_FORKNUM, P_NEW, RBM_NORMAL, strategy);

	*first = BufferGetBlockNumber(buffer);
	ReleaseBuffer(buffer);
	return 1;
#endif
}

#endif /* STREAM_EXT_BASE_COMPAT_H */
