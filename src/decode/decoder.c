/*
 * decoder.c
 *		From records to rows: makes a decoder, and takes records through its stages.
 *
 * Three stages: the columns by the fast path, which cannot fail (json_scan.c, csv.c, convert.c,
 * meta.c); those that it was not sure about by the general path, under protection (general.c,
 * protect.c); the constraints. A record that fails at any stage is dead and leaves no row. What the
 * fast path accepts means the same to the general path: tests compare them.
 *
 * Memory: values that the batch wants are made in its context, or copied there from 'scratch', which
 * is reset before each record. A dead record can leave values in the batch's context, no larger than
 * itself, until the batch is reset.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "decode_internal.h"

/*
 * ---- making a decoder
 */

/* Types whose JSON form is more than a text. */
static bool
is_nested_type(Oid type)
{
	Oid base = getBaseType(type);

	return base == JSONOID || base == JSONBOID || OidIsValid(get_element_type(base)) ||
		   type_is_rowtype(base);
}

/* Index of a key; a new one if it is not there. */
static int
add_key(SxDecoder *decoder, const char *name)
{
	SxJsonKey *key;
	size_t len = strlen(name);

	for (int i = 0; i < decoder->nkeys; i++)
		if (decoder->keys[i].len == len &&
			sx_json_same_key(decoder->keys[i].name, name, len, decoder->ignore_case))
			return i;
	key = &decoder->keys[decoder->nkeys];
	key->name = pstrdup(name);
	key->len = (uint32) len;
	return decoder->nkeys++;
}

static void
init_column(SxDecoder *decoder, SxColumn *column, Form_pg_attribute attr,
			const SxColumnFormat *format)
{
	bool is_text = format->origin == SX_FROM_KEY || format->origin == SX_FROM_VALUE;
	bool is_json = format->origin == SX_FROM_VALUE && decoder->kind == SX_FORMAT_JSON;

	column->name = pstrdup(NameStr(attr->attname));
	column->attno = attr->attnum;
	column->is_dropped = attr->attisdropped;
	column->origin = format->origin;
	column->span = &column->own_span;
	if (column->is_dropped)
		return;
	column->type = attr->atttypid;
	column->typmod = attr->atttypmod;
	column->typlen = attr->attlen;
	column->by_value = attr->attbyval;
	column->not_null = attr->attnotnull;
	column->checks_null = get_typtype(attr->atttypid) == TYPTYPE_DOMAIN;
	column->is_bytes = (format->origin == SX_FROM_KEY || decoder->kind == SX_FORMAT_RAW) &&
					   getBaseType(attr->atttypid) == BYTEAOID;
	column->is_nested = is_json && is_nested_type(attr->atttypid);
	if (is_text)
		column->conversion = sx_conversion_of(column->type, column->typmod, column->by_value);
	if (format->origin == SX_FROM_VALUE)
		decoder->value_columns[decoder->nvalue_columns++] = column;
	if (!is_json)
		return;
	if (format->json_path != NULL)
	{
		column->nsteps = sx_json_path_parse(format->json_path, column->name, &column->steps) - 1;
		column->key = add_key(decoder, column->steps->key);
		column->steps++;
	}
	else
		column->key = add_key(decoder, format->name != NULL ? format->name : column->name);
}

SxDecoder *
sx_decoder_create(Relation rel, const SxFormat *format)
{
	TupleDesc desc = RelationGetDescr(rel);
	MemoryContext cxt;
	MemoryContext old;
	SxDecoder *decoder;

	sx_format_check(format, desc, RelationGetRelationName(rel));
	cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_ext decoder", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);
	decoder = palloc0(sizeof(SxDecoder));
	decoder->cxt = cxt;
	decoder->scratch = AllocSetContextCreate(cxt, "stream_ext record", ALLOCSET_DEFAULT_SIZES);
	decoder->kind = format->kind;
	decoder->ignore_case = format->ignore_case;
	decoder->delimiter = format->delimiter;
	decoder->quote = format->quote;
	decoder->escape = format->escape;
	decoder->null_string = pstrdup(format->null_string != NULL ? format->null_string : "");
	decoder->takes_utf8 = GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII;
	decoder->owner = rel->rd_rel->relowner;
	decoder->desc = CreateTupleDescCopy(desc);
	decoder->natts = desc->natts;
	decoder->event_time = format->event_time - 1;
	decoder->columns = palloc0(sizeof(SxColumn) * Max(desc->natts, 1));
	decoder->value_columns = palloc0(sizeof(SxColumn *) * Max(desc->natts, 1));
	decoder->values = palloc0(sizeof(Datum) * Max(desc->natts, 1));
	decoder->nulls = palloc0(sizeof(bool) * Max(desc->natts, 1));
	decoder->keys = palloc0(sizeof(SxJsonKey) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		decoder->nulls[i] = true;
		init_column(decoder, &decoder->columns[i], TupleDescAttr(desc, i), &format->columns[i]);
	}
	if (format->kind == SX_FORMAT_JSON)
	{
		decoder->spans = palloc0(sizeof(SxJsonSpan) * (decoder->nkeys + 1));
		decoder->scanner =
			sx_json_scanner_init(palloc(sx_json_scanner_size(decoder->nkeys)), decoder->keys,
								 decoder->nkeys, decoder->ignore_case);
		for (int i = 0; i < decoder->nvalue_columns; i++)
			if (decoder->value_columns[i]->nsteps == 0)
				decoder->value_columns[i]->span = &decoder->spans[decoder->value_columns[i]->key];
	}
	sx_constraints_init(decoder, rel);
	MemoryContextSwitchTo(old);
	return decoder;
}

