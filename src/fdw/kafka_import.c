/*
 * kafka_import.c
 *		Foreign data wrapper "kafka": IMPORT FOREIGN SCHEMA.
 *
 * A cluster has topics and no schemas, so the name of the remote schema does not matter. What is in
 * the records is not known either; the tables show them as they are, and whoever wants columns makes
 * a table of his own. Topics of Kafka itself, whose names begin with two underscores, are left out
 * unless they are asked for. Their names are ASCII, and can be longer than those of tables.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "stream_ext/fdw/fdw.h"
#include "stream_ext/source/kafka_client.h"

/* ms that brokers are given to answer. */
#define ANSWER_MS 10000

/* Name of the table of a topic: as much of the topic's as fits. */
static char *
table_name(const char *topic)
{
	return pnstrdup(topic, NAMEDATALEN - 1);
}

static bool
is_wanted(const char *topic, ImportForeignSchemaStmt *stmt)
{
	if (stmt->list_type != FDW_IMPORT_SCHEMA_LIMIT_TO && strncmp(topic, "__", 2) == 0)
		return false;
	/* names in the statement are as long as those of tables */
	return IsImportableForeignTable(table_name(topic), stmt);
}

/* Topics may differ only behind what fits into the name of a table. */
static void
check_clash(List *topics, const char *topic)
{
	ListCell *lc;

	foreach(lc, topics)
		if (strncmp(lfirst(lc), topic, NAMEDATALEN - 1) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_TABLE),
					 errmsg("topics \"%s\" and \"%s\" would be the same table \"%s\"",
							(char *) lfirst(lc), topic, table_name(topic)),
					 errhint("Leave it out with EXCEPT, and create tables for them by hand.")));
}

static char *
make_command(const char *topic, ImportForeignSchemaStmt *stmt)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf,
					 "CREATE FOREIGN TABLE %s (\n"
					 "\tpartition integer OPTIONS (meta 'partition'),\n"
					 "\t\"offset\" bigint OPTIONS (meta 'offset'),\n"
					 "\t\"timestamp\" timestamp with time zone OPTIONS (meta 'timestamp'),\n"
					 "\tkey bytea OPTIONS (meta 'key'),\n"
					 "\theaders jsonb OPTIONS (meta 'headers'),\n"
					 "\tvalue bytea\n"
					 ") SERVER %s OPTIONS (topic %s, format 'raw')",
					 quote_identifier(table_name(topic)), quote_identifier(stmt->server_name),
					 quote_literal_cstr(topic));
	return buf.data;
}

List *
sx_fdw_import(ImportForeignSchemaStmt *stmt, Oid server)
{
	SxKafkaOptions *options = sx_kafka_server_options(server, GetUserId());
	SxKafkaClient *client;
	List *commands = NIL;
	List *wanted = NIL;
	List *npartitions;
	List *topics;
	bool ok;
	ListCell *lc;

	if (stmt->options != NIL)
		ereport(ERROR, (errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
						errmsg("IMPORT FOREIGN SCHEMA has no options for wrapper kafka")));
	client = sx_kafka_client_open(options, 1024);
	PG_TRY();
	{
		topics = sx_kafka_client_topics(client, &npartitions, &ok, ANSWER_MS);
		if (!ok)
			ereport(ERROR, (errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
							errmsg("could not list the topics of server \"%s\"", stmt->server_name),
							errdetail_internal("%s", sx_kafka_client_status(client)->message)));
		foreach(lc, topics)
		{
			if (!is_wanted(lfirst(lc), stmt))
				continue;
			check_clash(wanted, lfirst(lc));
			wanted = lappend(wanted, lfirst(lc));
			commands = lappend(commands, make_command(lfirst(lc), stmt));
		}
	}
	PG_FINALLY();
	{
		sx_kafka_client_close(client);
	}
	PG_END_TRY();
	return commands;
}
