#!/usr/bin/env bash
# Failures at random moments: kill -9 of either side, outages of the path, disks that become full or read-only. After
# each failure every file under a final name must be complete, and the next run must transfer everything and leave no
# partial files.
#
# usage: tests/cables.sh [KILLS] [OUTAGES] [DISKS] [SEED]      (200 50 40 1), a quarter of an hour
# Needs root, ip from iproute2, mount, and a built `sabul` (SABUL=PROGRAM names another program).
set -euo pipefail
cd "$(dirname "$0")/.."

kills=${1:-200}
outages=${2:-50}
disks=${3:-40}
seed=${4:-1}
sabul=$(realpath "${SABUL:-target/release/sabul}")
# Parallel trials: kills and disks keep a processor busy, outages only wait.
parallel=${PARALLEL:-3}
work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-cables.XXXXXX")
# A private cache: these copies neither use nor change the user's path records.
export XDG_CACHE_HOME=$work/cache
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# draw NAME LEAST MOST: a random number, the same for the same name and seed.
draw() {
    local hash
    hash=$(printf '%s %s' "$seed" "$1" | cksum | cut -d' ' -f1)
    echo $(($2 + hash % ($3 - $2 + 1)))
}

# The tree to send: a few large files and many small files, 41 MB.
make_tree() {
    mkdir -p "$work/tree/small" "$work/tree/deep/er"
    local n
    for n in 1 2 3; do head -c 12000000 /dev/urandom >"$work/tree/deep/er/large$n"; done
    for n in $(seq 150); do head -c $((n * 300)) /dev/urandom >"$work/tree/small/$n"; done
    : >"$work/tree/empty"
}

# serve DIR ROOT [COMMAND...]: sets server_pid once the server is ready.
serve() {
    rm -f "$1/ticket"
    "${@:3}" "$sabul" serve --root "$2" --listen "${listen:-127.0.0.1:0}" --ticket-file "$1/ticket" \
        >>"$1/serve.out" 2>>"$1/serve.err" &
    server_pid=$!
    local waited=0
    until [ -s "$1/ticket" ]; do
        waited=$((waited + 1))
        [ "$waited" -le 300 ] && kill -0 "$server_pid" 2>/dev/null || { tail -n 3 "$1/serve.err" && return 1; }
        sleep 0.1
    done
    address=$(sed -n 's/.*sabul:\/\/\([0-9.:]*\).*/\1/p' "$1/serve.out" "$1/serve.err" | tail -n 1)
}

# start_copy DIR: sets copy_pid; end_copy: returns its exit code. A copy is killed after two minutes.
start_copy() {
    "${client[@]}" "$sabul" cp -rq --bwlimit 200M --ticket "$1/ticket" "$work/tree" "sabul://$address/" 2>"$1/cp.err" &
    copy_pid=$!
    (sleep 120 && kill "$copy_pid") 2>/dev/null &
    watch_pid=$!
}
end_copy() {
    local code=0
    wait "$copy_pid" 2>/dev/null || code=$?
    kill "$watch_pid" 2>/dev/null || true
    return "$code"
}
copy() { start_copy "$1" && end_copy; }

# whole DIR: checks that every file under a final name equals the sent file.
whole() {
    local file name bad=0
    while IFS= read -r -d '' file; do
        name=${file#"$1"/}
        case "${name##*/}" in *.sabul-part*) continue ;; esac
        cmp -s "$file" "$work/$name" || { echo "   not whole: $name" && bad=1; }
    done < <(find "$1" -type f -print0)
    return "$bad"
}
complete() { diff -rq "$work/tree" "$1/tree" >/dev/null; }
leftovers() { find "$1" -name '*.sabul-part*' | wc -l; }

# again DIR ROOT: checks that the next run transfers everything and leaves no partial files.
again() {
    if ! copy "$1"; then echo "   the next run failed: $(tail -n 1 "$1/cp.err")" && return 1; fi
    complete "$2" || { echo "   the next run left files that differ" && return 1; }
    [ "$(leftovers "$2")" -eq 0 ] || { echo "   leftovers: $(find "$2" -name '*.sabul-part*' | head -n 3)" && return 1; }
}

