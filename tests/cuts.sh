#!/usr/bin/env bash
# Copies between two network namespaces that are interrupted at random moments. Interruptions are kill -9 of either
# end, and cuts of the cable for up to 45 s, which neither end can detect by its carrier. Checks that every byte is
# right and that no partial file has a final name. Prints how much was sent twice.
#
#   tests/cuts.sh [KILLS [CUTS [SEED]]]      total interruptions, four per copy
#
# Bytes sent twice are the bytes of the sender's interface beyond those of a copy without interruption. RATE and MIB
# are the rate of the path and the size of a copy. Needs root and iproute2; SABUL is the program; uses 3 GB of space.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/copies.sh
. tests/switch.sh

kills=${1:-8}
cuts=${2:-4}
RANDOM=${3:-1}
rate=${RATE:-800M}
mib=${MIB:-512}
cut_ms=${CUT_MS:-45000}
sabul=$(realpath "${SABUL:-target/release/sabul}")
near=sabul-$$-near
far=sabul-$$-far
middle=sabul-$$-middle
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-cuts.XXXXXX")
# A private cache: these copies neither use nor change the user's path records.
export XDG_CACHE_HOME=$work/cache
server=
client=
clean_up() {
    kill -9 $server $client 2>/dev/null || true
    ip netns del "$near" 2>/dev/null || true
    ip netns del "$far" 2>/dev/null || true
    ip netns del "$middle" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

connect_ends "$rate"
cd "$work"

fail() {
    echo "FAIL copy $copy ($way): $*"
    exit 1
}

# serve ROOT: starts a server at the far end, always at the same port.
serve() {
    ip netns exec "$far" "$sabul" serve --root "$1" --listen 10.79.0.2:4800 --ticket-file ticket >served 2>&1 &
    server=$!
}

begin_server() {
    rm -f ticket
    serve "$serves"
    for _ in $(seq 400); do
        [ -s ticket ] && return
        sleep 0.05
    done
    fail "the server did not begin: $(cat served)"
}

begin_client() {
    ip netns exec "$near" "$sabul" cp -r -q --json --retry 5m --ticket ticket "${from[@]}" \
        >copied 2>>errors &
    client=$!
}

# Returns the bytes that the sending end's machine has sent so far.
bytes_sent() {
    local end=near
    [ "$way" = up ] || end=far
    ip netns exec "${!end}" cat "/sys/class/net/$end/statistics/tx_bytes"
}

mkdir -p from/d
head -c "${mib}M" /dev/urandom >from/big
for number in $(seq 200); do head -c 20000 /dev/urandom >"from/d/small-$number"; done

# one KIND N: a copy with N interruptions of a kind; 0 for none.
one() {
    local kind=$1 number=$2 before
    rm -rf root out errors && mkdir root out
    : >errors
    if [ $((copy % 2)) -eq 1 ]; then
        way=up serves=root to=root/x from=(from/. sabul://10.79.0.2:4800/x/)
    else
        way=down serves=from to=out/x from=(sabul://10.79.0.2:4800/ out/x/)
    fi
    mkdir -p "$to"
    begin_server
    before=$(bytes_sent)
    begin_client
    for _ in $(seq "$number"); do
        pause 200 1800
        case $kind in
        kill)
            if [ $((RANDOM % 2)) -eq 0 ]; then
                kill -9 "$client" 2>/dev/null || true
                wait "$client" 2>/dev/null || true
                whole
                begin_client
            else
                kill -9 "$server"
                wait "$server" 2>/dev/null || true
                whole
                serve "$serves"
            fi
            ;;
        cut)
            pull
            pause 500 "$cut_ms"
            plug
            ;;
        esac
    done
    wait "$client" || fail "it ended with $?: $(cat copied errors)"
    client=
    whole
    diff -r from "$to" >differences || fail "$(cat differences)"
    sent_bytes=$(($(bytes_sent) - before))
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# Bytes of a copy without interruption, in each direction.
copy=1 && one none 0 && up_bytes=$sent_bytes
copy=2 && one none 0 && down_bytes=$sent_bytes
echo "without interruption: $up_bytes bytes up, $down_bytes down"
most=0
copy=0
while [ "$kills" -gt 0 ] || [ "$cuts" -gt 0 ]; do
    copy=$((copy + 1))
    if [ "$kills" -gt 0 ]; then
        kind=kill number=$((kills < 4 ? kills : 4))
        kills=$((kills - number))
    else
        kind=cut number=$((cuts < 4 ? cuts : 4))
        cuts=$((cuts - number))
    fi
    started=$SECONDS
    one "$kind" "$number"
    clean=$up_bytes
    [ "$way" = up ] || clean=$down_bytes
    twice=$(((sent_bytes - clean) * 10000 / clean))
    [ "$twice" -le "$most" ] || most=$twice
    printf 'ok   copy %d, %s: %d of kind %s, %d.%02d %% sent twice, %d s\n' "$copy" "$way" "$number" "$kind" \
        $((twice / 100)) $((twice < 0 ? 0 : twice % 100)) $((SECONDS - started))
done
printf '%d copies passed; most sent twice in one: %d.%02d %%\n' "$copy" $((most / 100)) $((most % 100))
