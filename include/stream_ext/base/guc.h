/*
 * guc.h
 *		The settings of stream_ext. All are defined in guc.c, in this order.
 */
#ifndef STREAM_EXT_BASE_GUC_H
#define STREAM_EXT_BASE_GUC_H

extern int sx_batch_bytes;       /* kB one commit may take from its sources */
extern int sx_batch_rows;        /* rows one commit may take from its sources */
extern int sx_commit_interval;   /* ms between commits under load */
extern int sx_kafka_queue_bytes; /* kB of records read ahead for a topic */
extern int sx_max_streams;       /* streams with open blocks in shared memory */
extern int sx_max_views;         /* continuous views with counters in shared memory */
extern int sx_state_memory;      /* kB of operator state in one worker */
extern char *sx_stop_points;     /* names of stop points to stop at, comma separated */
extern int sx_view_timeout;      /* ms one step of a view may take; 0: any */
extern int sx_workers;           /* workers a database */

extern void sx_guc_init(void);

#endif /* STREAM_EXT_BASE_GUC_H */
