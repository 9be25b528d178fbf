#!/bin/sh
# Tests of the Python package: builds the wheel, installs the wheel offline in a new virtual environment, checks types
# and runs pytest.
#
#   python/test.sh PROGRAM [PYTEST ARGUMENT]...
#
# PROGRAM is a built program `sabul`, which becomes part of the wheel. The wheel stays in OUT=python/dist. PROFILE=dev
# builds the extension module without full optimisation. WHEELS=DIR keeps the packages that tests need. MAY_SKIP=1 ends
# with success if Python has no venv, or if no package registry answers.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
shift
out=$(realpath -m "${OUT:-$here/dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheels=${WHEELS:-$work/wheels}
profile=${PROFILE:-release}

# skip REASON: ends with the reason.
skip() {
    echo "python/test.sh: NOT RUN: $1" >&2
    [ -n "${MAY_SKIP:-}" ] && exit 0
    exit 1
}
python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' ||
    skip "Python 3.11 with venv is missing; on Debian or Ubuntu: sudo apt-get install python3-venv"
python3 -m venv "$work/venv"
PATH=$work/venv/bin:$PATH
export PATH
# The only step that needs the package registry.
mkdir -p "$wheels"
pip download -q -d "$wheels" -r "$here/tests/requirements.txt" ||
    skip "pip cannot download the packages of python/tests/requirements.txt"
pip install -q --no-index -f "$wheels" maturin

mkdir -p "$here/data/scripts"
cp "$program" "$here/data/scripts/sabul"
strip "$here/data/scripts/sabul" 2>/dev/null || true
(cd "$here" && maturin build -q --locked --profile "$profile" -o "$out")
pip install -q --no-index -f "$wheels" -f "$out" -r "$here/tests/requirements.txt" sabul

cd "$here"
cargo fmt --check
ruff format -q --check sabul tests examples
ruff check -q sabul tests examples
mypy --no-error-summary --strict -p sabul
# Not from the directory of the sources, which has no extension module.
cd tests
mypy --no-error-summary --strict --config-file ../pyproject.toml . ../examples
stubtest sabul._sabul >/dev/null
unset SABUL
pytest -q -c ../pyproject.toml --rootdir . -p no:cacheprovider "$@" .
