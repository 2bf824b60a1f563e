/*
 * json_fuzz.c
 *		Drives the JSON scanner with any bytes: libFuzzer, AddressSanitizer, UBSan.
 *
 * What is checked of each input:
 *  - nothing outside of it is read (it is copied to a block of its own size), spans lie within it;
 *  - what the scanner accepts, a validator accepts that was written here from RFC 8259 and the rules
 *    of jsonb, without a look at the scanner; and its values are those that the validator saw;
 *  - it is sure about what is valid and has nothing rare in it;
 *  - prediction changes nothing: neither that of the object before, nor that of the object itself,
 *    nor none;
 *  - a path leads to what it leads to in the validator's view, or the scanner is not sure;
 *  - the check of UTF-8 agrees with one that decodes code points.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_scan.h"

#define check(condition)                                                              \
	do                                                                                \
	{                                                                                 \
		if (!(condition))                                                             \
		{                                                                             \
			fprintf(stderr, "%s:%d: violated: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                  \
		}                                                                             \
	} while (0)

static const SxJsonKey keys[] = {{"a", 1},        {"bb", 2},
								 {"id", 2},       {"", 0},
								 {"x y", 3},      {"timestamp", 9},
								 {"\xc3\xa9", 2}, {"a_key_that_is_longer_than_sixteen", 33}};

#define NKEYS ((int) (sizeof(keys) / sizeof(keys[0])))

/*
 * ---- the validator: recursive descent, one character at a time
 */

typedef struct Validator
{
	const unsigned char *start;
	size_t len;
	size_t at;
	int depth;
	bool is_rare;              /* has what the scanner may leave to the full parser */
	size_t found_start[NKEYS]; /* of values at the top level; the last one of a key */
	size_t found_end[NKEYS];   /* 0: none */
} Validator;

static int
peek(const Validator *v)
{
	return v->at < v->len ? v->start[v->at] : -1;
}

static void
spaces(Validator *v)
{
	while (peek(v) == ' ' || peek(v) == '\t' || peek(v) == '\n' || peek(v) == '\r')
		v->at++;
}

