/*
 * options.h
 *		The stream.* options of streams and continuous views, kept as security labels.
 *
 * A label is, for ever: 'v1' followed by name='value' pairs in alphabetical order, each after one
 * space; a quote in a value is doubled. A label of a later version is refused with a hint.
 */
#ifndef STREAM_EXT_CATALOG_OPTIONS_H
#define STREAM_EXT_CATALOG_OPTIONS_H

#include "access/tupdesc.h"
#include "nodes/pg_list.h"

/* Name of our label provider, and the namespace of options in DDL. */
#define SX_LABEL_PROVIDER   "stream"
#define SX_OPTION_NAMESPACE "stream"

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

/* What an option may be set on. */
typedef enum SxOptionTarget
{
	SX_ON_STREAM = 1,
	SX_ON_VIEW = 2
} SxOptionTarget;

/* One option as it stands in a label: the value is canonical. */
typedef struct SxOption
{
	char *name;
	char *value;
} SxOption;

/* label.c: the grammar; lists of SxOption * in alphabetical order. */
extern List *sx_label_parse(const char *label);
extern char *sx_label_write(List *options);
extern char *sx_label_get(Oid relid);
extern void sx_label_set(Oid relid, const char *label);
extern const char *sx_option_find(List *options, const char *name);
extern List *sx_option_set(List *options, const char *name, const char *value);

/* options.c: what the options mean. */
extern char *sx_option_canonical(SxOptionTarget target, const char *name, const char *value);

/*
 * Microseconds of a length of time as a user wrote it for option 'name' (as it stands in messages).
 * Errors: INVALID_PARAMETER_VALUE.
 */
extern int64 sx_option_duration(const char *name, const char *value, bool positive);
extern void sx_option_check_name(SxOptionTarget target, const char *name);
extern bool sx_option_is_internal(const char *name);
extern List *sx_view_identity(void);
extern List *sx_options_check(SxOptionTarget target, const char *label, TupleDesc desc,
							  const char *relname);

#endif /* STREAM_EXT_CATALOG_OPTIONS_H */
