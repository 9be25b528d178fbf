#!/bin/bash
# Copies by sabul, rsync over ssh, scp and rclone over the lab's path of 1 Gb/s x 100 ms: run.sh SABUL LOSS [CONTROL]
#
# LOSS as `sabul lab shell --loss` takes it, or 0; CONTROL is the congestion control of TCP, cubic unless given. Wall time of each
# command. Needs root, rsync, rclone and OpenSSH. Everything is below a folder that is removed.
set -uo pipefail
if [ "${1:-}" = inside ]; then
    sabul=$2 work=$3
    sysctl -q -w net.ipv4.tcp_congestion_control="$4"
    ssh="-F $work/ssh_config"
    until ssh $ssh far true 2>/dev/null; do sleep 0.2; done
    time_of() { # NAME KIND COMMAND...
        local name=$1 kind=$2 began ended code
        shift 2
        sync
        began=$(date +%s%N)
        timeout 120 "$@" >"$work/out" 2>&1 && code=0 || code=$?
        ended=$(date +%s%N)
        printf '%-8s %-22s %8.2f s  code %d\n' "$kind" "$name" "$(bc <<<"scale=3; ($ended - $began) / 1000000000")" "$code"
        [ "$code" -eq 0 ] || tail -n 2 "$work/out"
    }
    for kind in small half many; do
        from=$work/from/$kind
        time_of "sabul host:" "$kind" "$sabul" cp -r -q --fresh --ssh "ssh $ssh" "$from/." "far:$work/to/$kind-sabul/"
        time_of "sabul ticket" "$kind" "$sabul" cp -r -q --fresh --ticket "$work/t" "$from/." "sabul://far:4900/$kind-ticket/"
        time_of "rsync -r" "$kind" rsync -r -e "ssh $ssh" "$from/" "far:$work/to/$kind-rsync/"
        # A round trip or more for each file: ten thousand take longer than anybody waits.
        [ "$kind" = many ] && continue
        time_of "scp -r" "$kind" scp -q $ssh -r "$from" "far:$work/to/$kind-scp"
        time_of "rclone copy, sftp" "$kind" rclone copy "$from" ":sftp,host=far,port=2222,user=root,key_file=$work/key:$work/to/$kind-rclone"
    done
    exit
fi

sabul=$(realpath "$1") loss=$2 control=${3:-cubic} self=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/to "$work"/from/{small,half,many}
python3 - "$work/from" <<'P'
import os, sys
root = sys.argv[1]
for kind, files, size, folders in [("small", 1000, 16384, 20), ("half", 1, 512 << 20, 1), ("many", 10_000, 10_000, 100)]:
    for number in range(files):
        folder = os.path.join(root, kind, f"d{number % folders:03}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"f{number}"), "wb") as file:
            file.write(os.urandom(size))
P
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
ssh-keygen -q -t ed25519 -N '' -f "$work/host"
cp "$work/key.pub" "$work/keys"
mkdir -p /run/sshd "$work/bin"
ln -s "$sabul" "$work/bin/sabul"
cat >"$work/sshd_config" <<C
Port 2222
HostKey $work/host
AuthorizedKeysFile $work/keys
StrictModes no
PermitRootLogin yes
PidFile none
Subsystem sftp internal-sftp
SetEnv PATH=$work/bin:/usr/bin:/bin
C
cat >"$work/ssh_config" <<C
Host far
  Port 2222
  User root
  IdentityFile $work/key
  StrictHostKeyChecking no
  UserKnownHostsFile $work/known
  LogLevel ERROR
C
cat >"$work/peer" <<C
#!/bin/bash
sysctl -q -w net.ipv4.tcp_congestion_control=$control
/usr/sbin/sshd -D -f $work/sshd_config &
exec $sabul serve --root $work/to --listen 0.0.0.0:4900 --ticket-file $work/t
C
chmod +x "$work/peer"
export XDG_CACHE_HOME=$work/cache
loss_option=()
[ "$loss" = 0 ] || loss_option=(--loss "$loss")
"$sabul" lab shell --rate 1G --rtt 100 --queue 1bdp "${loss_option[@]}" --peer "$work/peer" -- \
    "$self" inside "$sabul" "$work" "$control" 2>"$work/log" | grep code
