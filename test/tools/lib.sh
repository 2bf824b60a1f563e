# shellcheck shell=bash
# lib.sh
#	What the scripts of this folder share: messages, paths, and running things as the right user.
#	To be sourced; leaves the caller in the root of the checkout.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

# The server that everything here works with is Debian 12's, unless PG_CONFIG is set.
# shellcheck disable=SC2034 # for the scripts that source this
PG_CONFIG_GIVEN=${PG_CONFIG:-}
PG_MAJOR=15
PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/$PG_MAJOR/bin/pg_config}

say() {
	printf 'stream_ext: %s\n' "$*"
}

die() {
	printf 'stream_ext: %s\n' "$*" >&2
	exit 1
}

# A server refuses to run as root; then it runs as the user that Debian's package made for it.
if [ "$(id -u)" -eq 0 ]; then
	SERVER_USER=postgres
else
	SERVER_USER=$(id -un)
fi

# as_server COMMAND...: runs a command as the owner of the server's files.
as_server() {
	if [ "$(id -u)" -eq 0 ]; then
		runuser -u "$SERVER_USER" -- "$@"
	else
		"$@"
	fi
}

# jobs_flag: -j for make, unless a parent make hands out the jobs.
jobs_flag() {
	case " ${MAKEFLAGS:-} " in
		*jobserver*) ;;
		*) echo "-j$(nproc)" ;;
	esac
}
