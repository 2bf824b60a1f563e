/*
 * kafka_options.c
 *		The options of foreign servers, user mappings and foreign tables of wrapper "kafka".
 *
 * Options of a foreign server can be read by everybody, so whatever is secret is accepted in a user
 * mapping only, and messages show no values of it.
 *
 * Properties of librdkafka are "kafka.<name>", from a list of those that are allowed. What is not in
 * it is either needed to be what it is (offsets, isolation, queues), or runs code (plugins, commands
 * that fetch tickets, engines). Properties that name files make the server read what its own user may
 * read; only a superuser or a member of pg_read_server_files may use them. That is asked twice: of
 * whoever writes the option, and, each time it is used, of the foreign server's owner, because a
 * server can be given to somebody else.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "stream_ext/catalog/options.h"
#include "stream_ext/source/kafka_options.h"

#define PROPERTY_PREFIX "kafka."

#define DEFAULT_IDLE_TIMEOUT (30 * USECS_PER_SEC)
#define DEFAULT_MAX_AHEAD    USECS_PER_DAY

/* What an option may be set on. */
#define ON_SERVER  1
#define ON_MAPPING 2
#define ON_TABLE   4
#define ON_COLUMN  8

typedef struct OptionDefinition
{
	const char *name;
	int targets;
	bool is_file; /* names a file on this server */
} OptionDefinition;

static const OptionDefinition options[] = {
	{"bootstrap_servers", ON_SERVER},
	{"user", ON_MAPPING},
	{"password", ON_MAPPING},
	{"topic", ON_TABLE},
	{"format", ON_TABLE},
	{"case", ON_TABLE},
	{"delimiter", ON_TABLE},
	{"quote", ON_TABLE},
	{"escape", ON_TABLE},
	{"null", ON_TABLE},
	{"start", ON_TABLE},
	{"on_gap", ON_TABLE},
	{"event_time", ON_TABLE},
	{"watermark_delay", ON_TABLE},
	{"idle_timeout", ON_TABLE},
	{"max_ahead", ON_TABLE},
	{"name", ON_COLUMN},
	{"json_path", ON_COLUMN},
	{"meta", ON_COLUMN},
};

/* Properties of librdkafka, without the prefix. */
static const OptionDefinition properties[] = {
	{"api.version.request.timeout.ms", ON_SERVER},
	{"broker.address.family", ON_SERVER},
	{"broker.address.ttl", ON_SERVER},
	{"client.id", ON_SERVER | ON_MAPPING},
	{"client.rack", ON_SERVER},
	{"connections.max.idle.ms", ON_SERVER},
	{"enable.ssl.certificate.verification", ON_SERVER},
	{"fetch.error.backoff.ms", ON_SERVER},
	{"fetch.max.bytes", ON_SERVER},
	{"fetch.message.max.bytes", ON_SERVER},
	{"fetch.min.bytes", ON_SERVER},
	{"fetch.wait.max.ms", ON_SERVER},
	{"max.in.flight.requests.per.connection", ON_SERVER},
	{"metadata.max.age.ms", ON_SERVER},
	{"receive.message.max.bytes", ON_SERVER},
	{"reconnect.backoff.max.ms", ON_SERVER},
	{"reconnect.backoff.ms", ON_SERVER},
	{"sasl.kerberos.keytab", ON_SERVER, true},
	{"sasl.kerberos.min.time.before.relogin", ON_SERVER},
	{"sasl.kerberos.principal", ON_SERVER},
	{"sasl.kerberos.service.name", ON_SERVER},
	{"sasl.mechanism", ON_SERVER},
	{"sasl.mechanisms", ON_SERVER},
	{"sasl.password", ON_MAPPING},
	{"sasl.username", ON_MAPPING},
	{"security.protocol", ON_SERVER},
	{"socket.connection.setup.timeout.ms", ON_SERVER},
	{"socket.keepalive.enable", ON_SERVER},
	{"socket.max.fails", ON_SERVER},
	{"socket.nagle.disable", ON_SERVER},
	{"socket.receive.buffer.bytes", ON_SERVER},
	{"socket.send.buffer.bytes", ON_SERVER},
	{"socket.timeout.ms", ON_SERVER},
	{"ssl.ca.location", ON_SERVER, true},
	{"ssl.ca.pem", ON_SERVER},
	{"ssl.certificate.location", ON_SERVER, true},
	{"ssl.certificate.pem", ON_SERVER | ON_MAPPING},
	{"ssl.cipher.suites", ON_SERVER},
	{"ssl.crl.location", ON_SERVER, true},
	{"ssl.curves.list", ON_SERVER},
	{"ssl.endpoint.identification.algorithm", ON_SERVER},
	{"ssl.key.location", ON_SERVER, true},
	{"ssl.key.password", ON_MAPPING},
	{"ssl.key.pem", ON_MAPPING},
	{"ssl.keystore.location", ON_SERVER, true},
	{"ssl.keystore.password", ON_MAPPING},
	{"ssl.sigalgs.list", ON_SERVER},
	{"topic.metadata.propagation.max.ms", ON_SERVER},
	{"topic.metadata.refresh.fast.interval.ms", ON_SERVER},
	{"topic.metadata.refresh.interval.ms", ON_SERVER},
};

