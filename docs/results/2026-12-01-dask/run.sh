#!/bin/bash
# Four Dask workers, two on each side of the lab's path of 1 Gb/s x 100 ms, over tcp:// and sabul://, and remote tables by
# sabul:// and s3://:
#
#   run.sh SABUL PYTHON RCLONE [RUNS] [LOSS] [RATE]
#
# SABUL is the program; PYTHON is an interpreter with the packages sabul, dask, distributed, pandas, pyarrow and s3fs.
# RCLONE serves the tables as S3. Needs root. TCP has the default of the kernel. Everything is below a folder that is removed.
set -euo pipefail
sabul=$(realpath "$1") python=$2 rclone=$3 runs=${4:-3} loss=${5:-0%} rate=${6:-1G}
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/data/tables"
export XDG_CACHE_HOME=$work/cache HOME=$work
"$python" "$here/dask_path.py" make "$work"
cat >"$work/peer" <<C
#!/bin/bash
$rclone serve s3 --addr 0.0.0.0:9000 --auth-key key,secret-secret $work/data >/dev/null 2>&1 &
$sabul serve --root $work/data --listen 0.0.0.0:4700 --ticket-file $work/ticket 2>/dev/null &
exec $python $here/dask_path.py far $work 2>$work/far.log
C
chmod +x "$work/peer"
"$sabul" lab shell --rate "$rate" --rtt 100 --queue 1bdp --loss "$loss" --peer "$work/peer" -- \
    "$python" "$here/dask_path.py" near "$work" "$runs" 2>"$work/log" ||
    { tail -n 40 "$work/log" "$work/far.log" >&2; exit 1; }
