#!/usr/bin/env bash
# Copies between two network namespaces whose client changes its address: the address is removed and another one is
# added, RUNS times (default 3) in each direction and in both at once. Prints the longest time without an arriving datagram.
#
# Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN), ip from iproute2, and a built `sabul` (SABUL=PROGRAM names another
# program). All names contain the process id, and everything is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/hosts.sh

sabul=$(realpath "${SABUL:-target/release/sabul}")
runs=${RUNS:-3}
server_ns=sabul-$$-server
client_ns=sabul-$$-client
server_if=svs$$
client_if=svc$$
server_ip=10.77.0.1
port=4700
file_bytes=$((48 * 1024 * 1024))
gap_max_ms=2000
server_pid=
logs=(serve up down)
address=2

clean_up() {
    end "$server_pid"
    remove_hosts "$client_ns" "$server_ns"
}

set_up() {
    need cmp diffutils
    make_hosts "$server_ns" "$client_ns"
    ip link add "$server_if" netns "$server_ns" type veth peer name "$client_if" netns "$client_ns"
    ip -n "$server_ns" addr add "$server_ip/24" dev "$server_if"
    ip -n "$client_ns" addr add "10.77.0.$address/24" dev "$client_if"
    ip -n "$server_ns" link set "$server_if" up
    ip -n "$client_ns" link set "$client_if" up
    mkdir "$work/root" "$work/here"
    head -c "$file_bytes" /dev/urandom >"$work/root/down"
    head -c "$file_bytes" /dev/urandom >"$work/here/up"
    ip netns exec "$server_ns" "$sabul" serve --root "$work/root" --listen "$server_ip:$port" \
        --ticket-file "$work/ticket" >"$work/serve.out" 2>"$work/serve.err" &
    server_pid=$!
    local _
    for _ in $(seq 100); do
        [ ! -s "$work/ticket" ] || return 0
        sleep 0.1
    done
    refuse "serve wrote no ticket within 10 s: $(cat "$work/serve.err")"
}

# change_address: replaces the address of the client.
change_address() {
    ip -n "$client_ns" addr del "10.77.0.$address/24" dev "$client_if"
    address=$((address + 1))
    ip -n "$client_ns" addr add "10.77.0.$address/24" dev "$client_if"
}

# watch HOST FILE: writes the longest time in ms in which no datagram arrived at a socket of the host, until the file stop
# exists.
watch() {
    ip netns exec "$1" bash -c '
        exec {pause}<> <(:)
        last= longest=0 since=${EPOCHREALTIME/./}
        while [ ! -e "$1/stop" ]; do
            count=$(while read -r name arrived _; do [ "$name" = Udp: ] && count=$arrived; done </proc/net/snmp; echo "$count")
            now=${EPOCHREALTIME/./}
            if [ "$count" != "$last" ]; then
                last=$count since=$now
            elif [ $(((now - since) / 1000)) -gt $longest ]; then
                longest=$(((now - since) / 1000))
            fi
            read -r -t 0.01 -u "$pause" || true
        done
        echo "$longest" >"$2"
    ' - "$work" "$2" &
}

# copy DIRECTION: copies a file up or down in the background.
copy() {
    local from="$work/here/up" to="sabul://$server_ip:$port/"
    [ "$1" = up ] || { from="sabul://$server_ip:$port/down" to="$work/here/"; }
    ip netns exec "$client_ns" timeout 60 "$sabul" cp --fresh --bwlimit 100M --carrier udp "$from" "$to" \
        --ticket "$work/ticket" >"$work/$1.out" 2>"$work/$1.err" &
}

# check DIRECTION...: changes the address in the middle of copies.
check() {
    local name="the client changes its address during a copy: $*" direction code=0 gap pid pids=() watchers=()
    rm -f "$work/stop" "$work/root/up" "$work/here/down"
    for direction in "$@"; do
        copy "$direction"
        pids+=($!)
    done
    sleep 1.5
    for direction in "$@"; do
        if [ "$direction" = up ]; then watch "$server_ns" "$work/gap-up"; else watch "$client_ns" "$work/gap-down"; fi
        watchers+=($!)
    done
    sleep 0.5
    change_address
    sleep 1.5
    : >"$work/stop"
    wait "${watchers[@]}" || true
    for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
    [ "$code" -eq 0 ] || { fail "$name: cp ended with $code" && return; }
    for direction in "$@"; do
        cmp -s "$work/root/$direction" "$work/here/$direction" ||
            { fail "$name: the file '$direction' differs" && return; }
        gap=$(cat "$work/gap-$direction")
        echo "     $direction: longest time without a datagram $gap ms"
        [ "$gap" -lt "$gap_max_ms" ] || { fail "$name: a gap of $gap ms" && return; }
    done
    pass "$name"
}

trap clean_up EXIT
set_up
for _ in $(seq "$runs"); do
    check up
    check down
    check up down
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
