# shellcheck shell=bash
# lib.sh
#	What the programs of this folder share. To be sourced.

kafka=$(cd "$(dirname "${BASH_SOURCE[0]}")/../kafka" && pwd)
broker_dir=

sql() {
	psql -XqAt -v ON_ERROR_STOP=1 "$@"
}

# cpu PID: ticks of CPU time that a process has used, with all of its threads.
cpu() {
	awk '{ print $14 + $15 }' "/proc/$1/stat"
}

# broker_start DIR: starts a Kafka broker on free ports, with its data in DIR. Sets SXKAFKA_BROKERS.
broker_start() {
	local port tries=20

	while [ $((tries -= 1)) -gt 0 ]; do
		port=$((12000 + RANDOM % 6000 * 3))
		! (exec 3<>"/dev/tcp/127.0.0.1/$port" || exec 3<>"/dev/tcp/127.0.0.1/$((port + 1))" ||
			exec 3<>"/dev/tcp/127.0.0.1/$((port + 2))") 2>/dev/null || continue
		broker_dir=$1
		export SXKAFKA_BROKERS=127.0.0.1:$port
		"$kafka/broker" start "$broker_dir" $port
		return
	done
	echo "no free ports" >&2
	return 1
}

# broker_end: ends the broker, if one was started.
broker_end() {
	[ -z "$broker_dir" ] || "$kafka/broker" kill "$broker_dir"
}
