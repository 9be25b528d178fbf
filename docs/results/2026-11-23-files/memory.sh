#!/bin/bash
# Peak memory of both ends of a copy of COUNT empty files: memory.sh BIN COUNT DIR (DIR on a tmpfs). The files of a folder
# are names of one, so that they take one inode; `cp -r` copies each as a file.
BIN=$1; N=$2; D=$3; rm -rf $D; mkdir -p $D/src $D/root
python3 - $N $D/src <<'P'
import os,sys
n=int(sys.argv[1]); d=sys.argv[2]
for i in range(n):
    name=f"{d}/{i//1000:05d}/file-{i:08d}.dat"
    if i%1000==0: os.mkdir(os.path.dirname(name)); first=name; open(name,'x').close()
    else: os.link(first,name)
P
cd $D
$BIN serve --root root --listen 127.0.0.1:0 --ticket-file t --once --memory 64M 2>serve.log & S=$!
for i in $(seq 100); do [ -s t ] && break; sleep 0.2; done
$BIN cp -r --no-sync --memory 64M -q src sabul:/// --ticket t --json > out.json 2>cp.log & C=$!
hc=0; hs=0; t0=$(date +%s)
while kill -0 $C 2>/dev/null; do
  a=$(awk '/VmHWM/{print $2}' /proc/$C/status 2>/dev/null); b=$(awk '/VmHWM/{print $2}' /proc/$S/status 2>/dev/null)
  [ -n "$a" ] && hc=$a; [ -n "$b" ] && hs=$b; sleep 0.3
done
wait $C; echo "files $N: sender VmHWM $hc kB, receiver VmHWM $hs kB, exit $?, $(($(date +%s)-t0)) s"
kill $S 2>/dev/null; rm -rf $D/src $D/root
