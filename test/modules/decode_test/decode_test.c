/*
 * decode_test.c
 *		Decodes records for the columns of any table from SQL, for tests.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <time.h>

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "stream_ext/decode/decode.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(decode_test_decode);
PG_FUNCTION_INFO_V1(decode_test_check_format);
PG_FUNCTION_INFO_V1(decode_test_growth);
PG_FUNCTION_INFO_V1(decode_test_cost);

/* What options say. */
typedef struct Options
{
	SxFormat format;
	Bitmapset *wanted; /* NULL: all */
} Options;

static AttrNumber
find_column(Relation rel, const char *name)
{
	AttrNumber attno = get_attnum(RelationGetRelid(rel), name);

	if (attno == InvalidAttrNumber)
		elog(ERROR, "no column \"%s\"", name);
	return attno;
}

static SxColumnOrigin
parse_origin(const char *value)
{
	static const char *const names[] = {"value",     "partition", "offset",
										"timestamp", "key",       "headers"};

	for (int i = 0; i < lengthof(names); i++)
		if (strcmp(names[i], value) == 0)
			return (SxColumnOrigin) i;
	elog(ERROR, "no origin \"%s\"", value);
}

static void
parse_option(Relation rel, Options *options, char *name, char *value)
{
	SxFormat *format = &options->format;
	char *column = strchr(name, ':');

	if (column != NULL)
	{
		SxColumnFormat *to;

		*column++ = '\0';
		to = &format->columns[find_column(rel, column) - 1];
		if (strcmp(name, "meta") == 0)
			to->origin = parse_origin(value);
		else if (strcmp(name, "name") == 0)
			to->name = value;
		else
			to->json_path = value;
	}
	else if (strcmp(name, "format") == 0)
		format->kind = strcmp(value, "csv") == 0   ? SX_FORMAT_CSV
					   : strcmp(value, "raw") == 0 ? SX_FORMAT_RAW
												   : SX_FORMAT_JSON;
	else if (strcmp(name, "ignore_case") == 0)
		format->ignore_case = true;
	else if (strcmp(name, "delimiter") == 0)
		format->delimiter = *value;
	else if (strcmp(name, "quote") == 0)
		format->quote = *value;
	else if (strcmp(name, "escape") == 0)
		format->escape = *value;
	else if (strcmp(name, "null") == 0)
		format->null_string = value;
	else if (strcmp(name, "event_time") == 0)
		format->event_time = find_column(rel, value);
	else if (strcmp(name, "wanted") == 0)
		options->wanted = bms_add_member(options->wanted, find_column(rel, value));
	else
		elog(ERROR, "no option \"%s\"", name);
}

static void
parse_options(Relation rel, ArrayType *array, Options *options)
{
	Datum *texts;
	int n;

	memset(options, 0, sizeof(*options));
	options->format.kind = SX_FORMAT_JSON;
	options->format.delimiter = ',';
	options->format.quote = '"';
	options->format.escape = '"';
	options->format.null_string = "";
	options->format.natts = RelationGetDescr(rel)->natts;
	options->format.columns = palloc0(sizeof(SxColumnFormat) * Max(options->format.natts, 1));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &texts, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		char *name = TextDatumGetCString(texts[i]);
		char *value = strchr(name, '=');

		if (value == NULL)
			elog(ERROR, "option without value: %s", name);
		*value++ = '\0';
		parse_option(rel, options, name, value);
	}
}

static void
set_bytes(Datum datum, bool is_null, const char **bytes, int32 *len)
{
	bytea *value;

	*len = -1;
	*bytes = NULL;
	if (is_null)
		return;
	value = DatumGetByteaPP(datum);
	*bytes = VARDATA_ANY(value);
	*len = VARSIZE_ANY_EXHDR(value);
}

