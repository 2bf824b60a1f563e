/*
 * stream_ext.c
 *		Entry point of the library: calls each module's init, in the order of the layers.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/progress.h"
#include "stream_ext/base/wake.h"
#include "stream_ext/command/command.h"
#include "stream_ext/pipeline/plan.h"
#include "stream_ext/storage/stream_am.h"
#include "stream_ext/stream_ext.h"
#include "stream_ext/worker/launcher.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "stream_ext", .version = "1.0");
#else
PG_MODULE_MAGIC;
#endif

void
_PG_init(void)
{
	sx_guc_init();
	sx_wake_init();
	sx_progress_init();
	sx_storage_init();
	sx_plan_init();
	sx_worker_init();
	sx_command_init();
}
