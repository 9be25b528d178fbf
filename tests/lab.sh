#!/usr/bin/env bash
# The lab from a user's view: hosts, paths, programs, faults, and complete removal.
#
# Needs root and a built `sabul` (SABUL=PROGRAM names another program). No test judges speed.
set -euo pipefail
cd "$(dirname "$0")/.."
# A list of processes of its own, because the test counts processes and namespaces.
if [ -z "${INSIDE:-}" ] && unshare -pf --mount-proc true 2>/dev/null; then
    exec env INSIDE=yes unshare -pf --mount-proc --kill-child tests/lab.sh "$@"
fi

sabul=$(realpath "${SABUL:-target/release/sabul}")
. tests/counts.sh
work=

fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
    sed "s/^/     /" "$work/err" | tail -n 15
}

# Runs a command for at most $1 seconds; output in $work/out and $work/err, exit code in $code.
attempt() {
    code=0
    timeout -k 10 "$1" "${@:2}" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

# expect NAME CODE [PATTERN IN STDOUT [PATTERN IN STDERR]]
expect() {
    if [ "$code" -ne "$2" ]; then
        fail "$1: exit code $code instead of $2"
    elif [ -n "${3:-}" ] && ! grep -Eq "$3" "$work/out"; then
        fail "$1: no '$3' in what it printed: $(head -c 300 "$work/out")"
    elif [ -n "${4:-}" ] && ! grep -Eq "$4" "$work/err"; then
        fail "$1: no '$4' in its messages"
    else
        pass "$1"
    fi
}

# Whether a process with this text in its command line exists, except this script.
is_left() {
    local pid
    for pid in /proc/[0-9]*; do
        if { tr '\0' ' ' <"$pid/cmdline"; } 2>/dev/null | grep -q -- "$1"; then return 0; fi
    done
    return 1
}

# Waits up to 5 s until no such process exists.
wait_gone() {
    local tries
    for tries in $(seq 50); do
        is_left "$1" || return 0
        sleep 0.1
    done
    echo "still there after $tries looks" >>"$work/err"
    return 1
}

# Number of network namespaces with a process; processes may start and end meanwhile.
count_namespaces() {
    { ls -l /proc/[0-9]*/ns/net 2>/dev/null || true; } | sed 's/.*-> //' | sort -u | wc -l
}

scenario() {
    cat >"$work/$1.toml"
}

# Writes a scenario of $2 s with one flow over a link of 50 Mb/s and 1 ms; the flow's keys come from standard input.
one_flow() {
    {
        printf 'duration_s = %s\nlink = [{ id = "l", rate_mbps = 50, delay_ms = 1 }]\n' "$2"
        printf '[[flow]]\nid = "f"\npath = ["l"]\n'
        cat
    } | scenario "$1"
}

trap '[ -z "$work" ] || rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[ -x "$sabul" ] || { echo "lab.sh: no program $sabul; run make build" >&2 && exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-lab.XXXXXX")
# A private cache: these copies neither use nor change the user's path records.
export XDG_CACHE_HOME=$work/cache
chmod 755 "$work"
namespaces_before=$(count_namespaces)

# ---- shell -----------------------------------------------------------------------------------------

attempt 20 "$sabul" lab shell -- sh -c 'echo hello; exit 7'
expect "a program's output and exit code come through" 7 '^hello$'

attempt 20 "$sabul" lab shell -- cat /proc/net/dev
expect "a host sees its path and no other device" 0 'path0'
if grep -Eq 'eth0|ens|enp' "$work/out"; then fail "a host sees devices of this machine"; fi

attempt 20 "$sabul" lab shell --rtt 40 -- sh -c '"$0" lab far -- cat /proc/net/fib_trie; getent hosts far' "$sabul"
expect "the far host can be reached by name, and entered" 0 '10\.66\.0\.2'

if command -v ping >/dev/null; then
    attempt 20 "$sabul" lab shell --rtt 40 -- ping -c 3 -i 0.2 far
    expect "a ping takes the round trip that was asked for" 0 'min/avg/max/mdev = 40\.'
else
    skip "no ping on this machine"
fi

attempt 20 "$sabul" lab shell --rtt 10 --delay 10 -- true
expect "contradicting options are refused" 2 '' 'rtt'
attempt 20 "$sabul" lab shell -- "$work/no-such-program"
expect "a program that is not there" 1 '' 'no-such-program'
attempt 20 "$sabul" lab shell --peer 'echo broken >&2; exit 3' -- true
expect "a far program that fails at once is reported" 1 '' 'broken'

marker=sleep.$$.73
ln -s "$(command -v sleep)" "$work/$marker"
"$sabul" lab shell -- sh -c "\"$work/$marker\" 1000 & \"$work/$marker\" 1001 & wait" \
    >"$work/out" 2>"$work/err" </dev/null &
outer=$!
for _ in $(seq 100); do
    is_left "$marker 1001" && break
    sleep 0.1
done
name="a lab that is killed leaves no process behind"
if is_left "$marker 1001"; then
    kill -KILL "$outer"
    wait "$outer" 2>/dev/null || true
    if wait_gone "$marker 100"; then pass "$name"; else fail "$name"; fi
else
    kill "$outer" 2>/dev/null || true
    fail "$name: it never started"
fi

"$sabul" lab shell -- sh -c 'sleep 3; echo first' >"$work/first" 2>&1 </dev/null &
other=$!
attempt 20 "$sabul" lab shell -- echo second
expect "two labs run side by side" 0 '^second$'
wait "$other" || true
grep -q first "$work/first" || fail "the other of two labs"

if su nobody -s /bin/sh -c 'unshare -Urn true && : <>/dev/net/tun' 2>/dev/null; then
    cp "$sabul" "$work/sabul" && chmod 755 "$work/sabul"
    attempt 30 su nobody -s /bin/sh -c "cd / && '$work/sabul' lab shell --rtt 4 -- id -u"
    expect "without root, in a user namespace" 0 '^0$'
    attempt 30 su nobody -s /bin/sh -c "cd / && echo 0 >/dev/null; '$work/sabul' lab run /no/such/file.toml"
    expect "a missing file is a usage error" 2 '' 'no/such/file'
else
    skip "no unprivileged user namespaces here, or no /dev/net/tun in them"
fi

if unshare -m mount -t tmpfs none /dev/net 2>/dev/null; then
    attempt 20 unshare -m sh -c 'mount -t tmpfs none /dev/net && exec "$@"' sh \
        "$sabul" lab shell -- true
    expect "without /dev/net/tun it says what to do" 2 '' '/dev/net/tun'
else
    skip "cannot hide /dev/net/tun here"
fi

# ---- run -------------------------------------------------------------------------------------------

scenario short <<'TOML'
name = "short"
duration_s = 4
warmup_s = 1

[[link]]
id = "bottleneck"
rate_mbps = 50
delay_ms = 5
queue_bdp = 1.0

[[flow]]
id = "kernel"
transport = "tcp"
cc = "cubic"
path = ["bottleneck"]
rtt_ms = 12

[[flow]]
id = "ours"
transport = "sabul"
cc = "sabul2003"
path = ["bottleneck"]
rtt_ms = 20
start_s = 0.5

[[flow]]
id = "steady"
transport = "udp-cbr"
rate_mbps = 5
path = ["bottleneck"]
TOML
attempt 60 "$sabul" lab run "$work/short.toml" --json --out "$work/run" --pcap "$work/pcap"
# A busy machine may make the run invalid. The run must then say so and leave no files of figures.
numbers="series.csv links.csv tuples.csv plot.svg"
if [ "$code" -eq 1 ] && grep -q '"valid":false' "$work/out"; then
    expect "three kinds of flow, on a machine too busy to measure" 1 '"discarded"'
    for file in $numbers; do
        [ ! -e "$work/run/$file" ] || fail "$file of an invalid run in --out"
    done
else
    expect "three kinds of flow" 0 '"arm":"lab".*"valid":true'
    for file in $numbers; do
        [ -s "$work/run/$file" ] || fail "no $file in --out"
    done
fi
for file in results.json report.html scenario.toml manifest.json; do
    [ -s "$work/run/$file" ] || fail "no $file in --out"
done
if [ "$(head -c 4 "$work/pcap/bottleneck.pcapng" | od -An -tx1 | tr -d ' ')" = 0a0d0d0a ]; then
    pass "a recording of the link"
else
    fail "no recording of the link"
fi

one_flow failing 5 <<'TOML'
transport = "command"
command = ["sh", "-c", "echo it broke >&2; exit 9"]
TOML
attempt 40 "$sabul" lab run "$work/failing.toml" --skip-calibration
expect "a program that fails is named" 1 '' 'it broke'

one_flow endless 2 <<TOML
transport = "command"
command = ["sh", "-c", "trap '' TERM; $work/$marker 2000 & $work/$marker 2001"]
TOML
attempt 40 "$sabul" lab run "$work/endless.toml" --skip-calibration
expect "a program that never ends is ended" 0
if is_left "$marker 200"; then fail "it is still there"; fi

one_flow unknown-cc 2 <<'TOML'
transport = "tcp"
cc = "nosuchcc"
TOML
attempt 40 "$sabul" lab run "$work/unknown-cc.toml" --skip-calibration
expect "an algorithm that the kernel does not have" 1 '' 'nosuchcc.*cubic|cubic.*nosuchcc'

attempt 20 "$sabul" lab run "$work/short.toml" --set link.bottleneck.rate_mbps=100000
expect "a rate that no machine routes" 2 '' '100000'
attempt 20 "$sabul" lab run "$work/short.toml" --set flow.ours.sink_mbps=10
expect "what only the simulator knows" 2 '' 'sink_mbps'
attempt 20 "$sabul" sim run "$work/failing.toml"
expect "a program is nothing for the simulator" 2 '' 'lab'

name="an interrupted run exits with 130 and writes nothing"
setsid "$sabul" lab run "$work/short.toml" --out "$work/half" >"$work/out" 2>"$work/err" </dev/null &
outer=$!
sleep 2
kill -TERM "$outer"
code=0
wait "$outer" || code=$?
if [ "$code" -eq 130 ] && [ ! -e "$work/half/manifest.json" ]; then
    pass "$name"
else
    fail "$name: exit code $code"
fi

# ---- card ------------------------------------------------------------------------------------------

attempt 60 "$sabul" card cubic --arm lab --only regions-10ms --seconds-per-flow 1 \
    --set link.bottleneck.rate_mbps=20 --json --out "$work/card"
if [ "$code" -eq 1 ] && grep -q '"valid":false' "$work/out"; then
    expect "a card of the kernel's CUBIC, on a machine too busy to measure" 1 '"regions":\[\]' 'INVALID'
else
    expect "a card of the kernel's CUBIC" 0 '"arm":"lab".*"transport":"tcp".*"mhz_per_mbps_sender":[0-9]'
fi
for file in card.json report.html manifest.json scenarios/regions-10ms.toml; do
    [ -s "$work/card/$file" ] || fail "no $file of the card"
done
attempt 60 "$sabul" card bbr3 --arm lab --transport sabul --only regions-10ms --seconds-per-flow 1 \
    --set link.bottleneck.rate_mbps=20 --json
if [ "$code" -eq 1 ] && grep -q '"valid":false' "$work/out"; then
    expect "a card of ours with bbr3, on a machine too busy to measure" 1 '"regions":\[\]' 'INVALID'
else
    expect "a card of ours with bbr3" 0 '"transport":"sabul".*"mhz_per_mbps_sender":[0-9]'
fi

# ---- demo ------------------------------------------------------------------------------------------

attempt 120 "$sabul" demo --size 16MiB --json
expect "the demo shows TCP and sabul, alone and together" 0 '"transport":"tcp".*"sabul_goodput_bps"'
attempt 120 "$sabul" demo --size 4MiB --json --relay
expect "the demo runs over the relay" 0 '"relay_late_ms_p99"'

# ---- afterwards ------------------------------------------------------------------------------------

sleep 1
namespaces_after=$(count_namespaces)
if [ "$namespaces_after" -le "$namespaces_before" ]; then
    pass "no network namespace is left"
else
    fail "$namespaces_before network namespaces before, $namespaces_after after"
fi
if is_left "$marker"; then fail "a program is left"; else pass "no program is left"; fi

echo "lab: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
