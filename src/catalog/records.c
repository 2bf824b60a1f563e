/*
 * records.c
 *		Dead letters and gaps: records of topics that are in no row.
 *
 * Both are written in the transaction that moves the reader past the record, so that neither is
 * lost or noted for something that was not passed. The key of a dead letter is the place of the record,
 * for any number of views: each of them passes the same record, perhaps years apart. A gap is that of a
 * view: another one may have read those records in time. A topic that was made
 * anew has other records at the same places; what was noted about the old one is replaced.
 *
 * Views that read a source share a worker, so nobody else writes about the source at the same time.
 * During a change of stream.workers two may for a moment; then one of them fails with a unique
 * violation and is tried again.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/records.h"

/* Columns, in the order of sql/stream_ext--1.0.sql. */
enum Anum_letter
{
	Anum_letter_source = 1,
	Anum_letter_partition,
	Anum_letter_offset,
	Anum_letter_topic,
	Anum_letter_error_code,
	Anum_letter_error_message,
	Anum_letter_timestamp,
	Anum_letter_key,
	Anum_letter_value,
	Anum_letter_noted_at,
	Natts_letter = Anum_letter_noted_at
};

enum Anum_gap
{
	Anum_gap_view = 1,
	Anum_gap_source,
	Anum_gap_partition,
	Anum_gap_from_offset,
	Anum_gap_to_offset,
	Anum_gap_topic,
	Anum_gap_noted_at,
	Natts_gap = Anum_gap_noted_at
};

/* A scan over the rows of one source, partition and offset; partition < 0: of the source. */
static SysScanDesc
begin_scan(Relation rel, const char *index, Oid source, int32 partition, int64 offset)
{
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(source));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(partition));
	ScanKeyInit(&keys[2], 3, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(offset));
	return systable_beginscan(rel, sx_catalog_relid(index), true, NULL, partition < 0 ? 1 : 3,
							  keys);
}

static Datum
bytes_datum(const char *bytes, int len)
{
	bytea *result = palloc(VARHDRSZ + len);

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), bytes, len);
	return PointerGetDatum(result);
}

/* Is what was noted, in column 'attno', these bytes? */
static bool
same_bytes(HeapTuple tuple, TupleDesc desc, int attno, const char *bytes, int len)
{
	bool isnull;
	Datum value = heap_getattr(tuple, attno, desc, &isnull);
	bytea *noted;

	if (isnull || bytes == NULL)
		return isnull && bytes == NULL;
	noted = DatumGetByteaPP(value);
	return VARSIZE_ANY_EXHDR(noted) == len && memcmp(VARDATA_ANY(noted), bytes, len) == 0;
}

static HeapTuple
form_letter(const SxDeadLetter *letter, TupleDesc desc)
{
	Datum values[Natts_letter] = {0};
	bool nulls[Natts_letter] = {0};

	values[Anum_letter_source - 1] = ObjectIdGetDatum(letter->source);
	values[Anum_letter_partition - 1] = Int32GetDatum(letter->partition);
	values[Anum_letter_offset - 1] = Int64GetDatum(letter->offset);
	values[Anum_letter_topic - 1] = CStringGetTextDatum(letter->topic);
	values[Anum_letter_error_code - 1] = CStringGetTextDatum(unpack_sql_state(letter->sqlerrcode));
	values[Anum_letter_error_message - 1] = CStringGetTextDatum(letter->message);
	nulls[Anum_letter_timestamp - 1] = !letter->has_timestamp;
	values[Anum_letter_timestamp - 1] = TimestampTzGetDatum(letter->timestamp);
	nulls[Anum_letter_key - 1] = letter->key == NULL;
	if (letter->key != NULL)
		values[Anum_letter_key - 1] = bytes_datum(letter->key, letter->key_len);
	nulls[Anum_letter_value - 1] = letter->value == NULL;
	if (letter->value != NULL)
		values[Anum_letter_value - 1] = bytes_datum(letter->value, letter->value_len);
	values[Anum_letter_noted_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	return heap_form_tuple(desc, values, nulls);
}

bool
sx_catalog_dead_letter_add(const SxDeadLetter *letter)
{
	/* a row may be large, and there may be many in one transaction */
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "stream_ext dead letter", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Relation rel = table_open(sx_catalog_relid("catalog_dead_letter"), RowExclusiveLock);
	TupleDesc desc = RelationGetDescr(rel);
	SysScanDesc scan = begin_scan(rel, "catalog_dead_letter_pkey", letter->source,
								  letter->partition, letter->offset);
	HeapTuple noted = systable_getnext(scan);
	bool is_new = true;

	if (noted == NULL)
		CatalogTupleInsert(rel, form_letter(letter, desc));
	else if (same_bytes(noted, desc, Anum_letter_value, letter->value, letter->value_len) &&
			 same_bytes(noted, desc, Anum_letter_key, letter->key, letter->key_len))
		is_new = false;
	else
		CatalogTupleUpdate(rel, &noted->t_self, form_letter(letter, desc));
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	return is_new;
}

int64
sx_catalog_dead_letters_delete(Oid source, TimestampTz before)
{
	Relation rel = table_open(sx_catalog_relid("catalog_dead_letter"), RowExclusiveLock);
	TupleDesc desc = RelationGetDescr(rel);
	SysScanDesc scan = begin_scan(rel, "catalog_dead_letter_pkey", source, -1, 0);
	HeapTuple tuple;
	int64 count = 0;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool isnull;
		Datum noted_at = heap_getattr(tuple, Anum_letter_noted_at, desc, &isnull);

		if (isnull || DatumGetTimestampTz(noted_at) >= before)
			continue;
		CatalogTupleDelete(rel, &tuple->t_self);
		count++;
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	return count;
}

void
sx_catalog_gap_add(Oid view, Oid source, const char *topic, int32 partition, int64 from_offset,
				   int64 to_offset)
{
	Relation rel = table_open(sx_catalog_relid("catalog_gap"), RowExclusiveLock);
	Datum values[Natts_gap] = {0};
	bool nulls[Natts_gap] = {0};

	values[Anum_gap_view - 1] = ObjectIdGetDatum(view);
	values[Anum_gap_source - 1] = ObjectIdGetDatum(source);
	values[Anum_gap_partition - 1] = Int32GetDatum(partition);
	values[Anum_gap_from_offset - 1] = Int64GetDatum(from_offset);
	values[Anum_gap_to_offset - 1] = Int64GetDatum(to_offset);
	values[Anum_gap_topic - 1] = CStringGetTextDatum(topic);
	values[Anum_gap_noted_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/*
 * Deletes all rows whose first column is a view or source; the table may be missing while the extension
 * is dropped.
 */
static void
delete_all(const char *table, const char *index, Oid relid)
{
	Relation rel;
	SysScanDesc scan;
	HeapTuple tuple;

	if (!OidIsValid(sx_schema()) || !OidIsValid(get_relname_relid(table, sx_schema())) ||
		!OidIsValid(get_relname_relid(index, sx_schema())))
		return;
	rel = table_open(sx_catalog_relid(table), RowExclusiveLock);
	scan = begin_scan(rel, index, relid, -1, 0);
	while ((tuple = systable_getnext(scan)) != NULL)
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
sx_catalog_dead_letters_drop(Oid source)
{
	delete_all("catalog_dead_letter", "catalog_dead_letter_pkey", source);
}

void
sx_catalog_gaps_drop(Oid view)
{
	delete_all("catalog_gap", "catalog_gap_view", view);
}
