/*
 * decode.h
 *		From records to rows: JSON, CSV and raw.
 */
#ifndef STREAM_EXT_DECODE_DECODE_H
#define STREAM_EXT_DECODE_DECODE_H

#include "access/tupdesc.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "stream_ext/batch/batch.h"
#include "stream_ext/decode/record.h"

typedef enum SxFormatKind
{
	SX_FORMAT_JSON,
	SX_FORMAT_CSV,
	SX_FORMAT_RAW
} SxFormatKind;

/* What a column is taken from. */
typedef enum SxColumnOrigin
{
	SX_FROM_VALUE,
	SX_FROM_PARTITION, /* integer or bigint */
	SX_FROM_OFFSET,    /* bigint */
	SX_FROM_TIMESTAMP, /* timestamptz, timestamp (UTC) or bigint (ms) */
	SX_FROM_KEY,       /* bytea, or what its input function makes of the text */
	SX_FROM_HEADERS    /* jsonb */
} SxColumnOrigin;

typedef struct SxColumnFormat
{
	SxColumnOrigin origin;
	char *name;      /* JSON: key in the object, NULL: the column's name */
	char *json_path; /* JSON: '$.a.b[0]' instead of a key; NULL: none */
} SxColumnFormat;

typedef struct SxFormat
{
	SxFormatKind kind;
	bool ignore_case; /* JSON: keys are compared without regard to case */
	char delimiter;   /* CSV, as those of COPY */
	char quote;
	char escape;
	char *null_string;
	int natts;
	SxColumnFormat *columns; /* [natts], dropped columns too */
	AttrNumber event_time;   /* must be finite and not NULL; 0: none */
} SxFormat;

typedef struct SxDecoder SxDecoder;

/* A record that cannot be a row. */
typedef struct SxDeadRecord
{
	const SxRecord *record;
	int sqlerrcode;
	char *message; /* in the memory context of the batch */
} SxDeadRecord;

/* What became of the records of one sx_decode(). */
typedef struct SxDecodeResult
{
	int ntombstones; /* records without a value that were left out */
	List *dead;      /* SxDeadRecord *, in the memory context of the batch */
	/* of each row of the batch that was added, from the batch's nrows before the call on: */
	int record[SX_BATCH_ROWS];       /* index of its record */
	int64 event_time[SX_BATCH_ROWS]; /* us as timestamptz has them; without one: 0 */
} SxDecodeResult;

/*
 * Does the format fit the columns? Raises what is wrong: two origins for a column, a type that its
 * origin cannot have, a JSON path that is none, raw with more than one column from the value ..
 */
extern PGDLLEXPORT void sx_format_check(const SxFormat *format, TupleDesc desc,
										const char *relname);

/* Is there a column of that origin? */
extern PGDLLEXPORT bool sx_format_has(const SxFormat *format, SxColumnOrigin origin);

/*
 * Makes a decoder for rows of 'rel', whose NOT NULL and CHECK constraints are conditions for a
 * record to be a row. Lives in the current memory context and does not need the relation, which
 * must not change, later on. sx_format_check() is done here, too.
 */
extern PGDLLEXPORT SxDecoder *sx_decoder_create(Relation rel, const SxFormat *format);
extern PGDLLEXPORT void sx_decoder_free(SxDecoder *decoder);

/*
 * Decodes records and appends the rows to the batch, which has room for that many. All columns are
 * decoded, so that what is a row depends on the record alone; those that the batch does not want
 * are thrown away. Never fails for the contents of a record: it becomes a dead one. Input functions,
 * domains and constraints run as the owner of the relation, in a security-restricted context, with
 * settings of their own (time zone UTC, ISO dates), in subtransactions: of any number of records
 * without errors one. In a transaction, with an active snapshot; adds the length of the records to
 * batch->bytes. Errors: what is no fault of a record, such as cancellation or lack of memory.
 */
extern PGDLLEXPORT void sx_decode(SxDecoder *decoder, const SxRecord *records, int nrecords,
								  SxBatch *batch, SxDecodeResult *result);

#endif /* STREAM_EXT_DECODE_DECODE_H */
