/*
 * kafka_validate.c
 *		Which options wrapper "kafka" has, and whether their values are good.
 *
 * Options of a foreign server can be read by everybody, so whatever is secret is accepted in a user
 * mapping only, and messages show no values of it.
 *
 * Properties of librdkafka are "kafka.<name>", from a list of those that are allowed. What is not in
 * it is either needed to be what it is (offsets, isolation, queues), or runs code: plugins, engines,
 * token handlers, and the command that fetches Kerberos tickets, into which librdkafka also puts
 * keytab and principal as they are.
 *
 * Some options make the database server use what its own user of the operating system has: files
 * that are named, and tickets with mechanism GSSAPI. Only a superuser or a member of
 * pg_read_server_files may use them. That is asked twice: here of whoever writes the option, and, each
 * time it is used, of the foreign server's owner, because a server can be given to somebody else.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_attribute.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "stream_ext/catalog/options.h"
#include "stream_ext/source/kafka_client.h"

#include "kafka_options_private.h"

static const SxKafkaOptionDefinition options[] = {
	{"bootstrap_servers", SX_ON_SERVER},
	{"user", SX_ON_MAPPING},
	{"password", SX_ON_MAPPING},
	{"topic", SX_ON_TABLE},
	{"format", SX_ON_TABLE},
	{"case", SX_ON_TABLE},
	{"delimiter", SX_ON_TABLE},
	{"quote", SX_ON_TABLE},
	{"escape", SX_ON_TABLE},
	{"null", SX_ON_TABLE},
	{"start", SX_ON_TABLE},
	{"on_gap", SX_ON_TABLE},
	{"event_time", SX_ON_TABLE},
	{"watermark_delay", SX_ON_TABLE},
	{"idle_timeout", SX_ON_TABLE},
	{"max_ahead", SX_ON_TABLE},
	{"name", SX_ON_COLUMN},
	{"json_path", SX_ON_COLUMN},
	{"meta", SX_ON_COLUMN},
};

/* Properties of librdkafka, without the prefix. */
static const SxKafkaOptionDefinition properties[] = {
	{"api.version.request.timeout.ms", SX_ON_SERVER},
	{"broker.address.family", SX_ON_SERVER},
	{"broker.address.ttl", SX_ON_SERVER},
	{"client.id", SX_ON_SERVER | SX_ON_MAPPING},
	{"client.rack", SX_ON_SERVER},
	{"connections.max.idle.ms", SX_ON_SERVER},
	{"enable.ssl.certificate.verification", SX_ON_SERVER},
	{"fetch.error.backoff.ms", SX_ON_SERVER},
	{"fetch.max.bytes", SX_ON_SERVER},
	{"fetch.message.max.bytes", SX_ON_SERVER},
	{"fetch.min.bytes", SX_ON_SERVER},
	{"fetch.wait.max.ms", SX_ON_SERVER},
	{"max.in.flight.requests.per.connection", SX_ON_SERVER},
	{"metadata.max.age.ms", SX_ON_SERVER},
	{"receive.message.max.bytes", SX_ON_SERVER},
	{"reconnect.backoff.max.ms", SX_ON_SERVER},
	{"reconnect.backoff.ms", SX_ON_SERVER},
	{"sasl.kerberos.service.name", SX_ON_SERVER},
	{"sasl.mechanism", SX_ON_SERVER},
	{"sasl.mechanisms", SX_ON_SERVER},
	{"sasl.password", SX_ON_MAPPING},
	{"sasl.username", SX_ON_MAPPING},
	{"security.protocol", SX_ON_SERVER},
	{"socket.connection.setup.timeout.ms", SX_ON_SERVER},
	{"socket.keepalive.enable", SX_ON_SERVER},
	{"socket.max.fails", SX_ON_SERVER},
	{"socket.nagle.disable", SX_ON_SERVER},
	{"socket.receive.buffer.bytes", SX_ON_SERVER},
	{"socket.send.buffer.bytes", SX_ON_SERVER},
	{"socket.timeout.ms", SX_ON_SERVER},
	{"ssl.ca.location", SX_ON_SERVER, true},
	{"ssl.ca.pem", SX_ON_SERVER},
	{"ssl.certificate.location", SX_ON_SERVER, true},
	{"ssl.certificate.pem", SX_ON_SERVER | SX_ON_MAPPING},
	{"ssl.cipher.suites", SX_ON_SERVER},
	{"ssl.crl.location", SX_ON_SERVER, true},
	{"ssl.curves.list", SX_ON_SERVER},
	{"ssl.endpoint.identification.algorithm", SX_ON_SERVER},
	{"ssl.key.location", SX_ON_SERVER, true},
	{"ssl.key.password", SX_ON_MAPPING},
	{"ssl.key.pem", SX_ON_MAPPING},
	{"ssl.keystore.location", SX_ON_SERVER, true},
	{"ssl.keystore.password", SX_ON_MAPPING},
	{"ssl.sigalgs.list", SX_ON_SERVER},
	{"topic.metadata.propagation.max.ms", SX_ON_SERVER},
	{"topic.metadata.refresh.fast.interval.ms", SX_ON_SERVER},
	{"topic.metadata.refresh.interval.ms", SX_ON_SERVER},
};

