/*
 * progress.h
 *		What the worker tells other sessions about each continuous view, in shared memory.
 */
#ifndef STREAM_EXT_BASE_PROGRESS_H
#define STREAM_EXT_BASE_PROGRESS_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

#define SX_PROGRESS_OPERATORS 8

/* Can the source of a view be read? */
typedef enum SxSourceHealth
{
	SX_SOURCE_OK,
	SX_SOURCE_CONNECTING, /* no answer yet */
	SX_SOURCE_DEGRADED,   /* it went away and may come back */
	SX_SOURCE_FAILING     /* it refuses; somebody must act */
} SxSourceHealth;

#define SX_SOURCE_MESSAGE 256

/* Counters of one operator of the running dataflow. Written by the worker only. */
typedef struct SxOperatorCounters
{
	pg_atomic_uint64 rows_in;
	pg_atomic_uint64 rows_out;
	pg_atomic_uint64 state_rows;  /* entries in memory */
	pg_atomic_uint64 state_bytes; /* memory of them */
} SxOperatorCounters;

/*
 * One continuous view. An entry is made on first use and freed when the view's DROP commits.
 * Counters are since the worker's start; they are 0 after a crash.
 */
typedef struct SxProgress
{
	Oid dboid;
	Oid view;
	/*
	 * Tokens for waiting. A waiter takes requested + 1; the worker reads 'requested' before it
	 * takes the snapshot of a poll, and stores it in 'completed' once all that this poll could see
	 * is committed. So completed >= token means: all that was committed at the request is applied.
	 */
	pg_atomic_uint64 requested;
	pg_atomic_uint64 completed;
	pg_atomic_uint64 failures; /* errors of the view; a waiter looks at the catalog when it moves */
	ConditionVariable changed; /* broadcast when completed or failures moves */
	pg_atomic_uint64 commits;
	pg_atomic_uint64 rows_in;     /* rows read from the sources */
	pg_atomic_uint64 rows_out;    /* rows written to the view */
	pg_atomic_uint64 commit_time; /* TimestampTz of the last commit with input; 0 none */
	pg_atomic_uint64 watermark;   /* int64 as uint64; PG_INT64_MIN none */
	pg_atomic_uint64 behind; /* blocks or records of the source not read yet, at the last poll */
	pg_atomic_uint64 dead_letters; /* records of the source that could not be decoded */
	pg_atomic_uint64 tombstones;   /* records of the source without a value, left out */
	pg_atomic_uint32 worker_pid;   /* 0: no worker has it */
	SxOperatorCounters operators[SX_PROGRESS_OPERATORS];
	slock_t mutex; /* guards what follows; see sx_progress_set_source() */
	SxSourceHealth source_health;
	TimestampTz source_since;
	char source_message[SX_SOURCE_MESSAGE];
} SxProgress;

/*
 * Counts steps of long loops over groups and rows, so that who looks from outside, in a signal handler,
 * can tell them from a call that does not come to an end.
 */
extern volatile uint32 sx_progress_steps;

extern void sx_progress_init(void);

/*
 * Finds the entry of a view of this database, makes it if 'create'. NULL: not there, or (with
 * 'create') all stream.max_views entries are taken, or the library is not preloaded. The pointer
 * stays valid while the view exists; counters may be read and waited for without a lock. With
 * 'create' the caller is in a transaction and holds a lock on the view: an entry made for a view
 * that is being dropped would stay.
 */
extern SxProgress *sx_progress_get(Oid view, bool create);

/* Sets and reads how the source of a view is; 'message' has room for SX_SOURCE_MESSAGE bytes. */
extern void sx_progress_set_source(SxProgress *progress, SxSourceHealth health, TimestampTz since,
								   const char *message);
extern SxSourceHealth sx_progress_get_source(SxProgress *progress, TimestampTz *since,
											 char *message);

/* Frees the entry of a view when the current transaction commits (DROP). */
extern void sx_progress_drop_at_commit(Oid view);

/* Frees all entries of a database (DROP DATABASE, DROP EXTENSION), at once. */
extern void sx_progress_drop_database(Oid dboid);

/* This process, a worker, ends: sets worker_pid of all entries that it has to 0. */
extern void sx_progress_detach(void);

#endif /* STREAM_EXT_BASE_PROGRESS_H */
