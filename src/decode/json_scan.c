/*
 * json_scan.c
 *		A fast scanner for JSON objects that knows when it is not sure.
 *
 * One pass, no recursion, no allocation: it finds the values of some keys of an object and checks
 * the rest on the way. What it accepts must be a valid object with the same values for the full
 * parser (jsonb), because records that it accepts are never shown to that one. Whatever is rare is
 * left to the full parser: the scanner says that it is not sure.
 *
 * Messages of a topic are mostly written by one program, with the same keys in the same order. The
 * keys of the last object are kept as they were written, with quotes and colon, so that a key is
 * found by one comparison of known length.
 *
 * The input is not terminated and nothing may be read behind its end.
 */
#include "json_scan.h"

#include <string.h>

#define likely_true(x)  __builtin_expect((x) != 0, 1)
#define likely_false(x) __builtin_expect((x) != 0, 0)

/* Longer objects, deeper nesting, more digits and larger exponents are left to the full parser. */
#define MAX_LENGTH   (16 * 1024 * 1024)
#define MAX_DEPTH    63
#define MAX_DIGITS   1000
#define MAX_EXPONENT 999

/* Digits that always fit into a uint64. */
#define MANTISSA_DIGITS 19

/* Keys with more characters than this, quotes and colon included, are not predicted. */
#define PREDICTED_LEN 64

/* One key of the last object. */
typedef struct Prediction
{
	int32_t key; /* nkeys: not looked for */
	uint32_t len;
	char text[PREDICTED_LEN]; /* "name": */
} Prediction;

struct SxJsonScanner
{
	const SxJsonKey *keys;
	int nkeys;
	bool ignore_case;
	uint32_t nslots; /* of the hash table, a power of 2 */
	int32_t *slots;  /* index of a key, -1: free */
	int npredicted;  /* that hold a key */
	int max_predicted;
	Prediction *predicted;
};

/*
 * ---- characters
 */

static inline bool
is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline bool
is_digit(char c)
{
	return (unsigned char) (c - '0') < 10;
}

static inline const char *
skip_spaces(const char *p, const char *end)
{
	while (p < end && is_space(*p))
		p++;
	return p;
}

static inline char
fold(char c)
{
	return c >= 'A' && c <= 'Z' ? (char) (c + ('a' - 'A')) : c;
}

static inline uint64_t
load64(const char *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* The first quote, backslash or control character; 'end' if there is none. */
static inline const char *
find_special(const char *p, const char *end)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	const uint64_t ones = UINT64_C(0x0101010101010101);

	/*
	 * A byte minus one has its high bit set, and the byte not, if it is 0. Bytes behind the first
	 * such one may be wrong through the borrow, hence the lowest counts.
	 */
	while (end - p >= 8)
	{
		uint64_t word = load64(p);
		uint64_t quote = word ^ (ones * '"');
		uint64_t backslash = word ^ (ones * '\\');
		uint64_t found = (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
						  ((word - ones * 0x20) & ~word)) &
						 (ones * 0x80);

		if (found != 0)
			return p + (__builtin_ctzll(found) >> 3);
		p += 8;
	}
#endif
	while (p < end && *p != '"' && *p != '\\' && (unsigned char) *p >= 0x20)
		p++;
	return p;
}

/*
 * ---- values
 *
 * Each function takes the position of a value's first character and returns that behind its last,
 * or NULL if it is not sure or there is no such value.
 */

/* 'p' is behind the quote. */
static inline const char *
scan_string(const char *p, const char *end, SxJsonSpan *span)
{
	span->start = p;
	span->kind = SX_JSON_STRING;
	p = find_special(p, end);
	while (likely_false(p < end && *p == '\\'))
	{
		span->kind = SX_JSON_ESCAPED;
		if (end - p < 2)
			return NULL;
		switch (p[1])
		{
			case '"':
			case '\\':
			case '/':
			case 'b':
			case 'f':
			case 'n':
			case 'r':
			case 't':
				break;
			default:
				return NULL;
		}
		p = find_special(p + 2, end);
	}
	if (p >= end || *p != '"')
		return NULL;
	span->len = (uint32_t) (p - span->start);
	return p + 1;
}

