/*
 * label.c
 *		The text form of options: grammar, reading and writing of security labels.
 *
 *		label  = "v1" { " " name "='" value "'" }
 *		name   = one or more of a-z and _
 *		value  = any characters; a quote is doubled
 *
 * Names are in strictly ascending order, so that equal options have equal labels and pg_dump's
 * output does not change by itself. The parser takes exactly what the writer makes: a label that
 * reads almost right would otherwise mean something else to the next version.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/objectaddress.h"
#include "commands/seclabel.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"

#include "stream_ext/catalog/options.h"

static void
report_malformed(const char *label, const char *at)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("malformed label \"%s\"", label),
			 errdetail("Unexpected text at character %d.",
					   pg_mbstrlen_with_len(label, at - label) + 1),
			 errhint("Labels are written by CREATE and ALTER .. SET (stream.option = value); "
					 "use these.")));
}

/*
 * Splits a label into options. Result: list of SxOption * in alphabetical order. Errors:
 * INVALID_PARAMETER_VALUE, FEATURE_NOT_SUPPORTED for a label of a later version.
 */
List *
sx_label_parse(const char *label)
{
	List *options = NIL;
	const char *previous = "";
	const char *p = label;

	if (*p == 'v' && strspn(p + 1, "0123456789") > 0)
	{
		size_t len = 1 + strspn(p + 1, "0123456789");

		if (len != 2 || p[1] != '1')
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("label has format %.*s, which this version of stream_ext does not know",
							(int) len, p),
					 errhint("Install the version of stream_ext that wrote it, or a later one.")));
		p += len;
	}
	else
		report_malformed(label, p);

	while (*p != '\0')
	{
		SxOption *option = palloc(sizeof(SxOption));
		const char *start;
		StringInfoData value;
		size_t len;

		if (*p != ' ')
			report_malformed(label, p);
		start = ++p;
		len = strspn(start, "abcdefghijklmnopqrstuvwxyz_");
		p += len;
		if (len == 0 || p[0] != '=' || p[1] != '\'')
			report_malformed(label, p);
		option->name = pnstrdup(start, len);
		if (strcmp(previous, option->name) >= 0)
			report_malformed(label, start);
		previous = option->name;
		p += 2;

		/* a byte equal to a quote is never part of a longer character in a server encoding */
		initStringInfo(&value);
		for (;;)
		{
			if (*p == '\0')
				report_malformed(label, p);
			if (*p == '\'')
			{
				if (p[1] != '\'')
					break;
				p++;
			}
			appendStringInfoChar(&value, *p++);
		}
		p++;
		option->value = value.data;
		options = lappend(options, option);
	}
	return options;
}

/* Makes the label of 'options', which are in alphabetical order. */
char *
sx_label_write(List *options)
{
	StringInfoData label;
	ListCell *cell;

	initStringInfo(&label);
	appendStringInfoString(&label, "v1");
	foreach(cell, options)
	{
		const SxOption *option = lfirst(cell);

		appendStringInfo(&label, " %s='", option->name);
		for (const char *p = option->value; *p != '\0'; p++)
		{
			if (*p == '\'')
				appendStringInfoChar(&label, '\'');
			appendStringInfoChar(&label, *p);
		}
		appendStringInfoChar(&label, '\'');
	}
	return label.data;
}

/* Label of a relation as it is stored, palloc'd; NULL: none. */
char *
sx_label_get(Oid relid)
{
	ObjectAddress address;

	ObjectAddressSet(address, RelationRelationId, relid);
	return GetSecurityLabel(&address, SX_LABEL_PROVIDER);
}

/* Stores a label that the caller has validated; NULL removes it. No command counter increment. */
void
sx_label_set(Oid relid, const char *label)
{
	ObjectAddress address;

	ObjectAddressSet(address, RelationRelationId, relid);
	SetSecurityLabel(&address, SX_LABEL_PROVIDER, label);
}

/* Value of an option in a list, or NULL. */
const char *
sx_option_find(List *options, const char *name)
{
	ListCell *cell;

	foreach(cell, options)
	{
		const SxOption *option = lfirst(cell);

		if (strcmp(option->name, name) == 0)
			return option->value;
	}
	return NULL;
}

/* Copy of the list with an option set to 'value', or taken out (NULL). Keeps the order. */
List *
sx_option_set(List *options, const char *name, const char *value)
{
	List *result = NIL;
	SxOption *added = NULL;
	ListCell *cell;

	if (value != NULL)
	{
		added = palloc(sizeof(SxOption));
		added->name = pstrdup(name);
		added->value = pstrdup(value);
	}
	foreach(cell, options)
	{
		SxOption *option = lfirst(cell);
		int order = strcmp(option->name, name);

		if (order >= 0 && added != NULL)
		{
			result = lappend(result, added);
			added = NULL;
		}
		if (order != 0)
			result = lappend(result, option);
	}
	if (added != NULL)
		result = lappend(result, added);
	return result;
}
