/*
 * catalog.c
 *		Reads and writes the tables in schema "stream".
 *
 * Reads take a new snapshot each time, whatever the isolation level: a worker and a command must
 * see what is committed now, and their own changes. (A system table scan without a snapshot does
 * just that for relations that have no syscache.) Writes are by key, through all indexes, and end
 * with a command counter increment, so that the next call sees them.
 *
 * Concurrency: positions and state rows of a view are written by the one worker that has it, under
 * a lock on the view that conflicts with DROP's. Rows of stream.catalog_view are also changed by
 * commands of users; whoever reads such a row in order to change it calls
 * sx_catalog_view_lock() before reading.
 *
 * Crash behaviour: ordinary rows of ordinary tables.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "stream_ext/base/rows.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/records.h"

/* Columns, in the order of sql/stream_ext--1.0.sql. */
enum Anum_view
{
	Anum_view_view = 1,
	Anum_view_id,
	Anum_view_paused,
	Anum_view_rebuild,
	Anum_view_caught_up,
	Anum_view_signature,
	Anum_view_pg_major,
	Anum_view_filenumber,
	Anum_view_error_code,
	Anum_view_error_message,
	Anum_view_error_detail,
	Anum_view_error_hint,
	Anum_view_error_time,
	Anum_view_failures,
	Natts_view = Anum_view_failures
};

enum Anum_position
{
	Anum_position_view = 1,
	Anum_position_source,
	Anum_position_position,
	Natts_position = Anum_position_position
};

enum Anum_state
{
	Anum_state_relid = 1,
	Anum_state_view,
	Anum_state_operator,
	Anum_state_part,
	Natts_state = Anum_state_part
};

enum Anum_source
{
	Anum_source_source = 1,
	Anum_source_generation,
	Natts_source = Anum_source_generation
};

#define MAX_NATTS Natts_view

/* An open table with a scan over the rows of a key. */
typedef struct CatalogScan
{
	Relation rel;
	SysScanDesc scan;
	HeapTuple tuple;
	Datum values[MAX_NATTS];
	bool nulls[MAX_NATTS];
} CatalogScan;

/*
 * Starts a scan over the rows whose columns attnos[0..nkeys) equal keys[]. 'index' must begin with
 * these columns; NULL: scan the whole table. Lock: lockmode, kept until the end of transaction.
 */
static void
begin_scan(CatalogScan *cs, const char *table, const char *index, LOCKMODE lockmode, int nkeys,
		   const AttrNumber *attnos, const Oid *keys)
{
	ScanKeyData scankeys[2];

	Assert(nkeys <= lengthof(scankeys));
	for (int i = 0; i < nkeys; i++)
		ScanKeyInit(&scankeys[i], attnos[i], BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(keys[i]));
	cs->rel = table_open(sx_catalog_relid(table), lockmode);
	cs->tuple = NULL;
	cs->scan = systable_beginscan(cs->rel, index ? sx_catalog_relid(index) : InvalidOid,
								  index != NULL, NULL, nkeys, scankeys);
}

/* Next row in cs->tuple, values and nulls; false at the end. */
static bool
next_row(CatalogScan *cs)
{
	Assert(RelationGetDescr(cs->rel)->natts <= MAX_NATTS);
	cs->tuple = systable_getnext(cs->scan);
	if (cs->tuple == NULL)
		return false;
	heap_deform_tuple(cs->tuple, RelationGetDescr(cs->rel), cs->values, cs->nulls);
	return true;
}

/* Replaces the current row by cs->values and nulls. */
static void
update_row(CatalogScan *cs)
{
	HeapTuple tuple = heap_form_tuple(RelationGetDescr(cs->rel), cs->values, cs->nulls);

	CatalogTupleUpdate(cs->rel, &cs->tuple->t_self, tuple);
	heap_freetuple(tuple);
}

static void
insert_row(CatalogScan *cs)
{
	HeapTuple tuple = heap_form_tuple(RelationGetDescr(cs->rel), cs->values, cs->nulls);

	CatalogTupleInsert(cs->rel, tuple);
	heap_freetuple(tuple);
}

static void
end_scan(CatalogScan *cs)
{
	systable_endscan(cs->scan);
	table_close(cs->rel, NoLock);
}

/* Ends a scan that wrote. */
static void
end_write(CatalogScan *cs)
{
	end_scan(cs);
	CommandCounterIncrement();
}

/*
 * Deletes the rows whose column 'attno' is 'key'. The table may be missing: DROP EXTENSION drops
 * our tables and the users' views in any order.
 */
