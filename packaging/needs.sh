#!/bin/sh
# Installs the build tools that are missing: a C compiler, cmake, git, Python, Rust, and iproute2 for emulated hosts.
#
# As root on Debian or Ubuntu it calls apt-get. Rust comes from the distribution if its version is new enough, else from
# rustup. Anywhere else the script prints what to install and ends with exit code 2.
set -eu
cd "$(dirname "$0")/.."

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

has() { command -v "$1" >/dev/null 2>&1; }
# new_enough VERSION: whether a Rust of this version compiles the workspace.
new_enough() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$oldest" "$1" | sort -V | head -n 1)" = "$oldest" ]; }

# Whether a cargo of at least the oldest supported version runs.
has_cargo() {
    [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    new_enough "$(cargo --version 2>/dev/null | cut -d ' ' -f 2)"
}

packages=
has cc || packages="$packages gcc libc6-dev"
has cmake || packages="$packages cmake"
has git || packages="$packages git"
has python3 || packages="$packages python3"
has ip || packages="$packages iproute2"

if { [ -n "$packages" ] || ! has_cargo; } && [ "$(id -u)" -eq 0 ] && has apt-get; then
    export DEBIAN_FRONTEND=noninteractive
    # The checks below decide whether a failure matters.
    apt-get update -q >&2 || true
    if ! has_cargo && ! has rustup; then
        offered=$(apt-cache policy cargo | sed -n 's/^ *Candidate: *\([0-9.]*\).*/\1/p')
        if new_enough "$offered"; then
            packages="$packages cargo rustfmt rust-clippy"
        else
            packages="$packages rustup"
        fi
    fi
    echo "needs: installing$packages" >&2
    # shellcheck disable=SC2086
    apt-get install -qy --no-install-recommends ca-certificates $packages >&2 || true
fi
if ! has_cargo && has rustup; then
    echo "needs: installing Rust, as rust-toolchain.toml says" >&2
    rustup toolchain install stable --profile minimal --component rustfmt --component clippy >&2 &&
        rustup default stable >&2 || true
fi

missing=
has cc || missing="$missing gcc"
has cmake || missing="$missing cmake"
has git || missing="$missing git"
if [ -n "$missing" ]; then
    echo "needs: missing:$missing. On Debian or Ubuntu: sudo apt-get install gcc libc6-dev cmake git iproute2" >&2
    exit 2
fi
if ! has_cargo; then
    echo "needs: no Rust $oldest or newer. Install rustup from https://rustup.rs, then run the command again" >&2
    exit 2
fi
