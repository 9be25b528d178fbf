#!/usr/bin/env bash
# `sabul router` between two network namespaces: traffic with and without headers, a slow link, and wrong commands.
#
# Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN), ip from iproute2, and a built `sabul` (SABUL=PROGRAM names another
# program). No test judges speed: rates are small, queues are long, and compared amounts were sent in the same
# seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/hosts.sh

sabul=$(realpath "${SABUL:-target/release/sabul}")
client_ns=sabul-$$-client
router_ns=sabul-$$-router
server_ns=sabul-$$-server
client_ip=10.79.1.2
server_ip=10.79.2.2
port=4710
file_bytes=$((8 * 1024 * 1024))

router_pid=
server_pid=
logs=(router serve cp)

in_router() { ip netns exec "$router_ns" "$@"; }

clean_up() {
    end "$router_pid"
    end "$server_pid"
    remove_hosts "$client_ns" "$router_ns" "$server_ns"
}

# Makes client and server in separate networks, with a forwarding machine between them.
set_up() {
    make_hosts "$client_ns" "$router_ns" "$server_ns"
    ip link add "lan$$" netns "$router_ns" type veth peer name "host$$" netns "$client_ns"
    ip link add "wan$$" netns "$router_ns" type veth peer name "host$$" netns "$server_ns"
    ip -n "$client_ns" addr add "$client_ip/24" dev "host$$"
    ip -n "$server_ns" addr add "$server_ip/24" dev "host$$"
    ip -n "$router_ns" addr add 10.79.1.1/24 dev "lan$$"
    ip -n "$router_ns" addr add 10.79.2.1/24 dev "wan$$"
    ip -n "$client_ns" link set "host$$" up
    ip -n "$server_ns" link set "host$$" up
    ip -n "$router_ns" link set "lan$$" up
    ip -n "$router_ns" link set "wan$$" up
    ip -n "$client_ns" route add default via 10.79.1.1
    ip -n "$server_ns" route add default via 10.79.2.1
    in_router sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward
        for filter in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >"$filter"; done'
    # Traffic from either side is routed into the router's devices; traffic from those devices is routed normally.
    ip -n "$router_ns" rule add iif "lan$$" lookup 100
    ip -n "$router_ns" rule add iif "wan$$" lookup 101
    head -c "$file_bytes" /dev/urandom >"$work/file.bin"
}

# Starts the router with these options, and routes the path through the router.
start_router() {
    # Otherwise output of the previous router would be taken for this router's.
    rm -f "$work/router.out" "$work/router.err" && touch "$work/router.err"
    ip netns exec "$router_ns" "$sabul" router --device site0 --device site1 --json --queue 1s "$@" \
        >"$work/router.out" 2>"$work/router.err" &
    router_pid=$!
    local tries
    for tries in $(seq 100); do
        if grep -q '^forwarding' "$work/router.err"; then
            ip -n "$router_ns" route add default dev site0 table 100
            ip -n "$router_ns" route add default dev site1 table 101
            return 0
        fi
        kill -0 "$router_pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "the router did not start (looked $tries times)"
    return 1
}

# Ends the router; its exit code is in $code.
stop_router() {
    code=0
    kill -TERM "$router_pid"
    wait "$router_pid" || code=$?
    router_pid=
}

# Returns the number with this key in the last line of the router's JSON, within the class $1.
of_class() {
    tail -n 1 "$work/router.out" | sed -n "s/.*\"$1\":{\([^}]*\)}.*/\1/p" | sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p"
}

start_server() {
    mkdir -p "$work/root"
    ip netns exec "$server_ns" "$sabul" serve --root "$work/root" --listen "$server_ip:$port" \
        --ticket-file "$work/ticket" --any-cc >"$work/serve.out" 2>"$work/serve.err" &
    server_pid=$!
    local tries
    for tries in $(seq 100); do
        [ ! -s "$work/ticket" ] || return 0
        sleep 0.1
    done
    echo "router.sh: no server after $tries looks" >&2
    exit 1
}

# copy NAME OPTIONS: copies the file under that name.
copy() {
    ip netns exec "$client_ns" timeout 30 "$sabul" cp "$work/file.bin" "sabul://$server_ip:$port/$1" \
        --ticket "$work/ticket" --quiet "${@:2}" >"$work/cp.out" 2>"$work/cp.err"
}

# has_arrived NAME TEST: compares both files; TEST is the name of the test.
has_arrived() {
    if cmp -s "$work/file.bin" "$work/root/$1"; then pass "$2"; else fail "$2: the two ends differ"; fi
}

# Delays of a busy machine would make a flow abandon its router.
staying=(--cc jetmax --cc-param fallback=off)

with_headers() {
    local name="a file with headers arrives without a drop"
    copy alone "${staying[@]}" || fail "$name: cp ended with $?"
    has_arrived alone "$name"
    # The router's line after the last second.
    sleep 1.2
    local sent dropped
    sent=$(of_class explicit sent_packets)
    dropped=$(of_class explicit dropped_packets)
    name="the router has written the headers of all of it, and dropped none"
    if [ "${sent:-0}" -gt $((file_bytes / 1500)) ] && [ "$dropped" = 0 ]; then
        pass "$name"
    else
        fail "$name: $sent sent, $dropped dropped"
    fi
}

