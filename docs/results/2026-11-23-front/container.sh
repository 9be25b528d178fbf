#!/usr/bin/env bash
# The lab in a container, and what is said where the container may less. container.sh ARCHIVE; needs podman, PODMAN="podman
# --runtime runc ..." where it needs options.
archive=$1
podman=${PODMAN:-podman}
I=sabul-lab:0.1.0
say() { echo "\$ podman run $*" | sed "s| $I||"; timeout 120 $podman run --rm --network none "$@" 2>&1 | sed 's/^/    /'; }
echo "\$ podman load -i $(basename "$archive")"; $podman load -q -i "$archive" 2>&1 | sed 's/^/    /'
C="--cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun"
say $C $I sabul lab shell --preset metro -- ip -br addr
say $C $I sabul lab run scenarios/arms/01-cubic.toml --check
say $C $I sabul lab shell --rate 20M --delay 20 --peer "sabul perf serve --ticket-file /tmp/t" -- \
    bash -c "until [ -e /tmp/t ]; do sleep .1; done; sabul perf far:4850 --ticket /tmp/t -t 4 -i 2"
say --cap-add NET_ADMIN --device /dev/net/tun $I sabul lab shell -- true
say --cap-add SYS_ADMIN --device /dev/net/tun $I sabul lab shell -- true
say --cap-add SYS_ADMIN --cap-add NET_ADMIN $I sabul lab shell -- true
