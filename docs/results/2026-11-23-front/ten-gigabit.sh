#!/usr/bin/env bash
# Screens of a copy over a link of 10 Gb/s, packets of 9000 bytes, between two network namespaces: ten-gigabit.sh SABUL OUT
# Needs root, ip, tc with the token bucket filter, and tmux. From memory to memory, 3 GiB.
set -euo pipefail
S=$(realpath "$1") out=$(realpath "$2") work=$(mktemp -d) near=sabul-$$-near far=sabul-$$-far server=
clean() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    ip netns del "$near" 2>/dev/null || true
    ip netns del "$far" 2>/dev/null || true
    sleep 0.5
    cd / && umount -l "$work" && rmdir "$work"
}
trap clean EXIT
mount -t tmpfs -o size=8g tmpfs "$work"
mkdir "$work/root" && ln -s "$S" "$work/sabul" && cd "$work"
head -c 3G /dev/zero >huge
ip netns add "$near" && ip netns add "$far"
ip link add near0 netns "$near" type veth peer name far0 netns "$far"
ip -n "$near" addr add 10.78.0.1/24 dev near0 && ip -n "$far" addr add 10.78.0.2/24 dev far0
for end in "$near near0" "$far far0"; do
    read -r ns device <<<"$end"
    ip -n "$ns" link set "$device" mtu 9000 up
    ip netns exec "$ns" tc qdisc add dev "$device" root tbf rate 10gbit burst 1mb limit 4mb
done
ip netns exec "$far" "$S" serve --root root --listen 10.78.0.2:4800 --ticket-file ticket 2>serve.log &
server=$!
until [ -s ticket ]; do sleep 0.1; done
tm() { tmux -L sabul-ten "$@"; }
for columns in 80 200; do
    tm new-session -d -s s -x "$columns" -y 12 "cd $work; ip netns exec $near env PS1='\$ ' PATH=$work:\$PATH bash --norc"
    sleep 0.5
    tm send-keys -t s "sabul cp huge sabul:///$columns --ticket ticket" Enter
    : >"$out/ten-gigabit-$columns.txt"
    for at in 1 1 1 1 4 6; do
        sleep "$at"
        { echo "--- $columns columns, $at s later"; tm capture-pane -p -t s | sed '/^$/d'; } >>"$out/ten-gigabit-$columns.txt"
    done
    tm kill-session -t s
    rm -rf "$work/root/$columns"
done
