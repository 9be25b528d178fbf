#!/usr/bin/env bash
# Copies one file through ssh by turns: `scp`, and `sabul cp --carrier ssh` up and down. Prints seconds for each.
# Needs root; SABUL=PROGRAM, BYTES, ROUNDS and TCP=CONTROLLER are optional. The network and the accounts are the script's own.
# Both ends are on one machine, over loopback, with files in memory.
set -euo pipefail
if [ -z "${INSIDE:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    INSIDE=$work unshare -mn "$(realpath "$0")" "$@"
    exit
fi
work=$INSIDE
sabul=$(realpath "${SABUL:-target/release/sabul}")
ip link set lo up
sysctl -qw net.ipv4.tcp_congestion_control="${TCP:-reno}"
mkdir -p "$work/home" "$work/near"
mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd
mount -t tmpfs tmpfs "$work/home" && mount -t tmpfs tmpfs "$work/near"
{ echo "root:x:0:0:root:$work/home:/bin/sh"; echo "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin"; } >"$work/passwd"
echo 'root:*:20000:0:99999:7:::' >"$work/shadow"
mount --bind "$work/passwd" /etc/passwd
mount --bind "$work/shadow" /etc/shadow
ssh-keygen -q -t ed25519 -N '' -f "$work/host"
ssh-keygen -q -t ed25519 -N '' -f "$work/user"
cat >"$work/sshd_config" <<END
ListenAddress 127.0.0.1
Port 2222
HostKey $work/host
AuthorizedKeysFile $work/user.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
Subsystem sftp internal-sftp
END
cat >"$work/config" <<END
Host far
    HostName 127.0.0.1
    Port 2222
    User root
    IdentityFile $work/user
    UserKnownHostsFile $work/known
    StrictHostKeyChecking accept-new
    LogLevel ERROR
END
"$(command -v sshd || echo /usr/sbin/sshd)" -D -e -f "$work/sshd_config" 2>"$work/log" &
server=$!
trap 'kill "$server"' EXIT
sleep 1
cd "$work/near"
export HOME=$work/near
head -c "${BYTES:-400000000}" /dev/urandom >file
cp=("$sabul" cp -q --no-sync --no-resume --carrier ssh -e "ssh -F $work/config" --remote-sabul "$sabul")
timed() {
    local begin end
    begin=$(date +%s.%N)
    "${@:2}"
    end=$(date +%s.%N)
    echo "$1 $(echo "$end - $begin" | bc)"
}
ssh -F "$work/config" far true
for _ in $(seq "${ROUNDS:-7}"); do
    rm -f "$work/home"/file* down*
    timed scp-up scp -q -F "$work/config" file far:file1
    timed sabul-up "${cp[@]}" file far:file2
    timed scp-down scp -q -F "$work/config" far:file1 down1
    timed sabul-down "${cp[@]}" far:file2 down2
    cmp file down1 && cmp file down2
done
