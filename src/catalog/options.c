/*
 * options.c
 *		What the stream.* options mean: names, values, and which fit together.
 *
 * Every value passes through two functions. sx_option_canonical() turns what a user wrote into
 * the one form that is stored; it does not look at the relation. sx_options_check() judges a whole
 * label against the columns of its relation; CREATE, ALTER and SECURITY LABEL all end there, so
 * that there is no second set of rules.
 *
 * Lengths of time are stored as a number and a unit ('5 s'), which reads the same under every
 * IntervalStyle. A day is 24 hours.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <ctype.h>

#include "catalog/pg_attribute.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "stream_ext/catalog/options.h"

/* Longer lengths of time are refused: a timestamp less a delay must stay a valid int64. */
#define MAX_DURATION (INT64CONST(1000000) * USECS_PER_DAY)

#define DEFAULT_IDLE_TIMEOUT (INT64CONST(30) * USECS_PER_SEC)
#define DEFAULT_MAX_AHEAD    USECS_PER_DAY

typedef enum OptionType
{
	OPTION_COLUMN,
	OPTION_DURATION,          /* 0 is allowed */
	OPTION_POSITIVE_DURATION, /* more than 0 */
	OPTION_LATENESS,
	OPTION_EMIT,
	OPTION_ON_ERROR,
	OPTION_IDENTITY, /* kept by us, not set by users: the view's id */
	OPTION_SETTING,  /* likewise: a setting the view computes under */
	OPTION_LATER     /* known, but of a later version */
} OptionType;

typedef struct OptionDefinition
{
	const char *name;
	SxOptionTarget target;
	OptionType type;
} OptionDefinition;

/* In alphabetical order, as they appear in hints. */
static const OptionDefinition definitions[] = {
	{"allow_partial_refresh", SX_ON_VIEW, OPTION_LATER},
	{"allowed_lateness", SX_ON_VIEW, OPTION_LATENESS},
	{"datestyle", SX_ON_VIEW, OPTION_SETTING},
	{"emit", SX_ON_VIEW, OPTION_EMIT},
	{"event_time", SX_ON_STREAM, OPTION_COLUMN},
	{"id", SX_ON_VIEW, OPTION_IDENTITY},
	{"idle_timeout", SX_ON_STREAM, OPTION_POSITIVE_DURATION},
	{"intervalstyle", SX_ON_VIEW, OPTION_SETTING},
	{"max_ahead", SX_ON_STREAM, OPTION_POSITIVE_DURATION},
	{"max_lag", SX_ON_STREAM, OPTION_LATER},
	{"on_error", SX_ON_VIEW, OPTION_ON_ERROR},
	{"retention", SX_ON_STREAM, OPTION_LATER},
	{"retention_max_lag", SX_ON_STREAM, OPTION_LATER},
	{"search_path", SX_ON_VIEW, OPTION_SETTING},
	{"start", SX_ON_VIEW, OPTION_LATER},
	{"state_ttl", SX_ON_VIEW, OPTION_LATER},
	{"timezone", SX_ON_VIEW, OPTION_SETTING},
	{"watermark", SX_ON_STREAM, OPTION_LATER},
	{"watermark_delay", SX_ON_STREAM, OPTION_DURATION},
};

/* Units of stored lengths of time, longest first. */
static const struct
{
	const char *name;
	int64 usecs;
} units[] = {
	{"d", USECS_PER_DAY}, {"h", USECS_PER_HOUR}, {"min", USECS_PER_MINUTE},
	{"s", USECS_PER_SEC}, {"ms", 1000},          {"us", 1},
};

static const OptionDefinition *
find_definition(const char *name)
{
	for (int i = 0; i < lengthof(definitions); i++)
		if (strcmp(definitions[i].name, name) == 0)
			return &definitions[i];
	return NULL;
}

static bool
is_internal(const OptionDefinition *definition)
{
	return definition->type == OPTION_IDENTITY || definition->type == OPTION_SETTING;
}

/* True for what a view's label carries besides options: its id and settings. */
bool
sx_option_is_internal(const char *name)
{
	const OptionDefinition *definition = find_definition(name);

	return definition != NULL && is_internal(definition);
}

static const char *
target_noun(SxOptionTarget target)
{
	return target == SX_ON_STREAM ? "stream" : "continuous view";
}

