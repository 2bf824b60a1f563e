/*
 * tumble.c
 *		SQL function tumble: the one window that holds a time, as a range.
 *
 * It runs once for every event, so each call site (fn_extra) keeps what it did last: the size,
 * origin and zone with the spec parsed from them, and the last window as a finished range. Events
 * come roughly in order, and most calls compare, copy 25 bytes and return. The cache lives as long
 * as the call site; nothing in it depends on a transaction.
 *
 * The range is written directly. Its format has been the same since ranges exist: header, type,
 * both bounds, one byte of flags; a test compares it with what the constructor makes.
 *
 * NULL and infinity are in no window: the result is NULL, whatever the size. Left to range
 * constructors they would give the unbounded range and an empty one.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#include "stream_ext/time/window.h"

/* A range of two 8-byte bounds, as stored. */
typedef struct RangeImage
{
	RangeType header;
	int64 lower;
	int64 upper;
	char flags;
} RangeImage;

#define RANGE_IMAGE_SIZE (offsetof(RangeImage, flags) + sizeof(char))

/* What a call site keeps. */
typedef struct TumbleCache
{
	bool valid;        /* spec was made from the arguments below */
	RangeImage window; /* the last window; lower > upper: none yet */
	SxWindowSpec spec;
	Interval size; /* arguments for times */
	Interval origin;
	int64 number_size; /* arguments for bigint */
	int64 number_origin;
	int zone_length; /* -1: no zone */
	char zone[TZ_STRLEN_MAX + 1];
} TumbleCache;

PG_FUNCTION_INFO_V1(stream_ext_tumble_timestamptz);
PG_FUNCTION_INFO_V1(stream_ext_tumble_timestamp);
PG_FUNCTION_INFO_V1(stream_ext_tumble_bigint);

static TumbleCache *
create_cache(FunctionCallInfo fcinfo, Oid range_type)
{
	TumbleCache *cache = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(TumbleCache));

	SET_VARSIZE(&cache->window, RANGE_IMAGE_SIZE);
	cache->window.header.rangetypid = range_type;
	cache->window.flags = RANGE_LB_INC;
	cache->window.lower = 1;
	cache->window.upper = 0;
	fcinfo->flinfo->fn_extra = cache;
	return cache;
}

static inline TumbleCache *
get_cache(FunctionCallInfo fcinfo, Oid range_type)
{
	TumbleCache *cache = fcinfo->flinfo->fn_extra;

	return likely(cache != NULL) ? cache : create_cache(fcinfo, range_type);
}

/* The window of ts by cache->spec, as a new range in the current memory context. */
static inline Datum
make_window(TumbleCache *cache, int64 ts)
{
	RangeImage *result;

	if (unlikely(ts < cache->window.lower || ts >= cache->window.upper))
	{
		SxWindow window;

		sx_window_tumble(&cache->spec, ts, &window);
		cache->window.lower = window.start;
		cache->window.upper = window.end;
	}
	result = palloc(RANGE_IMAGE_SIZE);
	memcpy(result, &cache->window, RANGE_IMAGE_SIZE);
	return PointerGetDatum(result);
}

/*
 * Makes the spec of a call site for new arguments. On error the call site has no spec, so that it
 * parses again if it is called again.
 */
static void
parse_interval(TumbleCache *cache, SxWindowType type, const Interval *size, const Interval *origin,
			   const text *zone)
{
	int length = zone != NULL ? VARSIZE_ANY_EXHDR(zone) : -1;

	cache->valid = false;
	cache->window.lower = 1;
	cache->window.upper = 0;
	sx_window_spec_interval(&cache->spec, type, size, origin,
							zone != NULL ? text_to_cstring(zone) : NULL);
	cache->size = *size;
	cache->origin = *origin;
	cache->zone_length = length;
	/* a zone that was found has a name that fits */
	Assert(length <= TZ_STRLEN_MAX);
	if (length > 0)
		memcpy(cache->zone, VARDATA_ANY(zone), length);
	cache->valid = true;
}

