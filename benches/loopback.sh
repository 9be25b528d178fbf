#!/usr/bin/env bash
# sabul and quinn on loopback, memory to memory, one stream each, in turn.
#
# usage: benches/loopback.sh [ROUNDS] [SECONDS]      (5 rounds of 10 s)
# Prints one line per run, `LABEL JSON`, then the medians and their ratio to quinn's. Goodput is always counted at the
# receiver. "unpaced" is `--cc fixed` without a rate: the capacity of the machine, as quinn's CUBIC finds no loss here
# either. Build first (`make bench` does): SABUL and QUINN_PEER name other programs than the release builds; with an
# empty QUINN_PEER sabul runs alone.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
seconds=${2:-10}
sabul=${SABUL:-target/release/sabul}
quinn_peer=${QUINN_PEER-target/quinn-peer/release/quinn-peer}
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
    timeout $((seconds + 60)) "$sabul" perf "$address" --ticket "$work/ticket" -t "$seconds" --json "$@"
    stop_server
}

echo "# $(uname -srm), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)" >&2
for _ in $(seq "$rounds"); do
    [ -z "$quinn_peer" ] || echo "quinn $("$quinn_peer" --seconds "$seconds" --json)"
    echo "sabul-1500 $(perf --mtu 1500)"
    echo "sabul-discovered $(perf)"
    echo "sabul-1500-unpaced $(perf --mtu 1500 --cc fixed)"
    echo "sabul-discovered-unpaced $(perf --cc fixed)"
done | tee "$work/runs"

echo "# label, Gb/s: least, median, most; median as a multiple of quinn's" >&2
sed -E 's/^([^ ]+) .*"goodput_bps":([0-9.e+]+).*/\1 \2/' "$work/runs" | sort -k1,1 -k2,2g | awk '
    { n[$1]++; value[$1, n[$1]] = $2 / 1e9 }
    function median(label) {
        return (value[label, int((n[label] + 1) / 2)] + value[label, int(n[label] / 2) + 1]) / 2
    }
    END {
        for (label in n)
            printf "%-26s %6.2f %6.2f %6.2f   %s\n", label, value[label, 1], median(label),
                value[label, n[label]], ("quinn" in n) ? sprintf("%.2f", median(label) / median("quinn")) : "-"
    }' | sort