/* ---------------------------------------------------------------- validation */

static bool
is_property(const char *name)
{
	return strncmp(name, PROPERTY_PREFIX, strlen(PROPERTY_PREFIX)) == 0;
}

static const OptionDefinition *
find_definition(const char *name)
{
	if (is_property(name))
	{
		for (int i = 0; i < lengthof(properties); i++)
			if (strcmp(properties[i].name, name + strlen(PROPERTY_PREFIX)) == 0)
				return &properties[i];
		return NULL;
	}
	for (int i = 0; i < lengthof(options); i++)
		if (strcmp(options[i].name, name) == 0)
			return &options[i];
	return NULL;
}

static const char *
target_noun(int target)
{
	switch (target)
	{
		case ON_SERVER:
			return "a server";
		case ON_MAPPING:
			return "a user mapping";
		case ON_TABLE:
			return "a foreign table";
		default:
			return "a column";
	}
}

/* Hint that lists what may be set on a target. */
static char *
list_options(int target)
{
	StringInfoData buf;
	bool first = true;

	initStringInfo(&buf);
	appendStringInfo(&buf, "Options of %s are ", target_noun(target));
	for (int i = 0; i < lengthof(options); i++)
	{
		if ((options[i].targets & target) == 0)
			continue;
		appendStringInfo(&buf, "%s%s", first ? "" : ", ", options[i].name);
		first = false;
	}
	if ((target & (ON_SERVER | ON_MAPPING)) != 0)
		appendStringInfoString(&buf, ", and properties of librdkafka as \"kafka.<name>\"");
	appendStringInfoChar(&buf, '.');
	return buf.data;
}

static void
refuse_option(const char *name, int target)
{
	const OptionDefinition *definition = find_definition(name);

	if (definition == NULL && is_property(name))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("property \"%s\" cannot be set", name + strlen(PROPERTY_PREFIX)),
				 errdetail("It is none of librdkafka, or one that stream_ext sets itself, or "
						   "one that would run code."),
				 errhint("docs/reference-kafka.md lists those that can be set.")));
	if (definition == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("unrecognized option \"%s\"", name), errhint("%s", list_options(target))));
	if (definition->targets == ON_MAPPING)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("option \"%s\" cannot be set on %s", name, target_noun(target)),
						errhint("Use CREATE USER MAPPING: its options are not shown to others.")));
	ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					errmsg("option \"%s\" cannot be set on %s", name, target_noun(target)),
					errhint("%s", list_options(target))));
}

/* May this role have the server read files? */
static bool
may_name_files(Oid role)
{
	return superuser_arg(role) || has_privs_of_role(role, ROLE_PG_READ_SERVER_FILES);
}

static void
refuse_value(const char *name, const char *value, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", name, value), errhint("%s", hint)));
}

