/*
 * format.c
 *		Does a format fit the columns of a relation?
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "decode_internal.h"

/* An index that no array reaches. */
#define MAX_INDEX 1000000000

static void
fail_path(const char *path, const char *p, const char *column, const char *problem)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("JSON path \"%s\" of column \"%s\" is not valid at character %d: %s",
						   path, column, pg_mbstrlen_with_len(path, (int) (p - path)) + 1, problem),
					errhint("A path is like $.a.b[0][\"odd name\"]: $, then keys and indexes.")));
}

static const char *
parse_key(const char *path, const char *p, const char *column, SxJsonStep *step)
{
	const char *start = p;

	while (*p != '\0' && strchr(".[]\"'*?@()$ ", *p) == NULL)
		p++;
	if (p == start)
		fail_path(path, p, column, "a key is expected");
	step->key = pnstrdup(start, p - start);
	step->len = (uint32) (p - start);
	return p;
}

/* At the opening quote; in quotes a backslash takes the next character as it is. */
static const char *
parse_quoted_key(const char *path, const char *p, const char *column, SxJsonStep *step)
{
	char quote = *p;
	char *key = palloc(strlen(p) + 1);
	uint32 len = 0;

	for (p++; *p != quote; p++)
	{
		if (*p == '\\' && p[1] != '\0')
			p++;
		if (*p == '\0')
			fail_path(path, p, column, "a quote is not closed");
		key[len++] = *p;
	}
	key[len] = '\0';
	step->key = key;
	step->len = len;
	return p + 1;
}

static const char *
parse_index(const char *path, const char *p, const char *column, SxJsonStep *step)
{
	const char *start = p;
	uint32 index = 0;

	for (; *p >= '0' && *p <= '9'; p++)
	{
		if (index >= MAX_INDEX / 10)
			fail_path(path, start, column, "the index is too large");
		index = index * 10 + (uint32) (*p - '0');
	}
	if (p == start)
		fail_path(path, p, column, "an index or a quoted key is expected");
	step->index = index;
	return p;
}

int
sx_json_path_parse(const char *path, const char *column, SxJsonStep **steps)
{
	const char *p = path;
	int nsteps = 0;

	/* each step has two characters at least */
	*steps = palloc0(sizeof(SxJsonStep) * (strlen(path) / 2 + 1));
	if (*p != '$')
		fail_path(path, p, column, "it begins with $");
	p++;
	while (*p != '\0')
	{
		SxJsonStep *step = &(*steps)[nsteps++];

		if (*p == '.' && p[1] == '"')
			p = parse_quoted_key(path, p + 1, column, step);
		else if (*p == '.')
			p = parse_key(path, p + 1, column, step);
		else if (*p == '[')
		{
			p++;
			if (*p == '"' || *p == '\'')
				p = parse_quoted_key(path, p, column, step);
			else
				p = parse_index(path, p, column, step);
			if (*p != ']')
				fail_path(path, p, column, "] is expected");
			p++;
		}
		else
			fail_path(path, p, column, ". or [ is expected");
	}
	if (nsteps == 0 || (*steps)[0].key == NULL)
		fail_path(path, path + 1, column, "a record is an object, so a key comes first");
	return nsteps;
}

static void
fail_type(const char *column, Oid type, const char *what, const char *types)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" of type %s cannot hold %s", column, format_type_be(type), what),
			 errhint("Its type can be %s.", types)));
}

static void
check_meta_type(const char *column, SxColumnOrigin origin, Oid type)
{
	switch (origin)
	{
		case SX_FROM_PARTITION:
			if (type != INT4OID && type != INT8OID)
				fail_type(column, type, "the partition of a record", "integer or bigint");
			break;
		case SX_FROM_OFFSET:
			if (type != INT8OID)
				fail_type(column, type, "the offset of a record", "bigint");
			break;
		case SX_FROM_TIMESTAMP:
			if (type != TIMESTAMPTZOID && type != TIMESTAMPOID && type != INT8OID)
				fail_type(column, type, "the time of a record",
						  "timestamp with time zone, timestamp without time zone or bigint");
			break;
		case SX_FROM_HEADERS:
			if (type != JSONBOID)
				fail_type(column, type, "the headers of a record", "jsonb");
			break;
		case SX_FROM_KEY:
		case SX_FROM_VALUE:
			break;
	}
}

