/*
 * identity.c
 *		Tells whether a relation is ours, by its access method.
 *
 * The name of an access method is not enough: any superuser can make another one called "stream".
 * So it must be a member of the extension as well. What was found is kept for the life of the
 * process and looked up again when pg_am or pg_namespace change: CREATE and DROP EXTENSION touch
 * both, also when they roll back.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "commands/extension.h"
#include "foreign/foreign.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "stream_ext/catalog/identity.h"

/* All that is known about the extension in this database; InvalidOid: not there. */
static struct
{
	bool valid;
	Oid extension;
	Oid schema;
	Oid stream_am;
	Oid continuous_am;
	Oid kafka_fdw;
} identity;

static bool callbacks_registered = false;
static uint64 nchanges = 0; /* invalidations seen; tells a look-up that one came in between */

static void
forget_identity(Datum arg, int cacheid, uint32 hashvalue)
{
	identity.valid = false;
	nchanges++;
}

/* OID of a table access method of this name that belongs to the extension, or InvalidOid. */
static Oid
find_access_method(const char *name, Oid extension)
{
	HeapTuple tuple;
	Oid am = InvalidOid;

	tuple = SearchSysCache1(AMNAME, CStringGetDatum(name));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (((Form_pg_am) GETSTRUCT(tuple))->amtype == AMTYPE_TABLE)
		am = ((Form_pg_am) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	if (OidIsValid(am) && getExtensionOfObject(AccessMethodRelationId, am) != extension)
		return InvalidOid;
	return am;
}

/* OID of a foreign data wrapper of this name that belongs to the extension, or InvalidOid. */
static Oid
find_wrapper(const char *name, Oid extension)
{
	Oid fdw = get_foreign_data_wrapper_oid(name, true);

	if (OidIsValid(fdw) && getExtensionOfObject(ForeignDataWrapperRelationId, fdw) != extension)
		return InvalidOid;
	return fdw;
}

static void
look_up_identity(void)
{
	uint64 before;

	if (likely(identity.valid))
		return;
	if (!callbacks_registered)
	{
		CacheRegisterSyscacheCallback(AMOID, forget_identity, (Datum) 0);
		CacheRegisterSyscacheCallback(NAMESPACEOID, forget_identity, (Datum) 0);
		CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, forget_identity, (Datum) 0);
		callbacks_registered = true;
	}

	before = nchanges;
	identity.extension = get_extension_oid("stream_ext", true);
	identity.schema = InvalidOid;
	identity.stream_am = InvalidOid;
	identity.continuous_am = InvalidOid;
	identity.kafka_fdw = InvalidOid;
	if (OidIsValid(identity.extension))
	{
		identity.schema = get_namespace_oid("stream", true);
		identity.stream_am = find_access_method("stream", identity.extension);
		identity.continuous_am = find_access_method("continuous", identity.extension);
		identity.kafka_fdw = find_wrapper("kafka", identity.extension);
	}
	/* last: neither a look-up that failed half-way nor one that was overtaken may count */
	identity.valid = nchanges == before;
}

Oid
sx_extension(void)
{
	look_up_identity();
	return identity.extension;
}

Oid
sx_schema(void)
{
	look_up_identity();
	return identity.schema;
}

Oid
sx_stream_am(void)
{
	look_up_identity();
	return identity.stream_am;
}

Oid
sx_continuous_am(void)
{
	look_up_identity();
	return identity.continuous_am;
}

static bool
has_access_method(Oid relid, Oid am, char relkind)
{
	HeapTuple tuple;
	bool result;

	if (!OidIsValid(am))
		return false;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relam == am &&
			 ((Form_pg_class) GETSTRUCT(tuple))->relkind == relkind;
	ReleaseSysCache(tuple);
	return result;
}

/* True for a table that stores a stream; not for a partitioned table above such. */
bool
sx_is_stream(Oid relid)
{
	return has_access_method(relid, sx_stream_am(), RELKIND_RELATION);
}

/* True for a continuous view; not for the transient tables of core's REFRESH. */
bool
sx_is_continuous(Oid relid)
{
	return has_access_method(relid, sx_continuous_am(), RELKIND_MATVIEW);
}

Oid
sx_kafka_fdw(void)
{
	look_up_identity();
	return identity.kafka_fdw;
}

/* True for a foreign table of a server of our wrapper "kafka". */
bool
sx_is_kafka(Oid relid)
{
	HeapTuple tuple;
	Oid server;
	Oid fdw;

	if (!OidIsValid(sx_kafka_fdw()))
		return false;
	tuple = SearchSysCache1(FOREIGNTABLEREL, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	server = ((Form_pg_foreign_table) GETSTRUCT(tuple))->ftserver;
	ReleaseSysCache(tuple);
	tuple = SearchSysCache1(FOREIGNSERVEROID, ObjectIdGetDatum(server));
	if (!HeapTupleIsValid(tuple))
		return false;
	fdw = ((Form_pg_foreign_server) GETSTRUCT(tuple))->srvfdw;
	ReleaseSysCache(tuple);
	return fdw == sx_kafka_fdw();
}

/* Also finds indexes. Errors: UNDEFINED_TABLE. */
Oid
sx_catalog_relid(const char *name)
{
	Oid relid = InvalidOid;

	if (OidIsValid(sx_schema()))
		relid = get_relname_relid(name, sx_schema());
	if (!OidIsValid(relid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation \"stream.%s\" does not exist", name),
						errhint("Extension stream_ext is missing in this database or damaged.")));
	return relid;
}