/* A name or address and a port, several with commas. */
static void
check_bootstrap_servers(const char *value)
{
	const char *hint = "Give host:port, several of them with commas.";
	const char *item = value;

	while (true)
	{
		size_t len = strcspn(item, ",");
		const char *colon = NULL;
		size_t digits;

		for (size_t i = 0; i < len; i++)
			if (item[i] == ':')
				colon = item + i;
		if (colon == NULL || colon == item)
			refuse_value("bootstrap_servers", value, hint);
		digits = strspn(colon + 1, "0123456789");
		if (digits == 0 || digits > 5 || colon + 1 + digits != item + len || atoi(colon + 1) < 1 ||
			atoi(colon + 1) > 65535)
			refuse_value("bootstrap_servers", value, hint);
		for (const char *c = item; c < colon; c++)
			if ((unsigned char) *c <= ' ' || *c == '/')
				refuse_value("bootstrap_servers", value, hint);
		if (item[len] == '\0')
			return;
		item += len + 1;
	}
}

static void
check_topic(const char *value)
{
	size_t len = strlen(value);

	if (len == 0 || len > 249 || strcmp(value, ".") == 0 || strcmp(value, "..") == 0 ||
		strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != len)
		refuse_value("topic", value,
					 "Names of topics have 1 to 249 letters, digits, dots, underscores and "
					 "hyphens.");
}

/* One byte, as COPY has it. */
static void
check_character(const char *name, const char *value)
{
	if (strlen(value) != 1 || value[0] == '\n' || value[0] == '\r')
		refuse_value(name, value, "Give a single one-byte character.");
}

static SxFormatKind
parse_format(const char *value)
{
	if (strcmp(value, "json") == 0)
		return SX_FORMAT_JSON;
	if (strcmp(value, "csv") == 0)
		return SX_FORMAT_CSV;
	if (strcmp(value, "raw") != 0)
		refuse_value("format", value, "Formats are json, csv and raw.");
	return SX_FORMAT_RAW;
}

static bool
parse_case(const char *value)
{
	if (strcmp(value, "insensitive") == 0)
		return true;
	if (strcmp(value, "sensitive") != 0)
		refuse_value("case", value, "Values are sensitive and insensitive.");
	return false;
}

static bool
parse_on_gap(const char *value)
{
	if (strcmp(value, "earliest") == 0)
		return true;
	if (strcmp(value, "stop") != 0)
		refuse_value("on_gap", value, "Values are stop and earliest.");
	return false;
}

/*
 * A time with its zone, so that it means the same in each session. *time is in ms since 1970.
 */
