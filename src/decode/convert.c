/*
 * convert.c
 *		Values of the common types from the common forms of text, without any call that can fail.
 *
 * Each conversion gives exactly what the type's input function gives for the text, or gives up. For
 * JSON the text is that of the operator ->>, so a number has gone through numeric there: it has no
 * exponent, and no negative zero.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "decode_internal.h"

/* Powers of ten that a double, and a float, hold exactly, and the integers up to which they do. */
#define DOUBLE_POWERS   22
#define DOUBLE_INTEGERS (UINT64CONST(1) << 53)
#define FLOAT_POWERS    10
#define FLOAT_INTEGERS  (UINT64CONST(1) << 24)

/* Longer numbers are left to the input functions. */
#define MAX_FLOAT_LEN 64

static const double double_powers[DOUBLE_POWERS + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,
														1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
														1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
														1e18, 1e19, 1e20, 1e21, 1e22};

static const uint64 int_powers[19] = {UINT64CONST(1),
									  UINT64CONST(10),
									  UINT64CONST(100),
									  UINT64CONST(1000),
									  UINT64CONST(10000),
									  UINT64CONST(100000),
									  UINT64CONST(1000000),
									  UINT64CONST(10000000),
									  UINT64CONST(100000000),
									  UINT64CONST(1000000000),
									  UINT64CONST(10000000000),
									  UINT64CONST(100000000000),
									  UINT64CONST(1000000000000),
									  UINT64CONST(10000000000000),
									  UINT64CONST(100000000000000),
									  UINT64CONST(1000000000000000),
									  UINT64CONST(10000000000000000),
									  UINT64CONST(100000000000000000),
									  UINT64CONST(1000000000000000000)};

SxConversion
sx_conversion_of(Oid type, int32 typmod, bool by_value)
{
	switch (type)
	{
		case INT2OID:
			return SX_CONVERT_INT2;
		case INT4OID:
			return SX_CONVERT_INT4;
		case FLOAT4OID:
			return SX_CONVERT_FLOAT4;
		case BOOLOID:
			return SX_CONVERT_BOOL;
		case DATEOID:
			return SX_CONVERT_DATE;
		case TEXTOID:
		case VARCHAROID:
			return SX_CONVERT_TEXT;
		case NUMERICOID:
			return SX_CONVERT_NUMERIC;
		case UUIDOID:
			return SX_CONVERT_UUID;
		case INT8OID:
			return by_value ? SX_CONVERT_INT8 : SX_CONVERT_GENERAL;
		case FLOAT8OID:
			return by_value ? SX_CONVERT_FLOAT8 : SX_CONVERT_GENERAL;
		case TIMESTAMPTZOID:
			/* with a precision the value is rounded */
			return by_value && typmod < 0 ? SX_CONVERT_TIMESTAMPTZ : SX_CONVERT_GENERAL;
		case TIMESTAMPOID:
			return by_value && typmod < 0 ? SX_CONVERT_TIMESTAMP : SX_CONVERT_GENERAL;
		default:
			return SX_CONVERT_GENERAL;
	}
}

/* The number that the span is, or holds as a string. */
static inline const SxJsonSpan *
get_number(const SxJsonSpan *span, SxJsonSpan *buffer)
{
	if (span->kind == SX_JSON_NUMBER)
		return span;
	if (span->kind == SX_JSON_STRING && sx_json_number(span->start, span->len, buffer))
		return buffer;
	return NULL;
}

static inline bool
convert_integer(const SxJsonSpan *span, uint64 max, int64 *value)
{
	SxJsonSpan buffer;
	const SxJsonSpan *number = get_number(span, &buffer);

	if (number == NULL || (number->number & ~SX_NUMBER_NEGATIVE) != 0)
		return false;
	if (number->number & SX_NUMBER_NEGATIVE)
	{
		/* one more, as two's complement has it */
		if (number->mantissa > max + 1)
			return false;
		*value = (int64) (UINT64CONST(0) - number->mantissa);
		return true;
	}
	if (number->mantissa > max)
		return false;
	*value = (int64) number->mantissa;
	return true;
}

/*
 * The number as strtod() takes it, as the input functions of both types do. False: too long, or one
 * of the limits that they look at.
 */
