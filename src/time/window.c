/*
 * window.c
 *		Window arithmetic on a clock without jumps, and the parameters that make sense.
 *
 * Fixed sizes (microseconds, or plain numbers for bigint): windows start at origin + n * size for
 * all integers n. Sizes in months: at the first of a month plus a fixed shift. Either way the
 * windows cover all time without gaps and overlaps, so a value is in exactly one of them.
 *
 * Sizes that are whole weeks count from Monday 1970-01-05, all others from 1970-01-01. This is
 * the one place where that is decided.
 *
 * All sums that can leave int64 are checked: the largest timestamp is only 8 days short of it,
 * and sizes and origins come from users. Nothing here allocates or needs a transaction.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "stream_ext/time/clock.h"
#include "stream_ext/time/window.h"

#define UNIX_EPOCH_DAYS  ((int64) (UNIX_EPOCH_JDATE - POSTGRES_EPOCH_JDATE))
#define USECS_PER_WEEK   (7 * USECS_PER_DAY)
#define MONDAY_IN_WEEK   (4 * USECS_PER_DAY) /* from Thursday 1970-01-01 to Monday */
#define MAX_WINDOW_YEARS 292000              /* what int64 microseconds can hold, rounded */

/* Remainder in [0, size), as floor division leaves it; C's % would go toward zero. */
static inline int64
floor_mod(int64 value, int64 size)
{
	int64 rest = value % size;

	return rest < 0 ? rest + size : rest;
}

static int64
floor_div(int64 value, int64 size)
{
	return value / size - (value % size < 0);
}

static const char *
format_interval(const Interval *value)
{
	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(value)));
}

static const char *
format_time(const SxWindowSpec *spec, int64 ts)
{
	PGFunction output = spec->type == SX_WINDOW_TIMESTAMP ? timestamp_out : timestamptz_out;

	return DatumGetCString(DirectFunctionCall1(output, TimestampTzGetDatum(ts)));
}

/*
 * Microseconds of days and time, one day being 24 hours; months are not looked at. False: they do
 * not fit.
 */
static bool
interval_usecs(const Interval *value, int64 *result)
{
	int64 days;

	return !pg_mul_s64_overflow(value->day, USECS_PER_DAY, &days) &&
		   !pg_add_s64_overflow(days, value->time, result);
}

/* Days from 1970-01-01 to the first of the month that is 'month' months after it. */
static bool
month_start_days(int64 month, int64 *result)
{
	int64 year = 1970 + floor_div(month, MONTHS_PER_YEAR);
	int m = (int) floor_mod(month, MONTHS_PER_YEAR) + 1;

	if (!IS_VALID_JULIAN(year, m, 1))
		return false;
	*result = (int64) date2j((int) year, m, 1) - UNIX_EPOCH_JDATE;
	return true;
}

static void
report_too_large(const Interval *size)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("window size \"%s\" is too large", format_interval(size)),
					errhint("A window can be up to %d years long.", MAX_WINDOW_YEARS)));
}

static void
report_bad_origin(const Interval *origin)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("window origin \"%s\" is out of range", format_interval(origin)),
			 errhint("Only the origin modulo the window size matters; give a smaller one.")));
}

static pg_tz *
find_zone(const char *name)
{
	pg_tz *zone = name[0] == '\0' || strlen(name) > TZ_STRLEN_MAX ? NULL : pg_tzset(name);

	if (zone == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("time zone \"%s\" not recognized", name),
						errhint("Give a name listed in the view pg_timezone_names.")));
	if (!pg_tz_acceptable(zone))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("time zone \"%s\" appears to use leap seconds", name),
						errdetail("PostgreSQL does not support leap seconds.")));
	return zone;
}

/* Fixed size: 1970-01-01 plus origin, calendar months of the origin included, modulo size. */
static bool
set_fixed_origin(SxWindowSpec *spec, const Interval *origin)
{
	int64 days;
	int64 month;
	int64 usecs;
	int64 start;

	if (!month_start_days(origin->month, &days) ||
		pg_mul_s64_overflow(UNIX_EPOCH_DAYS + days, USECS_PER_DAY, &month) ||
		!interval_usecs(origin, &usecs))
		return false;
	/* sizes are MAX_WINDOW_YEARS at most, so a few days more than that still fit */
	if (spec->size % USECS_PER_WEEK == 0)
		month = floor_mod(month, spec->size) + MONDAY_IN_WEEK;
	month = floor_mod(month, spec->size);
	usecs = floor_mod(usecs, spec->size);
	/* the sum of two remainders may not fit; in this order nothing overflows */
	start = month - spec->size + usecs;
	spec->origin = start < 0 ? start + spec->size : start;
	return true;
}

