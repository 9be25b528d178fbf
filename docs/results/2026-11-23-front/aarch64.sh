#!/usr/bin/env bash
# Copies between this machine and one with another processor: the static program for aarch64 in a root with nothing else than
# busybox for aarch64, both run by qemu-user. What it prints is the transcript.
#
# aarch64.sh X86_64 AARCH64 BUSYBOX: the two programs of make dist, and busybox of Debian's busybox-static for arm64. Needs no
# root: a user namespace has file formats of its own (binfmt_misc) since Linux 6.7; and qemu-user-static.
set -euo pipefail
if [ -z "${inside:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work"/near "$work"/far/{bin,tmp,srv,proc,dev,usr/bin}
    cp "$1" "$work/near/sabul"
    cp "$2" "$work/near/sabul-aarch64"
    cp "$2" "$work/far/bin/sabul"
    cp "$3" "$work/far/bin/busybox"
    inside=1 work=$work timeout -k 10 300 unshare -Urmnpf --kill-child --mount-proc --propagation private "$0"
    exit
fi
ip link set lo up
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
# What an ELF file for aarch64 begins with; F has qemu opened now, so that roots without it find it.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
echo ":aarch64:M::$magic:$mask:/usr/bin/qemu-aarch64-static:F" >/proc/sys/fs/binfmt_misc/register
for folder in proc dev; do mount --rbind "/$folder" "$work/far/$folder"; done
for name in sh uname sha256sum head cut mkdir mv rm chmod cat; do ln -s busybox "$work/far/bin/$name"; done

# In the place of ssh: the other root. It does not become the other end, which hears its end as with ssh.
cat >"$work/ssh" <<END
#!/bin/sh
for word; do if [ "\$word" = -G ]; then echo hostname 127.0.0.1; exit 0; fi; done
while [ "\$1" != -- ]; do shift; done
cd /
chroot "$work/far" /bin/busybox env -i HOME=/srv PATH=/bin SSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" /bin/sh -c "cd; \$3"
END
chmod +x "$work/ssh"
export SABUL_SSH=$work/ssh PATH=$work/near:$PATH HOME=$work/near TERM=dumb
cd "$work/near"
head -c 20000000 /dev/urandom >big

in_far() { chroot "$work/far" /bin/busybox env -i HOME=/srv PATH=/bin /bin/sh -c "cd; $1"; }
typed() { # WHERE COMMAND
    echo "$1# $2"
    local code=0
    if [ "$1" = near ]; then bash -c "$2"; else in_far "$2"; fi </dev/null 2>&1 | sed 's/^/    /' || code=$?
    [ "$code" -eq 0 ] || echo "    [exit code $code]"
}
serving() { # WHERE: a server there, listened for
    echo "$1# sabul serve --root /tmp --listen 127.0.0.1:4850 --ticket-file ticket &"
    local ticket=$work/near/ticket
    if [ "$1" = near ]; then
        mkdir -p served
        sabul serve --root served --listen 127.0.0.1:4850 --ticket-file ticket 2>/dev/null &
    else
        ticket=$work/far/srv/ticket
        chroot "$work/far" /bin/sabul serve --root /tmp --listen 127.0.0.1:4850 --ticket-file /srv/ticket 2>/dev/null &
    fi
    server=$!
    for _ in $(seq 100); do [ -e "$ticket" ] && break; sleep 0.1; done
    cp -n "$work/near/ticket" "$work/far/srv/ticket" 2>/dev/null || cp "$work/far/srv/ticket" "$work/near/ticket"
}
stopped() { kill "$server"; wait "$server" || true; rm -f "$work"/{near,far/srv}/ticket; }

trap 'kill "$server" 2>/dev/null || true' EXIT

typed near "uname -sm; sabul --version"
typed far "uname -sm; sabul --version"
echo "A server on aarch64, a client on x86_64."
serving far
typed near "sabul cp --ticket ticket big sabul://127.0.0.1/"
typed near "sabul cp --ticket ticket sabul://127.0.0.1/big back && cmp big back && echo the same"
stopped
echo "A server on x86_64, a client on aarch64."
serving near
cp big "$work/far/srv/"
typed far "sabul cp --ticket ticket big sabul://127.0.0.1/"
typed far "sabul cp --ticket ticket sabul://127.0.0.1/big back && sha256sum big back"
stopped
echo "Through ssh, to a host that has a sabul."
typed near "sabul cp big far:one"
rm "$work/far/bin/sabul"
echo "And to one that has none."
typed near "sabul cp big far:two"
typed near "sabul cp --push big far:two"
typed near "sabul cp --push=sabul big far:two"
typed far "ls -l .cache/sabul"
typed near "sabul cp --push=sabul-aarch64 big far:two"
typed near "sabul cp far:two again && cmp big again && echo the same"
