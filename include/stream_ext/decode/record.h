/*
 * record.h
 *		A record of a topic as bytes, before it is decoded. Needs nothing of PostgreSQL.
 */
#ifndef STREAM_EXT_DECODE_RECORD_H
#define STREAM_EXT_DECODE_RECORD_H

#include <stdint.h>

/*
 * Points into memory of whoever filled it in. Headers are a run of
 *		int32 name length, name, int32 value length (-1: NULL), value
 * in native byte order, unaligned.
 */
typedef struct SxRecord
{
	int64_t offset;
	int64_t timestamp; /* ms since 1970; -1: none */
	int32_t partition;
	int32_t nheaders;
	int32_t headers_len; /* bytes */
	int32_t key_len;     /* -1: NULL */
	int32_t value_len;   /* -1: NULL, a tombstone */
	const char *headers;
	const char *key;
	const char *value;
} SxRecord;

#endif /* STREAM_EXT_DECODE_RECORD_H */
