/*
 * clock.h
 *		Inside of module time: windows on the clock, and where a time zone puts them.
 */
#ifndef STREAM_EXT_TIME_CLOCK_H
#define STREAM_EXT_TIME_CLOCK_H

#include "stream_ext/time/window.h"

/*
 * The window that holds 'ts', both read from the same clock: spec->zone is disregarded and the
 * bounds may lie outside of the type's range. False if they do not even fit into int64.
 */
extern bool sx_clock_window(const SxWindowSpec *spec, int64 ts, SxWindow *window);

/*
 * The window that holds 'ts' by the local time of spec->zone, which is not NULL. False as above,
 * or if the zone's rules do not reach that far.
 */
extern bool sx_zone_window(const SxWindowSpec *spec, int64 ts, SxWindow *window);

#endif /* STREAM_EXT_TIME_CLOCK_H */
