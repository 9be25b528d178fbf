#!/usr/bin/env bash
# README's two commands in a new Debian with nothing but its base system.
#
# usage: run.sh [SUITE [MIRROR [CA...]]]
#
# Needs root and debootstrap. SUITE is forky unless named. CA are certificate files of a network that inspects TLS.
# The root file system lies below ROOT=$TMPDIR/sabul-fresh and is kept for a second look.
set -euo pipefail
cd "$(dirname "$0")/../../.."
suite=${1:-forky} mirror=${2:-http://deb.debian.org/debian}
root=${ROOT:-${TMPDIR:-/tmp}/sabul-fresh}
scripts=/usr/share/debootstrap/scripts

[ -e "$root/etc" ] || {
    script=$scripts/$suite
    [ -e "$script" ] || script=$scripts/sid
    debootstrap --variant=minbase "$suite" "$root" "$mirror" "$script"
}
mkdir -p "$root/usr/local/share/ca-certificates"
for ca in "${@:3}"; do cp "$ca" "$root/usr/local/share/ca-certificates/"; done
# The lists of a mirror that is a few weeks old are accepted.
echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/99old-mirror"
rm -rf "$root/opt/sabul"
git -c safe.directory='*' clone -q . "$root/opt/sabul"

# Mount and process namespaces of their own: all processes and mounts end with the script. The new root replaces the
# old one, as in a container.
exec unshare --mount --pid --fork --kill-child bash -euc '
    root=$1
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mkdir -p "$root/old"
    cd "$root"
    pivot_root . old
    cd /
    umount -l /old
    exec env -i HOME=/opt LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "
        cd /opt/sabul
        try() {
            echo \"\\\$ \$*\"
            start=\$SECONDS code=0
            \"\$@\" 2>&1 </dev/null || code=\$?
            echo \"[exit code \$code after \$((SECONDS - start)) s]\"
        }
        try sh -c \". /etc/os-release; echo \\\"\\\$PRETTY_NAME\\\"; dpkg -l | grep -c ^ii\"
        try sh -c \"apt-get update -qq && apt-get install -qqy --no-install-recommends make\"
        try make demo
        try make test
    "
' bash "$root"
