#!/bin/bash
# Reads over the lab's path of 1 Gb/s x 100 ms, by sabul and by other file systems of fsspec:
#
#   run.sh SABUL PYTHON [RUNS] [ranges|readers]
#
# SABUL is the program; PYTHON is an interpreter with the packages sabul, fsspec, paramiko, sshfs (asyncssh), aiohttp,
# pandas, pyarrow, duckdb and zarr.
# Needs root, OpenSSH and nginx. TCP has the default of the kernel, here BBR. Everything is below a folder that is removed.
set -euo pipefail
sabul=$(realpath "$1") python=$2 runs=${3:-5} what=${4:-ranges}
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/data" /run/sshd
"$python" "$here/$what.py" make "$work/data"
ssh-keygen -q -t ed25519 -N '' -f "$work/key"
ssh-keygen -q -t ed25519 -N '' -f "$work/host"
cp "$work/key.pub" "$work/keys"
cat >"$work/sshd_config" <<C
Port 2222
HostKey $work/host
AuthorizedKeysFile $work/keys
StrictModes no
PermitRootLogin yes
PidFile none
Subsystem sftp internal-sftp
C
cat >"$work/nginx.conf" <<C
daemon off;
user root;
pid $work/nginx.pid;
error_log $work/nginx.log;
events {}
http { access_log off; sendfile on; server { listen 8080; root $work/data; } }
C
cat >"$work/peer" <<C
#!/bin/bash
/usr/sbin/sshd -D -f $work/sshd_config &
nginx -c $work/nginx.conf &
exec $sabul serve --root $work/data --listen 0.0.0.0:4900 --ticket-file $work/t
C
chmod +x "$work/peer"
export XDG_CACHE_HOME=$work/cache HOME=$work
"$sabul" lab shell --rate 1G --rtt 100 --queue 1bdp --peer "$work/peer" -- \
    "$python" "$here/$what.py" read "$work" "$runs" 2>"$work/log" ||
    { tail -n 60 "$work/log" >&2; exit 1; }
