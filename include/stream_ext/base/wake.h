/*
 * wake.h
 *		Wakes the workers of a database when a transaction that they wait for commits.
 */
#ifndef STREAM_EXT_BASE_WAKE_H
#define STREAM_EXT_BASE_WAKE_H

extern void sx_wake_init(void);

/* Launcher (dboid InvalidOid) and workers: have my latch set from now on, until exit. */
extern void sx_wake_attach(Oid dboid);

/* Sets the latches of the workers of a database, or of the launcher (InvalidOid). Any process. */
extern void sx_wake_database(Oid dboid);

/* Wakes the workers of this database when the current transaction commits. */
extern void sx_wake_at_commit(void);

/*
 * The same for a change of stream.catalog_view: also counts it. Workers read the table again when
 * the count has moved. Any process; 0 without preloading.
 */
extern void sx_wake_catalog_at_commit(void);
extern uint64 sx_wake_catalog_changes(void);

/* Wakes the launcher as well, when the current transaction commits. */
extern void sx_wake_launcher_at_commit(void);

#endif /* STREAM_EXT_BASE_WAKE_H */
