#!/usr/bin/env bash
# Servers behind a home router that forward their port with `serve --map-port`: copies from a public host in both directions,
# other outside ports, restarts, and the messages where a router refuses.
#
# The router runs Debian's miniupnpd (PCP and NAT-PMP; nftables), or a small NAT-PMP router of this script, with a lifetime
# of two seconds, for renewals.
# Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN), ip from iproute2, nft from nftables, python3, miniupnpd, and a built `sabul`
# (SABUL=PROGRAM names another program). All names contain the process id, and everything is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/hosts.sh

sabul=$(realpath "${SABUL:-target/release/sabul}")
public_ns=sabul-$$-public
router_ns=sabul-$$-router
server_ns=sabul-$$-server
other_ns=sabul-$$-other
outside=9.8.7.2
port=4850
file_bytes=$((4 * 1024 * 1024))
server_pid=
router_pid=
logs=(router serve cp)

clean_up() {
    end "$server_pid"
    end "$router_pid"
    remove_hosts "$public_ns" "$router_ns" "$server_ns" "$other_ns"
}

# The outside interface of the router is `wan`. Its two inside networks have a server and another host.
set_up() {
    need cmp diffutils
    need nft nftables
    need python3 python3
    make_hosts "$public_ns" "$router_ns" "$server_ns" "$other_ns"
    join "$public_ns" eth 9.8.7.1/24 "$router_ns" wan "$outside/24"
    join "$router_ns" lan 192.168.1.1/24 "$server_ns" eth 192.168.1.2/24
    join "$router_ns" lan2 192.168.2.1/24 "$other_ns" eth 192.168.2.2/24
    ip -n "$server_ns" route add default via 192.168.1.1
    ip -n "$other_ns" route add default via 192.168.2.1
    ip netns exec "$router_ns" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    mkdir "$work/root" "$work/here"
    head -c "$file_bytes" /dev/urandom >"$work/root/down"
    head -c "$file_bytes" /dev/urandom >"$work/here/up"
}

# nat FORWARD: makes the NAT, with the rule FORWARD in prerouting. The chains miniupnpd are those of the daemon.
nat() {
    ip netns exec "$router_ns" nft -f - <<EOF
flush ruleset
table inet filter {
    chain forward {
        type filter hook forward priority filter; policy drop
        iifname != wan accept
        ct state established,related accept
        ct status dnat accept
        jump miniupnpd
    }
    chain miniupnpd {}
    chain prerouting {
        type nat hook prerouting priority dstnat
        $1
        jump prerouting_miniupnpd
    }
    chain postrouting {
        type nat hook postrouting priority srcnat
        oifname wan masquerade
        jump postrouting_miniupnpd
    }
    chain prerouting_miniupnpd {}
    chain postrouting_miniupnpd {}
}
EOF
}

start_miniupnpd() {
    cat >"$work/miniupnpd.conf" <<EOF
ext_ifname=wan
listening_ip=lan
listening_ip=lan2
enable_natpmp=yes
enable_upnp=no
secure_mode=yes
lease_file=$work/leases
allow 1024-65535 192.168.0.0/16 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
EOF
    ip netns exec "$router_ns" miniupnpd -d -f "$work/miniupnpd.conf" -P "$work/miniupnpd.pid" \
        >"$work/router.err" 2>&1 &
    router_pid=$!
    wait_for_router
}

# start_nat_pmp: a router that forwards what the NAT forwards anyway, knows only NAT-PMP and answers with a lifetime of 2 s.
# It answers nothing while the file `silent` exists, and names the outside address in the file `outside`.
start_nat_pmp() {
    echo "$outside" >"$work/outside"
    ip netns exec "$router_ns" python3 - "$work" >"$work/router.err" 2>&1 <<'EOF' &
import pathlib, socket, struct, sys
work = pathlib.Path(sys.argv[1])
router = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
router.bind(("0.0.0.0", 5351))
while True:
    request, client = router.recvfrom(2000)
    if (work / "silent").exists():
        continue
    print(client, request.hex(), flush=True)
    if request[0] != 0:  # PCP: unsupported version [RFC 6886 §3.5]
        router.sendto(struct.pack("!BBHI", 0, 128, 1, 7), client)
    elif request[1] == 0:
        address = socket.inet_aton((work / "outside").read_text().strip())
        router.sendto(struct.pack("!BBHI", 0, 128, 0, 7) + address, client)
    else:
        inside, suggested, lifetime = struct.unpack("!HHI", request[4:12])
        answer = struct.pack("!BBHIHHI", 0, 128 + request[1], 0, 7, inside, suggested, min(lifetime, 2))
        router.sendto(answer, client)
EOF
    router_pid=$!
    wait_for_router
}

wait_for_router() {
    local _
    for _ in $(seq 50); do
        ! ip netns exec "$router_ns" ss -Hlun 'sport = 5351' | grep -q . || return 0
        kill -0 "$router_pid" 2>/dev/null || break
        sleep 0.1
    done
    refuse "the router does not listen: $(cat "$work/router.err")"
}

stop_router() {
    end "$router_pid"
    router_pid=
}

