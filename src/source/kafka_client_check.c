/*
 * kafka_client_check.c
 *		Asks librdkafka about the value of a property, without a client.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <ctype.h>

#include "kafka_client_private.h"

char *
sx_kafka_client_complaint(const char *name, const char *value)
{
	char message[512];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_conf_res_t result = rd_kafka_conf_set(conf, name, value, message, sizeof(message));

	rd_kafka_conf_destroy(conf);
	if (result == RD_KAFKA_CONF_OK)
		return NULL;
	/* some end with a line break */
	for (size_t len = strlen(message); len > 0 && isspace((unsigned char) message[len - 1]);)
		message[--len] = '\0';
	return pstrdup(message);
}
