/*
 * stream.c
 *		The source for stream tables: the tail reader, its position and its options.
 *
 * The position's generation is compared here. A stream that was truncated since is read from its
 * beginning, and the caller is told, so that views forget the rows that are gone.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_class.h"
#include "utils/lsyscache.h"

#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/source/source.h"
#include "stream_ext/storage/tail.h"

typedef struct StreamSource
{
	SxSource base;
	SxTailPosition *position;
	SxTailReader *reader; /* NULL outside a poll */
} StreamSource;

/* Reads the options of the stream anew for each poll: ALTER TABLE .. SET may have changed them. */
static void
stream_begin(SxSource *base, Relation rel)
{
	StreamSource *source = (StreamSource *) base;
	SxStreamOptions *options = sx_stream_options(RelationGetRelid(rel));
	SxTailTime time = {0};

	if (options != NULL && options->event_time != NULL)
	{
		time.attno = get_attnum(RelationGetRelid(rel), options->event_time);
		if (time.attno == InvalidAttrNumber)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("event time column \"%s\" of stream \"%s\" does not exist",
								   options->event_time, RelationGetRelationName(rel)),
							errhint("Use ALTER TABLE .. SET (stream.event_time = ..).")));
		time.has_watermark = options->has_watermark_delay;
		time.delay = options->watermark_delay;
		time.max_ahead = options->max_ahead;
	}
	source->reader = sx_tail_begin(rel, source->position, &time);
}

static bool
stream_next(SxSource *base, SxBatch *batch)
{
	return sx_tail_next(((StreamSource *) base)->reader, batch);
}

static void
stream_end(SxSource *base)
{
	StreamSource *source = (StreamSource *) base;

	sx_tail_end(source->reader);
	source->reader = NULL;
}

static bytea *
stream_position(SxSource *base)
{
	return sx_tail_position_encode(((StreamSource *) base)->position);
}

static int64
stream_watermark(SxSource *base)
{
	SxTailSummary summary;

	sx_tail_position_summary(((StreamSource *) base)->position, &summary);
	return summary.watermark;
}

static uint64
stream_behind(SxSource *base)
{
	return sx_tail_blocks_behind(((StreamSource *) base)->reader);
}

static Snapshot
stream_snapshot(SxSource *base)
{
	return sx_tail_snapshot(((StreamSource *) base)->reader);
}

static const SxSourceMethods stream_methods = {
	.name = "stream",
	.begin = stream_begin,
	.next = stream_next,
	.end = stream_end,
	.position = stream_position,
	.watermark = stream_watermark,
	.behind = stream_behind,
	.snapshot = stream_snapshot,
};

SxSource *
sx_source_create(Relation rel, Oid user, bytea *position, bool *restarted)
{
	if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
		return sx_source_kafka(rel, user, position, restarted);
	return sx_source_stream(rel, position, restarted);
}

SxSource *
sx_source_stream(Relation rel, bytea *position, bool *restarted)
{
	StreamSource *source = palloc0(sizeof(StreamSource));
	uint64 generation = sx_catalog_generation(RelationGetRelid(rel));

	source->base.methods = &stream_methods;
	source->base.relid = RelationGetRelid(rel);
	*restarted = false;
	if (position != NULL)
	{
		SxTailSummary summary;

		source->position =
			sx_tail_position_decode(VARDATA_ANY(position), VARSIZE_ANY_EXHDR(position));
		sx_tail_position_summary(source->position, &summary);
		*restarted = summary.generation != generation;
	}
	if (position == NULL || *restarted)
		source->position = sx_tail_position_create(generation);
	return &source->base;
}
