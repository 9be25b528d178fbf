#!/usr/bin/env bash
# A join of a remote table and a read of a remote file, each with a path that is cut for 20 s in the middle, and a join whose
# path stays cut. Checks that the first two have every row and byte, and that the last one is an error without a file.
#
# Needs root and iproute2; SABUL is the program. Takes 1.5 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/switch.sh
sabul=$(realpath "${SABUL:-target/release/sabul}")
cut_s=${CUT_S:-20}
near=sabul-$$-near far=sabul-$$-far middle=sabul-$$-middle
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-cut-reads.XXXXXX")
export XDG_CACHE_HOME=$work/cache
server=
clean_up() {
    [ -z "$server" ] || { kill -9 "$server" && wait "$server"; } 2>/dev/null || true
    for ns in "$near" "$far" "$middle"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
fail() {
    echo "FAIL $*"
    exit 1
}

connect_ends 40M

cd "$work"
mkdir root
awk 'BEGIN { print "k,a"; for (i = 0; i < 1200000; i++) print i % 400000 "," i "-abcdefghijklmnop" }' >root/a.csv
awk 'BEGIN { print "k,b"; for (i = 0; i < 400000; i += 2) print i "," i * 7 }' >b.csv
"$sabul" join -q root/a.csv b.csv --on k -o expected.parquet
ip netns exec "$far" "$sabul" serve --read-only --root root --listen 10.79.0.2:4800 --ticket-file ticket 2>served &
server=$!
for _ in $(seq 100); do [ -s ticket ] && break || sleep 0.1; done
[ -s ticket ] || fail "no server: $(cat served)"

# cut_after S: cuts the path for the time of CUT_S, S seconds from now on.
cut_after() { (sleep "$1" && pull && sleep "$cut_s" && plug) & }
start=$SECONDS
cut_after 3
ip netns exec "$near" "$sabul" join --json --retry 60s --ticket ticket sabul:///a.csv b.csv --on k -o joined.parquet \
    >joined.json 2>errors || fail "join: exit $?: $(cat errors)"
[ $((SECONDS - start)) -ge "$cut_s" ] || fail "the join ended after $((SECONDS - start)) s, before the end of the cut"
for pair in "joined.parquet expected.parquet" "expected.parquet joined.parquet"; do
    # shellcheck disable=SC2086
    set -- $pair
    "$sabul" join --json "$1" "$2" --on k,a,b --type anti -o anti.parquet >anti.json
    python3 - anti.json joined.json <<'P' || fail "join: rows differ: $pair"
import json, sys
anti, joined = (json.load(open(name)) for name in sys.argv[1:])
assert anti["rows"] == 0 and joined["rows"] == 600_000, (anti["rows"], joined["rows"])
P
done
echo "join with a cut of $cut_s s: right after $((SECONDS - start)) s"

start=$SECONDS
cut_after 2
ip netns exec "$near" "$sabul" cat --ticket ticket sabul:///a.csv >read.csv 2>errors || fail "cat: exit $?: $(cat errors)"
cmp -s read.csv root/a.csv || fail "cat: the bytes differ"
[ $((SECONDS - start)) -ge "$cut_s" ] || fail "cat ended before the end of the cut"
echo "cat with a cut of $cut_s s: right after $((SECONDS - start)) s"
sleep 1

(sleep 3 && pull) &
code=0
ip netns exec "$near" "$sabul" join -q --timeout 8 --ticket ticket sabul:///a.csv b.csv --on k -o none.parquet \
    2>errors || code=$?
[ "$code" = 3 ] || fail "join whose path stays cut: exit $code: $(cat errors)"
[ ! -e none.parquet ] || fail "join whose path stays cut: a result has its name"
grep -q . errors || fail "join whose path stays cut: no message"
echo "join whose path stays cut: exit 3, no file: $(tail -n 1 errors)"