static bool
copy_number(const SxJsonSpan *number, char *buffer)
{
	if (number->len >= MAX_FLOAT_LEN)
		return false;
	memcpy(buffer, number->start, number->len);
	buffer[number->len] = '\0';
	errno = 0;
	return true;
}

/* With both factors exact, the result is the nearest one there is. */
static inline bool
convert_double(const SxJsonSpan *span, double *value)
{
	SxJsonSpan span_buffer;
	const SxJsonSpan *number = get_number(span, &span_buffer);
	char buffer[MAX_FLOAT_LEN];
	double result;

	if (number == NULL)
		return false;
	if (likely(!(number->number & SX_NUMBER_LONG) && number->mantissa <= DOUBLE_INTEGERS &&
			   number->mantissa != 0 && number->exponent >= -DOUBLE_POWERS &&
			   number->exponent <= DOUBLE_POWERS))
	{
		result = (double) number->mantissa;
		if (number->exponent < 0)
			result /= double_powers[-number->exponent];
		else
			result *= double_powers[number->exponent];
		*value = (number->number & SX_NUMBER_NEGATIVE) ? -result : result;
		return true;
	}
	if (!(number->number & SX_NUMBER_LONG) && number->mantissa == 0)
	{
		*value = 0.0;
		return span->kind == SX_JSON_NUMBER || !(number->number & SX_NUMBER_NEGATIVE);
	}
	if (!copy_number(number, buffer))
		return false;
	*value = strtod(buffer, NULL);
	return errno == 0 && *value != 0 && !isinf(*value);
}

static inline bool
convert_float(const SxJsonSpan *span, float *value)
{
	SxJsonSpan span_buffer;
	const SxJsonSpan *number = get_number(span, &span_buffer);
	char buffer[MAX_FLOAT_LEN];

	if (number == NULL)
		return false;
	if (!(number->number & SX_NUMBER_LONG) && number->mantissa <= FLOAT_INTEGERS &&
		number->mantissa != 0 && number->exponent >= -FLOAT_POWERS &&
		number->exponent <= FLOAT_POWERS)
	{
		float result = (float) number->mantissa;

		if (number->exponent < 0)
			result /= (float) double_powers[-number->exponent];
		else
			result *= (float) double_powers[number->exponent];
		*value = (number->number & SX_NUMBER_NEGATIVE) ? -result : result;
		return true;
	}
	if (!(number->number & SX_NUMBER_LONG) && number->mantissa == 0)
	{
		*value = 0.0f;
		return span->kind == SX_JSON_NUMBER || !(number->number & SX_NUMBER_NEGATIVE);
	}
	if (!copy_number(number, buffer))
		return false;
	*value = strtof(buffer, NULL);
	return errno == 0 && *value != 0 && !isinf(*value);
}

static inline bool
convert_bool(const SxJsonSpan *span, bool *value)
{
	if (span->kind == SX_JSON_TRUE ||
		(span->kind == SX_JSON_STRING && span->len == 4 && memcmp(span->start, "true", 4) == 0))
	{
		*value = true;
		return true;
	}
	if (span->kind == SX_JSON_FALSE ||
		(span->kind == SX_JSON_STRING && span->len == 5 && memcmp(span->start, "false", 5) == 0))
	{
		*value = false;
		return true;
	}
	return false;
}

/* Characters are not counted: as many bytes as characters are allowed are never too many. */
static inline bool
convert_text(SxColumn *column, const SxJsonSpan *span, Datum *value)
{
	text *result;

	switch (span->kind)
	{
		case SX_JSON_STRING:
		case SX_JSON_ESCAPED:
		case SX_JSON_TRUE:
		case SX_JSON_FALSE:
			break;
		case SX_JSON_NUMBER:
			/* as numeric writes it: without exponent or negative zero */
			if ((span->number & SX_NUMBER_EXPONENT) ||
				((span->number & SX_NUMBER_NEGATIVE) &&
				 ((span->number & SX_NUMBER_LONG) || span->mantissa == 0)))
				return false;
			break;
		default:
			return false;
	}
	if (column->typmod >= VARHDRSZ && span->len > (uint32) (column->typmod - VARHDRSZ))
		return false;
	if (span->len > SX_MAX_FAST_LEN)
		return false;
	if (column->target == NULL)
		return true;
	result = MemoryContextAlloc(column->target, VARHDRSZ + span->len);
	if (span->kind == SX_JSON_ESCAPED)
		SET_VARSIZE(result, VARHDRSZ + sx_json_unescape(span, VARDATA(result)));
	else
	{
		SET_VARSIZE(result, VARHDRSZ + span->len);
		memcpy(VARDATA(result), span->start, span->len);
	}
	*value = PointerGetDatum(result);
	return true;
}

