#!/usr/bin/env bash
# across.sh PROGRAM: copies 64 MiB with each explicit controller across `sabul router` before 100 Mb/s,
# between network namespaces (round trip below 1 ms but for queues); alone, and beside a copy with CUBIC. Needs root, iproute2, python3.
set -euo pipefail
sabul=$(realpath "$1")
from=across-$$-from box=across-$$-box to=across-$$-to
work=$(mktemp -d)
router_pid= server_pid=
clean_up() {
    for pid in $router_pid $server_pid; do kill "$pid" 2>/dev/null || true; done
    for ns in "$from" "$box" "$to"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT
for ns in "$from" "$box" "$to"; do ip netns add "$ns" && ip -n "$ns" link set lo up; done
ip link add lan0 netns "$box" type veth peer name host0 netns "$from"
ip link add wan0 netns "$box" type veth peer name host0 netns "$to"
ip -n "$from" addr add 10.76.1.2/24 dev host0 && ip -n "$from" link set host0 up
ip -n "$to" addr add 10.76.2.2/24 dev host0 && ip -n "$to" link set host0 up
ip -n "$box" addr add 10.76.1.1/24 dev lan0 && ip -n "$box" link set lan0 up
ip -n "$box" addr add 10.76.2.1/24 dev wan0 && ip -n "$box" link set wan0 up
ip -n "$from" route add default via 10.76.1.1
ip -n "$to" route add default via 10.76.2.1
ip netns exec "$box" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward
    for filter in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >"$filter"; done'
ip -n "$box" rule add iif lan0 lookup 100
ip -n "$box" rule add iif wan0 lookup 101
head -c $((64 * 1024 * 1024)) /dev/urandom >"$work/file"
mkdir "$work/root"
ip netns exec "$to" "$sabul" serve --root "$work/root" --listen 10.76.2.2:4710 --ticket-file "$work/ticket" --any-cc \
    >"$work/serve" 2>&1 &
server_pid=$!
until [ -s "$work/ticket" ]; do sleep 0.1; done
copy() {
    ip netns exec "$from" timeout 120 "$sabul" cp "$work/file" "sabul://10.76.2.2:4710/$1" --ticket "$work/ticket" \
        --quiet --json --cc "${@:2}" >"$work/$1.json" 2>>"$work/cp.err"
}
for algorithm in jetmax rcp piqi-rcp xcp emkc maxnet; do
    for beside in none cubic; do
        rm -f "$work/out" "$work/err" && touch "$work/err"
        ip netns exec "$box" "$sabul" router --device site0 --device site1 --rate-mbps 100 --algorithm "$algorithm" \
            --json >"$work/out" 2>"$work/err" &
        router_pid=$!
        until grep -q '^forwarding' "$work/err"; do sleep 0.1; done
        ip -n "$box" route add default dev site0 table 100
        ip -n "$box" route add default dev site1 table 101
        if [ "$beside" = cubic ]; then copy other cubic & other=$!; fi
        copy ours "$algorithm" --cc-param fallback=off || echo "cp ended with $?" >&2
        if [ "$beside" = cubic ]; then wait "$other" || echo "the other cp ended with $?" >&2; fi
        sleep 1.2
        kill -TERM "$router_pid" && wait "$router_pid"
        router_pid=
        python3 - "$work/out" "$algorithm" "$beside" "$work/ours.json" <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
cp = json.loads(open(sys.argv[4]).read().splitlines()[-1])
of = lambda line, c, k="sent_bytes": line[c][k]
steps = list(zip(lines, lines[1:]))
rate = lambda a, b, c: (of(b, c) - of(a, c)) * 8 / (b["at_s"] - a["at_s"]) / 1e6
both = [(rate(a, b, "explicit"), rate(a, b, "plain")) for a, b in steps]
# From the third second on in which the explicit class sent, to the last but one.
busy = [n for n, (e, _) in enumerate(both) if e > 1]
if sys.argv[3] == "cubic":
    busy = [n for n in busy if both[n][1] > 1]
busy = busy[2:-1]
mean = lambda n: round(sum(both[i][n] for i in busy) / max(len(busy), 1), 1)
last = lines[-1]
print(json.dumps({
    "algorithm": sys.argv[2], "beside": sys.argv[3], "seconds": len(busy), "explicit_mbps": mean(0), "plain_mbps": mean(1),
    "goodput_mbps": round(cp["goodput_bps"] / 1e6, 1), "explicit_dropped": of(last, "explicit", "dropped_packets"),
    "explicit_queue_max_bytes": of(last, "explicit", "queue_max_bytes"), "plain_dropped": of(last, "plain", "dropped_packets"),
    "late_max_ms": round(last["late_max_ms"], 2), "missed": last["missed_frames"],
}), flush=True)
PYTHON
    done
done
