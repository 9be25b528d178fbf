#!/usr/bin/env bash
# Mutation test: changes the code in small ways and reports each change that no test notices.
#
#   tests/mutants.sh [NUMBER] [SEED]   NUMBER of mutants in each area, drawn from SEED
#
# Needs cargo-mutants (cargo install --locked cargo-mutants). Results: OUT (target/mutants), a folder for each area.
set -euo pipefail
cd "$(dirname "$0")/.."

number=${1:-20} seed=${2:-1} out=${OUT:-target/mutants}
if ! cargo mutants --version >/dev/null 2>&1; then
    echo "mutants: NOT RUN: install with: cargo install --locked cargo-mutants" >&2
    exit 0
fi

# area NAME PACKAGE TEST_FILTER FILE...: tests NUMBER mutants of these files with the unit tests of the package whose
# names have the filter; without a filter with all tests of the package, and for the channel also with the tests of
# sabul-sim that drive it.
area() {
    local name=$1 package=$2 filter=$3 files=() all
    for file in "${@:4}"; do files+=(--file "$file"); done
    mkdir -p "$out/$name"
    all=$(cargo mutants --list --package "$package" "${files[@]}" 2>/dev/null | wc -l)
    # Shards of a size that NUMBER mutants fill; the seed selects the shard.
    local shards=$(((all + number - 1) / number))
    [ "$shards" -gt 0 ] || shards=1
    local lib=()
    [ -z "$filter" ] || lib=(--lib "$filter")
    local tests=()
    [ "$package" != sabul-channel ] || tests=(--test-package sabul-channel --test-package sabul-sim)
    cargo mutants --package "$package" "${tests[@]}" "${files[@]}" --shard "$((seed % shards))/$shards" --sharding round-robin \
        --in-place --no-shuffle --timeout 120 --output "$out/$name" --colors never -- "${lib[@]}" >"$out/$name/log" 2>&1 || true
    local caught missed unviable timeout
    count() { [ -f "$out/$name/mutants.out/$1.txt" ] && wc -l <"$out/$name/mutants.out/$1.txt" || echo 0; }
    caught=$(count caught) missed=$(count missed) unviable=$(count unviable) timeout=$(count timeout)
    printf '%-10s %4d mutants in all, shard %d of %d: %d caught, %d timeouts, %d missed, %d do not compile\n' \
        "$name" "$all" "$((seed % shards))" "$shards" "$caught" "$timeout" "$missed" "$unviable"
    [ ! -s "$out/$name/mutants.out/missed.txt" ] || sed 's/^/    missed: /' "$out/$name/mutants.out/missed.txt"
}

git diff --quiet || { echo "mutants: commit or stash your changes first; mutants change files in place" >&2; exit 2; }
trap 'git checkout -q -- transfer' EXIT
area sender sabul-channel "" "transfer/channel/src/sender.rs" "transfer/channel/src/sender/*.rs"
area receiver sabul-channel "" "transfer/channel/src/receiver.rs" "transfer/channel/src/receiver/*.rs"
area wire sabul-wire "" "transfer/wire/src/**/*.rs"
area sealing sabul seal "transfer/sabul/src/seal.rs" "transfer/sabul/src/seal/*.rs"
area sandbox sabul-files root "transfer/files/src/root.rs" "transfer/files/src/root/*.rs"
area journal sabul-files "" "transfer/files/src/journal.rs" "transfer/files/src/have.rs"
area memory sabul budget "transfer/sabul/src/budget.rs" "transfer/sabul/src/budget/*.rs"
