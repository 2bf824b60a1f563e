/*
 * zone.c
 *		Windows by the local time of a zone, whose clock jumps.
 *
 * Two rules, by the length of the window on the clock (a local day being 24 hours of it):
 *
 * A day or more: window boundary B is the first moment at which the clock shows B or has jumped
 * over it. Days are then the local calendar's, with 23 or 25 hours where the clock jumps; a day
 * without midnight begins after the jump, one with two at the first.
 *
 * Less than a day: a window begins each time that the clock shows one of the boundaries, and where
 * it jumps past one. So the hour that comes twice is two windows of one hour, while a window of
 * six hours in which the clock jumps has five or seven.
 *
 * Both rules make boundaries that only depend on the zone, not on the time asked for. So windows
 * never overlap, leave no gap, and hold the time asked for, whatever the zone's rules are.
 *
 * Offsets come from pg_next_dst_boundary() alone: pg_localtime() may disagree with it before the
 * first rule of a zone. The time zone files are the server's; with a new edition of them windows
 * can move, as any result of AT TIME ZONE can.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "pgtime.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "stream_ext/time/clock.h"

#define UNIX_EPOCH_SECS ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

/* No offset from UTC is as long, so a local time is reached within it of the same time in UTC. */
#define MAX_OFFSET (2 * USECS_PER_DAY)

/* A stretch of time in which the zone's offset does not change. */
typedef struct Stretch
{
	int64 start;  /* us; the first stretch looked at begins somewhere before it */
	int64 end;    /* us; PG_INT64_MAX: the last one */
	int64 offset; /* us to add to UTC to get local time */
} Stretch;

/* Finds the offset at time 'ts' and until when it lasts. False: the zone's rules do not say. */
static bool
find_stretch(const pg_tz *zone, int64 ts, Stretch *stretch)
{
	pg_time_t secs = ts / USECS_PER_SEC - (ts % USECS_PER_SEC < 0) + UNIX_EPOCH_SECS;
	pg_time_t boundary;
	long int offset;
	long int next_offset;
	int is_dst;
	int next_is_dst;
	int found;

	found =
		pg_next_dst_boundary(&secs, &offset, &is_dst, &boundary, &next_offset, &next_is_dst, zone);
	if (found < 0)
		return false;
	stretch->start = ts;
	stretch->offset = offset * USECS_PER_SEC;
	stretch->end = PG_INT64_MAX;
	/* the last timestamps are less than an int64 overflow away from it, boundaries need not be */
	if (found > 0 && boundary - UNIX_EPOCH_SECS < PG_INT64_MAX / USECS_PER_SEC)
		stretch->end = (boundary - UNIX_EPOCH_SECS) * USECS_PER_SEC;
	return true;
}

/* The first moment at which the clock shows 'local' or a later time. */
static bool
find_first_passage(const pg_tz *zone, int64 local, int64 *result)
{
	Stretch stretch;

	if (local < PG_INT64_MIN + MAX_OFFSET || local > PG_INT64_MAX - MAX_OFFSET)
		return false;
	if (!find_stretch(zone, local - MAX_OFFSET, &stretch))
		return false;
	while (local - stretch.offset >= stretch.end)
	{
		if (!find_stretch(zone, stretch.end, &stretch))
			return false;
	}
	*result = Max(stretch.start, local - stretch.offset);
	return true;
}

/* A day or more: the window between two first passages. */
static bool
find_calendar_window(const SxWindowSpec *spec, int64 ts, SxWindow *window)
{
	Stretch stretch;
	SxWindow cell;

	if (!find_stretch(spec->zone, ts, &stretch))
		return false;
	/* the clock's window is the right one but for an hour or so after it has jumped */
	if (!sx_clock_window(spec, ts + stretch.offset, &cell) ||
		!find_first_passage(spec->zone, cell.start, &window->start))
		return false;
	while (window->start > ts)
	{
		if (!sx_clock_window(spec, cell.start - 1, &cell) ||
			!find_first_passage(spec->zone, cell.start, &window->start))
			return false;
	}
	if (!find_first_passage(spec->zone, cell.end, &window->end))
		return false;
	while (window->end <= ts)
	{
		window->start = window->end;
		if (!sx_clock_window(spec, cell.end, &cell) ||
			!find_first_passage(spec->zone, cell.end, &window->end))
			return false;
	}
	return true;
}

/*
 * Whether a window ends when the clock jumps from 'before' (which it does not show any more) to
 * 'after': when that is in another window of the clock, or at the beginning of the same.
 */
static bool
jump_ends_window(const SxWindowSpec *spec, int64 before, int64 after, bool *ends)
{
	SxWindow left;
	SxWindow right;

	if (!sx_clock_window(spec, before - 1, &left) || !sx_clock_window(spec, after, &right))
		return false;
	*ends = left.start != right.start || right.start == after;
	return true;
}

/*
 * Less than a day: walks from a point that is surely before the window of ts to the window's start
 * and on to its end, stretch by stretch.
 */
static bool
find_hour_window(const SxWindowSpec *spec, int64 ts, SxWindow *window)
{
	Stretch stretch;
	SxWindow cell;
	bool found = false; /* window->start is the last boundary up to the end of 'stretch', or ts */
	bool ends;
	int64 before;

	if (!find_stretch(spec->zone, ts - spec->size - MAX_OFFSET, &stretch))
		return false;
	for (;;)
	{
		int64 last = Min(ts, stretch.end - 1);

		if (!sx_clock_window(spec, last + stretch.offset, &cell))
			return false;
		if (cell.start - stretch.offset >= stretch.start)
		{
			window->start = cell.start - stretch.offset;
			found = true;
		}
		if (ts < stretch.end)
			break;

		before = stretch.end + stretch.offset;
		if (!find_stretch(spec->zone, stretch.end, &stretch) ||
			!jump_ends_window(spec, before, stretch.start + stretch.offset, &ends))
			return false;
		if (ends)
		{
			window->start = stretch.start;
			found = true;
		}
	}
	if (!found)
		return false;

	while (cell.end - stretch.offset >= stretch.end)
	{
		before = stretch.end + stretch.offset;
		if (!find_stretch(spec->zone, stretch.end, &stretch) ||
			!jump_ends_window(spec, before, stretch.start + stretch.offset, &ends))
			return false;
		if (ends)
		{
			window->end = stretch.start;
			return true;
		}
	}
	window->end = cell.end - stretch.offset;
	return true;
}

bool
sx_zone_window(const SxWindowSpec *spec, int64 ts, SxWindow *window)
{
	if (spec->size == 0 || spec->size >= USECS_PER_DAY)
		return find_calendar_window(spec, ts, window);
	return find_hour_window(spec, ts, window);
}
