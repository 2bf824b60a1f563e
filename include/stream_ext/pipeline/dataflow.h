/*
 * dataflow.h
 *		The running operators of one view.
 */
#ifndef STREAM_EXT_PIPELINE_DATAFLOW_H
#define STREAM_EXT_PIPELINE_DATAFLOW_H

#include "nodes/execnodes.h"

#include "stream_ext/operator/operator.h"

/*
 * A view's operators, made from its plan. Lives in its own memory context, which also holds all
 * state; sx_dataflow_free() ends the executor state and deletes it.
 */
typedef struct SxDataflow
{
	MemoryContext cxt;
	EState *estate;
	Oid source;
	uint32 source_shape;   /* of the source's columns, see sx_relation_shape() */
	TupleDesc source_desc; /* a copy */
	Bitmapset *needed;     /* columns of the source that are read */
	SxOperator *first;     /* takes the source's batches */
	SxOperator *aggregate; /* NULL: the view only filters and projects */
	SxOperator *sink;      /* writes the view's rows */
	int noperators;
	SxOperator **operators; /* by id: the sink first */
	char *signature;        /* of the state's layout */
	List *dependencies;     /* PlanInvalItem *: functions and types that the plan was made from */
} SxDataflow;

/*
 * Compiles the query of a view; runs as the current user, who must be the view's owner, with an
 * active snapshot. Child of the current memory context.
 */
extern SxDataflow *sx_dataflow_create(Oid view);
extern void sx_dataflow_free(SxDataflow *flow);

/* Hash of all of a relation's columns that a compiled dataflow relies on. */
extern uint32 sx_relation_shape(Relation rel);

/* Was the dataflow compiled from the entry of a system cache that has this hash (0: any)? */
extern bool sx_dataflow_uses(SxDataflow *flow, int cacheid, uint32 hashvalue);

/* Memory of the dataflow, state included. */
extern Size sx_dataflow_memory(SxDataflow *flow);

#endif /* STREAM_EXT_PIPELINE_DATAFLOW_H */
