#!/usr/bin/env bash
# The example of a custom controller from a user's view: built outside the workspace, listed, run.
#
# CARGO, CARGOFLAGS and CARGO_TARGET_DIR have their usual meaning. Needs no root; no test judges speed.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR
read -ra flags <<<"${CARGOFLAGS:-}"
manifest=examples/own-controller/Cargo.toml
scenario=examples/own-controller/two-flows.toml
program=$CARGO_TARGET_DIR/debug/own-controller
passed=0
failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-own.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# expect NAME CODE PATTERN COMMAND...: searches the pattern in all output of the command.
expect() {
    local code=0
    timeout -k 10 120 "${@:4}" >"$work/out" 2>&1 </dev/null || code=$?
    if [ "$code" -eq "$2" ] && grep -Eq "$3" "$work/out"; then
        passed=$((passed + 1)) && echo "ok   $1"
    else
        failed=$((failed + 1)) && echo "FAIL $1: exit code $code, $2 and '$3' expected of:"
        head -c 600 "$work/out" | sed 's/^/     /'
    fi
}

"$cargo" test "${flags[@]}" -q --manifest-path "$manifest"
"$cargo" build "${flags[@]}" -q --manifest-path "$manifest"

expect "it is listed beside ours" 0 '^Added by this program:$' "$program" cc list
expect "its parameters are shown" 0 'target_ms = 10 \(ms, 0.1 to 1000\)' "$program" cc show gentle
expect "a name that is nearly its own" 2 'nearest: gentle;' "$program" cc show gentel
expect "its scenario" 0 '^gentle +sabul +gentle ' "$program" sim run "$scenario"
expect "its scenario with TCP hosts" 0 '^gentle +tcp +gentle ' \
    "$program" sim run "$scenario" --set flow.gentle.transport=tcp
expect "a parameter that it does not have" 2 'target_ms' \
    "$program" sim run "$scenario" --set flow.gentle.params.speed=9
expect "a parameter out of its range" 2 '0.1 to 0.95' \
    "$program" sim run "$scenario" --set flow.gentle.params.keep=2
expect "a small card" 0 '' "$program" card gentle --out "$work/card" --quiet \
    --seconds-per-flow 2 --set link.bottleneck.rate_mbps=3
expect "the card's page" 0 'gentle' cat "$work/card/report.html"

echo "own-controller: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