static char *
make_headers(ArrayType *array, int32 *len, int32 *count)
{
	StringInfoData buffer;
	Datum *items;
	bool *nulls;
	int n;

	initStringInfo(&buffer);
	deconstruct_array(array, BYTEAOID, -1, false, TYPALIGN_INT, &items, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		const char *bytes;
		int32 item_len;

		set_bytes(items[i], nulls[i], &bytes, &item_len);
		appendBinaryStringInfo(&buffer, (char *) &item_len, sizeof(item_len));
		if (item_len > 0)
			appendBinaryStringInfo(&buffer, bytes, item_len);
	}
	*len = buffer.len;
	*count = n / 2;
	return buffer.data;
}

static SxRecord *
make_records(ArrayType *values, ArrayType *keys, ArrayType *headers, int64 timestamp, int *n)
{
	Datum *value_items;
	bool *value_nulls;
	Datum *key_items = NULL;
	bool *key_nulls = NULL;
	int nkeys = 0;
	char *header_bytes = NULL;
	int32 headers_len = 0;
	int32 nheaders = 0;
	SxRecord *records;

	deconstruct_array(values, BYTEAOID, -1, false, TYPALIGN_INT, &value_items, &value_nulls, n);
	if (keys != NULL)
		deconstruct_array(keys, BYTEAOID, -1, false, TYPALIGN_INT, &key_items, &key_nulls, &nkeys);
	if (headers != NULL)
		header_bytes = make_headers(headers, &headers_len, &nheaders);
	records = palloc0(sizeof(SxRecord) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		SxRecord *record = &records[i];

		record->offset = i;
		record->timestamp = timestamp;
		record->nheaders = nheaders;
		record->headers = header_bytes;
		record->headers_len = headers_len;
		set_bytes(value_items[i], value_nulls[i], &record->value, &record->value_len);
		set_bytes(i < nkeys ? key_items[i] : (Datum) 0, i >= nkeys || key_nulls[i], &record->key,
				  &record->key_len);
	}
	return records;
}

/* A row of the batch as text. */
static char *
row_text(Relation rel, const SxBatch *batch, int row)
{
	int natts = batch->natts;
	Datum *values = palloc0(sizeof(Datum) * natts);
	bool *nulls = palloc(sizeof(bool) * natts);
	HeapTuple tuple;
	Oid output;
	bool is_varlena;

	for (int i = 0; i < natts; i++)
	{
		nulls[i] = batch->values[i] == NULL || batch->nulls[i][row];
		if (!nulls[i])
			values[i] = batch->values[i][row];
	}
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	getTypeOutputInfo(rel->rd_rel->reltype, &output, &is_varlena);
	return OidOutputFunctionCall(output, heap_copy_tuple_as_datum(tuple, RelationGetDescr(rel)));
}

/* Checks what does not appear in the result. */
static void
check_result(const SxBatch *batch, const SxDecodeResult *result, const SxFormat *format, int before,
			 int nrecords)
{
	if (batch->nrows - before + list_length(result->dead) + result->ntombstones != nrecords)
		elog(ERROR, "%d records became %d rows, %d dead and %d tombstones", nrecords,
			 batch->nrows - before, list_length(result->dead), result->ntombstones);
	if (format->event_time == 0 || batch->values[format->event_time - 1] == NULL)
		return;
	for (int row = before; row < batch->nrows; row++)
		if (result->event_time[row] != DatumGetInt64(batch->values[format->event_time - 1][row]))
			elog(ERROR, "wrong event time");
}

static void
put_rows(ReturnSetInfo *to, Relation rel, const SxBatch *batch, const SxDecodeResult *result,
		 int before, const SxRecord *records)
{
	ListCell *cell;

	for (int row = before; row < batch->nrows; row++)
	{
		Datum values[4] = {Int32GetDatum((int32) records[result->record[row]].offset),
						   CStringGetTextDatum(row_text(rel, batch, row))};
		bool nulls[4] = {false, false, true, true};

		tuplestore_putvalues(to->setResult, to->setDesc, values, nulls);
	}
	foreach(cell, result->dead)
	{
		SxDeadRecord *dead = lfirst(cell);
		Datum values[4] = {Int32GetDatum((int32) dead->record->offset), (Datum) 0,
						   CStringGetTextDatum(unpack_sql_state(dead->sqlerrcode)),
						   CStringGetTextDatum(dead->message)};
		bool nulls[4] = {false, true, false, false};

		tuplestore_putvalues(to->setResult, to->setDesc, values, nulls);
	}
}