static SxKafkaStart
parse_start(const char *value, int64 *time)
{
	const char *hint = "Values are earliest, latest, or a time with a zone, such as "
					   "'2026-01-31 12:00:00+00'.";
	const char *tail;
	TimestampTz ts = 0;
	MemoryContext cxt = CurrentMemoryContext;

	if (strcmp(value, "earliest") == 0)
		return SX_START_EARLIEST;
	if (strcmp(value, "latest") == 0)
		return SX_START_LATEST;
	/* YYYY-MM-DD, a time, and Z or an offset */
	if (strlen(value) < 12 || strspn(value, "0123456789") != 4 || value[4] != '-' ||
		value[7] != '-')
		refuse_value("start", value, hint);
	tail = value + 10;
	if (strspn(tail, " T0123456789:.+-Z") != strlen(tail) || strpbrk(tail, "+-Z") == NULL)
		refuse_value("start", value, hint);
	/* nothing but memory is held inside, and the error goes on */
	PG_TRY();
	{
		ts = DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(value),
													 ObjectIdGetDatum(InvalidOid),
													 Int32GetDatum(-1)));
	}
	PG_CATCH();
	{
		ErrorData *edata;

		MemoryContextSwitchTo(cxt);
		edata = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(edata->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		refuse_value("start", value, hint);
	}
	PG_END_TRY();
	*time = ts / 1000 +
			(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * INT64CONST(1000);
	if (*time < 0)
		refuse_value("start", value, "No record is older than 1970.");
	return SX_START_TIME;
}

static SxColumnOrigin
parse_meta(const char *value)
{
	static const struct
	{
		const char *name;
		SxColumnOrigin origin;
	} metas[] = {{"partition", SX_FROM_PARTITION},
				 {"offset", SX_FROM_OFFSET},
				 {"timestamp", SX_FROM_TIMESTAMP},
				 {"key", SX_FROM_KEY},
				 {"headers", SX_FROM_HEADERS}};

	for (int i = 0; i < lengthof(metas); i++)
		if (strcmp(metas[i].name, value) == 0)
			return metas[i].origin;
	refuse_value("meta", value, "Values are partition, offset, timestamp, key and headers.");
	return SX_FROM_VALUE; /* keep compiler quiet */
}

static void
check_value(const char *name, const char *value)
{
	int64 time;

	if (strcmp(name, "bootstrap_servers") == 0)
		check_bootstrap_servers(value);
	else if (strcmp(name, "topic") == 0)
		check_topic(value);
	else if (strcmp(name, "format") == 0)
		(void) parse_format(value);
	else if (strcmp(name, "case") == 0)
		(void) parse_case(value);
	else if (strcmp(name, "delimiter") == 0 || strcmp(name, "quote") == 0 ||
			 strcmp(name, "escape") == 0)
		check_character(name, value);
	else if (strcmp(name, "start") == 0)
		(void) parse_start(value, &time);
	else if (strcmp(name, "on_gap") == 0)
		(void) parse_on_gap(value);
	else if (strcmp(name, "event_time") == 0 || strcmp(name, "name") == 0)
	{
		if (value[0] == '\0')
			refuse_value(name, value, "Give a name.");
	}
	else if (strcmp(name, "watermark_delay") == 0 || strcmp(name, "max_ahead") == 0)
		(void) sx_option_duration(name, value, false);
	else if (strcmp(name, "idle_timeout") == 0)
		(void) sx_option_duration(name, value, true);
	else if (strcmp(name, "meta") == 0)
		(void) parse_meta(value);
}

static const char *
find_option(List *list, const char *name)
{
	ListCell *lc;

	foreach(lc, list)
	{
		DefElem *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, name) == 0)
			return defGetString(def);
	}
	return NULL;
}

/* What must be there, and what cannot be there together. */
static void
check_together(List *list, int target)
{
	bool is_csv;

	if (target == ON_SERVER && find_option(list, "bootstrap_servers") == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
						errmsg("option \"bootstrap_servers\" is required for a server of wrapper "
							   "kafka")));
	if (target == ON_COLUMN && list_length(list) > 1)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("a column can have only one of the options name, json_path and "
							   "meta")));
	if (target != ON_TABLE)
		return;
	if (find_option(list, "topic") == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
						errmsg("option \"topic\" is required for a foreign table of wrapper "
							   "kafka")));
	if (find_option(list, "watermark_delay") != NULL && find_option(list, "event_time") == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("option \"watermark_delay\" needs \"event_time\"")));
	is_csv = find_option(list, "format") != NULL && strcmp(find_option(list, "format"), "csv") == 0;
	if (!is_csv && (find_option(list, "delimiter") || find_option(list, "quote") ||
					find_option(list, "escape") || find_option(list, "null")))
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("options delimiter, quote, escape and null are for format csv")));
}

void
sx_kafka_options_check(List *list, Oid catalog)
{
	int target;
	ListCell *lc;

	switch (catalog)
	{
		case ForeignServerRelationId:
			target = ON_SERVER;
			break;
		case UserMappingRelationId:
			target = ON_MAPPING;
			break;
		case ForeignTableRelationId:
			target = ON_TABLE;
			break;
		case AttributeRelationId:
			target = ON_COLUMN;
			break;
		default:
			if (list != NIL)
				ereport(ERROR,
						(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						 errmsg("wrapper kafka has no options"),
						 errhint("Set options on a server, user mapping or foreign table.")));
			return;
	}
	foreach(lc, list)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		const OptionDefinition *definition = find_definition(def->defname);

		if (definition == NULL || (definition->targets & target) == 0)
			refuse_option(def->defname, target);
		if (definition->is_file && !may_name_files(GetUserId()))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to set option \"%s\"", def->defname),
					 errdetail("It names a file on the database server."),
					 errhint("Only a superuser or a member of pg_read_server_files can set it.")));
		if (!is_property(def->defname))
			check_value(def->defname, defGetString(def));
	}
	check_together(list, target);
}

