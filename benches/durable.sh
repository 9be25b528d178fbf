#!/usr/bin/env bash
# Cost of durable copies: uploads over loopback with and without --no-sync, in turn, to the disk of TMPDIR.
#
# usage: benches/durable.sh [ROUNDS]      (5); SABUL names another program than the release build
# Prints one line per run, `CASE MODE SECONDS`, then medians and their ratio. Caches are flushed between runs.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
sabul=$(realpath "${SABUL:-target/release/sabul}")
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-durable.XXXXXX")
server_pid=
clean_up() {
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir "$work/root" "$work/small"
head -c 512M /dev/urandom >"$work/large"
for n in $(seq 1000); do head -c 16384 /dev/urandom >"$work/small/$n"; done
"$sabul" serve --root "$work/root" --listen 127.0.0.1:0 --ticket-file "$work/ticket" 2>"$work/serve.err" &
server_pid=$!
until [ -s "$work/ticket" ]; do sleep 0.1; done
address=$(sed -n 's/.*sabul:\/\/\([0-9.:]*\).*/\1/p' "$work/serve.err" | tail -n 1)

# run CASE MODE OPTIONS...
run() {
    rm -rf "$work/root"/* && sync
    local seconds
    seconds=$("$sabul" cp --json -q --ticket "$work/ticket" "${@:3}" "sabul://$address/" | sed 's/.*"seconds":\([0-9.e-]*\).*/\1/')
    echo "$1 $2 $seconds"
}
echo "# $(uname -srm), $(nproc) cores, $(stat -f -c %T "$work"), load $(cut -d' ' -f1 /proc/loadavg)"
for _ in $(seq "$rounds"); do
    run large-1G durable --bwlimit 1G "$work/large"
    run large-1G no-sync --bwlimit 1G --no-sync "$work/large"
    run small-1000 durable -r "$work/small"
    run small-1000 no-sync -r --no-sync "$work/small"
done | tee "$work/runs"
median() { sort -n | awk '{v[NR]=$1} END {if (NR) print NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }
for case in large-1G small-1000; do
    a=$(grep "^$case durable" "$work/runs" | cut -d' ' -f3 | median)
    b=$(grep "^$case no-sync" "$work/runs" | cut -d' ' -f3 | median)
    echo "# $case: durable $a s, no-sync $b s, ratio $(awk -v a="$a" -v b="$b" 'BEGIN {printf "%.3f", a / b}')"
done
