#!/bin/bash
# Copies of many small files over the lab's path of 1 Gb/s x 100 ms: small-files.sh SABUL [RUNS [MANY]]
#
# RUNS first and later copies of 1,000 files of 16 KiB by ticket, durable, and rsync over ssh; then MANY files of 10 kB and
# one file of that size. Wall time of each command, in seconds. Needs root, rsync and OpenSSH.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
time_of() { # NAME COMMAND...
    local name=$1 began ended
    shift
    sync
    began=$(date +%s%N)
    "$@" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    ended=$(date +%s%N)
    printf '%-28s %7.3f\n' "$name" "$(bc <<<"scale=4; ($ended - $began) / 1000000000")"
}
if [ "${1:-}" = inside ]; then
    sabul=$2 work=$3 runs=$4 many=$5
    echo "TCP: $(cat /proc/sys/net/ipv4/tcp_congestion_control)"
    ssh="-F $work/ssh_config"
    until ssh $ssh far true 2>/dev/null; do sleep 0.2; done
    copy() { "$sabul" cp -rq --ticket "$work/t" "$work/$1" "sabul://far:4900/$2/"; }
    for run in $(seq "$runs"); do
        XDG_CACHE_HOME=$work/cache$run
        export XDG_CACHE_HOME
        time_of "1000 files, first contact" copy small "first$run"
        time_of "1000 files, later" copy small "later$run"
        time_of "ssh login" ssh $ssh far true
        time_of "1000 files, rsync over ssh" rsync -a -e "ssh $ssh" "$work/small" "far:$work/to/rsync$run/"
    done
    for run in 1 2 3; do
        time_of "$many files of 10 kB" copy many "many$run"
        rm -r "$work/to/many$run"
        time_of "one file of that size" copy one "one$run"
        rm -r "$work/to/one$run"
    done
    exit
fi
sabul=$(realpath "$1") runs=${2:-10} many=${3:-100000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/to" "$work/small" "$work/many" "$work/one" /run/sshd
python3 - "$work" "$many" <<'P'
import os, sys
work, many = sys.argv[1], int(sys.argv[2])
for number in range(1000):
    open(f"{work}/small/{number}", "wb").write(os.urandom(16 << 10))
for number in range(many):
    if number % 1000 == 0:
        os.mkdir(f"{work}/many/{number // 1000}")
    open(f"{work}/many/{number // 1000}/{number}", "wb").write(os.urandom(10_000))
with open(f"{work}/one/file", "wb") as file:
    for _ in range(many):
        file.write(os.urandom(10_000))
P
for name in key host; do ssh-keygen -q -t ed25519 -N '' -f "$work/$name"; done
cp "$work/key.pub" "$work/keys"
cat >"$work/sshd_config" <<C
Port 2222
ListenAddress 0.0.0.0
HostKey $work/host
AuthorizedKeysFile $work/keys
StrictModes no
PermitRootLogin yes
PidFile none
C
cat >"$work/ssh_config" <<C
Host far
  HostName far
  Port 2222
  User root
  IdentityFile $work/key
  StrictHostKeyChecking no
  UserKnownHostsFile $work/known
  LogLevel ERROR
C
cat >"$work/peer" <<C
#!/bin/bash
/usr/sbin/sshd -D -f $work/sshd_config &
exec $sabul serve --root $work/to --listen [::]:4900 --ticket-file $work/t
C
chmod +x "$work/peer"
"$sabul" lab shell --rate 1G --rtt 100 --queue 1bdp --peer "$work/peer" -- "$(realpath "$0")" inside "$sabul" "$work" "$runs" "$many" 2>"$work/log" || { cat "$work/log"; exit 1; }