void
sx_decoder_free(SxDecoder *decoder)
{
	MemoryContextDelete(decoder->cxt);
}

/*
 * ---- the stages of a record
 */

static inline void
set_pending(SxDecoder *decoder, SxColumn *column)
{
	column->is_pending = true;
	column->in_scratch = false;
	decoder->is_pending = true;
}

/* Makes the value of a column out of its span. */
static inline void
convert_column(SxDecoder *decoder, SxColumn *column)
{
	const SxJsonSpan *span = column->span;
	int i = column->attno - 1;

	if (span->kind == SX_JSON_ABSENT || span->kind == SX_JSON_NULL)
	{
		decoder->nulls[i] = true;
		if (unlikely(column->checks_null))
			set_pending(decoder, column);
	}
	else if (likely(sx_convert(column, span, &decoder->values[i])))
		decoder->nulls[i] = false;
	else
		set_pending(decoder, column);
}

/* Is it text of the server's encoding as it is? */
static inline bool
is_text(const SxDecoder *decoder, const char *text, int len)
{
	return sx_ascii(text, len) || (decoder->takes_utf8 && sx_utf8_valid(text, len));
}

static inline void
take_json(SxDecoder *decoder)
{
	const SxRecord *record = decoder->record;

	if (unlikely(!is_text(decoder, record->value, record->value_len) ||
				 !sx_json_scan(decoder->scanner, record->value, record->value_len, decoder->spans)))
	{
		decoder->is_whole_pending = true;
		return;
	}
	for (int i = 0; i < decoder->nvalue_columns; i++)
	{
		SxColumn *column = decoder->value_columns[i];

		if (column->nsteps > 0 &&
			!sx_json_find(&decoder->spans[column->key], column->steps, column->nsteps,
						  decoder->ignore_case, &column->own_span))
		{
			decoder->is_whole_pending = true;
			return;
		}
		convert_column(decoder, column);
	}
}

static void
take_csv(SxDecoder *decoder)
{
	const SxRecord *record = decoder->record;

	if (record->value_len > SX_MAX_FAST_LEN ||
		memchr(record->value, '\0', record->value_len) != NULL ||
		!is_text(decoder, record->value, record->value_len))
	{
		decoder->is_whole_pending = true;
		return;
	}
	sx_csv_split(decoder, record->value, record->value_len);
	if (decoder->dead_code != 0)
		return;
	for (int i = 0; i < decoder->nvalue_columns; i++)
		convert_column(decoder, decoder->value_columns[i]);
}

/* A key, or a raw value. 'len' -1: NULL. */
static void
take_bytes(SxDecoder *decoder, SxColumn *column, const char *bytes, int len)
{
	SxJsonSpan *span = &column->own_span;
	int i = column->attno - 1;

	span->kind = len < 0 ? SX_JSON_NULL : SX_JSON_STRING;
	span->start = bytes;
	span->len = (uint32) Max(len, 0);
	if (!column->is_bytes)
	{
		if (len >= 0 && (memchr(bytes, '\0', len) != NULL || !is_text(decoder, bytes, len)))
			set_pending(decoder, column);
		else
			convert_column(decoder, column);
		return;
	}
	decoder->nulls[i] = len < 0;
	if (column->checks_null || len > SX_MAX_FAST_LEN)
		set_pending(decoder, column);
	else if (len >= 0 && column->target != NULL)
	{
		bytea *value = MemoryContextAlloc(column->target, VARHDRSZ + (Size) len);

		SET_VARSIZE(value, VARHDRSZ + len);
		memcpy(VARDATA(value), bytes, len);
		decoder->values[i] = PointerGetDatum(value);
	}
}

/* The columns that do not come from the value. */
static void
take_others(SxDecoder *decoder)
{
	for (int i = 0; i < decoder->natts && decoder->dead_code == 0; i++)
	{
		SxColumn *column = &decoder->columns[i];

		if (column->origin == SX_FROM_VALUE || column->is_dropped)
			continue;
		if (column->origin == SX_FROM_KEY)
			take_bytes(decoder, column, decoder->record->key, decoder->record->key_len);
		else
			sx_meta_value(decoder, column);
	}
}

