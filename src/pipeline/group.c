/*
 * group.c
 *		Poll groups: views that stand at the same position of the same source read on together.
 *
 * A source is read once for all members of a group. A view that is behind (new, resumed, locked for
 * a while) has a group of its own until it has caught up; then the groups are merged. Two readers
 * of a source outside of this server would hardly ever stop at the same place by themselves, so the
 * one behind is told where the other one stands and does not read past it.
 *
 * Memory: groups are children of TopMemoryContext, and their readers live in them.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/pipeline/pipeline.h"

List *sx_groups = NIL;

void
sx_group_free(SxPollGroup *group)
{
	ListCell *lc;

	foreach(lc, group->members)
		((SxPipeline *) lfirst(lc))->group = NULL;
	sx_groups = list_delete_ptr(sx_groups, group);
	MemoryContextDelete(group->cxt);
}

void
sx_group_detach(SxPipeline *pipeline)
{
	SxPollGroup *group = pipeline->group;

	if (group == NULL)
		return;
	group->members = list_delete_ptr(group->members, pipeline);
	pipeline->group = NULL;
	if (group->members == NIL)
		sx_group_free(group);
}

/* (Re)makes the batch of a group for the columns that its members need. */
static void
make_batch(SxPollGroup *group)
{
	MemoryContext old = MemoryContextSwitchTo(group->cxt);
	SxBatch *previous = group->batch;
	Bitmapset *needed = NULL;
	TupleDesc desc = NULL;
	ListCell *lc;

	foreach(lc, group->members)
	{
		SxDataflow *flow = ((SxPipeline *) lfirst(lc))->flow;

		needed = bms_add_members(needed, flow->needed);
		desc = flow->source_desc;
	}
	group->batch = sx_batch_create(CreateTupleDescCopy(desc), needed);
	bms_free(needed);
	if (previous != NULL)
	{
		desc = previous->desc;
		sx_batch_free(previous);
		FreeTupleDesc(desc);
	}
	MemoryContextSwitchTo(old);
}

static bool
same_position(bytea *a, bytea *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return VARSIZE_ANY(a) == VARSIZE_ANY(b) && memcmp(a, b, VARSIZE_ANY(a)) == 0;
}

void
sx_group_attach(SxPipeline *pipeline)
{
	bytea *position = sx_catalog_position(pipeline->view, pipeline->source);
	Oid user =
		get_rel_relkind(pipeline->source) == RELKIND_FOREIGN_TABLE ? pipeline->owner : InvalidOid;
	SxPollGroup *group = NULL;
	MemoryContext cxt;
	MemoryContext old;
	Relation rel;
	bool restarted;
	ListCell *lc;

	/* a view that has just failed must not take others with it */
	foreach(lc, sx_groups)
	{
		SxPollGroup *candidate = lfirst(lc);
		SxPipeline *first = linitial(candidate->members);

		if (pipeline->failures == 0 && first->failures == 0 &&
			candidate->source == pipeline->source && candidate->user == user &&
			first->flow->source_shape == pipeline->flow->source_shape &&
			same_position(candidate->position, position))
			group = candidate;
	}
	if (group == NULL)
	{
		/* until all is there, an error takes it away with the transaction */
		cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_ext poll group",
									ALLOCSET_DEFAULT_SIZES);
		rel = table_open(pipeline->source, AccessShareLock);
		old = MemoryContextSwitchTo(cxt);
		group = palloc0(sizeof(SxPollGroup));
		group->cxt = cxt;
		group->source = pipeline->source;
		group->user = user;
		group->generation = sx_catalog_generation(pipeline->source);
		group->interval = sx_commit_interval;
		group->reader = sx_source_create(rel, user, position, &restarted);
		if (position != NULL)
		{
			group->position = palloc(VARSIZE_ANY(position));
			memcpy(group->position, position, VARSIZE_ANY(position));
		}
		MemoryContextSwitchTo(TopMemoryContext);
		sx_groups = lappend(sx_groups, group);
		MemoryContextSetParent(cxt, TopMemoryContext);
		MemoryContextSwitchTo(old);
		table_close(rel, NoLock);
	}
	old = MemoryContextSwitchTo(group->cxt);
	group->members = lappend(group->members, pipeline);
	MemoryContextSwitchTo(old);
	pipeline->group = group;
	pipeline->marked = 0;
	make_batch(group);
}

/*
 * Is its position one at which another reader may join? That of a stream holds what it has seen of
 * one poll, which must have ended.
 */
static bool
stands_still(SxPollGroup *group)
{
	return group->drained || group->reader->methods->follow != NULL;
}

/* Changes the order in which the next cycle runs two groups. */
static void
swap_groups(SxPollGroup *a, SxPollGroup *b)
{
	ListCell *lc;

	foreach(lc, sx_groups)
	{
		if (lfirst(lc) == a)
			lfirst(lc) = b;
		else if (lfirst(lc) == b)
			lfirst(lc) = a;
	}
}

void
sx_group_align(SxPollGroup *group)
{
	const SxSourceMethods *methods = group->reader->methods;
	SxPipeline *first = linitial(group->members);
	bool passed = false;
	ListCell *lc;

	if (methods->follow == NULL)
		return;
	foreach(lc, sx_groups)
	{
		SxPollGroup *leader = lfirst(lc);
		SxPipeline *other = linitial(leader->members);

		passed |= leader == group;
		if (leader == group || leader->source != group->source || leader->user != group->user ||
			first->failures != 0 || other->failures != 0 ||
			first->flow->source_shape != other->flow->source_shape ||
			!methods->follow(group->reader, leader->reader))
			continue;
		/* the leader is run first, so that it still stands there when this one has read */
		if (passed)
			swap_groups(group, leader);
		return;
	}
	(void) methods->follow(group->reader, NULL);
}

void
sx_groups_merge(void)
{
	for (int i = 0; i < list_length(sx_groups); i++)
	{
		SxPollGroup *into = list_nth(sx_groups, i);
		SxPipeline *first = linitial(into->members);

		for (int j = list_length(sx_groups) - 1; j > i; j--)
		{
			SxPollGroup *from = list_nth(sx_groups, j);
			SxPipeline *other = linitial(from->members);
			List *members;
			ListCell *lc;
			MemoryContext old;

			if (from->source != into->source || from->user != into->user || from->sat_out ||
				into->sat_out || !stands_still(from) || !stands_still(into) ||
				first->failures != 0 || other->failures != 0 ||
				from->generation != into->generation ||
				first->flow->source_shape != other->flow->source_shape || from->position == NULL ||
				!same_position(into->position, from->position))
				continue;
			old = MemoryContextSwitchTo(into->cxt);
			members = list_copy(from->members);
			sx_group_free(from);
			foreach(lc, members)
			{
				SxPipeline *pipeline = lfirst(lc);

				/* where its source ended was marked by the other reader */
				pipeline->group = into;
				pipeline->marked = 0;
			}
			into->members = list_concat(into->members, members);
			list_free(members);
			MemoryContextSwitchTo(old);
			make_batch(into);
		}
	}
}