/* "Valid options of a stream are stream.a, stream.b." */
static char *
list_valid_options(SxOptionTarget target)
{
	StringInfoData buf;
	bool first = true;

	initStringInfo(&buf);
	appendStringInfo(&buf, "Options of a %s are ", target_noun(target));
	for (int i = 0; i < lengthof(definitions); i++)
	{
		if (definitions[i].target != target || is_internal(&definitions[i]) ||
			definitions[i].type == OPTION_LATER)
			continue;
		appendStringInfo(&buf, "%sstream.%s", first ? "" : ", ", definitions[i].name);
		first = false;
	}
	appendStringInfoChar(&buf, '.');
	return buf.data;
}

/*
 * Refuses a name that is no option of 'target', or not one that a user can set. Errors:
 * INVALID_PARAMETER_VALUE, FEATURE_NOT_SUPPORTED.
 */
void
sx_option_check_name(SxOptionTarget target, const char *name)
{
	const OptionDefinition *definition = find_definition(name);

	if (definition == NULL || is_internal(definition))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unrecognized option \"stream.%s\"", name),
						errhint("%s", list_valid_options(target))));
	if (definition->target != target)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"stream.%s\" cannot be set on a %s", name, target_noun(target)),
				 errhint("%s", list_valid_options(target))));
	if (definition->type == OPTION_LATER)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("option \"stream.%s\" is not supported yet", name),
						errhint("%s", list_valid_options(target))));
}

static void
report_invalid_value(const char *name, const char *value, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", name, value), errhint("%s", hint)));
}

static void
report_unsupported_value(const char *name, const char *value, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("value \"%s\" of option \"%s\" is not supported yet", value, name),
					errhint("%s", hint)));
}

/* interval_in() whose complaints are ours: about the option, with a hint about units. */
static Interval *
read_interval(const char *name, const char *value, const char *hint)
{
	MemoryContext cxt = CurrentMemoryContext;
	Interval *volatile interval = NULL;

	/* nothing but memory is held inside, and the error goes on, so no subtransaction is needed */
	PG_TRY();
	{
		interval =
			DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(value),
												  ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	}
	PG_CATCH();
	{
		ErrorData *edata;

		MemoryContextSwitchTo(cxt);
		edata = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(edata->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		report_invalid_value(name, value, hint);
	}
	PG_END_TRY();
	return interval;
}

/*
 * Microseconds of an interval that a user wrote. PostgreSQL reads a bare number as seconds; as
 * settings in milliseconds are near, a unit is asked for (but for 0). Errors:
 * INVALID_PARAMETER_VALUE.
 */
static int64
parse_duration(const char *name, const char *value, int64 min)
{
	const char *hint =
		"Give a number and a unit, such as '5 s'. Units are us, ms, s, min, h and d.";
	const char *number = value + strspn(value, " \t\r\n");
	bool has_unit = number[strspn(number, "+-.0123456789 \t\r\n")] != '\0';
	bool is_zero = strpbrk(number, "123456789") == NULL && strchr(number, '0') != NULL;
	Interval *interval;
	int64 usecs;

	if (!has_unit && !is_zero)
		report_invalid_value(name, value, hint);
	interval = read_interval(name, value, hint);
	if (INTERVAL_NOT_FINITE(interval))
		report_invalid_value(name, value, "The value must be finite.");
	if (interval->month != 0)
		report_invalid_value(name, value, "Months and years have no fixed length; use days.");
	if (pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &usecs) ||
		pg_add_s64_overflow(usecs, interval->time, &usecs) || usecs > MAX_DURATION)
		report_invalid_value(name, value, "The value must be at most 1000000 days.");
	if (usecs < 0)
		report_invalid_value(name, value, "The value cannot be negative.");
	if (usecs < min)
		report_invalid_value(name, value, "The value must be greater than zero.");
	return usecs;
}

int64
sx_option_duration(const char *name, const char *value, bool positive)
{
	return parse_duration(name, value, positive ? 1 : 0);
}

/* The stored form of a length of time: the longest unit that divides it. */
static char *
write_duration(int64 usecs)
{
	if (usecs == 0)
		return pstrdup("0 s");
	for (int i = 0;; i++)
		if (usecs % units[i].usecs == 0)
			return psprintf(INT64_FORMAT " %s", usecs / units[i].usecs, units[i].name);
}

/* Reads the stored form; false if 'value' is not in it. */
static bool
read_duration(const char *value, int64 *usecs)
{
	size_t len = strspn(value, "0123456789");
	int64 number;

	if (len == 0 || len > 18 || value[len] != ' ')
		return false;
	number = strtoi64(value, NULL, 10);
	for (int i = 0; i < lengthof(units); i++)
		if (strcmp(value + len + 1, units[i].name) == 0)
			return !pg_mul_s64_overflow(number, units[i].usecs, usecs) && *usecs <= MAX_DURATION;
	return false;
}

