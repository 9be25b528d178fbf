#!/usr/bin/env bash
# kill -9 of either end of a copy at random moments: the same command resumes, every byte is right, and no partial
# file has a final name.
#
#   tests/resume.sh [RUNS [SEED]]      each run copies up or down and is interrupted twice
#
# SABUL is the program. Needs no root; uses loopback, and 1 GB of space.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/copies.sh

runs=${1:-4}
RANDOM=${2:-1}
sabul=$(realpath "${SABUL:-target/debug/sabul}")
mib=96
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-resume.XXXXXX")
# A private cache: these copies neither use nor change the user's path records.
export XDG_CACHE_HOME=$work/cache
server=
client=
trap 'kill -9 $server $client 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$work"

fail() {
    echo "FAIL run $run: $*"
    exit 1
}

# serve ROOT: starts a server at a free port; the address is in $address.
serve() {
    rm -f ticket served
    "$sabul" serve --root "$1" --listen 127.0.0.1:0 --ticket-file ticket >served 2>&1 &
    server=$!
    for _ in $(seq 200); do
        [ -s ticket ] && return
        sleep 0.05
    done
    fail "the server did not begin: $(cat served)"
}

mkdir -p from/d
head -c "${mib}M" /dev/urandom >from/big
head -c 20M /dev/urandom >from/d/other
head -c 3000 /dev/urandom >from/d/small
: >from/d/empty
total=$(cat from/big from/d/other from/d/small | wc -c)

for run in $(seq "$runs"); do
    rm -rf root out && mkdir root out
    copy=("$sabul" cp -r -q --json --bwlimit 300M --ticket ticket)
    if [ $((run % 2)) -eq 1 ]; then
        way=up serves=root to=root/x from=(from/. sabul://127.0.0.1/x/)
    else
        way=down serves=from to=out/x from=(sabul://127.0.0.1/ out/x/)
    fi
    mkdir -p "$to"
    serve "$serves"
    for _ in 1 2; do
        "${copy[@]}" "${from[@]}" >copied 2>&1 &
        client=$!
        pause 300 2200
        if [ $((RANDOM % 2)) -eq 0 ]; then
            kill -9 "$client" 2>/dev/null || true
        else
            kill -9 "$server"
            wait "$server" 2>/dev/null || true
            serve "$serves"
        fi
        wait "$client" 2>/dev/null || true
        whole
        sleep 0.2
    done
    "${copy[@]}" "${from[@]}" >copied 2>errors || fail "the last attempt: $(cat copied errors)"
    whole
    diff -r from "$to" >differences || fail "$(cat differences)"
    resumed=$(grep -o '"resumed_bytes":[0-9]*' copied | cut -d: -f2)
    echo "ok   run $run, $way: $resumed of $total bytes were there"
    kill "$server"
    wait "$server" 2>/dev/null || true
done
echo "$runs runs passed"