static void
delete_rows(const char *table, const char *index, AttrNumber attno, Oid key)
{
	CatalogScan cs;

	if (!OidIsValid(sx_schema()) || !OidIsValid(get_relname_relid(table, sx_schema())) ||
		!OidIsValid(get_relname_relid(index, sx_schema())))
		return;
	begin_scan(&cs, table, index, RowExclusiveLock, 1, &attno, &key);
	while (next_row(&cs))
		CatalogTupleDelete(cs.rel, &cs.tuple->t_self);
	end_write(&cs);
}

static char *
text_or_null(CatalogScan *cs, AttrNumber attno)
{
	return cs->nulls[attno - 1] ? NULL : TextDatumGetCString(cs->values[attno - 1]);
}

static void
set_text(CatalogScan *cs, AttrNumber attno, const char *value)
{
	cs->nulls[attno - 1] = value == NULL;
	cs->values[attno - 1] = value == NULL ? (Datum) 0 : CStringGetTextDatum(value);
}

/* Views */

static void
begin_view_scan(CatalogScan *cs, Oid view, LOCKMODE lockmode)
{
	begin_scan(cs, "catalog_view", "catalog_view_pkey", lockmode, 1, (AttrNumber[]){Anum_view_view},
			   &view);
}

static SxViewRow *
read_view_row(CatalogScan *cs)
{
	SxViewRow *row = palloc0(sizeof(SxViewRow));

	row->view = DatumGetObjectId(cs->values[Anum_view_view - 1]);
	row->id = text_or_null(cs, Anum_view_id);
	row->paused = DatumGetBool(cs->values[Anum_view_paused - 1]);
	row->rebuild = DatumGetBool(cs->values[Anum_view_rebuild - 1]);
	row->caught_up = DatumGetBool(cs->values[Anum_view_caught_up - 1]);
	row->signature = text_or_null(cs, Anum_view_signature);
	row->pg_major = DatumGetInt32(cs->values[Anum_view_pg_major - 1]);
	row->filenumber = DatumGetObjectId(cs->values[Anum_view_filenumber - 1]);
	row->error_code = text_or_null(cs, Anum_view_error_code);
	row->error_message = text_or_null(cs, Anum_view_error_message);
	row->error_detail = text_or_null(cs, Anum_view_error_detail);
	row->error_hint = text_or_null(cs, Anum_view_error_hint);
	if (!cs->nulls[Anum_view_error_time - 1])
		row->error_time = DatumGetTimestampTz(cs->values[Anum_view_error_time - 1]);
	row->failures = DatumGetInt32(cs->values[Anum_view_failures - 1]);
	return row;
}

static void
write_view_row(CatalogScan *cs, const SxViewRow *row)
{
	memset(cs->nulls, false, sizeof(cs->nulls));
	cs->values[Anum_view_view - 1] = ObjectIdGetDatum(row->view);
	set_text(cs, Anum_view_id, row->id);
	cs->values[Anum_view_paused - 1] = BoolGetDatum(row->paused);
	cs->values[Anum_view_rebuild - 1] = BoolGetDatum(row->rebuild);
	cs->values[Anum_view_caught_up - 1] = BoolGetDatum(row->caught_up);
	set_text(cs, Anum_view_signature, row->signature);
	cs->values[Anum_view_pg_major - 1] = Int32GetDatum(row->pg_major);
	cs->values[Anum_view_filenumber - 1] = ObjectIdGetDatum(row->filenumber);
	set_text(cs, Anum_view_error_code, row->error_code);
	set_text(cs, Anum_view_error_message, row->error_message);
	set_text(cs, Anum_view_error_detail, row->error_detail);
	set_text(cs, Anum_view_error_hint, row->error_hint);
	cs->values[Anum_view_error_time - 1] = TimestampTzGetDatum(row->error_time);
	cs->nulls[Anum_view_error_time - 1] = row->error_code == NULL;
	cs->values[Anum_view_failures - 1] = Int32GetDatum(row->failures);
}

/*
 * Locks the row of a view against changes by others until the end of the transaction. Readers are
 * not held up. False: 'wait' is false and somebody else has it. The lock is on the number, so
 * neither the row nor the view need exist.
 */
bool
sx_catalog_view_lock(Oid view, bool wait)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, sx_catalog_relid("catalog_view"), view, 0);
	return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

List *
sx_catalog_views(void)
{
	CatalogScan cs;
	List *rows = NIL;

	begin_scan(&cs, "catalog_view", NULL, AccessShareLock, 0, NULL, NULL);
	while (next_row(&cs))
		rows = lappend(rows, read_view_row(&cs));
	end_scan(&cs);
	return rows;
}

SxViewRow *
sx_catalog_view(Oid view)
{
	CatalogScan cs;
	SxViewRow *row = NULL;

	begin_view_scan(&cs, view, AccessShareLock);
	if (next_row(&cs))
		row = read_view_row(&cs);
	end_scan(&cs);
	return row;
}

