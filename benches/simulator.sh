#!/usr/bin/env bash
# Speed of the simulator: ROUNDS times the wall time of each world, then its instructions, which do
# not depend on what else the machine does.
set -euo pipefail
world_speed=${1:?the built example}
rounds=${2:-5}
for world in one many; do
    for ((round = 1; round <= rounds; round++)); do
        "$world_speed" "$world" 30 | sed -n 1p
    done
    if command -v valgrind >/dev/null; then
        out=$(mktemp)
        valgrind --tool=callgrind --callgrind-out-file="$out" "$world_speed" "$world" 2 2>"$out.log" | sed -n 1p
        grep -E "Collected" "$out.log" | sed "s/.*Collected : /$world: instructions for 2 s /"
        rm -f "$out" "$out.log"
    else
        echo "$world: no valgrind here, so instructions are not counted"
    fi
done
