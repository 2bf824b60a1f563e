/*
 * launcher.h
 *		What other processes may ask of the launcher, and see of it and the workers.
 */
#ifndef STREAM_EXT_WORKER_LAUNCHER_H
#define STREAM_EXT_WORKER_LAUNCHER_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

/* Registers shared memory, callbacks and the launcher. Called by _PG_init. */
extern void sx_worker_init(void);

/* False if the library was not preloaded: then there is no launcher and no worker. */
extern bool sx_launcher_available(void);

/* Errors: OBJECT_NOT_IN_PREREQUISITE_STATE, with the setting to change, if it was not. */
extern void sx_launcher_require(void);

/*
 * When the current transaction commits: look (again) whether the database has the extension.
 * For CREATE EXTENSION. A rolled back savepoint does not take it back; one probe is then in vain.
 */
extern void sx_launcher_request_probe(Oid dboid);

/*
 * Ends the workers of a database and keeps them from starting until the end of the current
 * transaction, or sx_launcher_release_database(). Returns when they are gone. For commands that
 * need a database without other sessions: DROP, RENAME, CREATE .. TEMPLATE; and for DROP EXTENSION,
 * which would deadlock with them. Can be cancelled. The
 * caller has checked that the user may run the command, else anybody could stop the workers.
 * Errors: OBJECT_IN_USE after 30 s, CONFIGURATION_LIMIT_EXCEEDED.
 */
extern void sx_launcher_hold_database(Oid dboid);
extern void sx_launcher_release_database(Oid dboid);

typedef enum SxWorkerState
{
	SX_WORKER_QUEUED,   /* for its first start */
	SX_WORKER_STARTING, /* or looking for the extension */
	SX_WORKER_RUNNING,
	SX_WORKER_STOPPING, /* told to end */
	SX_WORKER_NO_SLOT,  /* max_worker_processes reached; tried again */
	SX_WORKER_RETRYING  /* ended with an error; started again after a pause */
} SxWorkerState;

/* A worker, or the launcher (dboid InvalidOid). */
typedef struct SxWorkerInfo
{
	Oid dboid;
	int number; /* from 0 */
	int pid;    /* 0: none */
	SxWorkerState state;
	TimestampTz since;   /* start of the state */
	TimestampTz restart; /* NO_SLOT, RETRYING: time of the next try */
	int failures;        /* ends with an error in a row */
} SxWorkerInfo;

/* The launcher, if it runs, and all workers: palloc'd list of SxWorkerInfo *. */
extern List *sx_launcher_workers(void);

#endif /* STREAM_EXT_WORKER_LAUNCHER_H */
