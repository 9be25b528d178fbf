#!/usr/bin/env bash
# Copies between two hosts that are both behind NATs, with an introducer on a public host: for each pair of kinds of NAT, a
# copy in both directions, or a clear message within five seconds and a copy through the relay.
#
# Kinds: `cone` keeps the port of a socket and accepts packets only from addresses to which the socket has sent; `full`
# accepts them from everyone; `symmetric` uses a random port for each destination.
# Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN), ip from iproute2, nft from nftables, and a built `sabul` (SABUL=PROGRAM names
# another program). All names contain the process id, and everything is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/hosts.sh

sabul=$(realpath "${SABUL:-target/release/sabul}")
meet_ns=sabul-$$-meet
server_nat=sabul-$$-nats
client_nat=sabul-$$-natc
server_ns=sabul-$$-server
client_ns=sabul-$$-client
meet_ip=198.51.100.1
port=4850
file_bytes=$((8 * 1024 * 1024))
# Bytes that the introducer may send per copy without data: control messages of both directions.
control_max=$((512 * 1024))
message_max_ms=5000
# Each server has another port: a NAT keeps its mapping of a port for a while.
server_port=4700
meet_pid=
server_pid=
logs=(meet serve cp)

clean_up() {
    end "$server_pid"
    end "$meet_pid"
    remove_hosts "$client_ns" "$server_ns" "$client_nat" "$server_nat" "$meet_ns"
}

# The NATs' outside interfaces are `wan`, their inside interfaces `lan`. Both inside networks have the same addresses.
set_up() {
    need cmp diffutils
    need nft nftables
    make_hosts "$meet_ns" "$server_nat" "$client_nat" "$server_ns" "$client_ns"
    join "$meet_ns" to-server "$meet_ip/30" "$server_nat" wan 198.51.100.2/30
    join "$meet_ns" to-client 198.51.100.5/30 "$client_nat" wan 198.51.100.6/30
    join "$server_nat" lan 192.168.1.1/24 "$server_ns" eth 192.168.1.2/24
    join "$client_nat" lan 192.168.1.1/24 "$client_ns" eth 192.168.1.3/24
    ip -n "$server_nat" route add default via "$meet_ip"
    ip -n "$client_nat" route add default via 198.51.100.5
    ip -n "$server_ns" route add default via 192.168.1.1
    ip -n "$client_ns" route add default via 192.168.1.1
    local ns
    for ns in "$meet_ns" "$server_nat" "$client_nat"; do
        ip netns exec "$ns" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    done
    # Public hosts do not reach the inside networks, and count what the introducer sends.
    ip netns exec "$meet_ns" nft -f - <<'EOF'
table ip meet {
    counter sent {}
    chain forward {
        type filter hook forward priority filter
        ip saddr 192.168.0.0/16 drop
        ip daddr 192.168.0.0/16 drop
    }
    chain output {
        type filter hook output priority filter
        tcp sport 4850 counter name sent
    }
}
EOF
    mkdir "$work/root" "$work/here"
    head -c "$file_bytes" /dev/urandom >"$work/root/down"
    head -c "$file_bytes" /dev/urandom >"$work/here/up"
}

# nat NS KIND INSIDE: makes a NAT of this kind in front of the address INSIDE.
nat() {
    local source=masquerade open=""
    [ "$2" != symmetric ] || source="masquerade fully-random"
    [ "$2" != full ] || open="iifname wan udp dport 1024-65535 dnat to $3"
    ip netns exec "$1" nft -f - <<EOF
flush ruleset
table ip nat {
    chain outgoing {
        type nat hook postrouting priority srcnat
        oifname wan $source
    }
    chain incoming {
        type nat hook prerouting priority dstnat
        $open
    }
}
table ip filter {
    chain input {
        type filter hook input priority filter
        iifname wan ct state new drop
    }
    chain forward {
        type filter hook forward priority filter; policy drop
        iifname != wan accept
        ct state established,related accept
        ct status dnat accept
    }
}
EOF
}

# wait_for FILE PID LOG: waits for a ticket.
wait_for() {
    local _
    for _ in $(seq 100); do
        [ ! -s "$1" ] || return 0
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    refuse "no ticket within 10 s: $(cat "$work/$3.err")"
}

# start_introducer FLAGS...
start_introducer() {
    rm -f "$work/meet.ticket"
    ip netns exec "$meet_ns" "$sabul" serve --introduce --listen "0.0.0.0:$port" --advertise "$meet_ip" \
        --ticket-file "$work/meet.ticket" "$@" >"$work/meet.out" 2>"$work/meet.err" &
    meet_pid=$!
    wait_for "$work/meet.ticket" "$meet_pid" meet
}

start_server() {
    rm -f "$work/ticket"
    server_port=$((server_port + 1))
    ip netns exec "$server_ns" "$sabul" serve --root "$work/root" --listen "0.0.0.0:$server_port" --via "sabul://$meet_ip" \
        --via-ticket "$work/meet.ticket" --ticket-file "$work/ticket" >"$work/serve.out" 2>"$work/serve.err" &
    server_pid=$!
    wait_for "$work/ticket" "$server_pid" serve
}

