/*
 * general.c
 *		Values of any type, by the server's own parser and the types' input functions.
 *
 * This is what decides what a record means; json_scan.c and convert.c only are faster. JSON is read
 * as jsonb reads it. A column then is what (value ->> 'key')::type would be, and one that is an
 * array, a row, json or jsonb is what jsonb_populate_record() makes of it.
 *
 * All of it may fail, and leave behind what it likes, so it runs in protect.c's subtransactions. An
 * error can leave a function's cache half done: what was running then is prepared anew.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "decode_internal.h"

/*
 * The server's parser needs stack for each level. The limit is ours, so that whether a record is a
 * row does not depend on max_stack_depth.
 */
#define MAX_JSON_DEPTH 1000

char *
sx_server_text(const char *text, int len)
{
	char *result = pg_any_to_server(text, len, PG_UTF8);

	return result == text ? pnstrdup(text, len) : result;
}

/* Gets the column's function ready to be called in the present context. */
static void
prepare(SxDecoder *decoder, SxColumn *column)
{
	MemoryContext old;
	Oid function;

	decoder->running_column = column;
	if (column->is_ready)
		return;
	if (column->input_cxt == NULL)
		column->input_cxt =
			AllocSetContextCreate(decoder->cxt, "stream_ext column", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(column->input_cxt);
	column->domain_extra = NULL;
	if (column->is_nested)
	{
		old = MemoryContextSwitchTo(column->input_cxt);
		column->populate_desc = CreateTemplateTupleDesc(1);
		TupleDescInitEntry(column->populate_desc, 1, column->name, column->type, column->typmod, 0);
		BlessTupleDesc(column->populate_desc);
		fmgr_info_cxt(F_JSONB_POPULATE_RECORD, &column->input, column->input_cxt);
		/* it asks for the types of its arguments */
		fmgr_info_set_expr((Node *)
							   makeFuncExpr(F_JSONB_POPULATE_RECORD, RECORDOID,
											list_make2(makeNullConst(RECORDOID, -1, InvalidOid),
													   makeNullConst(JSONBOID, -1, InvalidOid)),
											InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL),
						   &column->input);
		MemoryContextSwitchTo(old);
	}
	else
	{
		getTypeInputInfo(column->type, &function, &column->ioparam);
		fmgr_info_cxt(function, &column->input, column->input_cxt);
	}
	column->is_ready = true;
}

/* 'text' NULL: the NULL of a domain, which may not allow it. */
static Datum
from_text(SxDecoder *decoder, SxColumn *column, char *text, bool *is_null)
{
	*is_null = text == NULL;
	if (text == NULL && !column->checks_null)
		return (Datum) 0;
	prepare(decoder, column);
	return InputFunctionCall(&column->input, text, column->ioparam, column->typmod);
}

/* The operator ->>; NULL for what is no value. */
static char *
jsonb_as_text(JsonbValue *value)
{
	if (value == NULL)
		return NULL;
	switch (value->type)
	{
		case jbvNull:
			return NULL;
		case jbvString:
			return pnstrdup(value->val.string.val, value->val.string.len);
		case jbvBool:
			return pstrdup(value->val.boolean ? "true" : "false");
		case jbvNumeric:
			return DatumGetCString(
				DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
		case jbvBinary:
			return JsonbToCString(NULL, value->val.binary.data, value->val.binary.len);
		default:
			elog(ERROR, "unexpected type of jsonb value: %d", (int) value->type);
	}
	return NULL;
}

/* jsonb_populate_record() for a row that has this column only. */
static Datum
populate(SxDecoder *decoder, SxColumn *column, JsonbValue *value, bool *is_null)
{
	LOCAL_FCINFO(fcinfo, 2);
	JsonbParseState *state = NULL;
	JsonbValue key;
	JsonbValue null = {.type = jbvNull};
	Datum no_value = (Datum) 0;
	bool no_value_null = true;
	HeapTuple base;
	HeapTupleData result;
	HeapTupleHeader header;

	*is_null = value == NULL || value->type == jbvNull;
	if (*is_null && !column->checks_null)
		return (Datum) 0;
	prepare(decoder, column);

	key.type = jbvString;
	key.val.string.val = unconstify(char *, column->name);
	key.val.string.len = (int) strlen(column->name);
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	pushJsonbValue(&state, WJB_KEY, &key);
	pushJsonbValue(&state, WJB_VALUE, *is_null ? &null : value);

	/* the row to fill in says what columns there are */
	base = heap_form_tuple(column->populate_desc, &no_value, &no_value_null);
	InitFunctionCallInfoData(*fcinfo, &column->input, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = HeapTupleHeaderGetDatum(base->t_data);
	fcinfo->args[0].isnull = false;
	fcinfo->args[1].value =
		JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	fcinfo->args[1].isnull = false;
	header = DatumGetHeapTupleHeader(FunctionCallInvoke(fcinfo));

	result.t_len = HeapTupleHeaderGetDatumLength(header);
	ItemPointerSetInvalid(&result.t_self);
	result.t_tableOid = InvalidOid;
	result.t_data = header;
	return heap_getattr(&result, 1, column->populate_desc, is_null);
}

static Datum
from_jsonb(SxDecoder *decoder, SxColumn *column, JsonbValue *value, bool *is_null)
{
	if (column->is_nested)
		return populate(decoder, column, value, is_null);
	return from_text(decoder, column, jsonb_as_text(value), is_null);
}

static Jsonb *
parse_jsonb(char *text)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

/* The value itself, not as the array that jsonb wraps scalars into. */
static JsonbValue *
get_root(Jsonb *jsonb, JsonbValue *buffer)
{
	if (JB_ROOT_IS_SCALAR(jsonb))
		return getIthJsonbValueFromContainer(&jsonb->root, 0);
	buffer->type = jbvBinary;
	buffer->val.binary.data = &jsonb->root;
	buffer->val.binary.len = VARSIZE(jsonb) - VARHDRSZ;
	return buffer;
}

/*
 * From what the scanner found. It was sure about the whole record, so what a value is does not
 * depend on the rest of it.
 */
static Datum
from_span(SxDecoder *decoder, SxColumn *column, const SxJsonSpan *span, bool *is_null)
{
	bool is_string = span->kind == SX_JSON_STRING || span->kind == SX_JSON_ESCAPED;
	JsonbValue buffer;
	char *text;

	if (span->kind == SX_JSON_ABSENT || span->kind == SX_JSON_NULL)
		return from_jsonb(decoder, column, NULL, is_null);
	if (is_string && !column->is_nested)
	{
		text = pnstrdup(span->start, span->len);
		if (span->kind == SX_JSON_ESCAPED)
			text[sx_json_unescape(span, text)] = '\0';
		return from_text(decoder, column, text, is_null);
	}
	/* with its quotes */
	decoder->running_column = column;
	text = is_string ? pnstrdup(span->start - 1, span->len + 2) : pnstrdup(span->start, span->len);
	return from_jsonb(decoder, column, get_root(parse_jsonb(text), &buffer), is_null);
}

/*
 * ---- the whole value
 */

/*
 * What a key has. Where case is ignored and there are several spellings, the one that is like the
 * name counts, and without one the last in the order of bytes.
 */
static JsonbValue *
get_key(SxDecoder *decoder, JsonbContainer *object, const char *name, int len)
{
	JsonbValue *found = getKeyJsonValueFromContainer(object, name, len, NULL);
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue value;
	bool is_key = false;

	if (found != NULL || !decoder->ignore_case)
		return found;
	iterator = JsonbIteratorInit(object);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			is_key = value.val.string.len == len &&
					 sx_json_same_key(value.val.string.val, name, len, true);
		else if (token == WJB_VALUE && is_key)
		{
			found = palloc(sizeof(JsonbValue));
			*found = value;
		}
	}
	return found;
}

static JsonbValue *
find_value(SxDecoder *decoder, SxColumn *column, Jsonb *jsonb)
{
	const SxJsonKey *key = &decoder->keys[column->key];
	JsonbValue *value = get_key(decoder, &jsonb->root, key->name, (int) key->len);

	for (int i = 0; i < column->nsteps && value != NULL; i++)
	{
		const SxJsonStep *step = &column->steps[i];
		JsonbContainer *container;

		if (value->type != jbvBinary)
			return NULL;
		container = value->val.binary.data;
		if (step->key != NULL ? !JsonContainerIsObject(container)
							  : !JsonContainerIsArray(container))
			return NULL;
		value = step->key != NULL ? get_key(decoder, container, step->key, (int) step->len)
								  : getIthJsonbValueFromContainer(container, step->index);
	}
	return value;
}

static Jsonb *
parse_record(SxDecoder *decoder)
{
	const SxRecord *record = decoder->record;
	Jsonb *jsonb;

	/* before it is copied: what is in the way need not be small */
	if (sx_json_deeper(record->value, record->value_len, MAX_JSON_DEPTH))
		ereport(ERROR, (errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
						errmsg("JSON is nested deeper than %d levels", MAX_JSON_DEPTH)));
	jsonb = parse_jsonb(sx_server_text(record->value, record->value_len));
	if (!JB_ROOT_IS_OBJECT(jsonb))
		ereport(ERROR, (errcode(ERRCODE_SQL_JSON_OBJECT_NOT_FOUND),
						errmsg("record is not a JSON object")));
	return jsonb;
}

/* Bytes as they are, of a column that is bytea or a domain over it. */
static Datum
from_bytes(SxDecoder *decoder, SxColumn *column, const SxJsonSpan *span, bool *is_null)
{
	Datum value = (Datum) 0;

	*is_null = span->kind == SX_JSON_NULL;
	if (!*is_null)
		value = PointerGetDatum(cstring_to_text_with_len(span->start, (int) span->len));
	if (column->checks_null)
	{
		prepare(decoder, column);
		domain_check(value, *is_null, column->type, &column->domain_extra, column->input_cxt);
	}
	return value;
}

static void
split_csv(SxDecoder *decoder)
{
	char *text = sx_server_text(decoder->record->value, decoder->record->value_len);

	sx_csv_split(decoder, text, strlen(text));
	if (decoder->dead_code != 0)
		return;
	for (int i = 0; i < decoder->nvalue_columns; i++)
		decoder->value_columns[i]->is_pending = true;
}

/* A text in an encoding that needs a look, or a conversion. */
static void
convert_encoding(SxDecoder *decoder, SxColumn *column)
{
	char *text;

	decoder->running_column = column;
	text = sx_server_text(column->own_span.start, (int) column->own_span.len);
	column->own_span.start = text;
	column->own_span.len = (uint32) strlen(text);
}

void
sx_general_values(SxDecoder *decoder)
{
	Jsonb *jsonb = NULL;

	if (decoder->is_whole_pending && decoder->kind == SX_FORMAT_JSON)
		jsonb = parse_record(decoder);
	else if (decoder->is_whole_pending && decoder->kind == SX_FORMAT_CSV)
		split_csv(decoder);
	if (decoder->dead_code != 0)
		return;

	for (int i = 0; i < decoder->natts; i++)
	{
		SxColumn *column = &decoder->columns[i];
		Datum *value = &decoder->values[i];
		bool *is_null = &decoder->nulls[i];

		if (column->origin == SX_FROM_VALUE && jsonb != NULL && !column->is_dropped)
			*value = from_jsonb(decoder, column, find_value(decoder, column, jsonb), is_null);
		else if (!column->is_pending)
			continue;
		else if (column->is_bytes)
			*value = from_bytes(decoder, column, column->span, is_null);
		else
		{
			if (column->origin == SX_FROM_KEY || decoder->kind == SX_FORMAT_RAW)
				if (column->own_span.kind == SX_JSON_STRING)
					convert_encoding(decoder, column);
			*value = from_span(decoder, column, column->span, is_null);
		}
		column->in_scratch = !column->by_value;
	}
}
