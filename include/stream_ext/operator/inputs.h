/*
 * inputs.h
 *		Aggregates that keep their inputs: DISTINCT, ORDER BY, ordered-set, no serial form.
 */
#ifndef STREAM_EXT_OPERATOR_INPUTS_H
#define STREAM_EXT_OPERATOR_INPUTS_H

#include "nodes/execnodes.h"
#include "nodes/primnodes.h"

#include "stream_ext/base/rows.h"

/* One such aggregate of an aggregate operator. */
typedef struct SxInputs SxInputs;

/* The inputs of one group, part of the group's payload; zeroed memory is an empty one. */
typedef struct SxInputBag
{
	int64 nrows;
	int64 npersisted; /* rows already in the state table */
	int64 capacity;
	Datum *values; /* [capacity][columns] */
	bool *nulls;
	uint32 *index; /* of DISTINCT: row numbers + 1 by hash of their bytes; NULL while small */
	int64 index_size;
} SxInputBag;

/* How an aggregate is computed. */
typedef enum SxInputsMode
{
	SX_INPUTS_NONE,  /* from its transition value alone; DISTINCT, if any, changes nothing */
	SX_INPUTS_SET,   /* from its transition value, fed with values that were not there before */
	SX_INPUTS_REPLAY /* anew from all inputs, whenever the group has changed */
} SxInputsMode;

extern SxInputsMode sx_inputs_mode(Aggref *aggref);

/*
 * Prepares 'aggref', which is computed as 'mode' says, and whose arguments refer to columns of 'input' as outer Vars. Memory of bags is
 * taken from 'bag_cxt'. The rest lives in the current memory context.
 */
extern SxInputs *sx_inputs_create(EState *estate, Aggref *aggref, SxInputsMode mode,
								  TupleDesc input, MemoryContext bag_cxt);
extern bool sx_inputs_is_set(const SxInputs *inputs);

/* Columns of the state table of this aggregate: group, row number, and one for each argument. */
extern TupleDesc sx_inputs_desc(SxInputs *inputs);

/*
 * Adds the input row in econtext->ecxt_outertuple, if the aggregate's FILTER lets it in. True if it
 * was added: of equal values of a DISTINCT aggregate only the first is.
 */
extern bool sx_inputs_add(SxInputs *inputs, SxInputBag *bag, ExprContext *econtext);

/* Adds a row read back from the state table. */
extern void sx_inputs_load(SxInputs *inputs, SxInputBag *bag, const Datum *values,
						   const bool *nulls);

/*
 * The aggregate's value over the bag. 'keys' is the group's row of the input, from which direct
 * arguments are evaluated. The result is in the current memory context.
 */
extern Datum sx_inputs_result(SxInputs *inputs, SxInputBag *bag, TupleTableSlot *keys,
							  bool *isnull);

/* Writes the rows that are not in the state table yet. */
extern void sx_inputs_persist(SxInputs *inputs, SxInputBag *bag, int64 group, SxRowWriter *writer);

#endif /* STREAM_EXT_OPERATOR_INPUTS_H */
