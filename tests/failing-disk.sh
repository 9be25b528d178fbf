#!/usr/bin/env bash
# A disk that loses written data: no copy reports durable data that is not durable, on ext4 and on an overlay above
# ext4.
#
# The disk is an ext4 on a loop device, whose file is on a tmpfs that is too small: the kernel accepts the data, and
# the writeback fails later. Each copy that ends with exit code 0 is compared after a remount. Needs root and loop
# devices. SABUL is the program.
set -euo pipefail
cd "$(dirname "$0")/.."

sabul=$(realpath "${SABUL:-target/release/sabul}")
skip() { echo "SKIPPED tests/failing-disk.sh: $*"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v mkfs.ext4 >/dev/null && command -v losetup >/dev/null || skip "no mkfs.ext4 or losetup here"
if [ "${1:-}" != inside ]; then
    unshare -m true 2>/dev/null || skip "this machine lets nobody make a mount namespace"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    code=0
    WORK=$work timeout -k 10 240 unshare -m "$0" inside || code=$?
    exit "$code"
fi

work=$WORK
cd "$work"
export XDG_CACHE_HOME=$work/cache XDG_RUNTIME_DIR=$work/run
mkdir -m 700 run
mkdir small disk root low many
server=
device=
clear() {
    [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true
    server=
    umount root 2>/dev/null || true
    umount disk 2>/dev/null || true
    [ -z "$device" ] || losetup -d "$device" || true
    device=
    umount small 2>/dev/null || true
}
trap clear EXIT
fail() {
    echo "FAIL $*"
    exit 1
}

head -c 40M /dev/urandom >big
for i in $(seq 200); do head -c 10000 /dev/urandom >"many/$i"; done

# disk KIND: makes a disk with blocks for metadata, but without blocks for new data; the server's root is on that
# disk.
disk() {
    mount -t tmpfs -o size=16m tmpfs small
    truncate -s 100M small/image
    mkfs.ext4 -q -b 4096 -O ^has_journal -E nodiscard,lazy_itable_init=0 -N 2000 small/image
    device=$(losetup -f --show small/image) || skip "no loop device"
    mount "$device" disk
    mkdir -p disk/up/many disk/work
    # The folder's own blocks are allocated before the disk is full.
    for i in $(seq 1200); do : >"disk/up/many/$i.xxxxxxxxxxxxxxxxxxxxxxxx"; done
    sync -f disk/up
    rm -f disk/up/many/*
    sync -f disk/up
    head -c 100M /dev/zero >small/fill 2>/dev/null || true
    if [ "$1" = overlay ]; then
        mount -t overlay overlay -o lowerdir=low,upperdir=disk/up,workdir=disk/work root || skip "no overlayfs"
    else
        mount --bind disk/up root
    fi
    rm -f ticket
    "$sabul" serve --root root --listen 127.0.0.1:0 --ticket-file ticket >served 2>&1 &
    server=$!
    for _ in $(seq 200); do
        [ -s ticket ] && return
        sleep 0.05
    done
    fail "the server did not begin: $(cat served)"
}

# copy WHAT OPTIONS SOURCE: sets code.
copy() {
    code=0
    "$sabul" cp -q --json --ticket ticket "$@" sabul://127.0.0.1/ >copied 2>errors || code=$?
}

# check KIND WHAT: checks after a remount that everything under a final name is right.
check() {
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
    umount root
    umount disk
    blockdev --flushbufs "$device"
    echo 3 >/proc/sys/vm/drop_caches
    mount -o ro "$device" disk
    local wrong=0 named=0 path
    for path in big $(cd many && printf 'many/%s ' *); do
        [ -e "disk/up/$path" ] || continue
        named=$((named + 1))
        cmp -s "$path" "disk/up/$path" || wrong=$((wrong + 1))
    done
    [ "$wrong" -eq 0 ] || fail "$1, $2: $wrong of $named named files are not what was sent"
    echo "ok   $1, $2: exit $code, $named files have their names, all of them right"
}

for kind in ext4 overlay; do
    for what in big many; do
        disk $kind
        copy -r "$what"
        # The storage below the disk has no room for any sent data.
        [ "$code" -ne 0 ] || fail "$kind, $what: exit 0: $(cat copied errors)"
        grep -q '"durable":true' copied && fail "$kind, $what: durable in spite of it: $(cat copied)"
        check $kind "$what"
        clear
    done
done
# Without flushing, the report must not say that data is durable.
disk ext4
copy --no-sync big
grep -q '"durable":true' copied && fail "--no-sync is durable: $(cat copied)"
echo "ok   --no-sync: exit $code, not durable"
