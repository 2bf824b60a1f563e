/*
 * window.h
 *		Windows of event time: which window holds a given time.
 *
 * Times are int64: microseconds since 2000-01-01 as in timestamptz and timestamp, or plain
 * numbers for bigint. A window is half-open, [start, end).
 */
#ifndef STREAM_EXT_TIME_WINDOW_H
#define STREAM_EXT_TIME_WINDOW_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "pgtime.h"

typedef enum SxWindowType
{
	SX_WINDOW_TIMESTAMPTZ, /* tstzrange */
	SX_WINDOW_TIMESTAMP,   /* tsrange */
	SX_WINDOW_BIGINT       /* int8range */
} SxWindowType;

/* How windows follow each other. Made by sx_window_spec_*(); plain data, may be copied. */
typedef struct SxWindowSpec
{
	SxWindowType type;
	int64 size;   /* length of a window; 0: it is 'months' long */
	int64 origin; /* start of one of the windows, 0 <= origin < size */
	int64 months; /* length in calendar months, if size is 0 */
	int64 month;  /* months from 1970-01 to the start of one of the windows, 0 <= month < months */
	int64 shift;  /* what is added to the start of that month */
	pg_tz *zone;  /* of the calendar and clock; NULL: UTC, or no zone at all */
} SxWindowSpec;

typedef struct SxWindow
{
	int64 start;
	int64 end;
} SxWindow;

/*
 * Fill *spec. 'zone' may be NULL. Errors: INVALID_PARAMETER_VALUE and FEATURE_NOT_SUPPORTED, with
 * a hint, for sizes, origins and zones that make no windows.
 */
extern void sx_window_spec_interval(SxWindowSpec *spec, SxWindowType type, const Interval *size,
									const Interval *origin, const char *zone);
extern void sx_window_spec_bigint(SxWindowSpec *spec, int64 size, int64 origin);

/*
 * The window that holds the finite time 'ts'. Error DATETIME_VALUE_OUT_OF_RANGE or
 * NUMERIC_VALUE_OUT_OF_RANGE if a bound of it is no value of the type.
 */
extern void sx_window_tumble(const SxWindowSpec *spec, int64 ts, SxWindow *window);

/*
 * True, and *type, if the function is one of ours named tumble. Its arguments are then
 * (ts, size, origin[, zone]).
 */
extern bool sx_window_is_tumble(Oid funcid, SxWindowType *type);

/*
 * Checks the arguments of a window function when a view is created. A pointer is NULL where the
 * argument is not a constant; then it cannot be checked here. Errors: those of
 * sx_window_spec_*(), and NULL_VALUE_NOT_ALLOWED for a size or origin that is always NULL.
 */
extern void sx_window_check_size(SxWindowType type, const NullableDatum *size,
								 const NullableDatum *origin, const NullableDatum *zone);

#endif /* STREAM_EXT_TIME_WINDOW_H */