# serve FLAGS...: starts a server; returns 1 if the server ends instead.
serve() {
    rm -f "$work/ticket"
    ip netns exec "$server_ns" "$sabul" serve --root "$work/root" --map-port --ticket-file "$work/ticket" "$@" \
        >"$work/serve.out" 2>"$work/serve.err" &
    server_pid=$!
    local _
    for _ in $(seq 150); do
        ! grep -q '^ready' "$work/serve.err" || return 0
        kill -0 "$server_pid" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

stop_server() {
    end "$server_pid"
    server_pid=
}

# forwarded PORT: number of rules of the router that forward this outside port to the server.
forwarded() {
    ip netns exec "$router_ns" nft list chain inet filter prerouting_miniupnpd | grep -c "dport $1 dnat" || true
}

# copies NAME: copies from the public host in both directions, over UDP, to the first address of the ticket.
copies() {
    local code=0
    rm -f "$work/root/up" "$work/here/down"
    ip netns exec "$public_ns" timeout 30 "$sabul" cp --fresh --ticket "$work/ticket" "$work/here/up" sabul:/// \
        >"$work/cp.out" 2>"$work/cp.err" || code=$?
    ip netns exec "$public_ns" timeout 30 "$sabul" cp --fresh --ticket "$work/ticket" sabul:///down "$work/here/" \
        >>"$work/cp.out" 2>>"$work/cp.err" || code=$?
    [ "$code" -eq 0 ] || { fail "$1: cp ended with $code" && return; }
    cmp -s "$work/root/up" "$work/here/up" && cmp -s "$work/root/down" "$work/here/down" || { fail "$1: a file differs" && return; }
    ! grep -q "; over" "$work/cp.out" "$work/cp.err" || { fail "$1: not over UDP" && return; }
    pass "$1"
}

# says WORDS NAME: checks that the server prints these words within 10 s.
says() {
    local _
    for _ in $(seq 100); do
        ! grep -q "$1" "$work/serve.err" || { pass "$2" && return; }
        sleep 0.1
    done
    fail "$2: the server does not print '$1'"
}

# refuses NAME WORDS FLAGS...: checks that the server ends with a message within 10 s and leaves no ticket.
refuses() {
    local name=$1 words=$2 since=$SECONDS code=0
    shift 2
    if serve "$@"; then
        fail "$name: the server runs" && stop_server && return
    fi
    wait "$server_pid" || code=$?
    server_pid=
    echo "     $(tail -n 1 "$work/serve.err")"
    [ "$code" -eq 1 ] || { fail "$name: the server ended with $code" && return; }
    [ $((SECONDS - since)) -le 10 ] || { fail "$name: after $((SECONDS - since)) s" && return; }
    [ ! -e "$work/ticket" ] || { fail "$name: a ticket" && return; }
    grep -q "$words" "$work/serve.err" || { fail "$name: the message has not the words '$words'" && return; }
    pass "$name"
}

# with_miniupnpd: PCP, as most home routers.
with_miniupnpd() {
    nat ""
    start_miniupnpd
    serve || fail "the server does not start"
    grep -q "the router 192.168.1.1 forwards $outside:$port (TCP and UDP)" "$work/serve.err" || fail "no word about the router"
    copies "PCP: a public host copies in both directions"
    kill -KILL "$server_pid"
    wait "$server_pid" 2>/dev/null || true
    serve || fail "the server does not start again"
    copies "PCP: the same port after the server was killed"
    [ "$(forwarded $port)" -eq 2 ] || fail "$(forwarded $port) rules instead of 2"
    stop_server
    if [ "$(forwarded $port)" -eq 0 ]; then
        pass "PCP: no port stays forwarded after the end"
    else
        fail "PCP: $(forwarded $port) ports stay forwarded"
    fi
    # Another host has the outside port: the router gives the server another port, the same for TCP and UDP.
    local other_pid
    ip netns exec "$other_ns" "$sabul" serve --root "$work/root" --map-port --ticket-file "$work/other" \
        >"$work/other.out" 2>"$work/other.err" &
    other_pid=$!
    for _ in $(seq 100); do
        [ ! -s "$work/other" ] || break
        sleep 0.1
    done
    serve || fail "the server does not start beside another"
    ! grep -q "forwards $outside:$port " "$work/serve.err" || fail "two servers have the same outside port"
    copies "PCP: another outside port where another host has the port"
    end "$other_pid"
    stop_server
    stop_router
}

# with_nat_pmp: renewals, and a router without PCP.
with_nat_pmp() {
    nat "iifname wan meta l4proto { tcp, udp } th dport $port dnat ip to 192.168.1.2"
    start_nat_pmp
    serve || fail "the server does not start"
    copies "NAT-PMP: a public host copies in both directions"
    touch "$work/silent"
    says "cannot renew the port mapping of $outside:$port: the router 192.168.1.1 does not answer" "NAT-PMP: a failed renewal is printed"
    rm "$work/silent"
    stop_server
    serve || fail "the server does not start"
    echo 100.64.0.9 >"$work/outside"
    says "now forwards 100.64.0.9:$port instead of $outside:$port" "NAT-PMP: a changed outside address is printed"
    stop_server
    serve || fail "the server does not start"
    says "100.64.0.9 is no public address" "an outside address behind another NAT is printed"
    stop_server
    touch "$work/silent"
    refuses "a router that does not answer: a message within 10 s" "does not answer PCP and NAT-PMP"
    rm "$work/silent"
    stop_router
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
set_up
if command -v miniupnpd >/dev/null; then
    with_miniupnpd
else
    skip "PCP: miniupnpd is missing; install miniupnpd-nftables"
fi
with_nat_pmp
refuses "a router without PCP and NAT-PMP: a message at once" "switch on PCP or NAT-PMP in the router 192.168.1.1"
refuses "a server on another address: a message" "the server listens only at 127.0.0.1" --listen "127.0.0.1:$port"
ip -n "$server_ns" route del default
refuses "no default route: a message" "this machine has no default route for IPv4"
echo "port mapping: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
