#!/bin/bash
# A copy of a million small files over loopback, both ends killed when UNTIL inodes are in use, and run again.
#   interrupted.sh BIN DIR UNTIL    (DIR on a file system of its own with room for three million inodes)
bin=$1 dir=$2 until=$3
if [ ! -d "$dir/src" ]; then
    python3 - "$dir/src" <<'END'
import os, sys
for d in range(1000):
    place = os.path.join(sys.argv[1], f"d{d:03}")
    os.makedirs(place)
    for n in range(1000):
        with open(os.path.join(place, f"file-{n:04}"), "wb") as f:
            f.write(b"%d %d" % (d, n))
END
fi
root=$(mktemp -d "$dir/root.XXXX")
ticket=$root.ticket
serve() { "$@" "$bin" serve --once --root "$root" --listen 127.0.0.1:47790 --ticket-file "$ticket" >/dev/null; }
copy=(cp -r --no-sync --ticket "$ticket" "$dir/src/." sabul://127.0.0.1:47790/x/)
"$bin" serve --root "$root" --listen 127.0.0.1:47790 --ticket-file "$ticket" >/dev/null 2>&1 & server=$!
while [ ! -s "$ticket" ]; do sleep 0.02; done
"$bin" "${copy[@]}" -q & client=$!
while kill -0 $client 2>/dev/null && [ "$(df --output=iused "$dir" | tail -1)" -lt "$until" ]; do sleep 0.3; done
kill -9 $client $server
wait 2>/dev/null
rm -f "$ticket"
serve /usr/bin/time -f "receiver %e s, %M KiB" &
while [ ! -s "$ticket" ]; do sleep 0.02; done
/usr/bin/time -f "sender %e s, %M KiB" "$bin" "${copy[@]}" 2>&1 | grep -v " left, "
wait
