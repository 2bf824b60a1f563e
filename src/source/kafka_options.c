/*
 * kafka_options.c
 *		The options of wrapper "kafka" as they are used: to connect, to decode, to compare tables.
 *
 * What an option may be is in kafka_validate.c. Here options have been checked, but what they refer
 * to may have changed since: columns, and the owner of the foreign server.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "stream_ext/catalog/options.h"

#include "kafka_options_private.h"

#define DEFAULT_IDLE_TIMEOUT (30 * USECS_PER_SEC)
#define DEFAULT_MAX_AHEAD    USECS_PER_DAY

/* The last value of a property, as librdkafka takes it. */
static const char *
find_property(List *list, const char *name)
{
	const char *value = NULL;
	ListCell *lc;

	foreach(lc, list)
	{
		const SxKafkaProperty *property = lfirst(lc);

		if (strcmp(property->name, name) == 0)
			value = property->value;
	}
	return value;
}

static List *
add_property(List *list, const char *name, const char *value)
{
	SxKafkaProperty *property = palloc(sizeof(SxKafkaProperty));

	property->name = pstrdup(name);
	property->value = pstrdup(value);
	return lappend(list, property);
}

/* Adds the properties among the options of a server or a mapping. */
static List *
add_properties(List *result, List *list, Oid server_owner, const char *server_name)
{
	ListCell *lc;

	foreach(lc, list)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		const SxKafkaOptionDefinition *definition = sx_kafka_option_definition(def->defname);
		const char *name;

		/* a later version of the extension may have had more */
		if (definition == NULL)
			continue;
		if (definition->is_file && !sx_kafka_may_use_server(server_owner))
			ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
							errmsg("option \"%s\" of server \"%s\" cannot be used", def->defname,
								   server_name),
							errdetail("It names a file on the database server, which the owner of "
									  "the foreign server may not have read.")));
		if (sx_kafka_is_property(def->defname))
			name = def->defname + strlen(SX_PROPERTY_PREFIX);
		else if (strcmp(def->defname, "bootstrap_servers") == 0)
			name = "bootstrap.servers";
		else if (strcmp(def->defname, "user") == 0)
			name = "sasl.username";
		else if (strcmp(def->defname, "password") == 0)
			name = "sasl.password";
		else
			continue;
		result = add_property(result, name, defGetString(def));
	}
	return result;
}

/* Options of the user's mapping for a server, or of PUBLIC's; NIL: there is none. */
static List *
mapping_options(Oid user, Oid server)
{
	HeapTuple tuple =
		SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(user), ObjectIdGetDatum(server));
	List *list = NIL;
	bool isnull;
	Datum datum;

	if (!HeapTupleIsValid(tuple))
		tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid),
								ObjectIdGetDatum(server));
	if (!HeapTupleIsValid(tuple))
		return NIL;
	datum = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, &isnull);
	if (!isnull)
		list = untransformRelOptions(datum);
	ReleaseSysCache(tuple);
	return list;
}

/*
 * librdkafka's mechanism is GSSAPI unless another one is named. It uses the Kerberos tickets that the
 * user has whom the database server runs as; the command by which librdkafka would get some is never
 * run, which takes a command that needs no keytab and an interval of 0.
 */
static List *
add_kerberos(List *list, const ForeignServer *server)
{
	const char *protocol = find_property(list, "security.protocol");
	const char *mechanism = find_property(list, "sasl.mechanism");

	if (mechanism == NULL)
		mechanism = find_property(list, "sasl.mechanisms");
	if (protocol == NULL || pg_strncasecmp(protocol, "sasl", 4) != 0 ||
		(mechanism != NULL && strcmp(mechanism, "GSSAPI") != 0))
		return list;
	if (!sx_kafka_may_use_server(server->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("mechanism GSSAPI of server \"%s\" cannot be used", server->servername),
				 errdetail("It uses the Kerberos tickets of the database server, which the owner "
						   "of the foreign server may not use."),
				 errhint("Set option \"kafka.sasl.mechanism\" to use another mechanism.")));
	list = add_property(list, "sasl.kerberos.kinit.cmd", "true");
	return add_property(list, "sasl.kerberos.min.time.before.relogin", "0");
}

SxKafkaOptions *
sx_kafka_server_options(Oid server, Oid user)
{
	SxKafkaOptions *result = palloc0(sizeof(SxKafkaOptions));
	ForeignServer *foreign = GetForeignServer(server);

	result->server = server;
	result->properties = add_properties(NIL, foreign->options, foreign->owner, foreign->servername);
	result->properties = add_properties(result->properties, mapping_options(user, server),
										foreign->owner, foreign->servername);
	result->properties = add_kerberos(result->properties, foreign);
	return result;
}

