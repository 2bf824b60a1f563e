/*
 * json_scan.h
 *		A fast scanner for JSON objects that knows when it is not sure.
 *
 * Needs nothing of PostgreSQL, so that a fuzzer can drive it. Inside of module decode.
 */
#ifndef STREAM_EXT_DECODE_JSON_SCAN_H
#define STREAM_EXT_DECODE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum SxJsonKind
{
	SX_JSON_ABSENT,
	SX_JSON_NULL,
	SX_JSON_TRUE,
	SX_JSON_FALSE,
	SX_JSON_NUMBER,
	SX_JSON_STRING,  /* without escapes */
	SX_JSON_ESCAPED, /* a string with escapes, all of two characters; see sx_json_unescape() */
	SX_JSON_OBJECT,
	SX_JSON_ARRAY
} SxJsonKind;

/* What is known of a number. */
#define SX_NUMBER_NEGATIVE 0x01 /* begins with a minus sign */
#define SX_NUMBER_FRACTION 0x02 /* has a decimal point */
#define SX_NUMBER_EXPONENT 0x04 /* has an exponent */
#define SX_NUMBER_LONG     0x08 /* too many digits for 'mantissa', which is undefined */

/* Where a value is. Points into the record. */
typedef struct SxJsonSpan
{
	const char *start; /* of a string: behind the quote */
	uint64_t mantissa; /* a number is mantissa * 10 ^ exponent */
	uint32_t len;      /* bytes */
	int16_t exponent;
	uint8_t kind; /* SxJsonKind */
	uint8_t number;
} SxJsonSpan;

/* A key that is looked for in the objects. */
typedef struct SxJsonKey
{
	const char *name;
	uint32_t len;
} SxJsonKey;

/* A step of a path into a value. */
typedef struct SxJsonStep
{
	const char *key; /* NULL: 'index' */
	uint32_t len;
	uint32_t index;
} SxJsonStep;

typedef struct SxJsonScanner SxJsonScanner;

/* Bytes, aligned as malloc does, that a scanner for so many keys takes. */
extern size_t sx_json_scanner_size(int nkeys);

/*
 * Makes a scanner in 'memory'. 'keys' are different from each other (if 'ignore_case', also
 * without regard to case) and must outlive it. Case is that of ASCII letters.
 */
extern SxJsonScanner *sx_json_scanner_init(void *memory, const SxJsonKey *keys, int nkeys,
										   bool ignore_case);

/*
 * Finds the keys at the top level of a JSON object: spans[i] is what keys[i] has last, or is of kind
 * SX_JSON_ABSENT. spans[nkeys] is scratch. The text has to be valid UTF-8, which is not looked at.
 *
 * True: 'p' is one valid JSON object, which jsonb would take. False: it may be one or not; ask a
 * full parser. The scanner is never sure about \u escapes, escapes in keys, very long or large
 * numbers, deep nesting, and, where case is ignored, keys that occur twice.
 *
 * It remembers the order of the keys and expects the same order of the next object. What it returns
 * does not depend on that.
 */
extern bool sx_json_scan(SxJsonScanner *scanner, const char *p, size_t len, SxJsonSpan *spans);

/*
 * Follows a path from a value that sx_json_scan() has found. *to is of kind SX_JSON_ABSENT if it
 * leads nowhere. False: not sure, as above.
 */
extern bool sx_json_find(const SxJsonSpan *from, const SxJsonStep *steps, int nsteps,
						 bool ignore_case, SxJsonSpan *to);

/* Is the text a JSON number that the scanner would be sure about? Then fills in *span. */
extern bool sx_json_number(const char *p, size_t len, SxJsonSpan *span);

/* Writes out a value of kind SX_JSON_ESCAPED, at most span->len bytes. Returns their number. */
extern size_t sx_json_unescape(const SxJsonSpan *span, char *out);

/* Are two keys of this length the same? */
extern bool sx_json_same_key(const char *a, const char *b, size_t len, bool ignore_case);

/* Does the text nest arrays and objects deeper than 'max'? Right for valid JSON. */
extern bool sx_json_deeper(const char *p, size_t len, int max);

/* Is it all ASCII? Is it valid UTF-8, by the rules of PostgreSQL, but for bytes that are 0? */
extern bool sx_ascii(const char *p, size_t len);
extern bool sx_utf8_valid(const char *p, size_t len);

#endif /* STREAM_EXT_DECODE_JSON_SCAN_H */
