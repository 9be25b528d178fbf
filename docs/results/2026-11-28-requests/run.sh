#!/bin/bash
# Times of requests of one session over an emulated path, for sizes and numbers of requests at the same time:
#
#   run.sh SABUL REQUESTS [RATE [RTT-MS [LOSS]]]
#
# With a LOSS such as 1%, in both directions: 40 requests of 64 KiB and of 1 MiB, one after another.
# SABUL is the program; REQUESTS is the example: cargo build --release -p sabul --example requests
# Needs root. Everything is below a folder that is removed.
set -euo pipefail
sabul=$(realpath "$1") requests=$(realpath "$2") rate=${3:-1G} rtt=${4:-100} loss=${5:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/data"
head -c 1G /dev/urandom >"$work/data/f"
cat >"$work/peer" <<C
#!/bin/bash
exec $sabul serve --root $work/data --listen 0.0.0.0:4900 --ticket-file $work/ticket
C
# BYTES COUNT PAUSE-MS PARALLEL
if [ "$loss" = 0 ]; then
    cat >"$work/list" <<L
65536 10 50 1
1048576 10 50 1
8388608 8 50 1
67108864 5 50 1
65536 64 0 8
1048576 64 0 8
8388608 24 0 6
1048576 6 2000 1
1048576 3 11000 1
L
else
    printf '%s 40 10 1\n' 65536 1048576 >"$work/list"
fi
cat >"$work/near" <<C
#!/bin/bash
for wait in {1..50}; do [ -s $work/ticket ] && break; sleep 0.1; done
while read -r arguments; do
    echo "\$arguments"
    timeout 60 $requests $work/ticket f \$arguments || echo "not complete after 60 s"
done <$work/list
C
chmod +x "$work/peer" "$work/near"
XDG_CACHE_HOME=$work/cache HOME=$work "$sabul" lab shell --rate "$rate" --rtt "$rtt" --loss "$loss" --queue 1bdp \
    --peer "$work/peer" -- "$work/near" 2>"$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
