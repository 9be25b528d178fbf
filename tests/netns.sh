#!/usr/bin/env bash
# Transfers between two network namespaces: a path with an MTU of 1280 bytes, with 9000, without UDP, with UDP that stops, and
# behind a router whose MTU shrinks during a transfer.
#
# Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN), ip from iproute2, and a built `sabul` (SABUL=PROGRAM names another
# program). All names contain the process id, and everything is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/hosts.sh

sabul=${SABUL:-target/release/sabul}
server_ns=sabul-$$-server
client_ns=sabul-$$-client
router_ns=sabul-$$-router
server_if=svs$$
client_if=svc$$
server_ip=10.77.0.1
client_ip=10.77.0.2
# Addresses behind the router, which has .1 on either side.
far_server_ip=10.77.1.2
near_client_ip=10.77.2.2
port=4700
file_bytes=$((32 * 1024 * 1024))

server_pid=
logs=(serve cp)

clean_up() {
    stop_server
    remove_hosts "$client_ns" "$server_ns" "$router_ns"
}

set_up() {
    need sha256sum coreutils
    make_hosts "$server_ns" "$client_ns"
    ip link add "$server_if" netns "$server_ns" type veth peer name "$client_if" netns "$client_ns"
    ip -n "$server_ns" addr add "$server_ip/24" dev "$server_if"
    ip -n "$client_ns" addr add "$client_ip/24" dev "$client_if"
    ip -n "$server_ns" link set "$server_if" up
    ip -n "$client_ns" link set "$client_if" up
    head -c "$file_bytes" /dev/urandom >"$work/file.bin"
}

set_mtu() {
    ip -n "$server_ns" link set "$server_if" mtu "$1"
    ip -n "$client_ns" link set "$client_if" mtu "$1"
}

# Drops arriving UDP silently: a rule that precedes the local table.
block_udp() {
    ip -n "$server_ns" rule add pref 10 lookup local &&
        ip -n "$server_ns" rule del pref 0 &&
        ip -n "$server_ns" rule add pref 5 ipproto udp iif "$server_if" blackhole
}

# Starts a server of $work/root that ends after one transfer; waits until its ticket exists.
start_server() {
    rm -rf "$work/root" "$work/ticket"
    mkdir "$work/root"
    ip netns exec "$server_ns" timeout 180 "$sabul" serve --root "$work/root" \
        --listen "$server_ip:$port" --ticket-file "$work/ticket" --once \
        >"$work/serve.out" 2>"$work/serve.err" &
    server_pid=$!
    local tries
    for tries in $(seq 100); do
        [ ! -s "$work/ticket" ] || return 0
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "serve ended, or wrote no ticket within 10 s (looked $tries times)"
    stop_server
    return 1
}

# Ends the server that start_server started, and no other.
stop_server() {
    end "$server_pid"
    server_pid=
}

# Runs the client for at most $1 seconds with the following options; returns its exit code.
copy() {
    local code=0 patience=$1
    shift
    ip netns exec "$client_ns" timeout "$patience" "$sabul" cp "$work/file.bin" \
        "sabul://$server_ip:$port/" --ticket "$work/ticket" "$@" \
        >"$work/cp.out" 2>"$work/cp.err" || code=$?
    return "$code"
}

hash_of() { sha256sum <"$1" | cut -d' ' -f1; }

transfer_at_mtu() {
    local name="a file crosses a path of $1 bytes" code=0
    set_mtu "$1"
    start_server || return 0
    copy 120 || code=$?
    if [ "$code" -ne 0 ]; then
        fail "$name: cp ended with $code"
    elif [ ! -f "$work/root/file.bin" ]; then
        fail "$name: no file.bin at the destination"
    elif [ "$(hash_of "$work/file.bin")" != "$(hash_of "$work/root/file.bin")" ]; then
        fail "$name: the two ends differ"
    else
        code=0
        # The server's own timeout limits this wait.
        wait "$server_pid" || code=$?
        server_pid=
        if [ "$code" -eq 0 ]; then pass "$name"; else fail "$name: serve --once ended with $code"; fi
    fi
    stop_server
}

