#!/usr/bin/env bash
# Copies from host a to host b, started at a (direct) and at a third machine (steered) by turns: SABUL=… run.sh [RUNS], as root.
#
# a and b are network namespaces with a link of 400 Mb/s. A program in place of ssh enters the namespace, and keeps the
# bytes of both directions, which are the bytes of the third machine's link without the encryption of ssh.
set -euo pipefail
sabul=$(realpath "${SABUL:-target/release/sabul}")
runs=${1:-5}
mib=${MIB:-256}
work=$(mktemp -d)
a=sabul-$$-a
b=sabul-$$-b
clean_up() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
for ns in "$a" "$b"; do
    ip netns add "$ns"
    ip -n "$ns" link set lo up
done
ip link add cable netns "$a" type veth peer name cable netns "$b"
ip -n "$a" addr add 10.83.0.1/24 dev cable
ip -n "$b" addr add 10.83.0.2/24 dev cable
for ns in "$a" "$b"; do
    ip -n "$ns" link set cable up
    ip netns exec "$ns" tc qdisc add dev cable root tbf rate 400mbit burst 128k latency 20ms
done
mkdir -p "$work"/{a,b,bin,wire}
ln -s "$sabul" "$work/bin/sabul"
cat >"$work/ssh" <<END
#!/usr/bin/env python3
import os, subprocess, sys, threading
words = sys.argv[1:]
host, command = words[words.index("--") + 1:][:2] if "--" in words else (words[-1], "")
namespace, address = {"a": ("$a", "10.83.0.1"), "b": ("$b", "10.83.0.2")}[host]
if "-G" in words:
    print("hostname", address)
    sys.exit(0)
home = "$work/" + host
env = os.environ | {"HOME": home, "SSH_CONNECTION": f"10.83.0.9 9 {address} 22", "PATH": "$work/bin:" + os.environ["PATH"]}
child = subprocess.Popen(["ip", "netns", "exec", namespace, "sh", "-c", "exec " + command], cwd=home, env=env,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def relay(read, write, name):
    with open(f"$work/wire/{name}-{os.getpid()}", "wb", buffering=0) as kept:
        while piece := os.read(read, 65536):
            kept.write(piece)
            try:
                os.write(write, piece)
            except BrokenPipeError:
                return
    if name == "in":
        child.stdin.close()

threading.Thread(target=relay, args=(0, child.stdin.fileno(), "in"), daemon=True).start()
relay(child.stdout.fileno(), 1, "out")
os._exit(child.wait())
END
chmod +x "$work/ssh"
head -c "${mib}M" /dev/urandom >"$work/a/file"
export SABUL_SSH=$work/ssh XDG_CACHE_HOME=$work/cache
for run in $(seq "$runs"); do
    for kind in direct steered; do
        rm -f "$work"/b/file "$work"/wire/*
        if [ "$kind" = direct ]; then
            (cd "$work/a" && ip netns exec "$a" "$sabul" cp --fresh --json file b:) >"$work/json"
        else
            "$sabul" cp --fresh --json a:file b: >"$work/json"
        fi
        cmp "$work/a/file" "$work/b/file"
        wire=$(cat "$work"/wire/* | wc -c)
        python3 - "$work/json" "$kind" "$run" "$wire" <<'END'
import json, sys
copy = json.load(open(sys.argv[1]))
print(json.dumps({"kind": sys.argv[2], "run": int(sys.argv[3]), "bytes": copy["bytes"], "seconds": round(copy["seconds"], 3),
                  "goodput_mbps": round(copy["goodput_bps"] / 1e6, 1), "ssh_bytes": int(sys.argv[4])}))
END
    done
done
