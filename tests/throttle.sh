#!/usr/bin/env bash
# Copies between two network namespaces whose path throttles UDP to 1 Mb/s after two seconds: TCP carries the data soon,
# and UDP again when the throttle ends. Where TCP is as slow as UDP, UDP carries the data.
#
#   tests/throttle.sh [RUNS]      each part so many times
#
# The path has 100 Mb/s. Needs root, ip, tc and nft; SABUL is the program.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/hosts.sh

runs=${1:-1}
sabul=$(realpath "${SABUL:-target/release/sabul}")
near=sabul-$$-near
far=sabul-$$-far
server_pid=
export XDG_CACHE_HOME

clean_up() {
    end "$server_pid"
    remove_hosts "$near" "$far"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

need nft nftables
make_hosts "$near" "$far"
XDG_CACHE_HOME=$work/cache
ip link add near netns "$near" type veth peer name far netns "$far"
ip -n "$near" addr add 10.78.0.1/24 dev near
ip -n "$far" addr add 10.78.0.2/24 dev far
ip -n "$near" link set near up
ip -n "$far" link set far up

# set_rate RATE LATENCY: sets the rate of the path in both directions. The burst stays the same: a queued packet of
# segments that is larger than a new burst would block the queue for ever.
set_rate() {
    local end
    for end in near far; do
        ip netns exec "${!end}" tc qdisc replace dev "$end" root tbf rate "$1" burst 64k latency "$2"
    done
}

# Drops arriving UDP above 1 Mb/s at both ends.
throttle_udp() {
    local ns
    for ns in "$near" "$far"; do
        ip netns exec "$ns" nft "add table inet throttle
            add chain inet throttle input { type filter hook input priority 0; }
            add rule inet throttle input meta l4proto udp limit rate over 125 kbytes/second burst 16 kbytes drop"
    done
}

end_throttle() {
    local ns
    for ns in "$near" "$far"; do ip netns exec "$ns" nft delete table inet throttle 2>/dev/null || true; done
}

# Starts a copy in the direction $1 (up or down), and writes each message about carriers with its time to $work/carriers.
start_copy() {
    rm -rf "$work/root" "$work/out" "$work/ticket" && mkdir "$work/root" "$work/out"
    local from=("$work/file" "sabul:///")
    if [ "$1" = down ]; then
        ln "$work/file" "$work/root/file"
        from=("sabul:///file" "$work/out/")
    fi
    ip netns exec "$far" timeout 180 "$sabul" serve --root "$work/root" --listen 10.78.0.2:4700 \
        --ticket-file "$work/ticket" --once >"$work/serve.out" 2>"$work/serve.err" &
    server_pid=$!
    until [ -s "$work/ticket" ]; do sleep 0.05; done
    : >"$work/carriers"
    began=$(now)
    ip netns exec "$near" timeout 170 "$sabul" cp -vv --fresh --json "${from[@]}" --ticket "$work/ticket" \
        2> >(tee "$work/cp.err" | while read -r line; do
            case $line in
            *"TLS connections carry the data"*) echo "$(now) tcp" ;;
            *"UDP carries the data again"*) echo "$(now) udp" ;;
            esac
        done >"$work/carriers") >"$work/cp.out" &
    copy_pid=$!
}

now() { local t=$EPOCHREALTIME; echo $((${t%.*} * 1000 + 10#${t#*.} / 1000)); }

# Milliseconds from $1 to the first change to $2 after it; empty without a change.
change_after() { awk -v from="$1" -v to="$2" '$1 >= from && $2 == to { print $1 - from; exit }' "$work/carriers"; }

# Waits for the end of the copy, and checks the bytes.
end_copy() {
    local copied=$work/root/file
    [ "$1" = up ] || copied=$work/out/file
    local code=0
    wait "$copy_pid" || code=$?
    end "$server_pid"
    server_pid=
    if [ "$code" -ne 0 ]; then fail "$2: cp failed: $(tail -n 1 "$work/cp.err")"; return 1; fi
    cmp -s "$work/file" "$copied" || { fail "$2: the two ends differ"; return 1; }
}

# Only UDP is throttled, from 2 s to 12 s of a copy in the direction $1.
only_udp() {
    local name="$1: TCP carries the data within 5 s of a throttle of UDP" throttled tcp over udp
    set_rate 100mbit 50ms
    head -c 400M /dev/urandom >"$work/file"
    start_copy "$1"
    sleep 2
    throttled=$(now)
    throttle_udp
    sleep 10
    over=$(now)
    end_throttle
    end_copy "$1" "$name" || return 0
    tcp=$(change_after "$throttled" tcp)
    udp=$(change_after "$over" udp)
    echo "{\"part\": \"udp\", \"way\": \"$1\", \"tcp_after_ms\": ${tcp:-null}, \"udp_after_ms\": ${udp:-null}, \"ms\": $(($(now) - began)), $(carrier)}"
    if [ -z "$tcp" ] || [ "$tcp" -gt 5000 ]; then
        fail "$name: it took ${tcp:-forever} ms"
    elif ! grep -q "UDP is throttled" "$work/cp.err"; then
        fail "$name: the reason is not named"
    elif ! grep "TLS connections carry the data" "$work/cp.err" | grep -q "connections=1 "; then
        fail "$name: more than one connection"
    elif [ -z "$udp" ]; then
        fail "$1: UDP did not take over after the throttle"
    else
        pass "$name"
    fi
}

# The whole path has 1 Mb/s, from 2 s to 32 s of a copy in the direction $1.
whole_path() {
    local name="$1: UDP carries the data over a path that is slow for TCP, too" cut tcp udp
    set_rate 100mbit 50ms
    head -c 60M /dev/urandom >"$work/file"
    start_copy "$1"
    sleep 2
    cut=$(now)
    set_rate 1mbit 300ms
    sleep 30
    tcp=$(change_after "$cut" tcp)
    udp=$(change_after "$cut" udp)
    local changes
    changes=$(grep -c tcp "$work/carriers" || true)
    set_rate 100mbit 50ms
    end_copy "$1" "$name" || return 0
    echo "{\"part\": \"path\", \"way\": \"$1\", \"tcp_after_ms\": ${tcp:-null}, \"udp_after_ms\": ${udp:-null}, \"trials\": $changes, \"ms\": $(($(now) - began)), $(carrier)}"
    if [ -n "$tcp" ] && [ -z "$udp" ]; then
        fail "$name: TCP carried the data to the end"
    else
        pass "$name"
    fi
}

carrier() { grep -o '"carrier": *"[a-z]*"' "$work/cp.out" | head -n 1; }

for _ in $(seq "$runs"); do
    for way in up down; do
        only_udp "$way"
        end_throttle
        whole_path "$way"
    done
done
echo "throttle: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