# One failure each; prints a line that begins with ok or FAIL, the exit code of the client, and its message.
kill_once() {
    local dir=$work/kill$1 code=0 whom after
    mkdir -p "$dir/root"
    client=()
    serve "$dir" "$dir/root" || { echo "FAIL kill $1: no server" && return; }
    whom=$([ "$(draw "kill $1 whom" 0 1)" -eq 0 ] && echo client || echo server)
    after=$(draw "kill $1 after" 20 2200)
    start_copy "$dir"
    sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
    if [ "$whom" = server ]; then
        kill -9 "$server_pid" 2>/dev/null || true
    else
        kill -9 "$copy_pid" 2>/dev/null || true
    fi
    end_copy || code=$?
    [ "$whom" = client ] || wait "$server_pid" 2>/dev/null || true
    local text="kill $1: $whom after $after ms, exit $code, $(tail -n 1 "$dir/cp.err" | cut -c1-120)"
    local verdict=ok
    whole "$dir/root" || verdict=FAIL
    [ "$whom" = client ] || [ "$code" -eq 0 ] || [ "$code" -eq 3 ] || verdict=FAIL
    [ "$whom" = client ] || { listen=127.0.0.1:0 && serve "$dir" "$dir/root" || verdict=FAIL; }
    again "$dir" "$dir/root" || verdict=FAIL
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    echo "$verdict $text"
    rm -rf "$dir"
}

outage_once() {
    local dir=$work/outage$1 code=0 a=sabul-$$-$1-a b=sabul-$$-$1-b after lasts
    mkdir -p "$dir/root"
    ip netns add "$a" && ip netns add "$b"
    ip link add "sa$$n$1" netns "$a" type veth peer name "sb$$n$1" netns "$b"
    ip -n "$a" addr add 10.9.0.1/24 dev "sa$$n$1" && ip -n "$b" addr add 10.9.0.2/24 dev "sb$$n$1"
    ip -n "$a" link set "sa$$n$1" up && ip -n "$b" link set "sb$$n$1" up && ip -n "$a" link set lo up
    client=(ip netns exec "$b")
    listen=10.9.0.1:4850 serve "$dir" "$dir/root" ip netns exec "$a" || { echo "FAIL outage $1: no server" && return; }
    address=10.9.0.1:4850
    after=$(draw "outage $1 after" 100 1800)
    lasts=$(draw "outage $1 lasts" 5 40)
    start_copy "$dir"
    sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
    ip -n "$a" link set "sa$$n$1" down
    sleep "$lasts"
    ip -n "$a" link set "sa$$n$1" up
    end_copy || code=$?
    local text="outage $1: $lasts s after $after ms, exit $code, $(tail -n 1 "$dir/cp.err" | cut -c1-120)"
    local verdict=ok
    whole "$dir/root" || verdict=FAIL
    # A short outage is survived. A long outage may end the transfer with its reason, and an outage of 10 s the
    # connection attempt.
    { [ "$lasts" -gt $([ "$after" -lt 400 ] && echo 8 || echo 20) ] && [ "$code" -eq 3 ]; } || [ "$code" -eq 0 ] || verdict=FAIL
    again "$dir" "$dir/root" || verdict=FAIL
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    ip netns del "$a" && ip netns del "$b"
    echo "$verdict $text"
    rm -rf "$dir"
}

# A server's disk that is too small, or that becomes read-only meanwhile.
disk_once() {
    local dir=$work/disk$1 code=0 kind megabytes
    mkdir -p "$dir/root"
    client=()
    kind=$([ $(($1 % 2)) -eq 0 ] && echo full || echo read-only)
    megabytes=$(draw "disk $1 size" 2 34)
    [ "$kind" = full ] || megabytes=100
    mount -t tmpfs -o "size=${megabytes}m" none "$dir/root"
    serve "$dir" "$dir/root" || { echo "FAIL disk $1: no server" && umount "$dir/root" && return; }
    # The kernel refuses this while a file is open for writing. In-memory tests make a disk read-only at every single
    # call.
    [ "$kind" = full ] || mount -o remount,ro "$dir/root"
    start_copy "$dir"
    end_copy || code=$?
    local text="disk $1: $kind, $megabytes MB, exit $code, $(tail -n 1 "$dir/cp.err" | cut -c1-120)"
    local verdict=ok
    whole "$dir/root" || verdict=FAIL
    [ "$code" -eq 6 ] || verdict=FAIL
    mount -o "remount,rw,size=100m" "$dir/root" || verdict=FAIL
    again "$dir" "$dir/root" || verdict=FAIL
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
    umount "$dir/root" || true
    echo "$verdict $text"
    rm -rf "$dir"
}

# several COUNT PARALLEL WHAT: runs WHAT 1 to WHAT COUNT, PARALLEL at a time.
several() {
    local n
    for n in $(seq "$1"); do
        while [ "$(jobs -rp | wc -l)" -ge "$2" ]; do wait -n || true; done
        ("$3" "$n") &
    done
    wait
}

make_tree
{
    several "$kills" "$parallel" kill_once
    several "$outages" "$((parallel * 4))" outage_once
    several "$disks" "$parallel" disk_once
} | tee "$work/lines"
ok=$(grep -c '^ok ' "$work/lines" || true)
failed=$(grep -c '^FAIL ' "$work/lines" || true)
echo "cables.sh: $ok passed, $failed failed, seed $seed"
[ "$failed" -eq 0 ] && [ "$ok" -eq $((kills + outages + disks)) ]
