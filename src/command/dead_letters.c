/*
 * dead_letters.c
 *		stream.discard_dead_letters(): forgets records that could not be decoded.
 *
 * Reading forgets none of them: they are the proof that nothing was skipped in silence. Whoever has
 * dealt with them deletes them here. Who may is who may drop the source.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "stream_ext/catalog/identity.h"
#include "stream_ext/catalog/records.h"

PG_FUNCTION_INFO_V1(stream_ext_discard_dead_letters);

/* Errors: not there, not a topic, not allowed. */
static void
require_source(Oid source)
{
	char *name = get_rel_name(source);
	Oid admin;

	if (name == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation with OID %u does not exist", source)));
	if (!sx_is_kafka(source))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a foreign table of wrapper kafka", name)));
	if (object_ownercheck(RelationRelationId, source, GetUserId()))
		return;
	admin = get_role_oid("stream_admin", true);
	if (!OidIsValid(admin) || !has_privs_of_role(GetUserId(), admin))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_FOREIGN_TABLE, name);
}

/* stream.discard_dead_letters(source regclass, before timestamptz) returns bigint */
Datum
stream_ext_discard_dead_letters(PG_FUNCTION_ARGS)
{
	Oid source = PG_GETARG_OID(0);
	TimestampTz before = PG_GETARG_TIMESTAMPTZ(1);

	PreventCommandIfReadOnly("stream.discard_dead_letters()");
	/* one at a time, and not while the source is dropped; readers and the worker go on */
	require_source(source);
	LockRelationOid(source, ShareUpdateExclusiveLock);
	require_source(source);
	PG_RETURN_INT64(sx_catalog_dead_letters_delete(source, before));
}