bool
sx_kafka_is_property(const char *name)
{
	return strncmp(name, SX_PROPERTY_PREFIX, strlen(SX_PROPERTY_PREFIX)) == 0;
}

const SxKafkaOptionDefinition *
sx_kafka_option_definition(const char *name)
{
	if (sx_kafka_is_property(name))
	{
		for (int i = 0; i < lengthof(properties); i++)
			if (strcmp(properties[i].name, name + strlen(SX_PROPERTY_PREFIX)) == 0)
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
		case SX_ON_SERVER:
			return "a server";
		case SX_ON_MAPPING:
			return "a user mapping";
		case SX_ON_TABLE:
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
	if ((target & (SX_ON_SERVER | SX_ON_MAPPING)) != 0)
		appendStringInfoString(&buf, ", and properties of librdkafka as \"kafka.<name>\"");
	appendStringInfoChar(&buf, '.');
	return buf.data;
}

static void
refuse_option(const char *name, int target)
{
	const SxKafkaOptionDefinition *definition = sx_kafka_option_definition(name);

	if (definition == NULL && sx_kafka_is_property(name))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("property \"%s\" cannot be set", name + strlen(SX_PROPERTY_PREFIX)),
				 errdetail("It is none of librdkafka, or one that stream_ext sets itself, or "
						   "one that would run code."),
				 errhint("docs/reference-kafka.md lists those that can be set.")));
	if (definition == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("unrecognized option \"%s\"", name), errhint("%s", list_options(target))));
	if (definition->targets == SX_ON_MAPPING)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("option \"%s\" cannot be set on %s", name, target_noun(target)),
						errhint("Use CREATE USER MAPPING: its options are not shown to others.")));
	ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					errmsg("option \"%s\" cannot be set on %s", name, target_noun(target)),
					errhint("%s", list_options(target))));
}

/* May this role have the server read files? */
bool
sx_kafka_may_use_server(Oid role)
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

SxFormatKind
sx_kafka_parse_format(const char *value)
{
	if (strcmp(value, "json") == 0)
		return SX_FORMAT_JSON;
	if (strcmp(value, "csv") == 0)
		return SX_FORMAT_CSV;
	if (strcmp(value, "raw") != 0)
		refuse_value("format", value, "Formats are json, csv and raw.");
	return SX_FORMAT_RAW;
}

bool
sx_kafka_parse_case(const char *value)
{
	if (strcmp(value, "insensitive") == 0)
		return true;
	if (strcmp(value, "sensitive") != 0)
		refuse_value("case", value, "Values are sensitive and insensitive.");
	return false;
}

bool
sx_kafka_parse_on_gap(const char *value)
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
SxKafkaStart
sx_kafka_parse_start(const char *value, int64 *time)
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

SxColumnOrigin
sx_kafka_parse_meta(const char *value)
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
		(void) sx_kafka_parse_format(value);
	else if (strcmp(name, "case") == 0)
		(void) sx_kafka_parse_case(value);
	else if (strcmp(name, "delimiter") == 0 || strcmp(name, "quote") == 0 ||
			 strcmp(name, "escape") == 0)
		check_character(name, value);
	else if (strcmp(name, "start") == 0)
		(void) sx_kafka_parse_start(value, &time);
	else if (strcmp(name, "on_gap") == 0)
		(void) sx_kafka_parse_on_gap(value);
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
		(void) sx_kafka_parse_meta(value);
}

