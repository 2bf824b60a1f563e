/*
 * registry.h
 *		The table of databases and workers in shared memory: between launcher and workers only.
 */
#ifndef STREAM_EXT_WORKER_REGISTRY_H
#define STREAM_EXT_WORKER_REGISTRY_H

#include "datatype/timestamp.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

#include "stream_ext/worker/launcher.h"

#define SX_REGISTRY_DATABASES 1024 /* that allow connections */
#define SX_REGISTRY_WORKERS   2048 /* running, starting, or waiting for a slot */
#define SX_REGISTRY_HOLDS     128  /* sessions that keep workers out of a database */

/* What is known about the extension in a database. */
typedef enum SxExtensionState
{
	SX_EXTENSION_UNKNOWN, /* to be found out by worker 0 */
	SX_EXTENSION_ABSENT,
	SX_EXTENSION_PRESENT
} SxExtensionState;

typedef struct SxDatabaseEntry
{
	Oid dboid; /* InvalidOid: the entry is free */
	SxExtensionState extension;
	bool probe_requested; /* by a session that created the extension */
	int count;            /* workers that the views are distributed over; 0: none started */
} SxDatabaseEntry;

typedef struct SxWorkerEntry
{
	Oid dboid; /* InvalidOid: the entry is free */
	int number;
	int pid; /* 0: not attached (yet, or any more) */
	SxWorkerState state;
	bool no_extension;   /* set by the worker: that is why it ends */
	TimestampTz since;   /* start of the state */
	TimestampTz started; /* last start of a process */
	TimestampTz restart; /* NO_SLOT, RETRYING: when to try again */
	int failures;        /* ends with an error in a row */
} SxWorkerEntry;

typedef struct SxHold
{
	Oid dboid; /* InvalidOid: free */
	int pid;   /* of the session */
} SxHold;

/*
 * 'lock' guards all. Entries are made and freed by the launcher; a worker changes its own, a
 * session its holds and probe_requested.
 */
typedef struct SxRegistry
{
	LWLock *lock;
	ConditionVariable changed; /* a worker is gone */
	uint64 epoch;              /* counts launchers; a worker of an earlier one ends at start */
	int launcher_pid;          /* 0: none */
	TimestampTz launcher_since;
	SxDatabaseEntry databases[SX_REGISTRY_DATABASES];
	SxWorkerEntry workers[SX_REGISTRY_WORKERS];
	SxHold holds[SX_REGISTRY_HOLDS];
} SxRegistry;

/* NULL: not preloaded. */
extern SxRegistry *sx_registry;

/* What a worker is given by the launcher, in bgw_extra. */
typedef struct SxWorkerStart
{
	uint64 epoch;
	int index; /* of its entry */
	Oid dboid;
	int number;
	int count;
} SxWorkerStart;

extern void sx_registry_init(void);

/* Need the lock. A process belongs to the entry (it was registered and has not ended). */
extern bool sx_registry_is_live(const SxWorkerEntry *entry);
extern SxDatabaseEntry *sx_registry_database(Oid dboid);
extern bool sx_registry_is_held(Oid dboid);
extern void sx_registry_set_state(SxWorkerEntry *entry, SxWorkerState state);

extern PGDLLEXPORT void sx_launcher_main(Datum arg);
extern PGDLLEXPORT void sx_worker_main(Datum arg);

#endif /* STREAM_EXT_WORKER_REGISTRY_H */
