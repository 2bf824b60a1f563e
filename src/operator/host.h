/*
 * host.h
 *		Hosts an Agg node of the server outside a query. For src/operator only.
 */
#ifndef STREAM_EXT_OPERATOR_HOST_H
#define STREAM_EXT_OPERATOR_HOST_H

#include "executor/nodeAgg.h"
#include "nodes/extensible.h"

/* Add columns to those of the hosted node's input; the node refers to them as outer Vars. */
extern List *sx_host_add_column(List *columns, Oid typid, int32 typmod, Oid collation);
extern List *sx_host_add_columns(List *columns, TupleDesc desc);

/*
 * Starts a plain Agg node with these expressions over a scan that returns 'columns'. NULL for
 * 'methods': a scan that only has types and is never run.
 */
extern AggState *sx_host_agg(EState *estate, const CustomScanMethods *methods, List *columns,
							 List *targetlist, List *qual);

#endif /* STREAM_EXT_OPERATOR_HOST_H */