/* Lower case (ASCII, all that our words are made of) without spaces around it. */
static char *
fold_word(const char *value)
{
	char *word = pstrdup(value);
	size_t len;

	while (isspace((unsigned char) *word))
		word++;
	len = strlen(word);
	while (len > 0 && isspace((unsigned char) word[len - 1]))
		word[--len] = '\0';
	for (char *p = word; *p != '\0'; p++)
		*p = pg_ascii_tolower((unsigned char) *p);
	return word;
}

/*
 * The stored form of an option's value as a user wrote it. Errors: INVALID_PARAMETER_VALUE,
 * FEATURE_NOT_SUPPORTED. Whether it fits the relation is for sx_options_check().
 */
char *
sx_option_canonical(SxOptionTarget target, const char *name, const char *value)
{
	const char *shown = psprintf("stream.%s", name);
	const char *word;

	sx_option_check_name(target, name);
	switch (find_definition(name)->type)
	{
		case OPTION_COLUMN:
			if (value[0] == '\0')
				report_invalid_value(shown, value, "Name a column.");
			return pstrdup(value);
		case OPTION_DURATION:
			return write_duration(parse_duration(shown, value, 0));
		case OPTION_POSITIVE_DURATION:
			return write_duration(parse_duration(shown, value, 1));
		case OPTION_LATENESS:
			if (parse_duration(shown, value, 0) != 0)
				report_unsupported_value(shown, value, "The only value supported is '0'.");
			return pstrdup("0 s");
		case OPTION_EMIT:
			word = fold_word(value);
			if (strcmp(word, "update") == 0)
				return pstrdup("update");
			if (strncmp(word, "close", 5) == 0 || strncmp(word, "every ", 6) == 0 ||
				strncmp(word, "count ", 6) == 0)
				report_unsupported_value(shown, value, "The only value supported is 'update'.");
			report_invalid_value(shown, value, "The only value supported is 'update'.");
			break;
		case OPTION_ON_ERROR:
			word = fold_word(value);
			if (strcmp(word, "stop") == 0)
				return pstrdup("stop");
			if (strcmp(word, "skip") == 0)
				report_unsupported_value(shown, value, "The only value supported is 'stop'.");
			report_invalid_value(shown, value, "The only value supported is 'stop'.");
			break;
		case OPTION_IDENTITY:
		case OPTION_SETTING:
		case OPTION_LATER:
			break;
	}
	elog(ERROR, "option \"%s\" has no values", name);
	return NULL;
}

/* Refuses a stored value that sx_option_canonical() would not have made. */
static void
check_stored_value(const OptionDefinition *definition, const char *value)
{
	int64 usecs;

	switch (definition->type)
	{
		case OPTION_DURATION:
		case OPTION_POSITIVE_DURATION:
			if (!read_duration(value, &usecs) || strcmp(value, write_duration(usecs)) != 0 ||
				(definition->type == OPTION_POSITIVE_DURATION && usecs == 0))
				report_invalid_value(psprintf("stream.%s", definition->name), value,
									 "In a label, lengths of time are written like '5 s'.");
			break;
		case OPTION_IDENTITY:
			if (strlen(value) != 16 || strspn(value, "0123456789abcdef") != 16)
				report_invalid_value(psprintf("stream.%s", definition->name), value,
									 "An identity is 16 hexadecimal digits.");
			break;
		case OPTION_SETTING:
			/* what was valid elsewhere may not be here: a time zone this system does not know */
			(void) set_config_option(definition->name, value, PGC_USERSET, PGC_S_SESSION,
									 GUC_ACTION_SET, false, ERROR, false);
			break;
		default:
			if (strcmp(value, sx_option_canonical(definition->target, definition->name, value)) !=
				0)
				report_invalid_value(psprintf("stream.%s", definition->name), value,
									 "In a label, values are written in lower case.");
			break;
	}
}

static void
check_event_time(const char *column, TupleDesc desc, const char *relname)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || strcmp(NameStr(att->attname), column) != 0)
			continue;
		if (att->atttypid != TIMESTAMPTZOID && att->atttypid != TIMESTAMPOID)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("column \"%s\" cannot be the event time of \"%s\"", column, relname),
					 errdetail("It is of type %s.", format_type_be(att->atttypid)),
					 errhint("Use a column of type timestamp with time zone or timestamp without "
							 "time zone.")));
		if (att->attgenerated != '\0' && att->attgenerated != ATTRIBUTE_GENERATED_STORED)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("column \"%s\" cannot be the event time of \"%s\"", column, relname),
					 errdetail("It is a virtual generated column."),
					 errhint("Use a stored column.")));
		return;
	}
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
					errmsg("column \"%s\" of \"%s\" does not exist", column, relname),
					errhint("Option \"stream.event_time\" names a column of the stream, in the "
							"exact spelling.")));
}