static int
hex(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* jsonb: no \u0000, surrogates only in pairs. */
static bool
string(Validator *v)
{
	int high = 0;

	if (peek(v) != '"')
		return false;
	for (v->at++;; v->at++)
	{
		int c = peek(v);
		int code = 0;

		if (c < 0x20)
			return false;
		if (c != '\\')
		{
			if (high)
				return false;
			if (c == '"')
				break;
			continue;
		}
		v->at++;
		c = peek(v);
		if (c != 'u')
		{
			if (high || c < 0 || strchr("\"\\/bfnrt", c) == NULL || c == 0)
				return false;
			continue;
		}
		v->is_rare = true;
		for (int i = 0; i < 4; i++)
		{
			v->at++;
			if (hex(peek(v)) < 0)
				return false;
			code = code * 16 + hex(peek(v));
		}
		if (code >= 0xd800 && code < 0xdc00)
		{
			if (high)
				return false;
			high = 1;
			continue;
		}
		if ((code >= 0xdc00 && code < 0xe000) != (high != 0) || code == 0)
			return false;
		high = 0;
	}
	v->at++;
	return true;
}

static bool
digits(Validator *v)
{
	size_t from = v->at;

	while (peek(v) >= '0' && peek(v) <= '9')
		v->at++;
	return v->at > from;
}

static bool
number(Validator *v)
{
	size_t from = v->at;
	size_t exponent;

	if (peek(v) == '-')
		v->at++;
	if (peek(v) == '0')
		v->at++;
	else if (!digits(v))
		return false;
	if (peek(v) == '.')
	{
		v->at++;
		if (!digits(v))
			return false;
	}
	if (peek(v) == 'e' || peek(v) == 'E')
	{
		v->at++;
		if (peek(v) == '+' || peek(v) == '-')
			v->at++;
		exponent = v->at;
		if (!digits(v))
			return false;
		v->is_rare |= v->at - exponent > 3;
	}
	v->is_rare |= v->at - from > 900;
	return true;
}

static bool
word(Validator *v, const char *w)
{
	size_t n = strlen(w);

	if (v->len - v->at < n || memcmp(v->start + v->at, w, n) != 0)
		return false;
	v->at += n;
	return true;
}

static bool value(Validator *v);

/* Index of the key between the quotes at 'from' and the present position, -1: none of them. */
static int
which_key(const Validator *v, size_t from)
{
	for (int i = 0; i < NKEYS; i++)
		if (v->at - from - 2 == keys[i].len &&
			memcmp(v->start + from + 1, keys[i].name, keys[i].len) == 0)
			return i;
	return -1;
}

static bool
container(Validator *v)
{
	bool is_object = peek(v) == '{';
	int close = is_object ? '}' : ']';

	if (++v->depth > 200)
		return false;
	v->is_rare |= v->depth > 64;
	v->at++;
	spaces(v);
	if (peek(v) == close)
	{
		v->at++;
		v->depth--;
		return true;
	}
	for (;;)
	{
		int key = -1;
		size_t from;

		spaces(v);
		if (is_object)
		{
			from = v->at;
			if (!string(v))
				return false;
			if (v->depth == 1)
			{
				key = which_key(v, from);
				v->is_rare |= memchr(v->start + from, '\\', v->at - from) != NULL;
			}
			spaces(v);
			if (peek(v) != ':')
				return false;
			v->at++;
			spaces(v);
		}
		from = v->at;
		if (!value(v))
			return false;
		if (key >= 0)
		{
			v->found_start[key] = from;
			v->found_end[key] = v->at;
		}
		spaces(v);
		if (peek(v) == close)
			break;
		if (peek(v) != ',')
			return false;
		v->at++;
	}
	v->at++;
	v->depth--;
	return true;
}

static bool
value(Validator *v)
{
	switch (peek(v))
	{
		case '{':
		case '[':
			return container(v);
		case '"':
			return string(v);
		case 't':
			return word(v, "true");
		case 'f':
			return word(v, "false");
		case 'n':
			return word(v, "null");
		default:
			return number(v);
	}
}

static bool
validate(Validator *v, const char *text, size_t len)
{
	memset(v, 0, sizeof(*v));
	v->start = (const unsigned char *) text;
	v->len = len;
	spaces(v);
	if (peek(v) != '{' || !container(v))
		return false;
	spaces(v);
	return v->at == len;
}

/* By code points: shortest form, no surrogates, at most 10FFFF. */
static bool
utf8(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *) text;

	for (size_t i = 0; i < len;)
	{
		unsigned code;
		int more;

		if (p[i] < 0x80)
			code = p[i], more = 0;
		else if ((p[i] & 0xe0) == 0xc0)
			code = p[i] & 0x1f, more = 1;
		else if ((p[i] & 0xf0) == 0xe0)
			code = p[i] & 0x0f, more = 2;
		else if ((p[i] & 0xf8) == 0xf0)
			code = p[i] & 0x07, more = 3;
		else
			return false;
		if (len - i <= (size_t) more)
			return false;
		for (int k = 1; k <= more; k++)
		{
			if ((p[i + k] & 0xc0) != 0x80)
				return false;
			code = code << 6 | (p[i + k] & 0x3f);
		}
		if (code < (unsigned[]){0, 0x80, 0x800, 0x10000}[more] || code > 0x10ffff ||
			(code >= 0xd800 && code <= 0xdfff))
			return false;
		i += (size_t) more + 1;
	}
	return true;
}

/*
 * ---- the scanner
 */

typedef struct Scanner
{
	void *memory;
	SxJsonScanner *scanner;
	SxJsonSpan spans[NKEYS + 1];
} Scanner;

static void
open_scanner(Scanner *s, bool ignore_case)
{
	s->memory = malloc(sx_json_scanner_size(NKEYS));
	s->scanner = sx_json_scanner_init(s->memory, keys, NKEYS, ignore_case);
}

static void
check_span(const SxJsonSpan *span, const char *text, size_t len)
{
	if (span->kind == SX_JSON_ABSENT)
		return;
	check(span->start >= text && span->len <= len &&
		  (size_t) (span->start - text) <= len - span->len);
	if (span->kind == SX_JSON_ESCAPED)
	{
		char *out = malloc(span->len + 1);

		check(sx_json_unescape(span, out) < span->len);
		free(out);
	}
}

static void
check_same(const SxJsonSpan *a, const SxJsonSpan *b)
{
	check(a->kind == b->kind);
	if (a->kind == SX_JSON_ABSENT)
		return;
	check(a->start == b->start && a->len == b->len);
	if (a->kind == SX_JSON_NUMBER)
		check(a->number == b->number && a->exponent == b->exponent && a->mantissa == b->mantissa);
}

/* The value of a number by its digits, as a decimal fraction of integers where those fit. */
static void
check_number(const SxJsonSpan *span)
{
	SxJsonSpan again;
	char text[64];
	double got;
	double want;

	check(sx_json_number(span->start, span->len, &again));
	check_same(span, &again);
	if ((span->number & SX_NUMBER_LONG) || span->len >= sizeof(text))
		return;
	memcpy(text, span->start, span->len);
	text[span->len] = '\0';
	want = strtod(text, NULL);
	snprintf(text, sizeof(text), "%s%llue%d", span->number & SX_NUMBER_NEGATIVE ? "-" : "",
			 (unsigned long long) span->mantissa, span->exponent);
	got = strtod(text, NULL);
	check(got == want);
}

