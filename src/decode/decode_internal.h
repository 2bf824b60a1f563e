/*
 * decode_internal.h
 *		What the files of module decode share.
 */
#ifndef STREAM_EXT_DECODE_DECODE_INTERNAL_H
#define STREAM_EXT_DECODE_DECODE_INTERNAL_H

#include "executor/execdesc.h"
#include "executor/tuptable.h"
#include "utils/jsonb.h"
#include "utils/resowner.h"

#include "stream_ext/decode/decode.h"
#include "json_scan.h"

/* Longer values are left to general.c, as an allocation of their size may fail. */
#define SX_MAX_FAST_LEN (64 * 1024 * 1024)

/* How convert.c makes values of a column without calling anything that can fail. */
typedef enum SxConversion
{
	SX_CONVERT_GENERAL, /* not at all */
	SX_CONVERT_INT2,
	SX_CONVERT_INT4,
	SX_CONVERT_INT8,
	SX_CONVERT_FLOAT4,
	SX_CONVERT_FLOAT8,
	SX_CONVERT_BOOL,
	SX_CONVERT_TEXT, /* varchar too */
	SX_CONVERT_NUMERIC,
	SX_CONVERT_TIMESTAMPTZ,
	SX_CONVERT_TIMESTAMP,
	SX_CONVERT_DATE,
	SX_CONVERT_UUID
} SxConversion;

typedef struct SxColumn
{
	const char *name;
	AttrNumber attno;
	Oid type;
	int32 typmod;
	int16 typlen;
	bool by_value;
	bool is_dropped;
	bool not_null;
	bool checks_null; /* a domain: NULL goes through its input function, too */
	bool is_nested;   /* from JSON: array, row, json or jsonb, also as a domain */
	bool is_bytes;    /* raw, key: bytea, also as a domain; takes bytes as they are */
	SxColumnOrigin origin;
	SxConversion conversion;

	/* JSON: index in the decoder's keys, and the way from there on */
	int key;
	int nsteps;
	SxJsonStep *steps;

	/* the present record: where the value is; a value of CSV, raw or key is a string or null */
	const SxJsonSpan *span;
	SxJsonSpan own_span;
	bool is_pending; /* has to be made by general.c */
	bool in_scratch; /* the value is by reference, and not in 'target' */

	/* of one sx_decode(): where convert.c puts what is by reference; NULL: nobody wants it */
	MemoryContext target;

	/* convert.c: the last date seen, and its midnight */
	char date[10];
	int64 midnight;

	/* general.c: made anew after an error in it */
	bool is_ready;
	MemoryContext input_cxt;
	FmgrInfo input;
	Oid ioparam;
	void *domain_extra;
	TupleDesc populate_desc;
} SxColumn;

typedef struct SxCheck
{
	char *name;
	Node *expr; /* planned */
	bool is_ready;
	MemoryContext cxt;
	ExprState *state;
	ExprContext *econtext;
} SxCheck;

struct SxDecoder
{
	MemoryContext cxt;     /* all of the decoder */
	MemoryContext scratch; /* of one record */
	SxFormatKind kind;
	bool ignore_case;
	char delimiter;
	char quote;
	char escape;
	char *null_string;
	bool takes_utf8; /* texts of the server are UTF-8, or anything */
	Oid owner;       /* of the relation */
	TupleDesc desc;
	int natts;
	SxColumn *columns;
	int nvalue_columns; /* from the value, in the order of attributes */
	SxColumn **value_columns;
	int event_time; /* index of a column, -1: none */
	bool has_not_null;
	int nchecks;
	SxCheck *checks;
	TupleTableSlot *slot;

	/* JSON */
	int nkeys;
	SxJsonKey *keys;
	SxJsonSpan *spans; /* [nkeys + 1] */
	SxJsonScanner *scanner;

	/* the present record */
	const SxRecord *record;
	Datum *values;
	bool *nulls;
	bool is_pending;       /* some column is */
	bool is_whole_pending; /* the value has to be parsed by general.c */
	int dead_code;         /* 0: it lives */
	char *dead_message;    /* in the context of the batch, or constant */

	/* what runs at the moment, for the message of an error */
	SxColumn *running_column;
	SxCheck *running_check;

	/* of one sx_decode() */
	SxBatch *batch;
	MemoryContext caller_cxt;

	/* protect.c */
	bool in_frame;
	bool in_subtransaction;
	int nest_level;
	Oid saved_user;
	int saved_context;
	ResourceOwner resource_owner;
};

/* format.c: the steps of a JSON path; the first one is a key. Error if it is none. */
extern int sx_json_path_parse(const char *path, const char *column, SxJsonStep **steps);

/* convert.c: finds the way for a type. */
extern SxConversion sx_conversion_of(Oid type, int32 typmod, bool by_value);

/* Makes the value of a column from its span, never fails. False: not sure, ask general.c. */
extern bool sx_convert(SxColumn *column, const SxJsonSpan *span, Datum *value);

/* general.c: makes the values that are pending. To be run by sx_protect_run(). */
extern void sx_general_values(SxDecoder *decoder);

/* A copy of UTF-8 text in the server's encoding, terminated. Error if it cannot be. */
extern char *sx_server_text(const char *text, int len);

/* Kills the record if the span of its value is not one line; else sets the columns' spans. */
extern void sx_csv_split(SxDecoder *decoder, const char *text, size_t len);

/* meta.c: value of a column that is not from the value or key. May kill the record. */
extern void sx_meta_value(SxDecoder *decoder, SxColumn *column);

/* constraint.c */
extern void sx_constraints_init(SxDecoder *decoder, Relation rel);
/* Kills the record if a column is NULL that must not be, or the event time is not finite. */
extern void sx_constraints_columns(SxDecoder *decoder);
/* Fails if a CHECK constraint does not hold. To be run by sx_protect_run(). */
extern void sx_constraints_checks(SxDecoder *decoder);

/* protect.c: runs code that may fail. False: the record was killed. */
extern bool sx_protect_run(SxDecoder *decoder, void (*step)(SxDecoder *decoder));
/* Ends what sx_protect_run() has left open, to spare work. */
extern void sx_protect_end(SxDecoder *decoder);
/* The same in a PG_CATCH block; never returns. */
extern void sx_protect_rethrow(SxDecoder *decoder);
/* Runs code as the owner of the relation, outside of sx_decode(). */
extern void sx_protect_as_owner(SxDecoder *decoder, void (*step)(SxDecoder *decoder));

/* Kills the record. The message may hold anything; it is made valid and short. */
extern void sx_kill(SxDecoder *decoder, int sqlerrcode, const char *format, ...)
	pg_attribute_printf(3, 4);

#endif /* STREAM_EXT_DECODE_DECODE_INTERNAL_H */