static inline const char *
scan_digits(const char *p, const char *end, uint64_t *value)
{
	uint64_t v = *value;

	/* wraps around if there are too many; the caller counts them */
	while (p < end && is_digit(*p))
		v = v * 10 + (uint64_t) (*p++ - '0');
	*value = v;
	return p;
}

static inline const char *
scan_number(const char *p, const char *end, SxJsonSpan *span)
{
	const char *digits;
	ptrdiff_t ndigits;
	uint64_t mantissa = 0;
	int exponent = 0;

	span->start = p;
	span->kind = SX_JSON_NUMBER;
	span->number = 0;
	if (*p == '-')
	{
		span->number = SX_NUMBER_NEGATIVE;
		p++;
	}
	digits = p;
	p = scan_digits(p, end, &mantissa);
	ndigits = p - digits;
	if (ndigits == 0 || (*digits == '0' && ndigits > 1))
		return NULL;
	if (p < end && *p == '.')
	{
		digits = p + 1;
		p = scan_digits(digits, end, &mantissa);
		if (p == digits)
			return NULL;
		ndigits += p - digits;
		if (ndigits > MAX_DIGITS)
			return NULL;
		exponent = -(int) (p - digits);
		span->number |= SX_NUMBER_FRACTION;
	}
	if (ndigits > MANTISSA_DIGITS)
	{
		if (ndigits > MAX_DIGITS)
			return NULL;
		span->number |= SX_NUMBER_LONG;
	}
	if (p < end && (*p == 'e' || *p == 'E'))
	{
		uint64_t e = 0;
		bool negative = false;

		p++;
		if (p < end && (*p == '+' || *p == '-'))
			negative = *p++ == '-';
		digits = p;
		p = scan_digits(p, end, &e);
		if (p == digits || p - digits > MANTISSA_DIGITS || e > MAX_EXPONENT)
			return NULL;
		exponent += negative ? -(int) e : (int) e;
		span->number |= SX_NUMBER_EXPONENT;
	}
	span->mantissa = mantissa;
	span->exponent = (int16_t) exponent;
	span->len = (uint32_t) (p - span->start);
	return p;
}

static inline const char *
scan_word(const char *p, const char *end, const char *word, uint32_t len, SxJsonKind kind,
		  SxJsonSpan *span)
{
	if (end - p < len || memcmp(p, word, len) != 0)
		return NULL;
	span->start = p;
	span->kind = (uint8_t) kind;
	span->len = len;
	return p + len;
}

/* All but arrays and objects. */
static inline const char *
scan_scalar(const char *p, const char *end, SxJsonSpan *span)
{
	if (p >= end)
		return NULL;
	switch (*p)
	{
		case '"':
			return scan_string(p + 1, end, span);
		case '-':
		case '0':
		case '1':
		case '2':
		case '3':
		case '4':
		case '5':
		case '6':
		case '7':
		case '8':
		case '9':
			return scan_number(p, end, span);
		case 't':
			return scan_word(p, end, "true", 4, SX_JSON_TRUE, span);
		case 'f':
			return scan_word(p, end, "false", 5, SX_JSON_FALSE, span);
		case 'n':
			return scan_word(p, end, "null", 4, SX_JSON_NULL, span);
		default:
			return NULL;
	}
}

/* An array or object and all in it. What kind the levels above are is kept in the bits of a word. */
static const char *
skip_container(const char *p, const char *end)
{
	uint64_t is_object = 0;
	int depth = 0;
	SxJsonSpan ignored;

open:
	if (depth >= MAX_DEPTH)
		return NULL;
	depth++;
	is_object = (is_object << 1) | (*p == '{');
	p = skip_spaces(p + 1, end);
	if (p >= end)
		return NULL;
	if (*p == ((is_object & 1) ? '}' : ']'))
		goto close;
	if (!(is_object & 1))
		goto value;

key:
	if (p >= end || *p != '"')
		return NULL;
	p = scan_string(p + 1, end, &ignored);
	if (p == NULL)
		return NULL;
	p = skip_spaces(p, end);
	if (p >= end || *p != ':')
		return NULL;
	p = skip_spaces(p + 1, end);

value:
	if (p < end && (*p == '{' || *p == '['))
		goto open;
	p = scan_scalar(p, end, &ignored);
	if (p == NULL)
		return NULL;

next:
	p = skip_spaces(p, end);
	if (p >= end)
		return NULL;
	if (*p == ',')
	{
		p = skip_spaces(p + 1, end);
		if (is_object & 1)
			goto key;
		goto value;
	}
	if (*p != ((is_object & 1) ? '}' : ']'))
		return NULL;

close:
	p++;
	depth--;
	is_object >>= 1;
	if (depth > 0)
		goto next;
	return p;
}

