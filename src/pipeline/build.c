/*
 * build.c
 *		Makes a pipeline ready to run: compile, build from nothing, or load its state.
 *
 * A view is built from nothing when it is new, when REFRESH asked for it, when its source was
 * truncated (the rows that the view counted are gone, and so must their results be), or when the
 * layout of its state is not the one that the compiled query has. Its rows are deleted, its state
 * tables made anew, and it reads its source from the beginning.
 *
 * If only the view's heap was rewritten (VACUUM FULL, CLUSTER, SET TABLESPACE), remembered TIDs
 * are wrong, and its rows are written again from the state. That must be in the transaction that
 * loads the pipeline: readers must not see the view without them, and if the catalog named the new
 * file while the state still has the old TIDs, nobody would find out any more.
 *
 * Locks: conditional ones on what users own or may hold, held to the end of the transaction.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "stream_ext/catalog/records.h"
#include "stream_ext/operator/aggregate.h"
#include "stream_ext/pipeline/pipeline.h"
#include "stream_ext/state/table.h"
#include "stream_ext/view/view.h"

/*
 * Makes the catalog right for a view that starts from nothing; the caller holds the row's lock. Its
 * position is committed with this, before the first poll: whoever gives blocks of the stream back
 * to writers must see every reader there is. False: somebody, such as pg_dump, holds a state table.
 */
static bool
build(SxPipeline *pipeline, SxViewRow *row, Relation rel, Relation source)
{
	SxDataflow *flow = pipeline->flow;
	SxSource *reader;
	bool restarted;

	if (!sx_state_tables_drop(pipeline->view, false))
		return false;
	sx_view_clear(rel);
	sx_catalog_position_delete(pipeline->view);
	sx_catalog_gaps_drop(pipeline->view);
	if (flow->aggregate != NULL)
		sx_aggregate_build(flow->aggregate);
	reader = sx_source_create(source, rel->rd_rel->relowner, NULL, &restarted);
	sx_catalog_position_set(pipeline->view, pipeline->source, reader->methods->position(reader),
							&pipeline->position_tid);
	row->rebuild = false;
	row->caught_up = false;
	row->signature = flow->signature;
	row->pg_major = PG_MAJORVERSION_NUM;
	row->filenumber = rel->rd_locator.relNumber;
	sx_catalog_view_update(row);
	CommandCounterIncrement();
	return true;
}

/* Is what the catalog has of the view unusable for the compiled query? */
static bool
must_build(SxPipeline *pipeline, SxViewRow *row, Relation source)
{
	bytea *position = sx_catalog_position(pipeline->view, pipeline->source);
	bool restarted;

	if (row->rebuild || row->signature == NULL || position == NULL ||
		strcmp(row->signature, pipeline->flow->signature) != 0)
		return true;
	(void) sx_source_create(source, InvalidOid, position, &restarted);
	return restarted;
}

/*
 * Reads the settings that the view's code runs under. False: it has no label, so it was dropped a
 * moment ago. Errors: a setting that this server does not know.
 */
static bool
load_options(SxPipeline *pipeline)
{
	MemoryContext old = MemoryContextSwitchTo(
		AllocSetContextCreate(pipeline->cxt, "stream_ext view options", ALLOCSET_SMALL_SIZES));

	pipeline->options = sx_view_options(pipeline->view);
	MemoryContextSwitchTo(old);
	return pipeline->options != NULL;
}

static void
compile_view(SxPipeline *pipeline, Relation rel)
{
	MemoryContext old = MemoryContextSwitchTo(pipeline->cxt);

	if (pipeline->name != NULL)
		pfree(pipeline->name);
	pipeline->name = pstrdup(RelationGetRelationName(rel));
	sx_frame_enter(pipeline);
	pipeline->flow = sx_dataflow_create(pipeline->view);
	MemoryContextSwitchTo(old);
	sx_frame_leave();
	pipeline->check_shape = false;
	pipeline->reload = false;
}

/* Notes the view's new file; its rows are given anew at the next flush. False: locked. */
static bool
follow_rewrite(SxPipeline *pipeline, Relation rel)
{
	SxViewRow *row;

	if (!sx_catalog_view_lock(pipeline->view, false))
		return false;
	row = sx_catalog_view(pipeline->view);
	sx_view_clear(rel);
	row->filenumber = rel->rd_locator.relNumber;
	sx_catalog_view_update(row);
	sx_aggregate_reemit(pipeline->flow->aggregate);
	return true;
}

/* Reads the state and writes what the view lacks of it. False: locked. */
static bool
load_state(SxPipeline *pipeline, SxViewRow *row, Relation rel)
{
	SxDataflow *flow = pipeline->flow;

	if (flow->aggregate == NULL)
		return true;
	if (!sx_aggregate_lock(flow->aggregate))
		return false;
	sx_frame_enter(pipeline);
	flow->aggregate->methods->load(flow->aggregate);
	sx_frame_leave();
	if (row->filenumber != rel->rd_locator.relNumber && !follow_rewrite(pipeline, rel))
		return false;
	sx_view_begin(flow->sink, rel);
	sx_frame_enter(pipeline);
	flow->first->methods->flush(flow->first);
	sx_frame_leave();
	return true;
}

bool
sx_pipeline_load(SxPipeline *pipeline)
{
	SxViewRow *row;
	Relation rel;
	Relation source;

	if (!ConditionalLockRelationOid(pipeline->view, RowExclusiveLock) ||
		!ConditionalLockRelationOid(pipeline->source, AccessShareLock))
		return false;
	rel = try_relation_open(pipeline->view, NoLock);
	source = try_relation_open(pipeline->source, NoLock);
	row = sx_catalog_view(pipeline->view);
	/* dropped a moment ago */
	if (rel == NULL || source == NULL || row == NULL || strcmp(row->id, pipeline->id) != 0)
		return false;

	PushActiveSnapshot(GetLatestSnapshot());
	if (!load_options(pipeline))
		return false;
	compile_view(pipeline, rel);
	if (must_build(pipeline, row, source))
	{
		if (!sx_catalog_view_lock(pipeline->view, false))
			return false;
		row = sx_catalog_view(pipeline->view);
		if (!build(pipeline, row, rel, source))
			return false;
	}
	if (!load_state(pipeline, row, rel))
		return false;
	PopActiveSnapshot();

	pipeline->view_file = rel->rd_locator.relNumber;
	pipeline->owner = rel->rd_rel->relowner;
	pipeline->generation = sx_catalog_generation(pipeline->source);
	pipeline->caught_up = row->caught_up;
	pipeline->memory = sx_dataflow_memory(pipeline->flow);
	table_close(source, NoLock);
	table_close(rel, NoLock);
	return true;
}

void
sx_pipeline_unload(SxPipeline *pipeline)
{
	Assert(pipeline->group == NULL);
	if (pipeline->flow != NULL)
		sx_dataflow_free(pipeline->flow);
	/* what an attempt to load that failed has left */
	MemoryContextDeleteChildren(pipeline->cxt);
	pipeline->flow = NULL;
	pipeline->options = NULL;
	pipeline->memory = 0;
}
