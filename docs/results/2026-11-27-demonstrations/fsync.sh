#!/bin/bash
# Does fsync return the error of a failing disk? No sabul in here: a short Python program writes 200 files of 100 kB, calls
# fsync on each and renames each file for which fsync returned 0. Then the disk is mounted again and the files are compared.
# The disk: ext4 on a loop device whose file lies on a full tmpfs, so that blocks that were never written fail with EIO.
# As root: fsync.sh [RUNS]
set -e
run() { # run plain|overlay
  local how=$1 W
  W=$(mktemp -d)
  mkdir "$W/small" "$W/disk" "$W/seen" "$W/low"
  mount -t tmpfs -o size=24m sabul-fsync "$W/small"
  truncate -s 100M "$W/small/image"
  mkfs.ext4 -q -b 4096 -O ^has_journal -E nodiscard,lazy_itable_init=0 -N 2000 "$W/small/image"
  local device; device=$(losetup -f --show "$W/small/image")
  mount "$device" "$W/disk"
  mkdir -p "$W/disk/up/m" "$W/disk/overlay/work"
  # Metadata and some data blocks get memory.
  for i in $(seq 1200); do echo "$i" >"$W/disk/up/m/$i.xxxxxxxxxxxxxxxxxxxxxxxx"; done
  sync -f "$W/disk/up"; rm -f "$W"/disk/up/m/*; sync -f "$W/disk/up"
  head -c 100M /dev/zero >"$W/small/fill" 2>/dev/null || true
  if [ "$how" = overlay ]; then
    mount -t overlay sabul-fsync -o "lowerdir=$W/low,upperdir=$W/disk/up,workdir=$W/disk/overlay" "$W/seen"
  else
    mount --bind "$W/disk/up" "$W/seen"
  fi
  python3 - "$W/seen/m" >"$W/named" <<'PY'
import os, random, sys, threading

def write(first):
    for number in range(first, 200, 4):
        try:
            file = os.open(f"{sys.argv[1]}/.{number}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.pwrite(file, random.Random(number).randbytes(100_000), 0)
            os.fsync(file)
            os.rename(f"{sys.argv[1]}/.{number}", f"{sys.argv[1]}/{number}")
            print(number, flush=True)
        except OSError:
            pass

threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
PY
  umount "$W/seen"; umount "$W/disk"; sync; blockdev --flushbufs "$device"; echo 3 >/proc/sys/vm/drop_caches
  mount -o ro "$device" "$W/disk"
  python3 - "$W" <<'PY'
import random, sys

named = open(sys.argv[1] + "/named").read().split()
wrong = 0
for number in named:
    try:
        with open(f"{sys.argv[1]}/disk/up/m/{number}", "rb") as file:
            wrong += file.read() != random.Random(int(number)).randbytes(100_000)
    except OSError:
        wrong += 1
print(f"fsync returned 0 for {len(named)} files, {wrong} of them wrong after a new mount")
PY
  umount "$W/disk"; losetup -d "$device"; sleep 0.3; umount "$W/small"; rm -r "$W"
}
uname -r
for _ in $(seq "${1:-8}"); do
  for how in plain overlay; do
    echo -n "$how: "
    run $how
  done
done