/* ---------------------------------------------------------------- use */

/* Adds the properties among the options of a server or a mapping. */
static List *
add_properties(List *result, List *list, Oid server_owner, const char *server_name)
{
	ListCell *lc;

	foreach(lc, list)
	{
		DefElem *def = lfirst_node(DefElem, lc);
		const OptionDefinition *definition = find_definition(def->defname);
		SxKafkaProperty *property;

		/* a later version of the extension may have had more */
		if (definition == NULL)
			continue;
		if (definition->is_file && !may_name_files(server_owner))
			ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
							errmsg("option \"%s\" of server \"%s\" cannot be used", def->defname,
								   server_name),
							errdetail("It names a file on the database server, which the owner of "
									  "the foreign server may not have read.")));
		property = palloc(sizeof(SxKafkaProperty));
		if (is_property(def->defname))
			property->name = pstrdup(def->defname + strlen(PROPERTY_PREFIX));
		else if (strcmp(def->defname, "bootstrap_servers") == 0)
			property->name = "bootstrap.servers";
		else if (strcmp(def->defname, "user") == 0)
			property->name = "sasl.username";
		else if (strcmp(def->defname, "password") == 0)
			property->name = "sasl.password";
		else
			continue;
		property->value = pstrdup(defGetString(def));
		result = lappend(result, property);
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

SxKafkaOptions *
sx_kafka_server_options(Oid server, Oid user)
{
	SxKafkaOptions *result = palloc0(sizeof(SxKafkaOptions));
	ForeignServer *foreign = GetForeignServer(server);

	result->server = server;
	result->properties = add_properties(NIL, foreign->options, foreign->owner, foreign->servername);
	result->properties = add_properties(result->properties, mapping_options(user, server),
										foreign->owner, foreign->servername);
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
		if ((value = find_option(list, "meta")) != NULL)
			format->columns[i].origin = parse_meta(value);
		if ((value = find_option(list, "name")) != NULL)
			format->columns[i].name = pstrdup(value);
		if ((value = find_option(list, "json_path")) != NULL)
			format->columns[i].json_path = pstrdup(value);
	}
}

static char
character_option(List *list, const char *name, char default_value)
{
	const char *value = find_option(list, name);

	return value != NULL ? value[0] : default_value;
}

static void
read_format(SxFormat *format, List *list, Relation rel)
{
	const char *value;

	value = find_option(list, "format");
	format->kind = value != NULL ? parse_format(value) : SX_FORMAT_JSON;
	value = find_option(list, "case");
	format->ignore_case = value != NULL && parse_case(value);
	format->delimiter = character_option(list, "delimiter", ',');
	format->quote = character_option(list, "quote", '"');
	format->escape = character_option(list, "escape", format->quote);
	value = find_option(list, "null");
	format->null_string = pstrdup(value != NULL ? value : "");
	read_columns(format, rel);
	value = find_option(list, "event_time");
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
	const char *value = find_option(list, name);

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
	if ((value = find_option(table->options, "start")) != NULL)
		result->start = parse_start(value, &result->start_time);
	if ((value = find_option(table->options, "on_gap")) != NULL)
		result->skip_gaps = parse_on_gap(value);
	if ((value = find_option(table->options, "event_time")) != NULL)
		result->event_time = pstrdup(value);
	result->has_watermark_delay = find_option(table->options, "watermark_delay") != NULL;
	result->watermark_delay = duration_option(table->options, "watermark_delay", 0);
	result->idle_timeout = duration_option(table->options, "idle_timeout", DEFAULT_IDLE_TIMEOUT);
	result->max_ahead = duration_option(table->options, "max_ahead", DEFAULT_MAX_AHEAD);
	read_format(&result->format, table->options, rel);
	return result;
}

char *
sx_kafka_topic(Oid relid)
{
	const char *topic = find_option(GetForeignTable(relid)->options, "topic");

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
