#!/usr/bin/env bash
# Whether a tarball and a Debian package work on a root with nothing else on it: a copy both ways, over loopback.
#
# packaging/try.sh FILE...; needs root or user namespaces. The roots are folders of its own.
set -euo pipefail
failed=0
for file in "$@"; do
    work=$(mktemp -d)
    mkdir "$work/clean"
    case $file in
        *.deb) dpkg-deb -x "$file" "$work/clean" && bin=/usr/bin/sabul ;;
        *) tar -C "$work/clean" --strip-components=1 -xzf "$file" && bin=/bin/sabul ;;
    esac
    mkdir -p "$work"/clean/{srv,tmp}
    head -c 20000000 /dev/urandom >"$work/clean/tmp/a"
    # A network of its own too, so that no port is taken and nothing is seen.
    cat >"$work/inside" <<'END'
set -e
ip link set lo up 2>/dev/null || true
chroot "$1" "$2" serve --root /srv --listen 127.0.0.1:4850 --ticket-file /tmp/ticket &
server=$!
trap 'kill $server 2>/dev/null' EXIT
for _ in $(seq 100); do [ -e "$1/tmp/ticket" ] && break; sleep 0.1; done
timeout 60 chroot "$1" "$2" cp --ticket /tmp/ticket /tmp/a sabul://127.0.0.1/
timeout 60 chroot "$1" "$2" cp --ticket /tmp/ticket sabul://127.0.0.1/a /tmp/b
cmp "$1/tmp/a" "$1/tmp/b"
END
    if unshare -rmn bash "$work/inside" "$work/clean" "$bin" >"$work/said" 2>&1; then
        echo "ok   $(basename "$file"): $(du -h "$work/clean$bin" | cut -f 1), $(find "$work/clean" -path '*man1*' -type f | wc -l) manual pages"
    else
        echo "FAIL $(basename "$file")" && sed 's/^/     /' "$work/said" && failed=1
    fi
    rm -rf "$work"
done
exit "$failed"
