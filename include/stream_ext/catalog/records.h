/*
 * records.h
 *		What is kept about records of topics that are in no row: dead letters and gaps.
 */
#ifndef STREAM_EXT_CATALOG_RECORDS_H
#define STREAM_EXT_CATALOG_RECORDS_H

#include "datatype/timestamp.h"

/* A record that could not be made a row. */
typedef struct SxDeadLetter
{
	Oid source;
	const char *topic;
	int32 partition;
	int64 offset;
	int sqlerrcode;
	const char *message;
	bool has_timestamp;
	TimestampTz timestamp;
	const char *key; /* NULL: none */
	int key_len;
	const char *value; /* NULL: none */
	int value_len;
} SxDeadLetter;

/*
 * Notes a dead letter, unless that record is there already, with the same contents, from another
 * view or an earlier run. Returns true if it was new. In a transaction; runs none of the user's code.
 */
extern bool sx_catalog_dead_letter_add(const SxDeadLetter *letter);

/* Deletes dead letters of a source that were noted before 'before'; how many. */
extern int64 sx_catalog_dead_letters_delete(Oid source, TimestampTz before);

/* Notes that records from_offset up to, without, to_offset were gone before a view had read them. */
extern void sx_catalog_gap_add(Oid view, Oid source, const char *topic, int32 partition,
							   int64 from_offset, int64 to_offset);

/* Deletes all about a source, or a view, that is being dropped; a view also that is built anew. */
extern void sx_catalog_dead_letters_drop(Oid source);
extern void sx_catalog_gaps_drop(Oid view);

#endif /* STREAM_EXT_CATALOG_RECORDS_H */
