#!/bin/bash
# A copy of one file over the lab's path of 1 Gb/s x 100 ms, killed at nine tenths and run again: run.sh SABUL MB
# Needs root and twice the space. What it prints is made by inside.py, within the lab.
sabul=$(realpath "$1"); mb=$2; here=$(dirname "$(realpath "$0")"); work=$(mktemp -d); mkdir "$work/root"
python3 - "$work/big" "$mb" <<'P'
import os, sys
block, rest, number = bytearray(os.urandom(64 << 20)), int(sys.argv[2]) * 1_000_000, 0
with open(sys.argv[1], "wb") as file:
    while rest > 0:
        block[:8] = number.to_bytes(8, "little")
        file.write(block[:rest])
        rest, number = rest - len(block), number + 1
P
sync
export XDG_CACHE_HOME=$work/cache
$sabul lab shell --rate 1G --rtt 100 --queue 1bdp --peer "$sabul serve --root $work/root --listen 0.0.0.0:4900 --ticket-file $work/t" -- \
    python3 "$here/inside.py" "$sabul" "$work/t" "$work/big" "$(stat -c %s "$work/big")" 0.9
cmp "$work/big" "$work/root/big" && echo same
rm -rf "$work"