/*
 * Tells workers to look at the table. The count moves with the commit; the invalidation comes a
 * little later, but also when a prepared transaction is committed.
 */
static void
announce_view_change(void)
{
	sx_wake_catalog_at_commit();
	CacheInvalidateRelcacheByRelid(sx_catalog_relid("catalog_view"));
}

/* Rows of an earlier view of this OID, dropped while the library was not loaded, are removed. */
void
sx_catalog_view_create(Oid view, const char *id)
{
	SxViewRow row = {.view = view, .id = unconstify(char *, id)};
	CatalogScan cs;

	sx_catalog_drop_view(view);
	begin_view_scan(&cs, view, RowExclusiveLock);
	write_view_row(&cs, &row);
	insert_row(&cs);
	end_write(&cs);
	announce_view_change();
}

void
sx_catalog_view_clear_error(SxViewRow *row)
{
	row->error_code = NULL;
	row->error_message = NULL;
	row->error_detail = NULL;
	row->error_hint = NULL;
	row->error_time = 0;
	row->failures = 0;
}

void
sx_catalog_view_update(const SxViewRow *row)
{
	CatalogScan cs;

	begin_view_scan(&cs, row->view, RowExclusiveLock);
	if (!next_row(&cs))
		elog(ERROR, "no catalog row of continuous view %u", row->view);
	write_view_row(&cs, row);
	update_row(&cs);
	end_write(&cs);
	announce_view_change();
}

/* Waits for a transaction that is changing the view's row. */
void
sx_catalog_drop_view(Oid view)
{
	Oid catalog = InvalidOid;

	if (OidIsValid(sx_schema()))
		catalog = get_relname_relid("catalog_view", sx_schema());
	if (OidIsValid(catalog))
	{
		(void) sx_catalog_view_lock(view, true);
		announce_view_change();
	}
	delete_rows("catalog_view", "catalog_view_pkey", Anum_view_view, view);
	delete_rows("catalog_position", "catalog_position_pkey", Anum_position_view, view);
	delete_rows("catalog_state", "catalog_state_view", Anum_state_view, view);
	sx_catalog_gaps_drop(view);
}

void
sx_catalog_drop_source(Oid source)
{
	delete_rows("catalog_source", "catalog_source_pkey", Anum_source_source, source);
	sx_catalog_dead_letters_drop(source);
}

/* Positions */

static void
begin_position_scan(CatalogScan *cs, Oid view, Oid source, LOCKMODE lockmode)
{
	begin_scan(cs, "catalog_position", "catalog_position_pkey", lockmode, 2,
			   (AttrNumber[]){Anum_position_view, Anum_position_source}, (Oid[]){view, source});
}

bytea *
sx_catalog_position(Oid view, Oid source)
{
	CatalogScan cs;
	bytea *position = NULL;

	begin_position_scan(&cs, view, source, AccessShareLock);
	if (next_row(&cs))
		position = DatumGetByteaPCopy(cs.values[Anum_position_position - 1]);
	end_scan(&cs);
	return position;
}

/* Is the row at *tid, if there is one, the current position of the view in the source? */
static bool
is_position_at(Relation rel, ItemPointer tid, Oid view, Oid source)
{
	TupleTableSlot *slot;
	bool same = false;

	/* the table may have been rewritten, and be shorter now; our lock keeps it from shrinking on */
	if (!ItemPointerIsValid(tid) ||
		ItemPointerGetBlockNumber(tid) >= RelationGetNumberOfBlocks(rel))
		return false;
	slot = table_slot_create(rel, NULL);
	if (table_tuple_fetch_row_version(rel, tid, SnapshotSelf, slot))
	{
		slot_getsomeattrs(slot, Anum_position_source);
		same = DatumGetObjectId(slot->tts_values[Anum_position_view - 1]) == view &&
			   DatumGetObjectId(slot->tts_values[Anum_position_source - 1]) == source;
	}
	ExecDropSingleTupleTableSlot(slot);
	return same;
}

/* Looks the row up; false: there is none. */
static bool
find_position(Oid view, Oid source, ItemPointer tid)
{
	CatalogScan cs;
	bool found;

	begin_position_scan(&cs, view, source, RowExclusiveLock);
	found = next_row(&cs);
	if (found)
		*tid = cs.tuple->t_self;
	end_scan(&cs);
	return found;
}

/*
 * Once a commit and view. While an old snapshot is held, no version of the row can be removed, and
 * a look-up by key, like the unique check of the index, would pass all of them each time. So the
 * row is updated by its TID, which proves itself: a row that is there now and has the key is the
 * row. Half of every page is kept free, so the update is HOT; the writer prunes the page first.
 */
