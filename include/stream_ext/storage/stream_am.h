/*
 * stream_am.h
 *		The table access methods "stream" and "continuous".
 */
#ifndef STREAM_EXT_STORAGE_STREAM_AM_H
#define STREAM_EXT_STORAGE_STREAM_AM_H

/* Registers shared memory, transaction callbacks and the hooks that guard streams. */
extern void sx_storage_init(void);

#endif /* STREAM_EXT_STORAGE_STREAM_AM_H */