/* Makes the row of the record; false: there is none, as it is dead. */
static inline bool
make_row(SxDecoder *decoder)
{
	const SxRecord *record = decoder->record;

	/* most records leave nothing there */
	if (!decoder->scratch->isReset || decoder->scratch->firstchild != NULL)
		MemoryContextReset(decoder->scratch);
	decoder->dead_code = 0;
	if (unlikely(decoder->is_pending || decoder->is_whole_pending))
	{
		/* from the record before */
		for (int i = 0; i < decoder->natts; i++)
		{
			decoder->columns[i].is_pending = false;
			decoder->columns[i].in_scratch = false;
		}
		decoder->is_pending = false;
		decoder->is_whole_pending = false;
	}

	switch (decoder->kind)
	{
		case SX_FORMAT_JSON:
			take_json(decoder);
			break;
		case SX_FORMAT_CSV:
			take_csv(decoder);
			break;
		case SX_FORMAT_RAW:
			take_bytes(decoder, decoder->value_columns[0], record->value, record->value_len);
			break;
	}
	if (decoder->nvalue_columns < decoder->natts && decoder->dead_code == 0)
		take_others(decoder);
	if (decoder->dead_code == 0 && (decoder->is_pending || decoder->is_whole_pending))
		(void) sx_protect_run(decoder, sx_general_values);
	if (decoder->dead_code == 0 && (decoder->has_not_null || decoder->event_time >= 0))
		sx_constraints_columns(decoder);
	if (decoder->dead_code == 0 && decoder->nchecks > 0)
		(void) sx_protect_run(decoder, sx_constraints_checks);
	return decoder->dead_code == 0;
}

/*
 * ---- records
 */

/* Appends the row to the batch. */
static inline void
store_row(SxDecoder *decoder, int record, SxDecodeResult *result)
{
	SxBatch *batch = decoder->batch;
	int row = batch->nrows;

	for (int i = 0; i < decoder->natts; i++)
	{
		const SxColumn *column = &decoder->columns[i];
		Datum value = decoder->values[i];

		if (batch->values[i] == NULL)
			continue;
		batch->nulls[i][row] = decoder->nulls[i];
		if (unlikely(column->in_scratch) && !decoder->nulls[i])
		{
			MemoryContext old = MemoryContextSwitchTo(batch->cxt);

			value = datumCopy(value, false, column->typlen);
			MemoryContextSwitchTo(old);
		}
		batch->values[i][row] = value;
	}
	result->record[row] = record;
	result->event_time[row] =
		decoder->event_time < 0 ? 0 : DatumGetInt64(decoder->values[decoder->event_time]);
	batch->nrows++;
}

static void
add_dead(SxDecoder *decoder, SxDecodeResult *result)
{
	MemoryContext old = MemoryContextSwitchTo(decoder->batch->cxt);
	SxDeadRecord *dead = palloc(sizeof(SxDeadRecord));

	dead->record = decoder->record;
	dead->sqlerrcode = decoder->dead_code;
	dead->message = decoder->dead_message;
	result->dead = lappend(result->dead, dead);
	MemoryContextSwitchTo(old);
}

static void
decode_records(SxDecoder *decoder, const SxRecord *records, int nrecords, SxDecodeResult *result)
{
	SxBatch *batch = decoder->batch;

	for (int i = 0; i < nrecords; i++)
	{
		const SxRecord *record = &records[i];

		CHECK_FOR_INTERRUPTS();
		batch->bytes += (Size) Max(record->key_len, 0) + Max(record->value_len, 0) +
						Max(record->headers_len, 0);
		if (record->value_len < 0 && decoder->kind != SX_FORMAT_RAW)
		{
			result->ntombstones++;
			continue;
		}
		decoder->record = record;
		if (likely(make_row(decoder)))
			store_row(decoder, i, result);
		else
			add_dead(decoder, result);
	}
}

void
sx_decode(SxDecoder *decoder, const SxRecord *records, int nrecords, SxBatch *batch,
		  SxDecodeResult *result)
{
	MemoryContext old = CurrentMemoryContext;

	Assert(batch->nrows + nrecords <= SX_BATCH_ROWS);
	result->ntombstones = 0;
	result->dead = NIL;
	decoder->batch = batch;
	decoder->caller_cxt = old;
	decoder->in_frame = false;
	decoder->in_subtransaction = false;
	for (int i = 0; i < decoder->natts; i++)
	{
		SxColumn *column = &decoder->columns[i];

		column->target = batch->values[i] != NULL ? batch->cxt
						 : decoder->nchecks > 0   ? decoder->scratch
												  : NULL;
	}
	MemoryContextSwitchTo(decoder->scratch);
	PG_TRY();
	{
		decode_records(decoder, records, nrecords, result);
	}
	PG_CATCH();
	{
		sx_protect_rethrow(decoder);
	}
	PG_END_TRY();
	sx_protect_end(decoder);
	MemoryContextSwitchTo(old);
	MemoryContextReset(decoder->scratch);
}