void
sx_window_spec_interval(SxWindowSpec *spec, SxWindowType type, const Interval *size,
						const Interval *origin, const char *zone)
{
	int64 usecs;

	Assert(type != SX_WINDOW_BIGINT);
	if (INTERVAL_NOT_FINITE(size) || INTERVAL_NOT_FINITE(origin))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("size and origin of a window must be finite"),
						errhint("Give a size such as '1 minute'.")));
	if (size->month != 0 && (size->day != 0 || size->time != 0))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("window size \"%s\" mixes months with days or time", format_interval(size)),
				 errhint("Give either months and years, or weeks, days and smaller units.")));

	memset(spec, 0, sizeof(*spec));
	spec->type = type;
	if (!interval_usecs(size, &usecs))
		usecs = size->day < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	if (size->month < 0 || (size->month == 0 && usecs <= 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("window size \"%s\" is not greater than zero", format_interval(size)),
				 errhint("Give a size such as '1 minute'.")));
	if (size->month / MONTHS_PER_YEAR >= MAX_WINDOW_YEARS ||
		usecs / USECS_PER_DAY >= (int64) (MAX_WINDOW_YEARS * DAYS_PER_YEAR))
		report_too_large(size);

	if (size->month == 0)
	{
		spec->size = usecs;
		if (!set_fixed_origin(spec, origin))
			report_bad_origin(origin);
	}
	else
	{
		spec->months = size->month;
		spec->month = floor_mod(origin->month, size->month);
		if (!interval_usecs(origin, &spec->shift))
			report_bad_origin(origin);
	}
	if (zone != NULL)
		spec->zone = find_zone(zone);
}

void
sx_window_spec_bigint(SxWindowSpec *spec, int64 size, int64 origin)
{
	if (size <= 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("window size %lld is not greater than zero", (long long) size),
						errhint("Give a size such as 1000.")));
	memset(spec, 0, sizeof(*spec));
	spec->type = SX_WINDOW_BIGINT;
	spec->size = size;
	spec->origin = floor_mod(origin, size);
}

/* Window of calendar months. */
static bool
month_window(const SxWindowSpec *spec, int64 ts, SxWindow *window)
{
	int64 clock;
	int64 julian;
	int64 month;
	int64 days;
	int y;
	int m;
	int d;

	if (pg_sub_s64_overflow(ts, spec->shift, &clock))
		return false;
	julian = floor_div(clock, USECS_PER_DAY) + POSTGRES_EPOCH_JDATE;
	if (julian < 0)
		return false;
	j2date((int) julian, &y, &m, &d);
	month = (int64) (y - 1970) * MONTHS_PER_YEAR + (m - 1);
	month -= floor_mod(month - spec->month, spec->months);

	if (!month_start_days(month, &days) ||
		pg_mul_s64_overflow(days + UNIX_EPOCH_DAYS, USECS_PER_DAY, &window->start) ||
		pg_add_s64_overflow(window->start, spec->shift, &window->start) ||
		!month_start_days(month + spec->months, &days) ||
		pg_mul_s64_overflow(days + UNIX_EPOCH_DAYS, USECS_PER_DAY, &window->end) ||
		pg_add_s64_overflow(window->end, spec->shift, &window->end))
		return false;
	return true;
}

bool
sx_clock_window(const SxWindowSpec *spec, int64 ts, SxWindow *window)
{
	int64 passed;

	if (spec->size == 0)
		return month_window(spec, ts, window);
	/* both remainders are below size: their difference cannot overflow, that of ts - origin can */
	passed = floor_mod(ts, spec->size) - spec->origin;
	if (passed < 0)
		passed += spec->size;
	return !pg_sub_s64_overflow(ts, passed, &window->start) &&
		   !pg_add_s64_overflow(window->start, spec->size, &window->end);
}

void
sx_window_tumble(const SxWindowSpec *spec, int64 ts, SxWindow *window)
{
	bool fits;

	if (spec->zone != NULL)
		fits = sx_zone_window(spec, ts, window);
	else
		fits = sx_clock_window(spec, ts, window);

	if (spec->type == SX_WINDOW_BIGINT)
	{
		if (!fits)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("window of %lld is out of range for type bigint", (long long) ts)));
	}
	else if (!fits || !IS_VALID_TIMESTAMP(window->start) || !IS_VALID_TIMESTAMP(window->end))
		ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
						errmsg("window of \"%s\" is out of range", format_time(spec, ts)),
						errdetail("It would begin or end outside of the limits of the type.")));
	Assert(window->start <= ts && ts < window->end);
}

void
sx_window_check_size(SxWindowType type, const NullableDatum *size, const NullableDatum *origin,
					 const NullableDatum *zone)
{
	SxWindowSpec spec;
	Interval none = {0};
	char *name = NULL;

	if (size != NULL && size->isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("window size must not be null"),
				 errhint("Give a size such as %s.",
						 type == SX_WINDOW_BIGINT ? "1000" : "'1 minute'")));
	if (origin != NULL && origin->isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("window origin must not be null"),
				 errhint("Leave the origin out to count from 1970-01-01.")));

	if (type == SX_WINDOW_BIGINT)
	{
		if (size != NULL)
			sx_window_spec_bigint(&spec, DatumGetInt64(size->value), 0);
		return;
	}
	if (zone != NULL && !zone->isnull)
		name = TextDatumGetCString(zone->value);
	if (size != NULL)
		sx_window_spec_interval(&spec, type, DatumGetIntervalP(size->value),
								origin != NULL ? DatumGetIntervalP(origin->value) : &none, name);
	else if (name != NULL)
		(void) find_zone(name);
}
