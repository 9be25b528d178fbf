#!/usr/bin/env bash
# Two builds of sabul and quinn on loopback, memory to memory, by turns.
#
# usage: turns.sh OLD NEW QUINN_PEER [ROUNDS] [SECONDS] [CASE...]
# Prints a line a run: `LABEL LOAD JSON`. With PERF=1, the line also has the counts of system calls of the sender:
# `LABEL LOAD sendmsg=N ppoll=N recvmmsg=N switches=N JSON`.
set -euo pipefail
old=$1 new=$2 quinn_peer=$3 rounds=${4:-5} seconds=${5:-3}
shift $(($# < 5 ? $# : 5))
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(quinn old-1500 new-1500 sabul2003-1500 fixed-1500 old-large new-large fixed-large)
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-pacing.XXXXXX")
trap 'rm -rf "$work"' EXIT
events=syscalls:sys_enter_sendmsg,syscalls:sys_enter_ppoll,syscalls:sys_enter_recvmmsg,context-switches

# perf PROGRAM OPTIONS...
perf_pair() {
    local address=127.0.0.1:$((20000 + RANDOM % 10000)) wrap=()
    rm -f "$work/ticket"
    "$1" perf serve --listen "$address" --ticket-file "$work/ticket" --once >/dev/null 2>&1 &
    until [ -s "$work/ticket" ]; do sleep 0.05; done
    [ -z "${PERF:-}" ] || wrap=(perf stat -x, -o "$work/counts" -e "$events")
    timeout $((seconds + 60)) "${wrap[@]}" "$1" perf "$address" --ticket "$work/ticket" -t "$seconds" --json --fresh "${@:2}" \
        >"$work/json" 2>/dev/null
    wait $! 2>/dev/null || true
    [ -z "${PERF:-}" ] || awk -F, '/sys_enter|context/ {
        sub("syscalls:sys_enter_", "", $3); sub("context-", "", $3); printf "%s=%s ", $3, $1 }' "$work/counts"
    cat "$work/json"
}

run() {
    case $1 in
    quinn) "$quinn_peer" --seconds "$seconds" --json ;;
    old-1500) perf_pair "$old" --mtu 1500 ;;
    new-1500) perf_pair "$new" --mtu 1500 ;;
    old-large) perf_pair "$old" ;;
    new-large) perf_pair "$new" ;;
    sabul2003-1500) perf_pair "$new" --mtu 1500 --cc sabul2003 ;;
    fixed-1500) perf_pair "$new" --mtu 1500 --cc fixed ;;
    fixed-large) perf_pair "$new" --cc fixed ;;
    old-1500-3G) perf_pair "$old" --mtu 1500 --rate 3G ;;
    new-1500-3G) perf_pair "$new" --mtu 1500 --rate 3G ;;
    fixed-1500-3G) perf_pair "$new" --mtu 1500 --cc fixed --rate 3G ;;
    *) echo "turns.sh: no case $1" >&2 && exit 2 ;;
    esac
}

for _ in $(seq "$rounds"); do
    for label in "${cases[@]}"; do
        echo "$label $(cut -d' ' -f1 /proc/loadavg) $(run "$label")"
    done
done
