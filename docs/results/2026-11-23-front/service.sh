#!/usr/bin/env bash
# The Debian service without systemd: unshare -mn service.sh SABUL. As packaging/sabul.service has it: a user of its own, no capabilities, no new rights, its folders made before.
set -e
ip link set lo up
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib
install -d -m 700 -o 61234 -g 61234 /run/sabul; install -d -m 755 -o 61234 -g 61234 /var/lib/sabul
echo "\$ # the service, as user 61234"
( umask 077; exec setpriv --reuid 61234 --regid 61234 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
  env -i XDG_RUNTIME_DIR=/run "$1" serve --root /var/lib/sabul --ticket-file /run/sabul/ticket --bwlimit-total 40M 2>/run/log ) &
S=$!
for i in $(seq 50); do [ -e /run/sabul/ticket ] && break; sleep 0.1; done
ls -ln /run/sabul
head -c 20000000 /dev/urandom >/run/big
"$1" cp -q --ticket /run/sabul/ticket /run/big sabul:///in/ & C=$!
sleep 2
say() { echo "root# $*"; "$@" || echo "[exit code $?]"; }
export XDG_RUNTIME_DIR=/run
say "$1" ps
say "$1" set --bwlimit-total 400M $S
wait $C; echo "[copy: exit code $?]"
sleep 1; say "$1" ps
unset XDG_RUNTIME_DIR
say env -u XDG_RUNTIME_DIR "$1" ps
echo "other user:"; setpriv --reuid 1234 --regid 1234 --clear-groups env XDG_RUNTIME_DIR=/run "$1" ps || echo "[exit code $?]"
kill $S; wait $S || true; ls -n /run/sabul
cmp /run/big /var/lib/sabul/in/big && echo the same
