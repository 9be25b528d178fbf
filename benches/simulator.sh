#!/usr/bin/env bash
# Speed of the simulator: ROUNDS times the wall time of each world, then its instructions for two run lengths. Their
# difference excludes the start, and does not depend on other load of the machine.
set -euo pipefail
world_speed=${1:?the built example}
rounds=${2:-5}
for world in one many; do
    for ((round = 1; round <= rounds; round++)); do
        "$world_speed" "$world" 30 | sed -n 1p
    done
    if ! command -v valgrind >/dev/null; then
        echo "$world: no valgrind here, so instructions are not counted"
        continue
    fi
    out=$(mktemp -d)
    for seconds in 2 4; do
        valgrind --tool=callgrind --callgrind-out-file="$out/profile" "$world_speed" "$world" \
            "$seconds" 2>"$out/log" >/dev/null
        sed -n "s/.*Collected : /$world: instructions for $seconds s: /p" "$out/log"
    done
    rm -r "$out"
done