/*
 * Judges a whole label of a stream or view with the columns 'desc' (may be NULL: then columns are
 * not looked at). Result: its options. Errors: INVALID_PARAMETER_VALUE, UNDEFINED_COLUMN,
 * FEATURE_NOT_SUPPORTED.
 */
List *
sx_options_check(SxOptionTarget target, const char *label, TupleDesc desc, const char *relname)
{
	List *options = sx_label_parse(label);
	const char *event_time;
	ListCell *cell;

	foreach(cell, options)
	{
		const SxOption *option = lfirst(cell);
		const OptionDefinition *definition = find_definition(option->name);

		if (definition == NULL || !is_internal(definition) || definition->target != target)
			sx_option_check_name(target, option->name);
		check_stored_value(definition, option->value);
	}

	if (target == SX_ON_VIEW)
	{
		for (int i = 0; i < lengthof(definitions); i++)
			if (is_internal(&definitions[i]) &&
				sx_option_find(options, definitions[i].name) == NULL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("label of continuous view \"%s\" lacks \"%s\"", relname,
								definitions[i].name),
						 errhint("ALTER MATERIALIZED VIEW .. RESET (stream.emit) writes a label "
								 "with all defaults.")));
		return options;
	}

	event_time = sx_option_find(options, "event_time");
	if (event_time != NULL && desc != NULL)
		check_event_time(event_time, desc, relname);
	if (event_time == NULL && sx_option_find(options, "watermark_delay") != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"stream.watermark_delay\" needs \"stream.event_time\""),
						errhint("Set both, or reset both.")));
	return options;
}

/* The options that every view's label carries: a new id, and the settings of this session. */
List *
sx_view_identity(void)
{
	List *options = NIL;
	uint64 id;

	if (!pg_strong_random(&id, sizeof(id)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random identity")));
	options = sx_option_set(options, "id", psprintf("%016llx", (unsigned long long) id));
	for (int i = 0; i < lengthof(definitions); i++)
		if (definitions[i].type == OPTION_SETTING)
			options = sx_option_set(options, definitions[i].name,
									GetConfigOptionByName(definitions[i].name, NULL, false));
	return options;
}

static int64
option_duration(List *options, const char *name, int64 default_value)
{
	const char *value = sx_option_find(options, name);
	int64 usecs;

	if (value == NULL)
		return default_value;
	if (!read_duration(value, &usecs))
		elog(ERROR, "stored value of option \"%s\" is invalid", name);
	return usecs;
}

SxStreamOptions *
sx_stream_options(Oid relid)
{
	char *label = sx_label_get(relid);
	SxStreamOptions *result;
	List *options;
	const char *event_time;

	if (label == NULL)
		return NULL;
	options = sx_options_check(SX_ON_STREAM, label, NULL, get_rel_name(relid));
	result = palloc0(sizeof(SxStreamOptions));
	event_time = sx_option_find(options, "event_time");
	if (event_time != NULL)
		result->event_time = pstrdup(event_time);
	result->has_watermark_delay = sx_option_find(options, "watermark_delay") != NULL;
	result->watermark_delay = option_duration(options, "watermark_delay", 0);
	result->idle_timeout = option_duration(options, "idle_timeout", DEFAULT_IDLE_TIMEOUT);
	result->max_ahead = option_duration(options, "max_ahead", DEFAULT_MAX_AHEAD);
	return result;
}

SxViewOptions *
sx_view_options(Oid relid)
{
	char *label = sx_label_get(relid);
	SxViewOptions *result;
	List *options;

	if (label == NULL)
		return NULL;
	options = sx_options_check(SX_ON_VIEW, label, NULL, get_rel_name(relid));
	result = palloc0(sizeof(SxViewOptions));
	result->id = pstrdup(sx_option_find(options, "id"));
	result->datestyle = pstrdup(sx_option_find(options, "datestyle"));
	result->intervalstyle = pstrdup(sx_option_find(options, "intervalstyle"));
	result->search_path = pstrdup(sx_option_find(options, "search_path"));
	result->timezone = pstrdup(sx_option_find(options, "timezone"));
	return result;
}
