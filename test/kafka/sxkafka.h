/*
 * sxkafka.h
 *		What the parts of the program sxkafka share. See sxkafka.c.
 */
#ifndef SXKAFKA_H
#define SXKAFKA_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <librdkafka/rdkafka.h>

/* How long anything may take that the broker answers at once when it is well, in milliseconds. */
#define SX_TIMEOUT 30000

typedef enum SxEnding
{
	SX_ENDING_NONE, /* no transaction */
	SX_ENDING_COMMIT,
	SX_ENDING_ABORT,
	SX_ENDING_OPEN /* left as it is when the process ends */
} SxEnding;

typedef struct SxOptions
{
	const char *topic;
	const char *transactional_id;
	/* produce */
	SxEnding ending;
	bool idempotent;
	/* load */
	int64_t records; /* 0: until a signal */
	int64_t first;   /* id of the first one */
	int64_t seed;
	int64_t partitions;
	int64_t keys;
	int64_t rate;   /* records a second; 0: as fast as can be */
	double aborted; /* transactions that are aborted, as a fraction of those committed */
	int64_t batch;  /* records in a transaction */
	int64_t jitter; /* ms; event times lie up to this far behind their order */
	bool now;       /* event times are those of the clock */
	int64_t progress;
	/* consume */
	bool uncommitted;
	bool count;
	int64_t partition; /* -1: all */
	int64_t from;      /* offset; -1: the first one */
} SxOptions;

/* Set by SIGTERM and SIGINT. */
extern volatile sig_atomic_t sx_stopped;

extern void sx_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
extern rd_kafka_t *sx_client(rd_kafka_type_t type, rd_kafka_conf_t *conf);
extern rd_kafka_conf_t *sx_conf(const char *const *settings);
extern int sx_partition_count(rd_kafka_t *rk, const char *topic);
extern int64_t sx_clock_us(clockid_t clock);

extern int sx_produce(const SxOptions *options);
extern int sx_load(const SxOptions *options);
extern int sx_consume(const SxOptions *options);

#endif /* SXKAFKA_H */
