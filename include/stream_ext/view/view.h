/*
 * view.h
 *		The end of a dataflow: rows of the view's own heap.
 */
#ifndef STREAM_EXT_VIEW_VIEW_H
#define STREAM_EXT_VIEW_VIEW_H

#include "utils/relcache.h"

#include "stream_ext/operator/operator.h"

/* Makes the operator that writes into a view. Takes batches (appends) and keyed rows. */
extern SxOperator *sx_view_create(int natts);

/* Says where the rows of this transaction go. 'rel' is held in RowExclusiveLock until its end. */
extern void sx_view_begin(SxOperator *op, Relation rel);

/* Deletes all rows of a view, row by row, so that other sessions keep what they see. */
extern void sx_view_clear(Relation rel);

#endif /* STREAM_EXT_VIEW_VIEW_H */
