/*
 * frame.c
 *		The user and the settings that a view's expressions run under.
 *
 * Expressions run as the view's owner in a security-restricted context, as REFRESH does in the
 * server, and STABLE functions see TimeZone, DateStyle, IntervalStyle and search_path as they were
 * when the view was created. Settings are changed at a nest level of their own, so that a function
 * that sets one leaves nothing behind; those that already have the right value are left alone.
 *
 * A function can also take for ever. A timer looks from time to time whether the same call into a view's
 * code is still running, and cancels it when it has been for stream.view_timeout. That costs the calls
 * no more than counting them. Reading a source is not timed: sources bound their waiting themselves.
 *
 * An error leaves the frame standing, so that the caller learns whose code it was; the abort of the
 * transaction restores user and settings.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/progress.h"

#include "stream_ext/pipeline/pipeline.h"

static SxPipeline *current = NULL;
static bool is_reading; /* what runs now is the source's reader, not code of the view */
static int nest_level;
static Oid saved_user;
static int saved_context;
static ErrorContextCallback context_callback;

/* The timer looks this often within the time that a call may take. */
#define LOOKS 4

static volatile uint32 ncalls = 0; /* into code of views */
static uint32 seen_call = 0;       /* by the timer, at its last look */
static int looks = 0;              /* at the same call */
static volatile bool timed_out = false;
static TimeoutId timer = MAX_TIMEOUTS;
static int armed_for = 0; /* ms of the running timer; 0: none */

/* Handler of the timer; in a signal handler. */
static void
look_at_call(void)
{
	if (current == NULL || is_reading || ncalls + sx_progress_steps != seen_call)
	{
		seen_call = ncalls + sx_progress_steps;
		looks = 0;
		return;
	}
	if (++looks < LOOKS)
		return;
	looks = 0;
	timed_out = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

void
sx_frame_set_timer(void)
{
	if (armed_for == sx_view_timeout)
		return;
	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, look_at_call);
	if (armed_for > 0)
		disable_timeout(timer, false);
	armed_for = sx_view_timeout;
	if (armed_for > 0)
		enable_timeout_every(timer, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), 1),
							 Max(armed_for / LOOKS, 1));
}

bool
sx_frame_timed_out(void)
{
	bool result = timed_out;

	timed_out = false;
	return result;
}

static void
name_view(void *arg)
{
	if (!is_reading)
		errcontext("continuous view \"%s\"", current->name);
}

static Oid
get_owner(Oid relid)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation with OID %u does not exist", relid)));
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

static void
set_option(const char *name, const char *value)
{
	if (strcmp(GetConfigOption(name, false, false), value) != 0)
		(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
								 false);
}

void
sx_frame_enter(SxPipeline *pipeline)
{
	is_reading = false;
	ncalls++;
	if (current == pipeline)
		return;
	if (current != NULL)
		sx_frame_leave();
	current = pipeline;
	context_callback.callback = name_view;
	context_callback.previous = error_context_stack;
	error_context_stack = &context_callback;
	GetUserIdAndSecContext(&saved_user, &saved_context);
	SetUserIdAndSecContext(get_owner(pipeline->view),
						   saved_context | SECURITY_RESTRICTED_OPERATION);
	nest_level = NewGUCNestLevel();
	set_option("TimeZone", pipeline->options->timezone);
	set_option("DateStyle", pipeline->options->datestyle);
	set_option("IntervalStyle", pipeline->options->intervalstyle);
	set_option("search_path", pipeline->options->search_path);
}

void
sx_frame_leave(void)
{
	if (current == NULL)
		return;
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(saved_user, saved_context);
	error_context_stack = context_callback.previous;
	current = NULL;
}

void
sx_frame_reading(void)
{
	is_reading = true;
}

SxPipeline *
sx_frame_pipeline(void)
{
	return is_reading ? NULL : current;
}

void
sx_frame_abort(void)
{
	current = NULL;
}