static inline bool
convert_numeric(SxColumn *column, const SxJsonSpan *span, Datum *value)
{
	SxJsonSpan buffer;
	const SxJsonSpan *number = get_number(span, &buffer);
	uint64 mantissa;
	int scale;
	MemoryContext old;

	if (number == NULL || (number->number & (SX_NUMBER_LONG | SX_NUMBER_EXPONENT)) ||
		number->mantissa > PG_INT64_MAX)
		return false;
	mantissa = number->mantissa;
	scale = -number->exponent;
	if (column->typmod >= VARHDRSZ)
	{
		int precision = ((column->typmod - VARHDRSZ) >> 16) & 0xffff;
		int wanted = (column->typmod - VARHDRSZ) & 0x7ff;

		/* only what needs no rounding; a negative scale looks like a large one */
		if (scale > wanted || wanted >= lengthof(int_powers) || precision < wanted)
			return false;
		if (mantissa > PG_INT64_MAX / int_powers[wanted - scale])
			return false;
		mantissa *= int_powers[wanted - scale];
		scale = wanted;
		if (precision < lengthof(int_powers) && mantissa >= int_powers[precision])
			return false;
	}
	if (column->target == NULL)
		return true;
	old = MemoryContextSwitchTo(column->target);
	*value = NumericGetDatum(int64_div_fast_to_numeric(
		(number->number & SX_NUMBER_NEGATIVE) ? -(int64) mantissa : (int64) mantissa, scale));
	MemoryContextSwitchTo(old);
	return true;
}

/* Two digits; a large number if they are none. */
static inline unsigned
two_digits(const char *p)
{
	unsigned tens = (unsigned char) (p[0] - '0');
	unsigned ones = (unsigned char) (p[1] - '0');

	return tens > 9 || ones > 9 ? 1000000 : tens * 10 + ones;
}

/* YYYY-MM-DD; the last one is remembered, as most records of a topic are of one day. */
static inline bool
convert_midnight(SxColumn *column, const char *p, int64 *midnight)
{
	unsigned year;
	unsigned month;
	unsigned day;

	if (memcmp(p, column->date, sizeof(column->date)) != 0)
	{
		if (p[4] != '-' || p[7] != '-')
			return false;
		year = two_digits(p) * 100 + two_digits(p + 2);
		month = two_digits(p + 5);
		day = two_digits(p + 8);
		if (year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 ||
			day > (unsigned) day_tab[isleap(year)][month - 1])
			return false;
		column->midnight =
			(int64) (date2j((int) year, (int) month, (int) day) - POSTGRES_EPOCH_JDATE) *
			USECS_PER_DAY;
		memcpy(column->date, p, sizeof(column->date));
	}
	*midnight = column->midnight;
	return true;
}

/*
 * YYYY-MM-DDThh:mm:ss[.ffffff] and nothing (which is UTC, as the time zone is here), Z or +hh[:mm],
 * also with a space for the T. A timestamp disregards the zone; the input function looks at it
 * nevertheless.
 */