sent() {
    ip netns exec "$meet_ns" nft list counter ip meet sent | sed -n 's/.* bytes \([0-9]*\).*/\1/p'
}

# copy DIRECTION FLAGS...: copies a file up or down; sets took_ms. Returns the exit code.
copy() {
    local from="$work/here/up" to="sabul://$meet_ip/" code=0 since=${EPOCHREALTIME/./}
    [ "$1" = up ] || { from="sabul://$meet_ip/down" to="$work/here/"; }
    shift
    rm -f "$work/root/up" "$work/here/down"
    ip netns exec "$client_ns" timeout 60 "$sabul" cp --fresh --ticket "$work/ticket" "$@" "$from" "$to" \
        >"$work/cp.out" 2>"$work/cp.err" || code=$?
    took_ms=$(((${EPOCHREALTIME/./} - since) / 1000))
    return "$code"
}

is_copied() { cmp -s "$work/root/$1" "$work/here/$1"; }

# kinds SERVER CLIENT: makes both NATs, and a server behind the first.
kinds() {
    end "$server_pid"
    nat "$server_nat" "$1" 192.168.1.2
    nat "$client_nat" "$2" 192.168.1.3
    start_server
}

# passes SERVER CLIENT: data go directly in both directions.
passes() {
    kinds "$1" "$2"
    both_ways "server behind $1, client behind $2"
}

# both_ways NAME: checks that data go directly in both directions.
both_ways() {
    local direction name code before through
    for direction in up down; do
        name="$1, $direction: UDP passes, without data at the introducer"
        code=0 before=$(sent)
        copy "$direction" || code=$?
        through=$(($(sent) - before))
        echo "     $took_ms ms, $through bytes sent by the introducer"
        [ "$code" -eq 0 ] || { fail "$name: cp ended with $code" && continue; }
        is_copied "$direction" || { fail "$name: the file differs" && continue; }
        ! grep -q "; over" "$work/cp.out" "$work/cp.err" || { fail "$name: another carrier" && continue; }
        [ "$through" -lt "$control_max" ] || { fail "$name: $through bytes at the introducer" && continue; }
        pass "$name"
    done
}

# fails SERVER CLIENT WORDS: a message with these words in time, and a copy through the relay.
fails() {
    local name="server behind $1, client behind $2: a message within 5 s" code=0
    kinds "$1" "$2"
    copy up || code=$?
    echo "     $took_ms ms: $(tail -n 1 "$work/cp.err")"
    if [ "$code" -ne 3 ]; then
        fail "$name: cp ended with $code"
    elif [ "$took_ms" -ge "$message_max_ms" ]; then
        fail "$name: after $took_ms ms"
    elif ! grep -q "$3" "$work/cp.err"; then
        fail "$name: the message does not have the words '$3'"
    else
        pass "$name"
    fi
}

# relays SERVER CLIENT: the introducer relays the data in both directions.
relays() {
    local direction name code before through
    for direction in up down; do
        name="server behind $1, client behind $2, $direction: the introducer relays the data with --relay"
        code=0 before=$(sent)
        copy "$direction" --relay || code=$?
        through=$(($(sent) - before))
        echo "     $took_ms ms, $through bytes sent by the introducer"
        [ "$code" -eq 0 ] || { fail "$name: cp ended with $code" && continue; }
        is_copied "$direction" || { fail "$name: the file differs" && continue; }
        grep -q "over the introducer" "$work/cp.out" "$work/cp.err" || { fail "$name: no word about it" && continue; }
        [ "$through" -gt "$file_bytes" ] || { fail "$name: only $through bytes at the introducer" && continue; }
        pass "$name"
    done
}

# same_nat: client and server behind the same symmetric NAT, which does not pass packets back inside from its outside address.
same_nat() {
    join "$server_nat" lan2 192.168.2.1/24 "$client_ns" eth2 192.168.2.3/24
    ip -n "$client_ns" link set eth down
    ip -n "$client_ns" route replace default via 192.168.2.1
    kinds symmetric symmetric
    both_ways "client and server behind the same symmetric NAT"
}

# refuses: a client that requests the relay of an introducer without it gets the reason in time.
refuses() {
    local name="an introducer without --relay: a message within 5 s" code=0
    copy up --relay || code=$?
    echo "     $took_ms ms: $(tail -n 1 "$work/cp.err")"
    if [ "$code" -ne 3 ] || [ "$took_ms" -ge "$message_max_ms" ]; then
        fail "$name: cp ended with $code after $took_ms ms"
    elif ! grep -q "relays no data" "$work/cp.err"; then
        fail "$name: the message does not give the reason"
    else
        pass "$name"
    fi
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set_up
start_introducer --relay
passes cone cone
passes full symmetric
passes symmetric full
passes cone full
fails symmetric symmetric "both NATs use another port"
relays symmetric symmetric
fails symmetric cone "NAT of the server uses another port"
fails cone symmetric "NAT of this end uses another port"
relays cone symmetric
end "$meet_pid"
start_introducer
kinds symmetric symmetric
refuses
same_nat
echo "nat: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
