/*
 * stop.h
 *		Stop points: places where a test can hold a process.
 */
#ifndef STREAM_EXT_BASE_STOP_H
#define STREAM_EXT_BASE_STOP_H

#include "utils/guc.h"

/* True while stream.stop_points names anything; keeps the macro at one test of a variable. */
extern bool sx_stop_enabled;

extern void sx_stop_assign(const char *newval, void *extra);
extern void sx_stop_at(const char *name);

/*
 * SX_STOP_POINT: waits here while another session holds the advisory lock of this name, if
 * stream.stop_points names it. Never place one while an LWLock or a buffer lock is held. The names
 * are listed in src/base/README.md.
 */
#define SX_STOP_POINT(name)            \
	do                                 \
	{                                  \
		if (unlikely(sx_stop_enabled)) \
			sx_stop_at(name);          \
	} while (0)

#endif /* STREAM_EXT_BASE_STOP_H */
