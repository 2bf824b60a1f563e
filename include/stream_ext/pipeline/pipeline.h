/*
 * pipeline.h
 *		Views in a worker, and the groups in which they read their sources. For pipeline/ only.
 */
#ifndef STREAM_EXT_PIPELINE_PIPELINE_H
#define STREAM_EXT_PIPELINE_PIPELINE_H

#include "datatype/timestamp.h"

#include "stream_ext/base/progress.h"
#include "stream_ext/catalog/catalog.h"
#include "stream_ext/catalog/options.h"
#include "stream_ext/pipeline/dataflow.h"
#include "stream_ext/source/source.h"

typedef struct SxPollGroup SxPollGroup;

/*
 * A view as this worker knows it; lives in its own child of TopMemoryContext while the view has a
 * row in the catalog. It is idle, or loaded (flow), or loaded and attached (group).
 */
typedef struct SxPipeline
{
	MemoryContext cxt;
	Oid view;
	Oid source;
	char *id;
	SxViewOptions *options; /* set while loaded */
	SxProgress *progress;   /* NULL: no room in shared memory */
	bool is_listed;         /* seen in the last look at the catalog */
	bool is_paused;
	bool caught_up;       /* as the catalog says */
	bool has_error;       /* as the catalog says */
	int32 failures;       /* in a row */
	TimestampTz retry_at; /* not before, after a failure */
	SxDataflow *flow;
	SxPollGroup *group;
	char *name;                   /* of the view, for messages */
	Oid owner;                    /* of the view, when it was compiled */
	uint64 generation;            /* of the source, when the state was loaded */
	RelFileNumber view_file;      /* the view's file that remembered TIDs point into */
	ItemPointerData position_tid; /* where the position was put last */
	Size memory;                  /* of the dataflow, as of its last batch */
	uint64 token;                 /* of waiters, taken before the poll began */
	uint64 marked;    /* the token for which the group's reader has marked its end; 0: none */
	bool check_shape; /* an invalidation came: compare what was compiled with what is there */
	bool reload;      /* a function changed: compile anew */
} SxPipeline;

/* Views that stand at the same position of the same source and read on together. */
struct SxPollGroup
{
	MemoryContext cxt;
	Oid source;
	Oid user; /* whose rights to the source matter; InvalidOid: they are checked for each view */
	uint64 generation;
	SxSource *reader;
	SxBatch *batch;      /* has all columns that any member needs */
	bytea *position;     /* as committed last; NULL: never */
	List *members;       /* SxPipeline * */
	bool drained;        /* at the last commit: there was no more to read at that moment */
	bool level;          /* and all that the source had was read */
	bool sound;          /* an error that a member had before is over */
	uint64 dead_letters; /* of the reader, as far as they have been published */
	uint64 tombstones;
	bool sat_out;    /* the last cycle could not lock what it needs */
	double interval; /* ms between commits under load, adapted to the cost of a flush */
};

/* ---- frame.c: the user and the settings that a view's expressions run under */

/* Switches to the view's owner and settings, if not there already. In a transaction. */
extern void sx_frame_enter(SxPipeline *pipeline);

/* Back to the worker's own. */
extern void sx_frame_leave(void);

/*
 * What runs until the next enter or leave is the reader of the source. Its errors are nobody's
 * fault or everybody's; the frame itself stays, because leaving and entering it for each batch
 * would cost more than reading.
 */
extern void sx_frame_reading(void);

/* The view whose code runs or ran when an error came; NULL: none. */
extern SxPipeline *sx_frame_pipeline(void);

/* Starts or changes the timer of stream.view_timeout. Call before each cycle. */
extern void sx_frame_set_timer(void);

/* Was code of a view cancelled by the timer since this was asked last? */
extern bool sx_frame_timed_out(void);

/* Forgets the frame after the transaction has been aborted. */
extern void sx_frame_abort(void);

/* ---- build.c: makes a pipeline ready to run */

/*
 * Loads the pipeline in the current transaction: compiles it, builds it from nothing if it has to
 * be, reads its state, and writes the rows that the view lacks. After the commit the caller calls
 * the operators' 'committed'. False: something that it needs is locked. Errors: those of the view.
 * Unless it returns true the caller unloads the pipeline.
 */
extern bool sx_pipeline_load(SxPipeline *pipeline);

/* Forgets the pipeline's dataflow. The caller has taken it out of its group. */
extern void sx_pipeline_unload(SxPipeline *pipeline);

/* ---- group.c: which views read together */

/* SxPollGroup *, in TopMemoryContext. */
extern List *sx_groups;

/* Adds a loaded pipeline to a group that stands where it does, or to a new one. In a transaction. */
extern void sx_group_attach(SxPipeline *pipeline);

/* Takes a pipeline out of its group; an empty group goes. */
extern void sx_group_detach(SxPipeline *pipeline);

/* Frees a group; its members have none then. */
extern void sx_group_free(SxPollGroup *group);

/* Before a group is run: lets one that is behind come to stand where another one stands. */
extern void sx_group_align(SxPollGroup *group);

/* Joins groups that have come to stand at the same place. */
extern void sx_groups_merge(void);

/* ---- commit.c: the one transaction of a cycle */

/*
 * Polls the group's source once, computes and commits. Members that cannot run now are put into
 * *absent (locked, keep their state) or *stale (to be loaded anew), and have no part in it. Sets
 * group->drained and group->sat_out. Starts and ends a transaction.
 */
extern void sx_group_run(SxPollGroup *group, List **absent, List **stale);

/* Total memory of the dataflows of this worker, kept by runtime.c. */
extern Size sx_runtime_memory(void);

#endif /* STREAM_EXT_PIPELINE_PIPELINE_H */