static void
check_against_validator(const SxJsonSpan *spans, const Validator *v, const char *text)
{
	for (int i = 0; i < NKEYS; i++)
	{
		bool is_string = spans[i].kind == SX_JSON_STRING || spans[i].kind == SX_JSON_ESCAPED;
		size_t start;

		check((spans[i].kind != SX_JSON_ABSENT) == (v->found_end[i] != 0));
		if (spans[i].kind == SX_JSON_ABSENT)
			continue;
		start = (size_t) (spans[i].start - text) - is_string;
		check(start == v->found_start[i]);
		check(start + spans[i].len + 2 * is_string == v->found_end[i]);
		if (is_string)
			check((memchr(spans[i].start, '\\', spans[i].len) != NULL) ==
				  (spans[i].kind == SX_JSON_ESCAPED));
		if (spans[i].kind == SX_JSON_NUMBER)
			check_number(&spans[i]);
	}
}

/* A path of one key, by wrapping the key's object in a scan of its own. */
static void
check_paths(const SxJsonSpan *spans, const char *text, size_t len)
{
	for (int i = 0; i < NKEYS; i++)
	{
		SxJsonStep step = {keys[0].name, keys[0].len, 0};
		SxJsonStep element = {NULL, 0, 1};
		SxJsonSpan to;
		Validator v;

		if (sx_json_find(&spans[i], &step, 1, false, &to))
		{
			check_span(&to, text, len);
			check(to.kind == SX_JSON_ABSENT || spans[i].kind == SX_JSON_OBJECT);
			if (spans[i].kind == SX_JSON_OBJECT)
			{
				check(validate(&v, spans[i].start, spans[i].len));
				check((to.kind != SX_JSON_ABSENT) == (v.found_end[0] != 0));
				if (to.kind != SX_JSON_ABSENT)
					check((size_t) (to.start - spans[i].start) -
							  (to.kind == SX_JSON_STRING || to.kind == SX_JSON_ESCAPED) ==
						  v.found_start[0]);
			}
		}
		if (sx_json_find(&spans[i], &step, 1, true, &to))
			check_span(&to, text, len);
		if (sx_json_find(&spans[i], &element, 1, false, &to))
		{
			check_span(&to, text, len);
			check(to.kind == SX_JSON_ABSENT || spans[i].kind == SX_JSON_ARRAY);
		}
	}
}

static void
check_object(Scanner *used, const char *text, size_t len)
{
	Scanner fresh;
	Scanner folding;
	Validator v;
	bool is_sure;

	open_scanner(&fresh, false);
	is_sure = sx_json_scan(fresh.scanner, text, len, fresh.spans);
	if (is_sure)
	{
		check(validate(&v, text, len));
		check(!sx_json_deeper(text, len, 64));
		for (int i = 0; i < NKEYS; i++)
			check_span(&fresh.spans[i], text, len);
		check_against_validator(fresh.spans, &v, text);
		check_paths(fresh.spans, text, len);
	}
	else
		check(!validate(&v, text, len) || v.is_rare);
	/* with the order of another object, and twice with its own */
	for (int round = 0; round < 3; round++)
	{
		check(sx_json_scan(used->scanner, text, len, used->spans) == is_sure);
		for (int i = 0; is_sure && i < NKEYS; i++)
			check_same(&fresh.spans[i], &used->spans[i]);
	}
	open_scanner(&folding, true);
	for (int round = 0; round < 2; round++)
		if (sx_json_scan(folding.scanner, text, len, folding.spans))
		{
			check(is_sure);
			for (int i = 0; i < NKEYS; i++)
				if (fresh.spans[i].kind != SX_JSON_ABSENT)
					check_same(&fresh.spans[i], &folding.spans[i]);
		}
	free(folding.memory);
	free(fresh.memory);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static Scanner used;
	char *text;
	size_t len = 0;

	/* objects, one after the other, are separated by a byte that none can have */
	if (used.memory != NULL)
		free(used.memory);
	open_scanner(&used, false);
	for (size_t from = 0; from <= size; from += len + 1)
	{
		const uint8_t *end = size > from ? memchr(data + from, 0x1e, size - from) : NULL;

		len = end != NULL ? (size_t) (end - data) - from : size - from;
		text = malloc(len > 0 ? len : 1);
		if (len > 0)
			memcpy(text, data + from, len);
		check(sx_utf8_valid(text, len) == utf8(text, len));
		check(!sx_ascii(text, len) || utf8(text, len));
		(void) sx_json_deeper(text, len, 10);
		check_object(&used, text, len);
		free(text);
	}
	return 0;
}