static inline const char *
scan_value(const char *p, const char *end, SxJsonSpan *span)
{
	if (likely_false(p < end && (*p == '{' || *p == '[')))
	{
		span->kind = *p == '{' ? SX_JSON_OBJECT : SX_JSON_ARRAY;
		span->start = p;
		p = skip_container(p, end);
		if (p != NULL)
			span->len = (uint32_t) (p - span->start);
		return p;
	}
	return scan_scalar(p, end, span);
}

/*
 * ---- keys
 */

static uint32_t
hash_key(const char *name, size_t len, bool ignore_case)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char) (ignore_case ? fold(name[i]) : name[i])) * 16777619u;
	return hash ^ (hash >> 15);
}

bool
sx_json_same_key(const char *a, const char *b, size_t len, bool ignore_case)
{
	if (!ignore_case)
		return memcmp(a, b, len) == 0;
	for (size_t i = 0; i < len; i++)
		if (fold(a[i]) != fold(b[i]))
			return false;
	return true;
}

/* Index of a key; nkeys if it is not looked for. */
static int
find_key(const SxJsonScanner *scanner, const char *name, size_t len)
{
	uint32_t mask = scanner->nslots - 1;

	for (uint32_t i = hash_key(name, len, scanner->ignore_case) & mask; scanner->slots[i] >= 0;
		 i = (i + 1) & mask)
	{
		const SxJsonKey *key = &scanner->keys[scanner->slots[i]];

		if (key->len == len && sx_json_same_key(key->name, name, len, scanner->ignore_case))
			return scanner->slots[i];
	}
	return scanner->nkeys;
}

static inline bool
same_bytes(const char *a, const char *b, uint32_t len)
{
	uint64_t differences = 0;

	if (len < 8)
		return memcmp(a, b, len) == 0;
	/* the last word overlaps the one before */
	for (uint32_t i = 0; i + 8 < len; i += 8)
		differences |= load64(a + i) ^ load64(b + i);
	return (differences | (load64(a + len - 8) ^ load64(b + len - 8))) == 0;
}

static void
predict(SxJsonScanner *scanner, int position, int key, const char *name, size_t len)
{
	Prediction *prediction;

	if (position >= scanner->max_predicted)
		return;
	prediction = &scanner->predicted[position];
	/* what follows was the order of another object, but is as good a guess as any */
	if (position >= scanner->npredicted)
		scanner->npredicted = position + 1;
	prediction->key = key;
	prediction->len = 0;
	if (len + 3 > PREDICTED_LEN)
		return;
	prediction->len = (uint32_t) len + 3;
	prediction->text[0] = '"';
	memcpy(prediction->text + 1, name, len);
	prediction->text[len + 1] = '"';
	prediction->text[len + 2] = ':';
}

/* Takes a key, at its quote, and the colon; *key is its index. Not inline: it is the rare case. */
static __attribute__((noinline)) const char *
scan_key(SxJsonScanner *scanner, int position, const char *p, const char *end, int *key)
{
	SxJsonSpan name;

	if (p >= end || *p != '"')
		return NULL;
	p = scan_string(p + 1, end, &name);
	if (p == NULL || name.kind != SX_JSON_STRING)
		return NULL;
	*key = find_key(scanner, name.start, name.len);
	predict(scanner, position, *key, name.start, name.len);
	p = skip_spaces(p, end);
	if (p >= end || *p != ':')
		return NULL;
	return p + 1;
}

/*
 * ---- the scanner
 */

static uint32_t
slots_for(int nkeys)
{
	uint32_t n = 4;

	while (n < (uint32_t) nkeys * 2)
		n *= 2;
	return n;
}

