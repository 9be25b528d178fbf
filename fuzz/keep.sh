#!/usr/bin/env bash
# Selects, from the inputs found by fuzz/run.sh, a small set that covers all edges together. Writes inputs that
# the committed corpus does not have to fuzz/found. Build first, with fuzz/run.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
read -ra flags <<<"${CARGOFLAGS:-}"
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/fuzz")
host=$("${RUSTC:-rustc}" -vV | sed -n 's/^host: //p')
mkdir -p fuzz/found
for corpus in "$folder"/corpus/*; do
    target=${corpus##*/}
    chosen=$(mktemp -d "${TMPDIR:-/tmp}/sabul-fuzz.XXXXXX")
    cp "fuzz/corpus/$target"/* "$chosen"
    SABUL_FUZZ_TARGET=$target nice "$folder/$host/release/guided" -merge=1 -set_cover_merge=1 -use_counters=0 \
        -max_len=${LENGTH_MAX:-1000} -timeout=10 "$chosen" "$corpus" >"$folder/$target-merge.log" 2>&1 || {
        tail -n 40 "$folder/$target-merge.log" | cut -c 1-2000
        echo "$target failed" >&2
        exit 1
    }
    "$cargo" run "${flags[@]}" -q -p sabul-fuzz --example found -- "$target" "$chosen"
    rm -r "$chosen"
done
