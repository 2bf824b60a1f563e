/*
 * control.c
 *		stream.pause() and stream.resume().
 *
 * Both change the view's catalog row, which the worker changes, too, when the view fails; it then
 * holds no lock on the view, so the row is locked before it is read. The lock on the view itself is
 * for the promise that a paused view stands still: the worker holds the view against it while it
 * works for it, takes it conditionally and leaves the view alone for as long as this transaction is
 * open. Readers of the view are not affected. A paused view keeps its position, so that nothing is
 * lost. Order: view, then row, as everywhere.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "stream_ext/base/wake.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/identity.h"
#include "stream_ext/worker/launcher.h"

PG_FUNCTION_INFO_V1(stream_ext_pause);
PG_FUNCTION_INFO_V1(stream_ext_resume);

static void
require_control(Oid view)
{
	Oid admin;

	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(view)))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation with OID %u does not exist", view)));
	if (!sx_is_continuous(view))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a continuous view", get_rel_name(view))));
	if (object_ownercheck(RelationRelationId, view, GetUserId()))
		return;
	admin = get_role_oid("stream_admin", true);
	if (!OidIsValid(admin) || !has_privs_of_role(GetUserId(), admin))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_MATVIEW, get_rel_name(view));
}

/*
 * Locks the view and its row, and returns the row as it is committed now. Errors: not there, not
 * allowed, a standby or a read-only transaction.
 */
static SxViewRow *
lock_row(Oid view, const char *function)
{
	SxViewRow *row;

	sx_launcher_require();
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	/* nobody else can make the worker wait by asking; a view dropped meanwhile is found below */
	require_control(view);
	LockRelationOid(view, ShareRowExclusiveLock);
	require_control(view);
	(void) sx_catalog_view_lock(view, true);

	PushActiveSnapshot(GetLatestSnapshot());
	row = sx_catalog_view(view);
	PopActiveSnapshot();
	if (row == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("continuous view \"%s\" is stopped", get_rel_name(view)),
						errhint("Use REFRESH MATERIALIZED VIEW to start it.")));
	return row;
}

/* stream.pause(view regclass) returns void */
Datum
stream_ext_pause(PG_FUNCTION_ARGS)
{
	SxViewRow *row = lock_row(PG_GETARG_OID(0), "stream.pause()");

	if (!row->paused)
	{
		row->paused = true;
		sx_catalog_view_update(row);
		sx_wake_at_commit();
	}
	PG_RETURN_VOID();
}

/* stream.resume(view regclass) returns void. A failed view tries again at once. */
Datum
stream_ext_resume(PG_FUNCTION_ARGS)
{
	SxViewRow *row = lock_row(PG_GETARG_OID(0), "stream.resume()");

	row->paused = false;
	sx_catalog_view_clear_error(row);
	sx_catalog_view_update(row);
	sx_wake_at_commit();
	PG_RETURN_VOID();
}
