#!/bin/bash
# A join of two tables over the lab's path of 1 Gb/s x 100 ms x 0.1 % loss, beside a copy and a join afterwards:
#
#   run.sh SABUL PYTHON [MIB] [RUNS]
#
# SABUL is the program; PYTHON is an interpreter with numpy, pyarrow and duckdb. Each table has MIB mebibytes. Needs root.
# Everything is below a folder that is removed.
set -euo pipefail
sabul=$(realpath "$1") python=$2 mib=${3:-1024} runs=${4:-3}
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/data"
"$python" "$here/join.py" make "$work/data" "$mib"
export XDG_CACHE_HOME=$work/cache HOME=$work
"$sabul" lab shell --rate 1G --rtt 100 --queue 1bdp --loss 0.001 \
    --peer "$sabul serve --root $work/data --listen 0.0.0.0:4900 --ticket-file $work/t" -- \
    "$python" "$here/join.py" run "$sabul" "$work" "$runs" 2>"$work/log" ||
    { tail -n 60 "$work/log" >&2; exit 1; }
