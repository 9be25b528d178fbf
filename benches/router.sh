#!/usr/bin/env bash
# Forwarding rate and cost of the real `sabul router` between network namespaces: datagrams of 1472 bytes from a
# socket, without headers and with JetMax headers, in the kernel's frames of 44 packets and singly.
#
# router.sh PROGRAM [SECONDS]: needs root, iproute2 and python3. Prints one line of JSON per kind: packets per second,
# and packets per second of the forwarding thread's processor time. The second number is the capacity of a dedicated
# core.
set -euo pipefail
sabul=$(realpath "${1:?the built program}")
seconds=${2:-8}
from=bench-$$-from box=bench-$$-box to=bench-$$-to
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-bench.XXXXXX")
router_pid=

clean_up() {
    [ -z "$router_pid" ] || kill "$router_pid" 2>/dev/null || true
    for ns in "$from" "$box" "$to"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT

for ns in "$from" "$box" "$to"; do ip netns add "$ns" && ip -n "$ns" link set lo up; done
ip link add lan0 netns "$box" type veth peer name host0 netns "$from"
ip link add wan0 netns "$box" type veth peer name host0 netns "$to"
ip -n "$from" addr add 10.78.1.2/24 dev host0 && ip -n "$from" link set host0 up
ip -n "$to" addr add 10.78.2.2/24 dev host0 && ip -n "$to" link set host0 up
ip -n "$box" addr add 10.78.1.1/24 dev lan0 && ip -n "$box" link set lan0 up
ip -n "$box" addr add 10.78.2.1/24 dev wan0 && ip -n "$box" link set wan0 up
ip -n "$from" route add default via 10.78.1.1
ip netns exec "$box" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward
    for filter in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >"$filter"; done'
ip -n "$box" rule add iif lan0 lookup 100
# No process listens there, and no ICMP error must return.
ip -n "$to" route add blackhole 10.78.1.0/24

cat >"$work/send.py" <<'PYTHON'
import socket, struct, sys, time
kind, joined, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
payload = bytearray(1472)
if kind == "jetmax":
    # A DATA packet with a congestion header of 44 bytes: version 1, form 4, one packet per 12 us.
    front = 28
    payload[0], payload[1] = 0x10, 11
    header = bytearray(44)
    struct.pack_into(">HBB", header, 0, 0x5CC1, 0x14, 0)
    struct.pack_into(">QQii", header, 8, 12_000_000, 2**64 - 1, -2**31, -2**31)
    total = sum(struct.unpack(">22H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into(">H", header, 4, ~total & 0xFFFF)
    payload[front:front + 44] = header
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(("10.78.2.2", 9))
if joined > 1:
    sender.setsockopt(17, 103, len(payload))
datagrams, end = bytes(payload) * joined, time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(64):
        try:
            sender.send(datagrams)
        except OSError:
            pass
PYTHON

for kind in plain jetmax; do
    for joined in 44 1; do
        # Otherwise output of the previous router would be taken for this router's.
        rm -f "$work/out" "$work/err" && touch "$work/err"
        ip netns exec "$box" "$sabul" router --device site0 --device site1 --rate-mbps 40000 --json \
            >"$work/out" 2>"$work/err" &
        router_pid=$!
        until grep -q '^forwarding' "$work/err"; do kill -0 "$router_pid" && sleep 0.1; done
        ip -n "$box" route add default dev site0 table 100
        ip netns exec "$from" python3 "$work/send.py" "$kind" "$joined" "$seconds"
        sleep 1.2
        kill -TERM "$router_pid" && wait "$router_pid"
        router_pid=
        python3 - "$work/out" "$kind" "$joined" <<'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
count = lambda line: line["explicit"]["sent_packets"] + line["plain"]["sent_packets"]
# Whole seconds of sending: between the first line with packets and the last line with more.
busy = [n for n in range(1, len(lines)) if count(lines[n]) > count(lines[n - 1])][1:-1]
first, last = lines[busy[0] - 1], lines[busy[-1]]
packets, cpu = count(last) - count(first), last["cpu_seconds"] - first["cpu_seconds"]
print(json.dumps({
    "kind": sys.argv[2], "packets_per_frame_offered": int(sys.argv[3]), "packets": packets,
    "packets_per_s": round(packets / (last["at_s"] - first["at_s"])),
    "packets_per_cpu_s": round(packets / cpu), "cpu_share": round(cpu / (last["at_s"] - first["at_s"]), 3),
    "headers_written": last["headers_written"], "missed_frames": last["missed_frames"],
    "dropped": last["explicit"]["dropped_packets"] + last["plain"]["dropped_packets"],
}))
PYTHON
    done
done
