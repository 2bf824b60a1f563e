/*
 * project.h
 *		The operator for filters and expressions.
 */
#ifndef STREAM_EXT_OPERATOR_PROJECT_H
#define STREAM_EXT_OPERATOR_PROJECT_H

#include "nodes/execnodes.h"
#include "nodes/pg_list.h"

#include "stream_ext/operator/operator.h"

/*
 * Makes an operator that keeps the rows for which 'qual' (an implicitly ANDed list) is true and
 * computes 'targetlist' from them. Both refer to the input as their plan node did: to its scan
 * tuple or, if 'input_is_outer', to its outer tuple. Columns of the targetlist not in 'needed'
 * (attribute numbers from 1; NULL: all) are left out.
 */
extern SxOperator *sx_project_create(EState *estate, TupleDesc input, List *qual, List *targetlist,
									 bool input_is_outer, const Bitmapset *needed);

/* What the operator's output looks like, and which input columns it reads. */
extern TupleDesc sx_project_output(SxOperator *op);
extern Bitmapset *sx_project_inputs(List *qual, List *targetlist, const Bitmapset *needed,
									int natts);

#endif /* STREAM_EXT_OPERATOR_PROJECT_H */