static int
predictions_for(int nkeys)
{
	return nkeys * 2 + 64;
}

size_t
sx_json_scanner_size(int nkeys)
{
	return sizeof(SxJsonScanner) + sizeof(Prediction) * (size_t) predictions_for(nkeys) +
		   sizeof(int32_t) * slots_for(nkeys);
}

SxJsonScanner *
sx_json_scanner_init(void *memory, const SxJsonKey *keys, int nkeys, bool ignore_case)
{
	SxJsonScanner *scanner = memory;

	memset(scanner, 0, sizeof(*scanner));
	scanner->keys = keys;
	scanner->nkeys = nkeys;
	scanner->ignore_case = ignore_case;
	scanner->max_predicted = predictions_for(nkeys);
	scanner->predicted = (Prediction *) (scanner + 1);
	scanner->nslots = slots_for(nkeys);
	scanner->slots = (int32_t *) (scanner->predicted + scanner->max_predicted);
	for (uint32_t i = 0; i < scanner->nslots; i++)
		scanner->slots[i] = -1;
	for (int i = 0; i < nkeys; i++)
	{
		uint32_t slot = hash_key(keys[i].name, keys[i].len, ignore_case) & (scanner->nslots - 1);

		while (scanner->slots[slot] >= 0)
			slot = (slot + 1) & (scanner->nslots - 1);
		scanner->slots[slot] = i;
	}
	return scanner;
}

bool
sx_json_scan(SxJsonScanner *scanner, const char *p, size_t len, SxJsonSpan *spans)
{
	const char *end = p + len;
	int position = 0;

	for (int i = 0; i < scanner->nkeys; i++)
		spans[i].kind = SX_JSON_ABSENT;
	if (len > MAX_LENGTH)
		return false;
	p = skip_spaces(p, end);
	if (p >= end || *p != '{')
		return false;
	p = skip_spaces(p + 1, end);
	if (p < end && *p == '}')
		return skip_spaces(p + 1, end) == end;
	for (;;)
	{
		const Prediction *prediction = &scanner->predicted[position];
		int key;

		if (likely_true(position < scanner->npredicted && prediction->len > 0 &&
						(size_t) (end - p) >= prediction->len &&
						same_bytes(p, prediction->text, prediction->len)))
		{
			key = prediction->key;
			p += prediction->len;
		}
		else
		{
			p = scan_key(scanner, position, p, end, &key);
			if (p == NULL)
				return false;
		}
		position++;
		/* which one of two spellings counts is for the full parser to say */
		if (scanner->ignore_case && key < scanner->nkeys && spans[key].kind != SX_JSON_ABSENT)
			return false;
		p = scan_value(skip_spaces(p, end), end, &spans[key]);
		if (likely_false(p == NULL))
			return false;
		p = skip_spaces(p, end);
		if (likely_false(p >= end))
			return false;
		if (*p == ',')
			p = skip_spaces(p + 1, end);
		else if (*p == '}')
			return skip_spaces(p + 1, end) == end;
		else
			return false;
	}
}

/* Finds what a key has last in an object, or an element of an array. */
static bool
find_step(const char *p, const char *end, const SxJsonStep *step, bool ignore_case, SxJsonSpan *to)
{
	bool is_object = *p == '{';
	uint32_t index = 0;

	to->kind = SX_JSON_ABSENT;
	p = skip_spaces(p + 1, end);
	if (p < end && (*p == '}' || *p == ']'))
		return true;
	for (;;)
	{
		SxJsonSpan name;
		SxJsonSpan value;
		bool is_found = !is_object && index == step->index;

		if (is_object)
		{
			if (p >= end || *p != '"')
				return false;
			p = scan_string(p + 1, end, &name);
			if (p == NULL || name.kind != SX_JSON_STRING)
				return false;
			is_found = name.len == step->len &&
					   sx_json_same_key(name.start, step->key, name.len, ignore_case);
			p = skip_spaces(p, end);
			if (p >= end || *p != ':')
				return false;
			p = skip_spaces(p + 1, end);
		}
		p = scan_value(p, end, &value);
		if (p == NULL)
			return false;
		if (is_found)
		{
			if (ignore_case && to->kind != SX_JSON_ABSENT)
				return false;
			*to = value;
			if (!is_object)
				return true;
		}
		index++;
		p = skip_spaces(p, end);
		if (p >= end)
			return false;
		if (*p != ',')
			return true;
		p = skip_spaces(p + 1, end);
	}
}