static inline bool
convert_timestamp(SxColumn *column, const SxJsonSpan *span, bool has_zone, int64 *value)
{
	const char *p = span->start;
	const char *end = p + span->len;
	int64 result;
	int64 fraction = 0;
	unsigned hour;
	unsigned minute;
	unsigned second;

	if (span->kind != SX_JSON_STRING || span->len < 19)
		return false;
	if ((p[10] != 'T' && p[10] != ' ') || p[13] != ':' || p[16] != ':')
		return false;
	if (!convert_midnight(column, p, &result))
		return false;
	hour = two_digits(p + 11);
	minute = two_digits(p + 14);
	second = two_digits(p + 17);
	if (hour > 23 || minute > 59 || second > 59)
		return false;
	p += 19;
	if (p < end && *p == '.')
	{
		int digits = 0;

		for (p++; p < end && *p >= '0' && *p <= '9'; p++, digits++)
		{
			if (digits == 6)
				return false;
			fraction = fraction * 10 + (*p - '0');
		}
		if (digits == 0)
			return false;
		fraction *= (int64) int_powers[6 - digits];
	}
	result += ((int64) ((hour * 60 + minute) * 60 + second)) * USECS_PER_SEC + fraction;
	if (p < end && *p == 'Z')
		p++;
	else if (p < end && (*p == '+' || *p == '-'))
	{
		int64 offset;

		if (end - p != 3 && (end - p != 6 || p[3] != ':'))
			return false;
		hour = two_digits(p + 1);
		minute = end - p == 6 ? two_digits(p + 4) : 0;
		if (hour > 14 || minute > 59)
			return false;
		offset = (int64) (hour * 60 + minute) * SECS_PER_MINUTE * USECS_PER_SEC;
		if (has_zone)
			result -= *p == '+' ? offset : -offset;
		p = end;
	}
	*value = result;
	return p == end;
}

static inline bool
convert_uuid(SxColumn *column, const SxJsonSpan *span, Datum *value)
{
	pg_uuid_t uuid;
	const char *p = span->start;

	if (span->kind != SX_JSON_STRING || span->len != 36)
		return false;
	for (int i = 0; i < UUID_LEN; i++)
	{
		unsigned char byte = 0;

		if (i == 4 || i == 6 || i == 8 || i == 10)
		{
			if (*p++ != '-')
				return false;
		}
		for (int digit = 0; digit < 2; digit++, p++)
		{
			unsigned char c = (unsigned char) *p;

			if (c >= '0' && c <= '9')
				c -= '0';
			else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
				c = (c | 0x20) - 'a' + 10;
			else
				return false;
			byte = (unsigned char) (byte << 4 | c);
		}
		uuid.data[i] = byte;
	}
	if (column->target == NULL)
		return true;
	*value = PointerGetDatum(MemoryContextAlloc(column->target, sizeof(uuid)));
	memcpy(DatumGetPointer(*value), &uuid, sizeof(uuid));
	return true;
}

bool
sx_convert(SxColumn *column, const SxJsonSpan *span, Datum *value)
{
	int64 number;
	double float8;
	float float4;
	bool boolean;

	switch (column->conversion)
	{
		case SX_CONVERT_GENERAL:
			return false;
		case SX_CONVERT_INT2:
			if (!convert_integer(span, PG_INT16_MAX, &number))
				return false;
			*value = Int16GetDatum((int16) number);
			return true;
		case SX_CONVERT_INT4:
			if (!convert_integer(span, PG_INT32_MAX, &number))
				return false;
			*value = Int32GetDatum((int32) number);
			return true;
		case SX_CONVERT_INT8:
			if (!convert_integer(span, PG_INT64_MAX, &number))
				return false;
			*value = Int64GetDatum(number);
			return true;
		case SX_CONVERT_FLOAT4:
			if (!convert_float(span, &float4))
				return false;
			*value = Float4GetDatum(float4);
			return true;
		case SX_CONVERT_FLOAT8:
			if (!convert_double(span, &float8))
				return false;
			*value = Float8GetDatum(float8);
			return true;
		case SX_CONVERT_BOOL:
			if (!convert_bool(span, &boolean))
				return false;
			*value = BoolGetDatum(boolean);
			return true;
		case SX_CONVERT_TEXT:
			return convert_text(column, span, value);
		case SX_CONVERT_NUMERIC:
			return convert_numeric(column, span, value);
		case SX_CONVERT_TIMESTAMPTZ:
			if (!convert_timestamp(column, span, true, &number))
				return false;
			*value = TimestampTzGetDatum(number);
			return true;
		case SX_CONVERT_TIMESTAMP:
			if (!convert_timestamp(column, span, false, &number))
				return false;
			*value = TimestampGetDatum(number);
			return true;
		case SX_CONVERT_DATE:
			if (span->kind != SX_JSON_STRING || span->len != 10 ||
				!convert_midnight(column, span->start, &number))
				return false;
			*value = DateADTGetDatum((DateADT) (number / USECS_PER_DAY));
			return true;
		case SX_CONVERT_UUID:
			return convert_uuid(column, span, value);
	}
	return false;
}
