# shellcheck shell=bash
# server.sh
#	A private PostgreSQL server with stream_ext. To be sourced after lib.sh.
#
#	PostgreSQL 15 finds control files and libraries only in its own tree. server_prepare therefore
#	copies the programs, libraries and share files of the installed server (some 20 MB) into a
#	temporary directory, where the programs find them relative to themselves, and installs
#	stream_ext there. Nothing outside the directory is written but the build in the checkout, and
#	two checkouts cannot get in each other's way.
#
#	The server listens on a socket in that directory only, which its owner alone can enter: there is
#	no port to collide on, and nobody else on the machine can connect although it trusts everybody.
#
#	Sets WORK (the directory), PGBIN (programs) and, for clients, PGHOST, PGPORT, PGUSER, PATH.
#	cleanup, to be called by the caller's exit trap, stops every server and Kafka broker below WORK
#	and removes it.

WORK=
PGBIN=
KAFKA=

# copy_dir DIR [TAR OPTION...]: copies a directory to the same path below the private root.
copy_dir() {
	local dir=$1

	shift
	mkdir -p "$WORK/root$dir"
	tar -C "$dir" "$@" -cf - . | tar -C "$WORK/root$dir" -xf -
}

# server_prepare: builds stream_ext, copies PostgreSQL and installs stream_ext into the copy.
server_prepare() {
	local base=${TMPDIR:-/tmp} include

	as_server test -x "$base" -a ${#base} -lt 60 || base=/tmp # the path of a socket is short
	WORK=$(mktemp -d "$base/stream_ext.XXXXXX") || exit 1
	chmod 700 "$WORK"
	mkdir "$WORK/s" "$WORK/log"

	# shellcheck disable=SC2046
	make -s $(jobs_flag) PG_CONFIG="$PG_CONFIG" with_llvm=no all || die "the build failed"

	PGBIN=$WORK/root$("$PG_CONFIG" --bindir)
	copy_dir "$("$PG_CONFIG" --bindir)"
	copy_dir "$("$PG_CONFIG" --pkglibdir)" --exclude=./bitcode
	copy_dir "$("$PG_CONFIG" --sharedir)" --exclude=./man
	include=$("$PG_CONFIG" --pkgincludedir)
	mkdir -p "$WORK/root$(dirname "$include")"
	ln -s "$include" "$WORK/root$include"
	private_install .

	[ "$(id -u)" -ne 0 ] || chown -R "$SERVER_USER" "$WORK"
}

# private_install DIR: builds the extension in DIR and installs it into the copy.
private_install() {
	make -s -C "$1" PG_CONFIG="$PGBIN/pg_config" with_llvm=no install >"$WORK/log/install.log" 2>&1 ||
		{ cat "$WORK/log/install.log" >&2; return 1; }
}

# kafka_prepare DIR: makes DIR, below WORK, a copy of test/kafka with its programs built; sets KAFKA.
kafka_prepare() {
	KAFKA=$1
	mkdir -p "$KAFKA" && cp test/kafka/* "$KAFKA/" && make -s -B -C "$KAFKA" all || return
	[ "$(id -u)" -ne 0 ] || chown -R "$SERVER_USER" "$KAFKA"
}

# server_init [SETTING...]: makes the cluster in $WORK/data.
server_init() {
	(cd / && as_server "$PGBIN/initdb" -D "$WORK/data" -U postgres -A trust -N -E UTF8 --locale=C \
		>"$WORK/log/initdb.log" 2>&1) || { cat "$WORK/log/initdb.log" >&2; die "initdb failed"; }
	{
		echo "shared_preload_libraries = 'stream_ext'"
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$WORK/s'"
		[ $# -eq 0 ] || printf '%s\n' "$@"
	} | as_server tee -a "$WORK/data/postgresql.conf" >/dev/null
	unset PGDATA PGSERVICE PGOPTIONS PGPASSWORD PGHOSTADDR PGSSLMODE PGCLIENTENCODING PGTZ PGDATESTYLE
	export PGHOST=$WORK/s PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
	export PATH=$PGBIN:$PATH
}

# server_start: starts the server unless it runs. The log goes to $WORK/log/server.log.
server_start() {
	as_server "$PGBIN/pg_ctl" status -D "$WORK/data" >/dev/null 2>&1 && return
	(cd / && as_server "$PGBIN/pg_ctl" start -w -s -t 60 -D "$WORK/data" -l "$WORK/log/server.log") ||
		{ tail -n 30 "$WORK/log/server.log" >&2; return 1; }
}

# cleanup [keep]: stops what runs below WORK and removes it; "keep" leaves all but the copy.
cleanup() {
	local pidfile dir

	[ -n "$WORK" ] || return 0
	while read -r pidfile; do
		dir=$(dirname "$pidfile")
		as_server "$PGBIN/pg_ctl" stop -s -w -t 60 -m fast -D "$dir" >/dev/null 2>&1 ||
			as_server "$PGBIN/pg_ctl" stop -s -w -t 60 -m immediate -D "$dir" >/dev/null 2>&1
	done < <(find "$WORK" -name postmaster.pid 2>/dev/null)
	[ -z "$KAFKA" ] || while read -r pidfile; do
		as_server "$KAFKA/broker" kill "$(dirname "$pidfile")"
	done < <(find "$WORK" -name server.properties 2>/dev/null)
	if [ "${1:-}" = keep ]; then
		rm -rf "$WORK/root" "$WORK/s"
	else
		rm -rf "$WORK"
	fi
	WORK=
}
