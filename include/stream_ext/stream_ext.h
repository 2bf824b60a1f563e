/*
 * stream_ext.h
 *		The library's entry point.
 */
#ifndef STREAM_EXT_STREAM_EXT_H
#define STREAM_EXT_STREAM_EXT_H

extern PGDLLEXPORT void _PG_init(void);

#endif /* STREAM_EXT_STREAM_EXT_H */
