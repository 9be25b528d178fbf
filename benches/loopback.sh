#!/usr/bin/env bash
# sabul against quinn on loopback, memory to memory, one stream each, in turn.
#
# usage: benches/loopback.sh [ROUNDS] [SECONDS]      (5 rounds of 10 s)
# Prints one JSON document a line; goodput is counted at the receiver in both. Build first
# (`make bench` does): SABUL and QUINN_PEER name other programs than the release builds.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
seconds=${2:-10}
sabul=${SABUL:-target/release/sabul}
quinn_peer=${QUINN_PEER:-target/quinn-peer/release/quinn-peer}
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-bench.XXXXXX")
server_pid=

stop_server() {
    [ -n "$server_pid" ] || return 0
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    server_pid=
}
clean_up() {
    stop_server
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

perf() {
    local address=127.0.0.1:$((20000 + RANDOM % 10000)) waited=0
    rm -f "$work/ticket"
    timeout $((seconds + 60)) "$sabul" perf serve --listen "$address" \
        --ticket-file "$work/ticket" --once >"$work/serve.out" &
    server_pid=$!
    until [ -s "$work/ticket" ]; do
        waited=$((waited + 1))
        if [ "$waited" -gt 100 ] || ! kill -0 "$server_pid" 2>/dev/null; then
            echo "loopback.sh: sabul perf serve did not start on $address" >&2
            exit 1
        fi
        sleep 0.1
    done
    timeout $((seconds + 60)) "$sabul" perf "$address" --ticket "$work/ticket" -t "$seconds" --json
    stop_server
}

echo "# $(uname -srm), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)" >&2
for _ in $(seq "$rounds"); do
    "$quinn_peer" --seconds "$seconds" --json
    perf
done
