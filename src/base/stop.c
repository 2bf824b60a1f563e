/*
 * stop.c
 *		Stop points, by which tests hold a process at a chosen line.
 *
 * A process that reaches a point named in stream.stop_points takes the advisory lock
 * (STOP_CLASS, hash of the name) in share mode and gives it back at once. A test that holds
 * the same lock exclusively, by pg_advisory_lock(STOP_CLASS, hashtext(name)), therefore decides
 * when the process goes on, and pg_locks and the isolation tester see the wait as any other.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "common/hashfn.h"
#include "storage/lock.h"
#include "utils/varlena.h"
#include "utils/guc.h"
#include "utils/builtins.h"
#include "catalog/pg_collation.h"

#include "stream_ext/base/guc.h"
#include "stream_ext/base/stop.h"

/* First key of the advisory locks; spells "sx" so that a test file can name it. */
#define STOP_CLASS 0x7378

bool sx_stop_enabled = false;

void
sx_stop_assign(const char *newval, void *extra)
{
	sx_stop_enabled = newval != NULL && newval[0] != '\0';
}

static bool
is_named(const char *name)
{
	const char *list = sx_stop_points;
	size_t len = strlen(name);

	while (list != NULL && *list != '\0')
	{
		const char *end = strchr(list, ',');
		size_t n = end != NULL ? (size_t) (end - list) : strlen(list);

		if (n == len && strncmp(list, name, len) == 0)
			return true;
		list = end != NULL ? end + 1 : NULL;
	}
	return false;
}

/*
 * Waits at the stop point 'name' if the setting names it. Needs a transaction, as the lock manager
 * does; can be cancelled.
 */
void
sx_stop_at(const char *name)
{
	LOCKTAG tag;
	uint32 key;

	if (!is_named(name))
		return;
	/* the value of hashtext(name), so that a test can compute it in SQL */
	key = DatumGetUInt32(hash_any((const unsigned char *) name, (int) strlen(name)));
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, STOP_CLASS, key, 2);
	/* of the transaction, so that an error while waiting leaves nothing behind */
	(void) LockAcquire(&tag, ShareLock, false, false);
	(void) LockRelease(&tag, ShareLock, false);
}
