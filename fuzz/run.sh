#!/usr/bin/env bash
# Coverage-guided fuzzing: run.sh SECONDS SEED [TARGET...], all targets by default.
#
# Uses libFuzzer with every Rust crate instrumented, on the installed stable toolchain. Inputs with new coverage
# stay in CARGO_TARGET_DIR/fuzz/corpus for the next run; a failing input is named and ends the run. BLIND=1
# disables feedback and keeps no inputs: the harness of `cargo test`, with libFuzzer's coverage counters.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?how long for each target}
seed=${2:?where randomness starts}
shift 2
targets=("$@")
[ $# -gt 0 ] ||
    targets=(datagrams messages tickets receiver sender opener assembler paths scenarios)

cargo=${CARGO:-cargo}
read -ra flags <<<"${CARGOFLAGS:-}"
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/fuzz")
host=$("${RUSTC:-rustc}" -vV | sed -n 's/^host: //p')
command -v "${CXX:-c++}" >/dev/null || {
    echo "fuzz/run.sh: no C++ compiler, which libFuzzer needs; for example: apt-get install g++" >&2
    exit 2
}

# With --target the flags do not apply to build scripts, which do not link libFuzzer.
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    "$cargo" build "${flags[@]}" --release --manifest-path fuzz/guided/Cargo.toml \
    --target-dir "$folder" --target "$host"

failed=$folder/failed
for target in "${targets[@]}"; do
    corpus=$folder/corpus/$target
    [ -z "${BLIND:-}" ] || corpus=$(mktemp -d "${TMPDIR:-/tmp}/sabul-fuzz.XXXXXX")
    mkdir -p "$corpus" "$failed"
    echo "== $target, $seconds s from seed $seed${BLIND:+, without feedback}"
    export SABUL_FUZZ_TARGET=$target SABUL_FUZZ_START=$corpus ${BLIND:+SABUL_FUZZ_BLIND=1}
    code=0
    nice "$folder/$host/release/guided" "$corpus" -seed="$seed" -max_total_time="$seconds" \
        -max_len=12000 -len_control=0 -entropic_scale_per_exec_time=1 -timeout=10 \
        -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$failed/$target-" \
        >"$folder/$target.log" 2>&1 || code=$?
    if [ "$code" -ne 0 ]; then
        tail -n 40 "$folder/$target.log" | cut -c 1-2000
        echo "$target failed. Repeat: SABUL_FUZZ_TARGET=$target $folder/$host/release/guided FILE;" \
            "keep FILE in fuzz/corpus/$target" >&2
        exit 1
    fi
    grep -E 'INITED|DONE' "$folder/$target.log" | cut -c 1-160
    [ -z "${BLIND:-}" ] || rm -r "$corpus"
done
