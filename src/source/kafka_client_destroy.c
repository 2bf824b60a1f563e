/*
 * kafka_client_destroy.c
 *		Destroys handles of librdkafka without waiting for them.
 *
 * rd_kafka_destroy() waits for all threads of the handle, and these may be in getaddrinfo() for as
 * long as the resolver likes. A bug could make it wait for ever. So it is called in a thread of its
 * own. A process that ends waits for such threads, for END_TIME at most: they must not run while
 * exit() tears down OpenSSL beneath them. If one does not end, the process leaves without that, after
 * all that PostgreSQL does at the end of a process has been done.
 *
 * The threads have all signals blocked and touch nothing but their handle.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "storage/fd.h"
#include "storage/ipc.h"

#include "kafka_client_private.h"

#define HANDLE_FDS 6 /* sockets and pipes of a handle in a small cluster */
#define END_TIME   3 /* s */

typedef struct Ending
{
	struct Ending *next;
	pthread_t thread;
	rd_kafka_t *rk;
} Ending;

static Ending *endings = NULL; /* of the process ending_pid */
static int ending_pid = 0;
static int exit_code = 0;

static void *
run_ending(void *arg)
{
	rd_kafka_destroy_flags(((Ending *) arg)->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	return NULL;
}

static bool
start_ending(Ending *ending)
{
	sigset_t all;
	sigset_t old;
	int error;

	sigfillset(&all);
	if (pthread_sigmask(SIG_SETMASK, &all, &old) != 0)
		return false;
	error = pthread_create(&ending->thread, NULL, run_ending, ending);
	(void) pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error == 0;
}

/* One of the last things of the process. */
static void
note_exit_code(int code, Datum arg)
{
	exit_code = code;
}

/* The very last: comes before what was registered earlier, such as the end of OpenSSL. */
static void
leave_at_once(void)
{
	if (ending_pid == getpid() && endings != NULL)
		_exit(exit_code);
}

/* Accounts for the files that a handle opens. */
void
sx_kafka_client_reserve_fds(void)
{
	for (int i = 0; i < HANDLE_FDS; i++)
		ReserveExternalFD();
}

void
sx_kafka_client_release_fds(void)
{
	for (int i = 0; i < HANDLE_FDS; i++)
		ReleaseExternalFD();
}

/* Frees what has ended. With a limit, waits for it; NULL: does not wait. */
static void
reap_endings(const struct timespec *limit)
{
	Ending **link = &endings;

	if (ending_pid != MyProcPid)
		return;
	while (*link != NULL)
	{
		Ending *ending = *link;
		int error = limit != NULL ? pthread_timedjoin_np(ending->thread, NULL, limit)
								  : pthread_tryjoin_np(ending->thread, NULL);

		if (error != 0)
		{
			link = &ending->next;
			continue;
		}
		*link = ending->next;
		free(ending);
		sx_kafka_client_release_fds();
	}
}

/* Destroys a handle, whose queues and topic have been destroyed. Raises nothing. */
void
sx_kafka_client_destroy_handle(rd_kafka_t *rk)
{
	Ending *ending = malloc(sizeof(Ending));

	if (ending_pid != MyProcPid)
	{
		endings = NULL;
		ending_pid = MyProcPid;
		on_proc_exit(note_exit_code, (Datum) 0);
		(void) atexit(leave_at_once);
	}
	reap_endings(NULL);
	if (ending != NULL)
	{
		ending->rk = rk;
		if (start_ending(ending))
		{
			ending->next = endings;
			endings = ending;
			return;
		}
		free(ending);
	}
	rd_kafka_destroy_flags(rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	sx_kafka_client_release_fds();
}

/* Waits until all handles have ended, but not for ever. */
void
sx_kafka_client_await_destroyed(void)
{
	struct timespec limit;

	if (clock_gettime(CLOCK_REALTIME, &limit) != 0)
		return;
	limit.tv_sec += END_TIME;
	reap_endings(&limit);
	if (ending_pid == MyProcPid && endings != NULL)
		ereport(LOG,
				(errmsg("a Kafka client does not end"), errdetail("The process ends without it.")));
}
