#!/bin/bash
# Peak memory of a server with readers, two programs in turn: run.sh OLD NEW ROUNDS >results.jsonl
cd "$(dirname "$0")/../../.." || exit 1
for ((round = 1; round <= $3; round++)); do
  for options in "60 8M" "120 8M" "60 8M --files 1000" "60 8M --files 100"; do
    read -r downloads bytes files <<<"$options"
    for which in old new; do
      [ $which = old ] && program=$1 || program=$2
      # shellcheck disable=SC2086
      benches/pressure.py "$program" --downloads "$downloads" --bytes "$bytes" $files --memory 64MiB |
        sed "s/^{/{\"program\": \"$which\", /"
    done
  done
done
