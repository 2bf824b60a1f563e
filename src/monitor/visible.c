/*
 * visible.c
 *		Whose views the current user may see in the stat views.
 *
 * The functions behind them read the catalog as C code, without SQL privileges, so they must ask
 * here for each row that they show.
 */
#include "postgres.h"
#include "stream_ext/base/compat.h"

#include "stream_ext/monitor/visible.h"

static bool
is_member(const char *name)
{
	Oid role = get_role_oid(name, true);

	return OidIsValid(role) && has_privs_of_role(GetUserId(), role);
}

bool
sx_monitor_sees_all(void)
{
	return superuser() || is_member("stream_monitor") || is_member("stream_admin");
}

bool
sx_monitor_sees(Oid owner)
{
	return has_privs_of_role(GetUserId(), owner) || sx_monitor_sees_all();
}