no_udp() {
    local name="without UDP, cp --carrier udp says so and exits with 3 within 20 s" code=0
    if ! block_udp 2>"$work/rule.err"; then
        skip "$name: this kernel cannot drop UDP by a rule: $(tail -n 1 "$work/rule.err")"
        return
    fi
    start_server || return 0
    copy 20 --carrier udp || code=$?
    if [ "$code" -eq 124 ]; then
        fail "$name: still running after 20 s"
    elif [ "$code" -ne 3 ]; then
        fail "$name: cp ended with $code"
    elif ! grep -q UDP "$work/cp.err"; then
        fail "$name: its message does not mention UDP"
    elif [ -e "$work/root/file.bin" ]; then
        fail "$name: a file appeared all the same"
    else
        pass "$name"
    fi
    stop_server
    over_tcp "without UDP, TCP carries a file" "UDP does not pass"
}

# The following copies have UDP again.
pass_udp() { ip -n "$server_ns" rule del pref 5; }

# Checks a copy, with the name of the check, the reason for TCP in its summary (none for UDP), and the options of cp.
over_tcp() {
    local name=$1 reason=$2 code=0
    shift 2
    start_server || return 0
    copy 60 "$@" || code=$?
    if [ "$code" -ne 0 ]; then
        fail "$name: cp ended with $code"
    elif [ "$(hash_of "$work/file.bin")" != "$(hash_of "$work/root/file.bin")" ]; then
        fail "$name: the two ends differ"
    elif [ -n "$reason" ] && ! grep -q "over TCP: $reason" "$work/cp.out" "$work/cp.err"; then
        fail "$name: the summary does not say 'over TCP: $reason'"
    elif [ -z "$reason" ] && grep -q "; over TCP" "$work/cp.out" "$work/cp.err"; then
        fail "$name: the summary says that TCP carried the data at the end"
    else
        pass "$name"
    fi
    stop_server
}

# UDP stops after a second, and passes again after eight.
udp_stops() {
    (sleep 1 && block_again) &
    over_tcp "TCP carries a file from its middle on, when UDP stops" "UDP stopped passing" --bwlimit 50M
    (sleep 2 && pass_udp) &
    over_tcp "UDP carries the rest of a file, when UDP passes again" "" --bwlimit 20M
    wait
}

block_again() { ip -n "$server_ns" rule add pref 5 ipproto udp iif "$server_if" blackhole; }

# Adds a second path between client and server, with a router; later transfers use that path.
add_router() {
    ip netns add "$router_ns"
    ip link add "svrs$$" netns "$router_ns" type veth peer name "svfs$$" netns "$server_ns"
    ip link add "svrc$$" netns "$router_ns" type veth peer name "svfc$$" netns "$client_ns"
    ip -n "$router_ns" addr add 10.77.1.1/24 dev "svrs$$"
    ip -n "$router_ns" addr add 10.77.2.1/24 dev "svrc$$"
    ip -n "$server_ns" addr add "$far_server_ip/24" dev "svfs$$"
    ip -n "$client_ns" addr add "$near_client_ip/24" dev "svfc$$"
    ip netns exec "$router_ns" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    ip -n "$router_ns" link set "svrs$$" up
    ip -n "$router_ns" link set "svrc$$" up
    ip -n "$server_ns" link set "svfs$$" up
    ip -n "$client_ns" link set "svfc$$" up
    ip -n "$server_ns" route add 10.77.2.0/24 via 10.77.1.1
    ip -n "$client_ns" route add 10.77.1.0/24 via 10.77.2.1
    server_ip=$far_server_ip
}

# One second after the start, the link $2 of the namespace $3 gets an MTU of 1300 instead of 1500; $1 is its name in
# messages.
mtu_falls() {
    local name="a file arrives though $1 carries only 1300 bytes from its middle on" code=0
    ip -n "$3" link set "$2" mtu 1500
    start_server || return 0
    copy 60 --bwlimit 80M &
    local copying=$!
    sleep 1
    ip -n "$3" link set "$2" mtu 1300
    wait "$copying" || code=$?
    if [ "$code" -ne 0 ]; then
        fail "$name: cp ended with $code"
    elif [ "$(hash_of "$work/file.bin")" != "$(hash_of "$work/root/file.bin")" ]; then
        fail "$name: the two ends differ"
    else
        pass "$name"
    fi
    stop_server
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set_up
transfer_at_mtu 1280
transfer_at_mtu 9000
no_udp
if [[ $(ip -n "$server_ns" rule) == *blackhole* ]]; then
    pass_udp
    udp_stops
fi
add_router
mtu_falls "the router's far link" "svrs$$" "$router_ns"
mtu_falls "the sender's own interface" "svfc$$" "$client_ns"
echo "netns: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
