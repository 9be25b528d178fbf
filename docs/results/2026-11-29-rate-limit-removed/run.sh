#!/bin/bash
# A rate limit that is removed in the middle of a copy: run.sh SABUL [RUNS]. As root; two namespaces, 40 Mb/s by a token
# bucket. After 2 s the copy gets a limit of 10 Mb/s, after 5 s none. Prints packets sent and dropped by the bucket from
# 5 s on, and the whole time of the copy.
set -euo pipefail
sabul=$(realpath "$1") runs=${2:-3}
near=limit-a far=limit-b work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; ip netns del $near; ip netns del $far; rm -rf "$work"' EXIT
ip netns add $near
ip netns add $far
ip link add la netns $near type veth peer name lb netns $far
for side in "$near la 1" "$far lb 2"; do
    read -r space link last <<<"$side"
    ip -n "$space" link set lo up
    ip -n "$space" addr add "10.97.0.$last/24" dev "$link"
    ip -n "$space" link set "$link" up
done
ip netns exec $near tc qdisc add dev la root tbf rate 40mbit burst 16kb latency 20ms
export HOME=$work XDG_RUNTIME_DIR=$work XDG_CACHE_HOME=$work
head -c 60M /dev/urandom >"$work/file"
mkdir "$work/root"
ip netns exec $far "$sabul" serve --root "$work/root" --listen 10.97.0.2:4850 --ticket-file "$work/ticket" >/dev/null 2>&1 &
server=$!
for _ in $(seq 100); do [ -s "$work/ticket" ] && break; sleep 0.1; done
counts() { ip netns exec $near tc -s qdisc show dev la | sed -n 's/.*Sent [0-9]* bytes \([0-9]*\) pkt (dropped \([0-9]*\),.*/\1 \2/p'; }
for run in $(seq "$runs"); do
    began=$EPOCHREALTIME
    ip netns exec $near "$sabul" cp -q --again --ticket "$work/ticket" "$work/file" sabul:/// &
    copy=$!
    sleep 2
    ip netns exec $near "$sabul" set "$copy" --bwlimit 10M >/dev/null
    sleep 3
    read -r sent dropped <<<"$(counts)"
    ip netns exec $near "$sabul" set "$copy" --bwlimit none >/dev/null
    wait "$copy"
    ended=$EPOCHREALTIME
    read -r sent_all dropped_all <<<"$(counts)"
    echo "run $run: $((sent_all - sent)) packets passed, $((dropped_all - dropped)) dropped after the removal; copy $(echo "$ended - $began" | bc) s"
done