const char *
sx_kafka_option_find(List *list, const char *name)
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

/* Mechanisms that need no code of ours. */
static void
check_mechanism(const char *name, const char *value)
{
	static const char *const mechanisms[] = {"GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"};
	bool is_known = false;

	for (int i = 0; i < lengthof(mechanisms); i++)
		is_known |= strcmp(mechanisms[i], value) == 0;
	if (!is_known)
		refuse_value(name, value, "Values are GSSAPI, PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.");
	if (strcmp(value, "GSSAPI") == 0 && !sx_kafka_may_use_server(GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set option \"%s\" to \"%s\"", name, value),
				 errdetail("It uses the Kerberos tickets of the database server."),
				 errhint("Only a superuser or a member of pg_read_server_files can set it.")));
}

/* Asks librdkafka, whose complaints have the value in them. */
static void
check_property(const char *option, const char *value, const SxKafkaOptionDefinition *definition)
{
	char *complaint;

	if (strncmp(definition->name, "sasl.mechanism", strlen("sasl.mechanism")) == 0)
		check_mechanism(option, value);
	complaint = sx_kafka_client_complaint(definition->name, value);
	if (complaint == NULL)
		return;
	if ((definition->targets & SX_ON_MAPPING) != 0)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
						errmsg("invalid value for option \"%s\"", option)));
	ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
					errmsg("invalid value for option \"%s\": \"%s\"", option, value),
					errdetail("%s.", complaint)));
}

/* Of two names for the same the last one would win. */
static void
refuse_both(List *list, const char *one, const char *other)
{
	if (sx_kafka_option_find(list, one) != NULL && sx_kafka_option_find(list, other) != NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("options \"%s\" and \"%s\" are the same", one, other),
						errhint("Give one of them.")));
}

/* What must be there, and what cannot be there together. */
static void
check_together(List *list, int target)
{
	bool is_csv;

	if (target == SX_ON_SERVER && sx_kafka_option_find(list, "bootstrap_servers") == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
						errmsg("option \"bootstrap_servers\" is required for a server of wrapper "
							   "kafka")));
	if (target == SX_ON_COLUMN && list_length(list) > 1)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("a column can have only one of the options name, json_path and "
							   "meta")));
	if (target == SX_ON_MAPPING)
	{
		refuse_both(list, "user", SX_PROPERTY_PREFIX "sasl.username");
		refuse_both(list, "password", SX_PROPERTY_PREFIX "sasl.password");
	}
	if (target == SX_ON_SERVER)
		refuse_both(list, SX_PROPERTY_PREFIX "sasl.mechanism",
					SX_PROPERTY_PREFIX "sasl.mechanisms");
	if (target != SX_ON_TABLE)
		return;
	if (sx_kafka_option_find(list, "topic") == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND),
						errmsg("option \"topic\" is required for a foreign table of wrapper "
							   "kafka")));
	if (sx_kafka_option_find(list, "watermark_delay") != NULL &&
		sx_kafka_option_find(list, "event_time") == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("option \"watermark_delay\" needs \"event_time\"")));
	is_csv = sx_kafka_option_find(list, "format") != NULL &&
			 strcmp(sx_kafka_option_find(list, "format"), "csv") == 0;
	if (!is_csv &&
		(sx_kafka_option_find(list, "delimiter") || sx_kafka_option_find(list, "quote") ||
		 sx_kafka_option_find(list, "escape") || sx_kafka_option_find(list, "null")))
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
			target = SX_ON_SERVER;
			break;
		case UserMappingRelationId:
			target = SX_ON_MAPPING;
			break;
		case ForeignTableRelationId:
			target = SX_ON_TABLE;
			break;
		case AttributeRelationId:
			target = SX_ON_COLUMN;
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
		const SxKafkaOptionDefinition *definition = sx_kafka_option_definition(def->defname);

		if (definition == NULL || (definition->targets & target) == 0)
			refuse_option(def->defname, target);
		if (definition->is_file && !sx_kafka_may_use_server(GetUserId()))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to set option \"%s\"", def->defname),
					 errdetail("It names a file on the database server."),
					 errhint("Only a superuser or a member of pg_read_server_files can set it.")));
		if (sx_kafka_is_property(def->defname))
			check_property(def->defname, defGetString(def), definition);
		else
			check_value(def->defname, defGetString(def));
	}
	check_together(list, target);
}
