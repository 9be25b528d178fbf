#!/usr/bin/env bash
# Two builds of sabul on loopback, memory to memory, in turn: speed and processor cost of the second build relative to
# the first. Differences between machines and moments affect both builds.
#
# usage: benches/turns.sh OLD NEW [ROUNDS] [SECONDS]      (7 rounds of 5 s)
# Prints one line per run, `LABEL CASE JSON`, then medians and the ratio new/old.
set -euo pipefail
old=$(realpath "$1")
new=$(realpath "$2")
rounds=${3:-7}
seconds=${4:-5}
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-turns.XXXXXX")
server_pid=
clean_up() {
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# perf PROGRAM OPTIONS...
perf() {
    local address=127.0.0.1:$((20000 + RANDOM % 10000)) waited=0
    rm -f "$work/ticket"
    "$1" perf serve --listen "$address" --ticket-file "$work/ticket" --once >/dev/null 2>&1 &
    server_pid=$!
    until [ -s "$work/ticket" ]; do
        waited=$((waited + 1))
        [ "$waited" -le 100 ] || { echo "turns.sh: $1 perf serve did not start" >&2 && exit 1; }
        sleep 0.1
    done
    timeout $((seconds + 60)) "$1" perf "$address" --ticket "$work/ticket" -t "$seconds" --json "${@:2}"
    wait "$server_pid" 2>/dev/null || true
    server_pid=
}

for _ in $(seq "$rounds"); do
    for label in old new; do
        program=$([ "$label" = old ] && echo "$old" || echo "$new")
        echo "$label discovered-unpaced $(perf "$program" --cc fixed)"
        echo "$label 1500-unpaced $(perf "$program" --mtu 1500 --cc fixed)"
    done
done | tee "$work/runs"

median() { sort -n | awk '{v[NR]=$1} END {if (NR) print NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }
field() { grep "^$1 $2 " "$work/runs" | sed -n "s/.*\"$3\":\([0-9.eE+-]*\).*/\1/p"; }
echo "# case, what: old, new (medians of $rounds), new/old"
for case in discovered-unpaced 1500-unpaced; do
    for what in goodput_bps mhz_per_mbps_sender mhz_per_mbps_receiver; do
        a=$(field old "$case" "$what" | median)
        b=$(field new "$case" "$what" | median)
        echo "# $case, $what: $a, $b, $(awk -v a="$a" -v b="$b" 'BEGIN {printf "%.3f", b / a}')"
    done
done
