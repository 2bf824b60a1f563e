/*
 * relabel.c
 *		Changes the options of a stream or view, from DDL and from SECURITY LABEL alike.
 *
 * DDL splits stream.* options off the statement, makes a label of them and stores it. SECURITY
 * LABEL, which is how pg_dump's output restores options, comes with a finished label. Both go
 * through sx_relabel_check(), so what cannot be created cannot be restored either.
 *
 * Locks: the relation in ShareUpdateExclusiveLock at least; ShareRowExclusiveLock is taken when
 * rows have to be looked at, since an INSERT under way does not yet know its new event time.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/seclabel.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/command/statement.h"

static bool
is_ours(const DefElem *def)
{
	return def->defnamespace != NULL && strcmp(def->defnamespace, SX_OPTION_NAMESPACE) == 0;
}

/* Does a list of DefElem hold a stream.* option? */
bool
sx_options_present(List *options)
{
	ListCell *cell;

	foreach(cell, options)
		if (is_ours(lfirst_node(DefElem, cell)))
			return true;
	return false;
}

/* Takes the stream.* options out of a list of DefElem and returns them. */
List *
sx_options_extract(List **options)
{
	List *ours = NIL;
	List *others = NIL;
	ListCell *cell;

	foreach(cell, *options)
	{
		DefElem *def = lfirst_node(DefElem, cell);

		if (is_ours(def))
			ours = lappend(ours, def);
		else
			others = lappend(others, def);
	}
	*options = others;
	return ours;
}

/*
 * The changes (list of SxOptionChange *) that the DefElems of one SET or RESET ask for. Errors:
 * INVALID_PARAMETER_VALUE, FEATURE_NOT_SUPPORTED, SYNTAX_ERROR.
 */
List *
sx_options_changes(SxOptionTarget target, List *options, bool reset)
{
	List *changes = NIL;
	ListCell *cell;
	ListCell *other;

	foreach(cell, options)
	{
		DefElem *def = lfirst_node(DefElem, cell);
		SxOptionChange *change = palloc(sizeof(SxOptionChange));

		sx_option_check_name(target, def->defname);
		foreach(other, changes)
			if (strcmp(((SxOptionChange *) lfirst(other))->name, def->defname) == 0)
				ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
								errmsg("option \"stream.%s\" is given twice", def->defname)));
		change->name = def->defname;
		if (reset)
		{
			if (def->arg != NULL)
				ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR),
								errmsg("RESET of option \"stream.%s\" cannot have a value",
									   def->defname)));
			change->value = NULL;
		}
		else
		{
			if (def->arg == NULL)
				ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
								errmsg("option \"stream.%s\" needs a value", def->defname)));
			change->value = sx_option_canonical(target, def->defname, defGetString(def));
		}
		changes = lappend(changes, change);
	}
	return changes;
}

/* Options (list of SxOption *) after the changes. */
List *
sx_options_apply(SxOptionTarget target, List *options, List *changes)
{
	ListCell *cell;

	foreach(cell, changes)
	{
		const SxOptionChange *change = lfirst(cell);

		options = sx_option_set(options, change->name, change->value);
	}
	return options;
}

/*
 * Refuses a column for event time that holds NULL or infinity: windows have no place for these.
 * The caller keeps writers out.
 */
void
sx_event_time_verify(Relation rel, const char *column)
{
	AttrNumber attno = get_attnum(RelationGetRelid(rel), column);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool isnull;
		Datum value = slot_getattr(slot, attno, &isnull);

		CHECK_FOR_INTERRUPTS();
		if (isnull || TIMESTAMP_NOT_FINITE(DatumGetTimestamp(value)))
			ereport(ERROR, (errcode(isnull ? ERRCODE_NOT_NULL_VIOLATION : ERRCODE_CHECK_VIOLATION),
							errmsg("column \"%s\" of stream \"%s\" contains %s values", column,
								   RelationGetRelationName(rel), isnull ? "null" : "infinite"),
							errdetail("Event time must be finite in every row."),
							errtablecol(rel, attno)));
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
}

/*
 * Judges a new label of a relation of ours against its columns, its rows and its present label.
 * Errors: those of sx_options_check(), NOT_NULL_VIOLATION, CHECK_VIOLATION,
 * OBJECT_NOT_IN_PREREQUISITE_STATE.
 */
void
sx_relabel_check(Relation rel, const char *label)
{
	Oid relid = RelationGetRelid(rel);
	SxOptionTarget target = sx_is_stream(relid) ? SX_ON_STREAM : SX_ON_VIEW;
	char *old_label = sx_label_get(relid);
	List *old = old_label ? sx_label_parse(old_label) : NIL;
	List *new;
	ListCell *cell;

	new = sx_options_check(target, label, RelationGetDescr(rel), RelationGetRelationName(rel));
	if (target == SX_ON_STREAM)
	{
		const char *old_column = sx_option_find(old, "event_time");
		const char *column = sx_option_find(new, "event_time");

		if (column != NULL && (old_column == NULL || strcmp(column, old_column) != 0))
		{
			LockRelationOid(relid, ShareRowExclusiveLock);
			sx_event_time_verify(rel, column);
		}
		return;
	}

	/* what has been computed depends on the settings, and is found by the id */
	if (old == NIL || sx_catalog_view(relid) == NULL)
		return;
	foreach(cell, old)
	{
		const char *name = ((SxOption *) lfirst(cell))->name;

		if (sx_option_is_internal(name) &&
			strcmp(sx_option_find(old, name), sx_option_find(new, name)) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("\"%s\" in the label of continuous view \"%s\" cannot be changed", name,
							RelationGetRelationName(rel)),
					 errhint("Use REFRESH MATERIALIZED VIEW .. WITH NO DATA first.")));
	}
}

/* Stores a label after judging it. The caller holds the lock said above. */
void
sx_relabel(Relation rel, const char *label)
{
	sx_relabel_check(rel, label);
	sx_label_set(RelationGetRelid(rel), label);
	CacheInvalidateRelcache(rel);
	CommandCounterIncrement();
	sx_wake_at_commit();
}

/* SECURITY LABEL FOR stream: core has checked the ownership and stores the label afterwards. */
static void
relabel_callback(const ObjectAddress *object, const char *label)
{
	Relation rel;

	if (object->classId != RelationRelationId || object->objectSubId != 0 ||
		!(sx_is_stream(object->objectId) || sx_is_continuous(object->objectId)))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("labels of provider \"stream\" are for streams and continuous "
							   "views only")));
	sx_require_preloaded();
	if (label == NULL)
	{
		if (sx_label_get(object->objectId) == NULL)
			return;
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("label of \"%s\" cannot be removed", get_rel_name(object->objectId)),
						errdetail("It holds the options; without it the relation is undefined."),
						errhint("ALTER .. RESET (stream.option) sets single options back.")));
	}
	rel = relation_open(object->objectId, NoLock);
	sx_relabel_check(rel, label);
	CacheInvalidateRelcache(rel);
	relation_close(rel, NoLock);
	sx_wake_at_commit();
}

void
sx_relabel_init(void)
{
	register_label_provider(SX_LABEL_PROVIDER, relabel_callback);
}