Datum
decode_test_decode(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *to = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	SxDecodeResult *result = palloc(sizeof(SxDecodeResult));
	Options options;
	SxDecoder *decoder;
	SxBatch *batch;
	SxRecord *records;
	int nrecords;

	InitMaterializedSRF(fcinfo, 0);
	parse_options(rel, PG_GETARG_ARRAYTYPE_P(2), &options);
	records =
		make_records(PG_GETARG_ARRAYTYPE_P(1), PG_ARGISNULL(3) ? NULL : PG_GETARG_ARRAYTYPE_P(3),
					 PG_ARGISNULL(4) ? NULL : PG_GETARG_ARRAYTYPE_P(4), PG_GETARG_INT64(5),
					 &nrecords);
	decoder = sx_decoder_create(rel, &options.format);
	batch = sx_batch_create(RelationGetDescr(rel), options.wanted);
	for (int done = 0; done < nrecords;)
	{
		/* in two calls, so that a batch is added to */
		int n = Min(nrecords - done, done % SX_BATCH_ROWS == 0 ? 500 : SX_BATCH_ROWS - 500);
		int before = batch->nrows;

		sx_decode(decoder, records + done, n, batch, result);
		check_result(batch, result, &options.format, before, n);
		put_rows(to, rel, batch, result, before, records + done);
		done += n;
		if (done % SX_BATCH_ROWS == 0)
			sx_batch_reset(batch);
	}
	sx_decoder_free(decoder);
	table_close(rel, NoLock);
	return (Datum) 0;
}

Datum
decode_test_check_format(PG_FUNCTION_ARGS)
{
	Relation rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	Options options;

	parse_options(rel, PG_GETARG_ARRAYTYPE_P(1), &options);
	sx_format_check(&options.format, RelationGetDescr(rel), RelationGetRelationName(rel));
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

static double
cpu_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

/* Decodes the records again and again; *growth and *cost are of the second half. */
static void
run_again(FunctionCallInfo fcinfo, int64 *growth, double *cost)
{
	Relation rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	int times = PG_GETARG_INT32(2);
	SxDecodeResult *result = palloc(sizeof(SxDecodeResult));
	Options options;
	SxDecoder *decoder;
	SxBatch *batch;
	SxRecord *records;
	int nrecords;
	double start = 0;
	Size before = 0;

	parse_options(rel, PG_GETARG_ARRAYTYPE_P(3), &options);
	records = make_records(PG_GETARG_ARRAYTYPE_P(1), NULL, NULL, -1, &nrecords);
	decoder = sx_decoder_create(rel, &options.format);
	batch = sx_batch_create(RelationGetDescr(rel), options.wanted);
	for (int i = 0; i < times; i++)
	{
		if (i == times / 2)
		{
			before = MemoryContextMemAllocated(TopMemoryContext, true);
			start = cpu_time();
		}
		for (int done = 0; done < nrecords; done += SX_BATCH_ROWS)
		{
			sx_decode(decoder, records + done, Min(nrecords - done, SX_BATCH_ROWS), batch, result);
			sx_batch_reset(batch);
		}
	}
	*cost = (cpu_time() - start) / (times - times / 2) / nrecords;
	*growth = (int64) MemoryContextMemAllocated(TopMemoryContext, true) - (int64) before;
	table_close(rel, NoLock);
}

Datum
decode_test_growth(PG_FUNCTION_ARGS)
{
	int64 growth;
	double cost;

	run_again(fcinfo, &growth, &cost);
	PG_RETURN_INT64(growth);
}

Datum
decode_test_cost(PG_FUNCTION_ARGS)
{
	int64 growth;
	double cost;

	run_again(fcinfo, &growth, &cost);
	PG_RETURN_FLOAT8(cost);
}