void
sx_catalog_position_set(Oid view, Oid source, bytea *position, ItemPointer tid)
{
	Relation rel = table_open(sx_catalog_relid("catalog_position"), RowExclusiveLock);
	Datum values[Natts_position];
	bool nulls[Natts_position] = {false};

	values[Anum_position_view - 1] = ObjectIdGetDatum(view);
	values[Anum_position_source - 1] = ObjectIdGetDatum(source);
	values[Anum_position_position - 1] = PointerGetDatum(position);
	if (is_position_at(rel, tid, view, source) || find_position(view, source, tid))
	{
		SxRowWriter *writer = sx_rows_open(rel);

		sx_rows_update(writer, tid, values, nulls);
		sx_rows_close(writer);
	}
	else
	{
		HeapTuple tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);

		CatalogTupleInsert(rel, tuple);
		*tid = tuple->t_self;
		heap_freetuple(tuple);
	}
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
sx_catalog_position_delete(Oid view)
{
	delete_rows("catalog_position", "catalog_position_pkey", Anum_position_view, view);
}

/* State tables */

List *
sx_catalog_states(Oid view)
{
	CatalogScan cs;
	List *rows = NIL;

	if (OidIsValid(view))
		begin_scan(&cs, "catalog_state", "catalog_state_view", AccessShareLock, 1,
				   (AttrNumber[]){Anum_state_view}, &view);
	else
		begin_scan(&cs, "catalog_state", NULL, AccessShareLock, 0, NULL, NULL);
	while (next_row(&cs))
	{
		SxStateRow *row = palloc(sizeof(SxStateRow));

		row->relid = DatumGetObjectId(cs.values[Anum_state_relid - 1]);
		row->view = DatumGetObjectId(cs.values[Anum_state_view - 1]);
		row->operator= DatumGetInt32(cs.values[Anum_state_operator - 1]);
		row->part = DatumGetInt32(cs.values[Anum_state_part - 1]);
		rows = lappend(rows, row);
	}
	end_scan(&cs);
	return rows;
}

static void
begin_state_scan(CatalogScan *cs, Oid relid)
{
	begin_scan(cs, "catalog_state", "catalog_state_pkey", RowExclusiveLock, 1,
			   (AttrNumber[]){Anum_state_relid}, &relid);
}

/* A row of an earlier table of this OID is replaced. */
void
sx_catalog_state_add(const SxStateRow *row)
{
	CatalogScan cs;
	bool exists;

	begin_state_scan(&cs, row->relid);
	exists = next_row(&cs);
	memset(cs.nulls, false, sizeof(cs.nulls));
	cs.values[Anum_state_relid - 1] = ObjectIdGetDatum(row->relid);
	cs.values[Anum_state_view - 1] = ObjectIdGetDatum(row->view);
	cs.values[Anum_state_operator - 1] = Int32GetDatum(row->operator);
	cs.values[Anum_state_part - 1] = Int32GetDatum(row->part);
	if (exists)
		update_row(&cs);
	else
		insert_row(&cs);
	end_write(&cs);
}

void
sx_catalog_state_delete(Oid relid)
{
	delete_rows("catalog_state", "catalog_state_pkey", Anum_state_relid, relid);
}

/* Generations of streams */

static void
begin_source_scan(CatalogScan *cs, Oid source, LOCKMODE lockmode)
{
	begin_scan(cs, "catalog_source", "catalog_source_pkey", lockmode, 1,
			   (AttrNumber[]){Anum_source_source}, &source);
}

uint64
sx_catalog_generation(Oid source)
{
	CatalogScan cs;
	uint64 generation = 0;

	begin_source_scan(&cs, source, AccessShareLock);
	if (next_row(&cs))
		generation = (uint64) DatumGetInt64(cs.values[Anum_source_generation - 1]);
	end_scan(&cs);
	return generation;
}

/* The caller holds the stream in AccessExclusiveLock (TRUNCATE). */
void
sx_catalog_generation_advance(Oid source)
{
	CatalogScan cs;
	bool exists;
	int64 generation = 0;

	begin_source_scan(&cs, source, RowExclusiveLock);
	exists = next_row(&cs);
	if (exists)
		generation = DatumGetInt64(cs.values[Anum_source_generation - 1]);
	memset(cs.nulls, false, sizeof(cs.nulls));
	cs.values[Anum_source_source - 1] = ObjectIdGetDatum(source);
	cs.values[Anum_source_generation - 1] = Int64GetDatum(generation + 1);
	if (exists)
		update_row(&cs);
	else
		insert_row(&cs);
	end_write(&cs);
}