/* Not interval_eq(), to which a month and 30 days are equal. */
static inline bool
same_interval(const Interval *a, const Interval *b)
{
	return a->time == b->time && a->day == b->day && a->month == b->month;
}

static inline bool
same_zone(const TumbleCache *cache, const text *zone)
{
	if (zone == NULL)
		return cache->zone_length < 0;
	return cache->zone_length == (int) VARSIZE_ANY_EXHDR(zone) &&
		   memcmp(cache->zone, VARDATA_ANY(zone), cache->zone_length) == 0;
}

/*
 * tumble(ts timestamptz, size interval, origin interval, zone text) returns tstzrange
 *
 * Not strict, because a NULL zone means UTC.
 */
Datum
stream_ext_tumble_timestamptz(PG_FUNCTION_ARGS)
{
	TumbleCache *cache;
	TimestampTz ts;
	Interval *size;
	Interval *origin;
	text *zone;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	ts = PG_GETARG_TIMESTAMPTZ(0);
	if (unlikely(TIMESTAMP_NOT_FINITE(ts)))
		PG_RETURN_NULL();
	size = PG_GETARG_INTERVAL_P(1);
	origin = PG_GETARG_INTERVAL_P(2);
	zone = PG_ARGISNULL(3) ? NULL : PG_GETARG_TEXT_PP(3);

	cache = get_cache(fcinfo, TSTZRANGEOID);
	if (unlikely(!cache->valid || !same_interval(&cache->size, size) ||
				 !same_interval(&cache->origin, origin) || !same_zone(cache, zone)))
		parse_interval(cache, SX_WINDOW_TIMESTAMPTZ, size, origin, zone);
	return make_window(cache, ts);
}

/* tumble(ts timestamp, size interval, origin interval) returns tsrange; strict */
Datum
stream_ext_tumble_timestamp(PG_FUNCTION_ARGS)
{
	TumbleCache *cache;
	Timestamp ts = PG_GETARG_TIMESTAMP(0);
	Interval *size = PG_GETARG_INTERVAL_P(1);
	Interval *origin = PG_GETARG_INTERVAL_P(2);

	if (unlikely(TIMESTAMP_NOT_FINITE(ts)))
		PG_RETURN_NULL();
	cache = get_cache(fcinfo, TSRANGEOID);
	if (unlikely(!cache->valid || !same_interval(&cache->size, size) ||
				 !same_interval(&cache->origin, origin)))
		parse_interval(cache, SX_WINDOW_TIMESTAMP, size, origin, NULL);
	return make_window(cache, ts);
}

/* tumble(ts bigint, size bigint, origin bigint) returns int8range; strict */
Datum
stream_ext_tumble_bigint(PG_FUNCTION_ARGS)
{
	TumbleCache *cache;
	int64 ts = PG_GETARG_INT64(0);
	int64 size = PG_GETARG_INT64(1);
	int64 origin = PG_GETARG_INT64(2);

	cache = get_cache(fcinfo, INT8RANGEOID);
	if (unlikely(!cache->valid || cache->number_size != size || cache->number_origin != origin))
	{
		cache->valid = false;
		cache->window.lower = 1;
		cache->window.upper = 0;
		sx_window_spec_bigint(&cache->spec, size, origin);
		cache->number_size = size;
		cache->number_origin = origin;
		cache->valid = true;
	}
	return make_window(cache, ts);
}

/* By the C function behind it, so that it is found in any schema and under any name. */
bool
sx_window_is_tumble(Oid funcid, SxWindowType *type)
{
	FmgrInfo finfo;

	fmgr_info(funcid, &finfo);
	if (finfo.fn_addr == stream_ext_tumble_timestamptz)
		*type = SX_WINDOW_TIMESTAMPTZ;
	else if (finfo.fn_addr == stream_ext_tumble_timestamp)
		*type = SX_WINDOW_TIMESTAMP;
	else if (finfo.fn_addr == stream_ext_tumble_bigint)
		*type = SX_WINDOW_BIGINT;
	else
		return false;
	return true;
}
