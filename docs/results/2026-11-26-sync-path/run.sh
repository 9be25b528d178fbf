#!/bin/bash
# Syncs of a changed tree by sabul, rsync over ssh and rclone over the lab's path of 1 Gb/s x 100 ms, or on loopback:
# run.sh SABUL [ENTRIES [path|loopback]]
#
# Wall time of each command, and of a login by ssh alone. Afterwards `rsync -n -a --delete -i` compares. TCP has CUBIC, if the kernel permits that.
# Needs root, rsync, rclone (RCLONE) and OpenSSH. Everything is below a folder that is removed.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
rclone=${RCLONE:-rclone}
if [ "${1:-}" = inside ]; then
    sabul=$2 work=$3 far=$4
    # Not every kernel permits CUBIC in a namespace.
    [ "$far" = far ] && sysctl -q -w net.ipv4.tcp_congestion_control=cubic
    echo "TCP: $(cat /proc/sys/net/ipv4/tcp_congestion_control), code 0"
    ssh="-F $work/ssh_config"
    until ssh $ssh far true 2>/dev/null; do sleep 0.2; done
    limit_s=300
    time_of() { # SHARE NAME COMMAND...
        local share=$1 name=$2 began ended code
        shift 2
        sync
        began=$(date +%s%N)
        timeout "$limit_s" "$@" >"$work/out" 2>&1 && code=0 || code=$?
        ended=$(date +%s%N)
        printf '%-10s %-16s %8.2f s  code %d  ' "$share" "$name" "$(bc <<<"scale=3; ($ended - $began) / 1000000000")" "$code"
        [ "$code" -eq 0 ] || tail -n 2 "$work/out"
    }
    judge() { # NAME
        local lines
        lines=$(rsync -n -a --delete -i "$work/from/" "$work/to/$1/" | wc -l)
        echo "rsync -n finds $lines differences"
    }
    for _ in 1 2 3; do
        time_of - "ssh login" ssh $ssh far true
        echo
    done
    for share in first 0 1 10 50; do
        [ "$share" = first ] || "$here/tree.py" change "$work/from" "$share" "$((share + 100))"
        limit="--delete-limit 1000000"
        time_of "$share %" "sabul ticket" "$sabul" sync -a -q --delete $limit --ticket "$work/t" "$work/from/" "sabul://$far:4900/ticket"
        judge ticket
        time_of "$share %" "sabul ssh" "$sabul" sync -a -q --delete $limit --ssh "ssh $ssh" "$work/from/" "far:$work/to/ssh"
        judge ssh
        time_of "$share %" "rsync" rsync -a --delete -e "ssh $ssh" "$work/from/" "far:$work/to/rsync/"
        judge rsync
        # Without links, permission bits and directories: rclone has no archive mode.
        [ "$share" = first ] && continue
        [ "$share" = 0 ] && cp -a "$work/to/rsync" "$work/to/rclone"
        limit_s=20
        time_of "$share %" "rclone sync, sftp" "$rclone" sync "$work/from" ":sftp,host=$far,port=2222,user=root,key_file=$work/key:$work/to/rclone"
        limit_s=300
        echo
    done
    exit
fi

sabul=$(realpath "$1") entries=${2:-100000} where=${3:-path} self=$(realpath "$0")
work=$(mktemp -d)
peer=
trap '[ -z "$peer" ] || kill -- "-$peer"; rm -rf "$work"' EXIT
mkdir -p "$work/to" "$work/bin" /run/sshd
"$here/tree.py" make "$work/from" "$entries"
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
ssh-keygen -q -t ed25519 -N '' -f "$work/host"
cp "$work/key.pub" "$work/keys"
ln -s "$sabul" "$work/bin/sabul"
[ "$where" = path ] && address=far listen=0.0.0.0 || address=127.0.0.1 listen=127.0.0.1
cat >"$work/sshd_config" <<C
Port 2222
ListenAddress $listen
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
  HostName $address
  Port 2222
  User root
  IdentityFile $work/key
  StrictHostKeyChecking no
  UserKnownHostsFile $work/known
  LogLevel ERROR
C
cat >"$work/peer" <<C
#!/bin/bash
[ "$where" = loopback ] || sysctl -q -w net.ipv4.tcp_congestion_control=cubic
/usr/sbin/sshd -D -f $work/sshd_config &
exec $sabul serve --root $work/to --allow-rm --listen $listen:4900 --ticket-file $work/t
C
chmod +x "$work/peer"
export XDG_CACHE_HOME=$work/cache
if [ "$where" = loopback ]; then
    setsid "$work/peer" >"$work/log" 2>&1 &
    peer=$!
    "$self" inside "$sabul" "$work" "$address" | grep --line-buffered -E "code|finds"
else
    "$sabul" lab shell --rate 1G --rtt 100 --queue 1bdp --peer "$work/peer" -- "$self" inside "$sabul" "$work" "$address" 2>"$work/log" |
        grep --line-buffered -E "code|finds"
fi