# Prints the number of seconds in which both classes sent, and the plain class's share of those bytes in percent.
shares() {
    awk '
        function of(class, key,   text) {
            text = $0; sub(".*\"" class "\":\\{", "", text); sub("\\}.*", "", text)
            sub(".*\"" key "\":", "", text); sub(",.*", "", text); return text + 0
        }
        {
            e = of("explicit", "sent_bytes"); p = of("plain", "sent_bytes")
            if (e - e0 > 200000 && p - p0 > 200000) { ours += e - e0; other += p - p0; seconds++ }
            e0 = e; p0 = p
        }
        END { printf "%d %d\n", seconds, ours + other ? 100 * other / (ours + other) : 0 }' "$work/router.out"
}

beside() {
    local name="a file without headers beside one with them"
    copy with "${staying[@]}" &
    local one=$!
    copy without --cc cubic || fail "$name: cp ended with $?"
    wait "$one" || fail "$name: the other cp ended with $?"
    has_arrived with "$name: the one with headers"
    has_arrived without "$name: the one without"
    sleep 1.2
    local seconds percent
    read -r seconds percent <<<"$(shares)"
    name="beside each other both have a part of the link"
    if [ "$seconds" -eq 0 ]; then
        skip "$name: they were never there in the same second"
    elif [ "$percent" -ge 20 ] && [ "$percent" -le 80 ]; then
        pass "$name: $percent % without headers"
    else
        fail "$name: $percent % without headers"
    fi
}

other_algorithm() {
    local name="a flow of another algorithm arrives all the same, and that is said once"
    copy foreign --cc rcp || fail "$name: cp ended with $?"
    sleep 1.2
    if [ "$(grep -c 'headers of rcp' "$work/router.err")" -eq 1 ]; then
        has_arrived foreign "$name"
    else
        fail "$name"
    fi
}

metrics() {
    local name="Prometheus is answered"
    in_router timeout 10 bash -c 'exec 3<>/dev/tcp/127.0.0.1/9464
        printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3' >"$work/metrics" 2>&1 || true
    if grep -Eq '^sabul_router_sent_packets_total\{class="explicit"\} [1-9]' "$work/metrics"; then
        pass "$name"
    else
        fail "$name: $(head -c 300 "$work/metrics")"
    fi
}

ended() {
    local name="SIGTERM ends it with a summary and code 0"
    stop_router
    if [ "$code" -eq 0 ] && grep -q '^explicit: [1-9]' "$work/router.err"; then
        pass "$name"
    else
        fail "$name: exit code $code"
    fi
}

slow_link() {
    local name="a link behind that is slower than configured is found and said with its rate"
    if ! in_router tc qdisc add dev "wan$$" root tbf rate 10mbit burst 20kb limit 300kb 2>"$work/tc.err"; then
        skip "$name: no tc here: $(tail -n 1 "$work/tc.err")"
        return
    fi
    start_router --rate-mbps 50 --uplink "wan$$" || return 0
    copy slow --cc cubic || fail "$name: cp ended with $?"
    if grep -Eq 'the link behind carries (9|1[01])[.0-9]* Mbit/s' "$work/router.err"; then
        pass "$name"
    else
        fail "$name"
    fi
    stop_router
}

# refused NAME PATTERN OPTIONS
refused() {
    local code=0
    in_router timeout 10 "$sabul" router "${@:3}" >"$work/out" 2>"$work/router.err" || code=$?
    if [ "$code" -eq 2 ] && grep -Eq "$2" "$work/router.err"; then
        pass "$1"
    else
        fail "$1: exit code $code, or no '$2'"
    fi
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set_up
both=(--device site0 --device site1)
refused "a link without capacity" "nothing to share out" "${both[@]}" --rate-mbps 0
refused "one device instead of two" "exactly twice" --device site0 --rate-mbps 50
refused "the same device twice" "'site0' twice" --device site0 --device site0 --rate-mbps 50
refused "a device of another kind" "lo.*taken by a device" --device lo --device site1 --rate-mbps 50
refused "an uplink that does not exist" "nowhere0.*does not exist" "${both[@]}" --rate-mbps 50 --uplink nowhere0
refused "an algorithm that no router has" "jetmax" "${both[@]}" --rate-mbps 50 --algorithm cubic
if command -v setpriv >/dev/null; then
    name="without privileges it says what is missing" code=0
    in_router setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \
        "$sabul" router "${both[@]}" --rate-mbps 50 >"$work/out" 2>"$work/router.err" || code=$?
    if grep -q "Permission denied" "$work/router.err" && ! grep -q "the router cannot" "$work/router.err"; then
        skip "$name: the program cannot be run by another user here"
    elif [ "$code" -eq 2 ] && grep -Eq 'CAP_NET_ADMIN|chmod' "$work/router.err"; then
        pass "$name"
    else
        fail "$name: exit code $code"
    fi
else
    skip "no setpriv here"
fi
start_server
if start_router --rate-mbps 50 --metrics 127.0.0.1:9464; then
    with_headers
    beside
    other_algorithm
    metrics
    ended
fi
slow_link
echo "router: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