/* How the columns are found in a record. */
static void
read_columns(SxFormat *format, Relation rel)
{
	TupleDesc desc = RelationGetDescr(rel);

	format->natts = desc->natts;
	format->columns = palloc0(sizeof(SxColumnFormat) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		List *list;
		const char *value;

		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		list = GetForeignColumnOptions(RelationGetRelid(rel), i + 1);
		if ((value = sx_kafka_option_find(list, "meta")) != NULL)
			format->columns[i].origin = sx_kafka_parse_meta(value);
		if ((value = sx_kafka_option_find(list, "name")) != NULL)
			format->columns[i].name = pstrdup(value);
		if ((value = sx_kafka_option_find(list, "json_path")) != NULL)
			format->columns[i].json_path = pstrdup(value);
	}
}

static char
character_option(List *list, const char *name, char default_value)
{
	const char *value = sx_kafka_option_find(list, name);

	return value != NULL ? value[0] : default_value;
}

static void
read_format(SxFormat *format, List *list, Relation rel)
{
	const char *value;

	value = sx_kafka_option_find(list, "format");
	format->kind = value != NULL ? sx_kafka_parse_format(value) : SX_FORMAT_JSON;
	value = sx_kafka_option_find(list, "case");
	format->ignore_case = value != NULL && sx_kafka_parse_case(value);
	format->delimiter = character_option(list, "delimiter", ',');
	format->quote = character_option(list, "quote", '"');
	format->escape = character_option(list, "escape", format->quote);
	value = sx_kafka_option_find(list, "null");
	format->null_string = pstrdup(value != NULL ? value : "");
	read_columns(format, rel);
	value = sx_kafka_option_find(list, "event_time");
	if (value == NULL)
		return;
	format->event_time = get_attnum(RelationGetRelid(rel), value);
	if (format->event_time <= 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("event time column \"%s\" of foreign table \"%s\" does not exist",
							   value, RelationGetRelationName(rel)),
						errhint("Use ALTER FOREIGN TABLE .. OPTIONS (SET event_time ..).")));
}

static int64
duration_option(List *list, const char *name, int64 default_value)
{
	const char *value = sx_kafka_option_find(list, name);

	return value != NULL ? sx_option_duration(name, value, false) : default_value;
}

SxKafkaOptions *
sx_kafka_options(Relation rel, Oid user)
{
	ForeignTable *table = GetForeignTable(RelationGetRelid(rel));
	SxKafkaOptions *result = sx_kafka_server_options(table->serverid, user);
	const char *value;

	result->relid = RelationGetRelid(rel);
	result->topic = sx_kafka_topic(result->relid);
	if ((value = sx_kafka_option_find(table->options, "start")) != NULL)
		result->start = sx_kafka_parse_start(value, &result->start_time);
	if ((value = sx_kafka_option_find(table->options, "on_gap")) != NULL)
		result->skip_gaps = sx_kafka_parse_on_gap(value);
	if ((value = sx_kafka_option_find(table->options, "event_time")) != NULL)
		result->event_time = pstrdup(value);
	result->has_watermark_delay = sx_kafka_option_find(table->options, "watermark_delay") != NULL;
	result->watermark_delay = duration_option(table->options, "watermark_delay", 0);
	result->idle_timeout = duration_option(table->options, "idle_timeout", DEFAULT_IDLE_TIMEOUT);
	result->max_ahead = duration_option(table->options, "max_ahead", DEFAULT_MAX_AHEAD);
	read_format(&result->format, table->options, rel);
	return result;
}

char *
sx_kafka_topic(Oid relid)
{
	const char *topic = sx_kafka_option_find(GetForeignTable(relid)->options, "topic");

	if (topic == NULL)
		elog(ERROR, "foreign table %u has no topic", relid);
	return pstrdup(topic);
}

static uint32
hash_string(uint32 hash, const char *string)
{
	return hash_combine(hash, hash_bytes((const unsigned char *) string, strlen(string)));
}

static uint32
hash_options(uint32 hash, List *list)
{
	static const char *const others[] = {"start", "on_gap", "watermark_delay", "idle_timeout",
										 "max_ahead"};
	ListCell *lc;

	foreach(lc, list)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		bool decides = true;

		for (int i = 0; i < lengthof(others); i++)
			decides &= strcmp(def->defname, others[i]) != 0;
		if (!decides)
			continue;
		hash = hash_string(hash, def->defname);
		hash = hash_string(hash, defGetString(def));
	}
	return hash;
}

uint32
sx_kafka_shape(Relation rel)
{
	TupleDesc desc = RelationGetDescr(rel);
	ForeignTable *table = GetForeignTable(RelationGetRelid(rel));
	uint32 hash = hash_options(table->serverid, table->options);

	/* code for the rows runs as the owner */
	hash = hash_combine(hash, rel->rd_rel->relowner);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		hash = hash_string(hash, NameStr(att->attname));
		hash = hash_combine(hash, att->attnotnull);
		hash = hash_options(hash, GetForeignColumnOptions(RelationGetRelid(rel), i + 1));
	}
	for (int i = 0; desc->constr != NULL && i < desc->constr->num_check; i++)
		hash = hash_string(hash, desc->constr->check[i].ccbin);
	return hash;
}
