#!/usr/bin/env bash
# Test of a first installation: two clean Debian machines, from the package to a first verified copy over a real sshd.
# Each step is one command. The output is a transcript with the time of each command.
#
# packaging/first-copy.sh FILE; FILE is a Debian package, or a program as `cargo install` leaves it. Needs root and
# debootstrap, or BASE, a Debian root with openssh-server and openssh-client, which is copied.
set -euo pipefail
file=$(realpath "${1:?name a Debian package or a sabul program}")
fail() { echo "packaging/first-copy.sh: $*" >&2; exit 2; }
if [ "${2:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] || fail "needs root"
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    if [ -z "${BASE:-}" ]; then
        command -v debootstrap >/dev/null || fail "no debootstrap: apt-get install debootstrap"
        BASE=$work/base
        debootstrap --variant=minbase --include=openssh-server,openssh-client stable "$BASE" >"$work/log" 2>&1 ||
            { tail -n 5 "$work/log" >&2; exit 1; }
    fi
    cp -a "$BASE" "$work/near"
    cp -a "$BASE" "$work/far"
    # Mounts and a network of its own: nothing of this machine is seen or changed.
    WORK=$work timeout -k 10 300 unshare -mn --propagation private "$0" "$file" inside && code=0 || code=$?
    exit "$code"
fi

ip link set lo up
for host in near far; do
    root=$WORK/$host
    mount -t proc proc "$root/proc"
    mkdir -p "$root"/dev/pts "$root"/run/sshd
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in 'null 3' 'zero 5' 'random 8' 'urandom 9'; do mknod -m 666 "$root/dev/${device% *}" c 1 "${device#* }"; done
    mknod -m 666 "$root/dev/tty" c 5 0
    mkdir "$root/dev/pts"
    mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    echo "127.0.0.1 far" >>"$root/etc/hosts"
done
# The usual setup of a user of ssh: a key that the other machine accepts.
mkdir -p -m 700 "$WORK"/{near,far}/root/.ssh
ssh-keygen -q -t ed25519 -N '' -f "$WORK/near/root/.ssh/id_ed25519"
cp "$WORK/near/root/.ssh/id_ed25519.pub" "$WORK/far/root/.ssh/authorized_keys"
chroot "$WORK/far" ssh-keygen -A >/dev/null
sed 's/^\([^ ]* [^ ]*\).*/far \1/' "$WORK"/far/etc/ssh/ssh_host_*.pub >"$WORK/near/root/.ssh/known_hosts"
chroot "$WORK/far" /usr/sbin/sshd -o PermitRootLogin=yes
trap 'kill "$(cat "$WORK/far/run/sshd.pid")"' EXIT
head -c 200000000 /dev/urandom >"$WORK/near/root/big.iso"

# typed COMMAND: what a person types on the near machine.
total=0
home=/root
typed() {
    echo "near# $*"
    local began code=0
    began=$(date +%s%N)
    chroot "$WORK/near" env -i HOME=/root TERM=dumb DEBIAN_FRONTEND=noninteractive \
        PATH="$home/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        bash -c "cd; $*" </dev/null 2>&1 | sed "s/^/    /; s|$home/|~/|g" || code=$?
    local took=$((($(date +%s%N) - began) / 1000000))
    total=$((total + took))
    printf '    [exit code %s, %d.%03d s]\n' "$code" $((took / 1000)) $((took % 1000))
    [ "$code" -eq 0 ] || exit 1
}
echo "Two clean roots of $(. "$WORK/near/etc/os-release" && echo "$PRETTY_NAME"), near and far; far runs sshd and has no sabul."
case $file in
    *.deb)
        cp "$file" "$WORK/near/root/"
        typed "apt-get install -q -y ./$(basename "$file")" ;;
    *)
        # As cargo install leaves it.
        install -D "$file" "$WORK/near/root/.cargo/bin/sabul"
        typed "sabul --version" ;;
esac
typed "sabul cp --push big.iso far:"
typed "sabul cp far:big.iso back.iso"
typed "cmp big.iso back.iso && echo the same"
printf 'All of it took %d.%03d s.\n' $((total / 1000)) $((total % 1000))
[ "$total" -lt 60000 ] || { echo "that is more than a minute"; exit 1; }
