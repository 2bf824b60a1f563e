/*
 * identity.h
 *		Is this relation ours?
 */
#ifndef STREAM_EXT_CATALOG_IDENTITY_H
#define STREAM_EXT_CATALOG_IDENTITY_H

/* By syscache only; false for anything that does not exist. Need a transaction. */
extern bool sx_is_stream(Oid relid);
extern bool sx_is_continuous(Oid relid);
extern bool sx_is_kafka(Oid relid);

/* OIDs of our access methods and our foreign data wrapper; InvalidOid without the extension. */
extern Oid sx_stream_am(void);
extern Oid sx_continuous_am(void);
extern Oid sx_kafka_fdw(void);

/* OID of the extension and of its schema "stream"; InvalidOid without the extension. */
extern Oid sx_extension(void);
extern Oid sx_schema(void);

/* OID of a table or view in schema "stream"; error if missing. */
extern Oid sx_catalog_relid(const char *name);

#endif /* STREAM_EXT_CATALOG_IDENTITY_H */