static void
check_column(const SxFormat *format, const SxColumnFormat *column, Form_pg_attribute attr)
{
	const char *name = NameStr(attr->attname);
	SxJsonStep *steps;

	if (attr->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" is generated, which columns of records cannot be", name)));
	if (get_typtype(attr->atttypid) == TYPTYPE_PSEUDO)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" has pseudo-type %s", name, format_type_be(attr->atttypid))));
	check_meta_type(name, column->origin, attr->atttypid);
	if (column->name == NULL && column->json_path == NULL)
		return;
	if (column->origin != SX_FROM_VALUE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" is not taken from the value of a record, so it has no "
						"key or path there",
						name)));
	if (format->kind != SX_FORMAT_JSON)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("column \"%s\" has a key or path of JSON, but the format is not "
							   "\"json\"",
							   name)));
	if (column->name != NULL && column->json_path != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("column \"%s\" has both a key and a JSON path", name)));
	if (column->json_path != NULL)
		(void) sx_json_path_parse(column->json_path, name, &steps);
}

static void
check_csv(const SxFormat *format, const char *relname)
{
	const char *problem = NULL;

	if (format->delimiter == '\0' || format->quote == '\0' || format->escape == '\0')
		problem = "delimiter, quote and escape are one character each";
	else if (format->delimiter == '\n' || format->delimiter == '\r' || format->quote == '\n' ||
			 format->quote == '\r' || format->escape == '\n' || format->escape == '\r')
		problem = "delimiter, quote and escape cannot be line breaks";
	else if ((format->delimiter & 0x80) || (format->quote & 0x80) || (format->escape & 0x80))
		problem = "delimiter, quote and escape are characters of ASCII";
	else if (format->delimiter == format->quote)
		problem = "delimiter and quote must differ";
	else if (strpbrk(format->null_string, "\r\n") != NULL)
		problem = "the string for NULL cannot have line breaks";
	else if (strchr(format->null_string, format->delimiter) != NULL)
		problem = "the string for NULL cannot have the delimiter in it";
	else if (strchr(format->null_string, format->quote) != NULL)
		problem = "the string for NULL cannot have the quote in it";
	if (problem != NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("CSV format of \"%s\" is not valid: %s", relname, problem)));
}

static void
check_event_time(const SxFormat *format, TupleDesc desc, const char *relname)
{
	Form_pg_attribute attr;

	if (format->event_time == 0)
		return;
	if (format->event_time < 0 || format->event_time > desc->natts ||
		TupleDescAttr(desc, format->event_time - 1)->attisdropped)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column for the event time of \"%s\" does not exist", relname)));
	attr = TupleDescAttr(desc, format->event_time - 1);
	if (attr->atttypid != TIMESTAMPTZOID && attr->atttypid != TIMESTAMPOID)
		fail_type(NameStr(attr->attname), attr->atttypid, "the event time",
				  "timestamp with time zone or timestamp without time zone");
}

void
sx_format_check(const SxFormat *format, TupleDesc desc, const char *relname)
{
	int nvalue_columns = 0;

	if (format->natts != desc->natts)
		ereport(ERROR, (errcode(ERRCODE_INVALID_TABLE_DEFINITION),
						errmsg("format of \"%s\" has %d columns instead of %d", relname,
							   format->natts, desc->natts)));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);

		if (attr->attisdropped)
			continue;
		check_column(format, &format->columns[i], attr);
		nvalue_columns += format->columns[i].origin == SX_FROM_VALUE;
	}
	if (format->kind == SX_FORMAT_RAW && nvalue_columns != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("format \"raw\" of \"%s\" needs one column for the value, not %d", relname,
						nvalue_columns),
				 errhint(
					 "Columns for partition, offset, timestamp, key and headers say so by their "
					 "option \"meta\".")));
	if (format->kind == SX_FORMAT_CSV)
		check_csv(format, relname);
	check_event_time(format, desc, relname);
}

bool
sx_format_has(const SxFormat *format, SxColumnOrigin origin)
{
	for (int i = 0; i < format->natts; i++)
		if (format->columns[i].origin == origin)
			return true;
	return false;
}
