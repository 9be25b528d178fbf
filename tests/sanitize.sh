#!/bin/sh
# Runs the tests of sabul-udp, the only crate with `unsafe` code, with AddressSanitizer. Needs a nightly Rust.
#
# Miri cannot run these tests, because Miri has no sockets.
set -eu
cd "$(dirname "$0")/.."

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "sanitize: NOT RUN: no nightly Rust; install one with: rustup toolchain install nightly" >&2
    exit 0
fi
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Zsanitizer=address" RUSTDOCFLAGS="-Zsanitizer=address"
# Leaks are no errors of memory: threads of the runtime outlive the tests.
export ASAN_OPTIONS=detect_leaks=0
# A target triple keeps the flags away from build scripts and procedural macros.
exec cargo +nightly test ${CARGOFLAGS:-} --target "$host" --target-dir "${CARGO_TARGET_DIR:-target}/sanitize" \
    --lib --tests -p sabul-udp "$@"
