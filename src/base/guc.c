/*
 * guc.c
 *		Defines the settings of stream_ext, in alphabetical order.
 *
 * The list in docs/reference-guc.md has the same order; the lint compares the two.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <limits.h>

#include "utils/guc.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/stop.h"

int sx_batch_bytes = 65536;
int sx_batch_rows = 1000000;
int sx_commit_interval = 100;
int sx_kafka_queue_bytes = 16384;
int sx_max_streams = 256;
int sx_max_views = 256;
int sx_state_memory = 1048576;
char *sx_stop_points = NULL;
int sx_view_timeout = 10000;
int sx_workers = 1;

/*
 * Defines all settings. Called by _PG_init, also in a session that loaded the library by itself:
 * the settings of shared memory then keep their defaults and have no effect.
 */
void
sx_guc_init(void)
{
	DefineCustomIntVariable(
		"stream.batch_bytes",
		"Sets the most data that a worker takes from its sources in one commit.", NULL,
		&sx_batch_bytes, 65536, 64, MAX_KILOBYTES, PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"stream.batch_rows",
		"Sets the most rows that a worker takes from its sources in one commit.", NULL,
		&sx_batch_rows, 1000000, 1, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("stream.commit_interval",
							"Sets the longest time between two commits of a worker under load.",
							"Input that is drained is committed at once.", &sx_commit_interval, 100,
							0, 60000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("stream.kafka_queue_bytes",
							"Sets the amount of records of a topic that a worker reads ahead.",
							"In memory they take three to four times as much.",
							&sx_kafka_queue_bytes, 16384, 64, 2097151, PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);
	if (process_shared_preload_libraries_in_progress)
	{
		DefineCustomIntVariable(
			"stream.max_streams",
			"Sets the number of streams that can be written to at the same time.", NULL,
			&sx_max_streams, 256, 1, 65536, PGC_POSTMASTER, 0, NULL, NULL, NULL);
		DefineCustomIntVariable("stream.max_views",
								"Sets the number of continuous views of all databases.", NULL,
								&sx_max_views, 256, 1, 65536, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	}
	DefineCustomIntVariable("stream.state_memory",
							"Sets the memory that operators of one worker may use for their state.",
							"A view that would exceed it stops with an error.", &sx_state_memory,
							1048576, 1024, MAX_KILOBYTES, PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL,
							NULL);
	DefineCustomStringVariable(
		"stream.stop_points", "Names the stop points at which processes wait for an advisory lock.",
		"For tests.", &sx_stop_points, "", PGC_SUSET, GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL, NULL,
		sx_stop_assign, NULL);
	DefineCustomIntVariable("stream.view_timeout",
							"Sets the longest time that one step of a continuous view may take.",
							"A view whose expressions take longer is stopped. 0 turns this off.",
							&sx_view_timeout, 10000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS, NULL,
							NULL, NULL);
	DefineCustomIntVariable("stream.workers",
							"Sets the number of workers of a database that has continuous views.",
							NULL, &sx_workers, 1, 0, 64, PGC_SIGHUP, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("stream");
}
