/*
 * options.h
 *		The stream.* options of streams and continuous views, kept as security labels.
 *
 * A label is, for ever: 'v1' followed by name='value' pairs in alphabetical order, each after one
 * space; a quote in a value is doubled. A label of a later version is refused with a hint.
 */
#ifndef STREAM_EXT_CATALOG_OPTIONS_H
#define STREAM_EXT_CATALOG_OPTIONS_H

#include "nodes/pg_list.h"

/* Lengths of time are in microseconds. */
typedef struct SxStreamOptions
{
	char *event_time; /* column; NULL: none */
	bool has_watermark_delay;
	int64 watermark_delay;
	int64 idle_timeout;
	int64 max_ahead;
} SxStreamOptions;

typedef struct SxViewOptions
{
	char *id; /* 16 hex digits, drawn at CREATE; tells a view from another of the same OID */
	/* settings under which STABLE functions run, as they were at CREATE */
	char *datestyle;
	char *intervalstyle;
	char *search_path;
	char *timezone;
} SxViewOptions;

/* Parsed label of a stream or view, palloc'd; NULL: it has none (a restore is under way). */
extern SxStreamOptions *sx_stream_options(Oid relid);
extern SxViewOptions *sx_view_options(Oid relid);

#endif /* STREAM_EXT_CATALOG_OPTIONS_H */