bool
sx_json_find(const SxJsonSpan *from, const SxJsonStep *steps, int nsteps, bool ignore_case,
			 SxJsonSpan *to)
{
	*to = *from;
	for (int i = 0; i < nsteps; i++)
	{
		SxJsonSpan container = *to;

		if (container.kind != (steps[i].key != NULL ? SX_JSON_OBJECT : SX_JSON_ARRAY))
		{
			to->kind = SX_JSON_ABSENT;
			return true;
		}
		if (!find_step(container.start, container.start + container.len, &steps[i], ignore_case,
					   to))
			return false;
	}
	return true;
}

bool
sx_json_number(const char *p, size_t len, SxJsonSpan *span)
{
	return len > 0 && len <= MAX_LENGTH && (*p == '-' || is_digit(*p)) &&
		   scan_number(p, p + len, span) == p + len;
}

size_t
sx_json_unescape(const SxJsonSpan *span, char *out)
{
	const char *p = span->start;
	const char *end = p + span->len;
	char *o = out;

	while (p < end)
	{
		char c = *p++;

		if (c == '\\' && p < end)
		{
			c = *p++;
			switch (c)
			{
				case 'b':
					c = '\b';
					break;
				case 'f':
					c = '\f';
					break;
				case 'n':
					c = '\n';
					break;
				case 'r':
					c = '\r';
					break;
				case 't':
					c = '\t';
					break;
				default:
					break;
			}
		}
		*o++ = c;
	}
	return (size_t) (o - out);
}

bool
sx_json_deeper(const char *p, size_t len, int max)
{
	const char *end = p + len;
	int depth = 0;

	while (p < end)
	{
		switch (*p++)
		{
			case '"':
				p = find_special(p, end);
				while (p < end && *p != '"')
					p = find_special(p + (*p == '\\' && end - p > 1 ? 2 : 1), end);
				p += p < end;
				break;
			case '{':
			case '[':
				if (++depth > max)
					return true;
				break;
			case '}':
			case ']':
				depth--;
				break;
			default:
				break;
		}
	}
	return false;
}

bool
sx_ascii(const char *p, size_t len)
{
	const uint64_t high = UINT64_C(0x8080808080808080);
	uint64_t bits = 0;
	size_t i = 0;

	for (; i + 32 <= len; i += 32)
		bits |= load64(p + i) | load64(p + i + 8) | load64(p + i + 16) | load64(p + i + 24);
	for (; i + 8 <= len; i += 8)
		bits |= load64(p + i);
	for (; i < len; i++)
		bits |= (unsigned char) p[i];
	return (bits & high) == 0;
}

/* Lowest and highest second byte after a first one: no overlong forms, surrogates, planes above 16. */
static inline bool
is_second(unsigned char first, unsigned char second)
{
	unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	return second >= low && second <= high;
}

bool
sx_utf8_valid(const char *start, size_t len)
{
	const unsigned char *p = (const unsigned char *) start;
	const unsigned char *end = p + len;

	while (p < end)
	{
		ptrdiff_t n;

		if (*p < 0x80)
		{
			while (end - p >= 8 && (load64((const char *) p) & UINT64_C(0x8080808080808080)) == 0)
				p += 8;
			while (p < end && *p < 0x80)
				p++;
			continue;
		}
		if (*p >= 0xc2 && *p <= 0xdf)
			n = 2;
		else if ((*p & 0xf0) == 0xe0)
			n = 3;
		else if (*p >= 0xf0 && *p <= 0xf4)
			n = 4;
		else
			return false;
		if (end - p < n || !is_second(p[0], p[1]))
			return false;
		for (ptrdiff_t i = 2; i < n; i++)
			if ((p[i] & 0xc0) != 0x80)
				return false;
		p += n;
	}
	return true;
}
