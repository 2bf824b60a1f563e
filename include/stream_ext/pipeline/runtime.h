/*
 * runtime.h
 *		Everything that one worker runs: its views, their dataflows and positions.
 */
#ifndef STREAM_EXT_PIPELINE_RUNTIME_H
#define STREAM_EXT_PIPELINE_RUNTIME_H

/*
 * Sets up this process as worker 'number' of 'count' of its database. Call once, outside a
 * transaction, after connecting to the database.
 */
extern void sx_runtime_init(int number, int count);

/*
 * One pass over the views of this worker: looks for new, changed and dropped views, then polls,
 * computes and commits. Errors of a view are recorded for that view and do not come out of here.
 * Returns milliseconds until it wants to be called again if nobody sets the latch: 0 at once (more
 * input is waiting), else up to 1000. Calls CHECK_FOR_INTERRUPTS. Starts and ends transactions.
 */
extern long sx_runtime_cycle(void);

/* True once the extension is not in this database any more. */
extern bool sx_runtime_extension_gone(void);

#endif /* STREAM_EXT_PIPELINE_RUNTIME_H */
