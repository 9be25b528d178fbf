#!/usr/bin/env bash
# Partial files of another user in a shared writable folder: the copy leaves those files alone, and its own files
# belong to its user.
#
# Needs root, to act as two users. SABUL is the program.
set -euo pipefail
cd "$(dirname "$0")/.."

sabul=$(realpath "${SABUL:-target/release/sabul}")
skip() { echo "SKIPPED tests/others.sh: $*"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v setpriv >/dev/null || skip "no setpriv here"
work=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
chmod 755 .
cp "$sabul" sabul
mkdir -m 755 root
head -c 48M /dev/urandom >root/f
XDG_RUNTIME_DIR=$work ./sabul serve --root root --listen 127.0.0.1:0 --ticket-file ticket >served 2>&1 &
server=$!
for _ in $(seq 200); do
    [ -s ticket ] && break
    sleep 0.05
done
[ -s ticket ] || { echo "FAIL the server did not begin: $(cat served)"; exit 1; }

# as USER COMMAND...: runs a command as this user, with a separate home.
as() {
    local home=$work/home$1
    mkdir -p -m 700 "$home"
    cp ticket "$home/ticket"
    chown -R "$1" "$home"
    HOME=$home XDG_RUNTIME_DIR=$home setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"
}

# copy USER FOLDER OPTIONS: copies f into the folder.
copy() { as "$1" ./sabul cp -q --ticket "$work/home$1/ticket" "${@:3}" sabul://127.0.0.1/f "$2/"; }

for mode in 0777 1777; do
    for victim in 0 1000; do
        folder=$work/d$mode-$victim
        mkdir "$folder"
        chmod $mode "$folder"
        copy 65534 "$folder" --bwlimit 60M 2>/dev/null &
        attacker=$!
        for _ in $(seq 200); do
            compgen -G "$folder/*.kept.sabul-part" >/dev/null && break
            sleep 0.05
        done
        pkill -KILL -P "$attacker" 2>/dev/null || kill -KILL "$attacker"
        wait "$attacker" 2>/dev/null || true
        compgen -G "$folder/*.kept.sabul-part" >/dev/null || { echo "FAIL nothing was left"; exit 1; }
        chmod 666 "$folder"/*part "$folder"/.resume*
        before=$(cd "$folder" && find . -name '*part' -exec sha256sum {} + | sort)
        copy "$victim" "$folder" || { echo "FAIL folder $mode, user $victim: exit $?"; exit 1; }
        cmp root/f "$folder/f"
        [ "$(stat -c %u "$folder/f")" = "$victim" ] || { echo "FAIL f belongs to $(stat -c %u "$folder/f")"; exit 1; }
        [ "$before" = "$(cd "$folder" && find . -name '*part' -exec sha256sum {} + | sort)" ] ||
            { echo "FAIL the leftovers of another user were touched"; exit 1; }
        if as 65534 sh -c "printf evil >>'$folder/f'" 2>/dev/null; then
            echo "FAIL another user may write to f"
            exit 1
        fi
        echo "ok   folder $mode, user $victim"
    done
done
