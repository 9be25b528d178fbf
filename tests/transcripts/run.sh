#!/usr/bin/env bash
# Transcripts of `sabul` in error situations, on a terminal of 80 columns, between two network namespaces. Transcripts
# are for readers: each shows one trial, and everything on the screen must be true.
#
# usage: tests/transcripts/run.sh [FOLDER]    SABUL=PROGRAM names another program. Needs root, iproute2 and script(1).
set -euo pipefail
export SHELL=/bin/bash
cd "$(dirname "$0")/../.."
sabul=$(realpath "${SABUL:-target/debug/sabul}")
out=$(realpath -m "${1:-docs/results/2026-11-25-trials}")
skip() { echo "SKIPPED tests/transcripts/run.sh: $*"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v ip >/dev/null || skip "no ip here: apt-get install iproute2"
command -v script >/dev/null || skip "no script here: apt-get install bsdutils"
[ -x "$sabul" ] || skip "no program $sabul: cargo build -p sabul-program"

near=sabul-near-$$ far=sabul-far-$$
work=$(mktemp -d) server=
end() { [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" || true; }; server=; }
cleanup() {
    end
    chattr -i "$work/far/content" 2>/dev/null || true
    umount "$work/far/full" 2>/dev/null || true
    ip netns del "$near" 2>/dev/null || true
    ip netns del "$far" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
ip netns add "$near" && ip netns add "$far" || skip "this machine makes no network namespaces"
ip link add cable netns "$near" type veth peer name cable netns "$far"
for it in "$near 1" "$far 2"; do
    set -- $it
    ip -n "$1" link set lo up
    ip -n "$1" addr add "192.0.2.$2/24" dev cable
    ip -n "$1" link set cable up
done
mkdir -p "$out" "$work"/{bin,near,far/full,far/content,run}
chmod 755 "$work" "$work"/{near,far,bin}
cp "$sabul" "$work/bin/sabul"
export XDG_RUNTIME_DIR=$work/run XDG_CACHE_HOME=$work/cache SABUL_TICKET_FILE=$work/ticket PATH=$work/bin:$PATH TERM=xterm
head -c 20000000 /dev/urandom >"$work/near/big.iso"
mkdir "$work/near/run7"
for n in $(seq 51); do head -c 24000 /dev/urandom >"$work/near/run7/f$n.nc"; done
printf 'x' >"$work/near/run7/notes"

serve() {
    end
    (cd "$work/far" && exec ip netns exec "$far" sabul serve --root . --listen 192.0.2.2:4850 --ticket-file "$work/ticket" "$@") \
        >"$work/serve.log" 2>&1 &
    server=$!
    for _ in $(seq 100); do grep -q ready "$work/serve.log" && return; sleep 0.1; done
    cat "$work/serve.log" && exit 1
}

# States of a terminal: one line each, without cursor control sequences; of the progress line one state per second.
clean() {
    tr '\r' '\n' | sed -e 's/\x1b\[[0-9;?]*[A-Za-z]//g' -e 's/[[:space:]]*$//' -e "s#$work/##g" -e '/^Script /d' -e '/^$/d' |
        awk '/^(\[[=> ]|[ 0-9][ 0-9][0-9]% )/{ if (n++ % 5) next } { print }' | uniq
}

# trial NAME TITLE COMMAND: records the terminal output of COMMAND; $during runs concurrently.
trial() {
    local name=$1 title=$2 command=$3 beside=
    if [ -n "${during:-}" ]; then (eval "$during") & beside=$!; fi
    {
        echo "# $title"
        echo "\$ $command"
        (cd "$work/near" && ip netns exec "$near" script -qec "stty cols 80 rows 24; $command; echo \"[exit \$?]\"" /dev/null) </dev/null | clean
        [ -z "${after:-}" ] || { echo "\$ $after"; (cd "$work" && eval "$after") 2>&1 | sed "s#$work/##g"; }
    } >"$out/$name.txt"
    [ -z "$beside" ] || wait "$beside"
    during= after=
    echo "$name"
}
cable() { ip -n "$near" link set cable "$1"; }
url=sabul://192.0.2.2

serve
trial no-r "A directory without -r is refused before anything is dialled" "sabul cp run7 $url/"
trial tree "A tree on 80 columns, at a rate that was set" "sabul cp -r --bwlimit 2M run7 $url/"
after="ls -A far far/run7 | grep -c sabul-part || true" trial left "After exit 0 nothing of ours is left at the destination" "sabul cp big.iso $url/a.iso"
during="sleep 3; cable down; sleep 8; cable up" trial outage-terminal "The cable is pulled for 8 s" "sabul cp --bwlimit 8M big.iso $url/b.iso"
during="sleep 3; cable down; sleep 8; cable up" trial outage-pipe "The same without a terminal" "sabul cp --bwlimit 8M big.iso $url/c.iso 2>&1 | cat"
during="sleep 3; cable down; sleep 8; cable up" trial outage-json "The same as JSON lines" \
    "sabul cp --bwlimit 8M --json-lines big.iso $url/d.iso | grep -o '\"t_s\":[0-9.]*\\|\"event\":\"[a-z]*\"\\|\"goodput_bps\":[0-9]*\\|\"silence_s\":[0-9]*\\|\"limiter\":{[^}]*}' | paste -sd' ' | sed 's/ \"t_s/\\n\"t_s/g'"
during="sleep 3; cable down; sleep 14; cable up" trial reconnect "The cable is pulled for longer than the other end is waited for" \
    "sabul cp --bwlimit 8M --timeout 6 --retry 2m big.iso $url/e.iso"
trial cap "A rate that the user set" "sabul cp --bwlimit 40M big.iso $url/f.iso"
serve --bwlimit-total 40M
trial cap-server "A rate that the server's owner set" "sabul cp big.iso $url/g.iso"
serve
trial typo "A typo in the path of the destination" "sabul cp big.iso $url/no/such/file"
trial typo-dry "The same with --dry-run" "sabul cp -n big.iso $url/no/such/file"
trial missing-here "A source that is not there, here" "sabul cp nope.txt $url/"
trial missing-there "A source that is not there, at the server" "sabul cp $url/nope.txt ."
if chattr +i "$work/far/content" 2>/dev/null; then
    trial no-permission "No permission in the folder of the destination" "sabul cp -r run7 $url/content"
    trial no-permission-json "The same as JSON" \
        "sabul cp -q -r --json run7 $url/content 2>/dev/null | grep -o '\"\\(bytes\\|files\\|failed\\|durable_bytes\\|exit\\)\":[0-9]*'"
    chattr -i "$work/far/content"
else
    echo "no-permission: SKIPPED, this file system has no immutable folders"
fi
if mount -t tmpfs -o size=12m tmpfs "$work/far/full" 2>/dev/null; then
    serve
    trial disk-full "The disk of the server is full" "sabul cp big.iso $url/full/"
    trial disk-full-tree "The same with files that fit before" "sabul cp -r run7 big.iso $url/full/"
    end
    umount "$work/far/full"
    serve
fi
mkdir -m 700 "$work/near/locked"
install -m 600 -o 65534 -g 65534 "$work/ticket" "$work/near/ticket"
trial not-permitted "A plain user, who may not write there" \
    "setpriv --reuid 65534 --regid 65534 --clear-groups sabul cp --ticket ticket $url/big.iso locked/x"
trial retry-5s "A retry of five seconds" "time -p sabul cp --retry 5s big.iso sabul://192.0.2.9/"
trial presets "Names of paths" "sabul lab presets"
trial debug "What SABUL_LOG=debug shows" "SABUL_LOG=debug sabul cp big.iso $url/h.iso"
