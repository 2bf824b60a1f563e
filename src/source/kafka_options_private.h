/*
 * kafka_options_private.h
 *		Inside of the options of wrapper "kafka": what an option may be, and what its value means.
 */
#ifndef STREAM_EXT_SOURCE_KAFKA_OPTIONS_PRIVATE_H
#define STREAM_EXT_SOURCE_KAFKA_OPTIONS_PRIVATE_H

#include "stream_ext/source/kafka_options.h"

/* Before the name of a property of librdkafka. */
#define SX_PROPERTY_PREFIX "kafka."

/* What an option may be set on. */
#define SX_ON_SERVER  1
#define SX_ON_MAPPING 2
#define SX_ON_TABLE   4
#define SX_ON_COLUMN  8

typedef struct SxKafkaOptionDefinition
{
	const char *name; /* of a property without the prefix */
	int targets;
	bool is_file; /* names a file on this server */
} SxKafkaOptionDefinition;

/* ---- kafka_validate.c */

/* NULL: there is no such option. */
extern const SxKafkaOptionDefinition *sx_kafka_option_definition(const char *name);
extern bool sx_kafka_is_property(const char *name);

/* Value of an option in a list of DefElem; NULL: it is not there. */
extern const char *sx_kafka_option_find(List *list, const char *name);

/* May this role use what belongs to the user of the operating system that the server runs as? */
extern bool sx_kafka_may_use_server(Oid role);

/* Errors of all: FDW_INVALID_ATTRIBUTE_VALUE. */
extern SxFormatKind sx_kafka_parse_format(const char *value);
extern bool sx_kafka_parse_case(const char *value);
extern bool sx_kafka_parse_on_gap(const char *value);
extern SxKafkaStart sx_kafka_parse_start(const char *value, int64 *time);
extern SxColumnOrigin sx_kafka_parse_meta(const char *value);

#endif /* STREAM_EXT_SOURCE_KAFKA_OPTIONS_PRIVATE_H */
