#!/usr/bin/env bash
# What a person sees: tmux screens of copies on loopback. screens.sh SABUL OUT
S=$(realpath "$1"); out=$(realpath "$2"); cd "$(mktemp -d)"; work=$PWD
mkdir root many; mkdir -p full
python3 -c '
import os
for d in range(100):
    os.mkdir(f"many/{d:02d}")
    for f in range(1000):
        open(f"many/{d:02d}/{f:03d}","wb").write(os.urandom(16)*(f%100))'
mount -t tmpfs -o size=6m tmpfs full; mkdir full/root
"$S" serve --root root --listen 127.0.0.1:0 --ticket-file t 2>serve.log & one=$!
"$S" serve --root full/root --listen 127.0.0.1:0 --ticket-file tf 2>/dev/null & two=$!
sleep 1; ln -s "$S" sabul
tm() { tmux -L front "$@"; }
# screen NAME COLUMNS TIMES COMMAND: captures after these seconds, and at the end.
screen() {
    tm new-session -d -s s -x "$2" -y 12 "cd $work; env PS1='\$ ' PATH=$work:\$PATH bash --norc"
    sleep 0.5; tm send-keys -t s "$4" Enter; local at=0
    for t in $3; do
        sleep "$(awk "BEGIN{print $t-$at}")"; at=$t
        { echo "--- $2 columns, after $t s"; tm capture-pane -p -t s | sed '/^$/d'; } >>"$out/$1.txt"
    done
    tm kill-session -t s
}
rm -f "$out"/*.txt
screen many-80 80 "0.6 1.5 3 6 25" "sabul cp -r many sabul:///80 --ticket t"
screen many-200 200 "0.6 1.5 3 6 25" "sabul cp -r many sabul:///200 --ticket t"
screen many-down-80 80 "0.6 1.5 3 6 25" "sabul cp -r sabul:///80 down --ticket t"
screen slow-pipe-80 80 "1 3 8" "(for n in 1 2 3 4 5 6 7 8 9 10; do head -c 200000 /dev/urandom; sleep 0.5; done) | sabul cp - sabul:///pipe --ticket t"
head -c 20000000 /dev/urandom >big
screen full-disk-80 80 "1 4" "sabul cp big sabul:///big --ticket tf; echo exit code \$?"
screen full-disk-tree-80 80 "3 12" "sabul cp -r many sabul:///many --ticket tf; echo exit code \$?"
screen unreadable-80 80 "3" "sabul cp big missing /dev/null sabul:///in/ --ticket t; echo exit code \$?"
screen interrupt-80 80 "1" "sabul cp --bwlimit 20M big sabul:///slow --ticket t & sleep 0.9; kill -INT \$!; wait; echo exit code \$?"
# As fast as this machine goes: 6 GiB from memory to memory, datagrams of 65 kB.
mkdir fast; mount -t tmpfs -o size=13g tmpfs fast; mkdir fast/root; head -c 6G /dev/zero >fast/huge
"$S" serve --root fast/root --listen 127.0.0.1:0 --ticket-file tq 2>/dev/null & three=$!
sleep 1
screen fast-80 80 "0.5 1 2 8" "sabul cp fast/huge sabul:/// --ticket tq"
screen fast-200 200 "0.5 1 2 8" "sabul cp fast/huge sabul:///again --ticket tq"
kill $three; sleep 0.5; umount fast
"$S" cp -r --bwlimit 40M big sabul:///noterm --ticket t >"$out/no-terminal.txt" 2>&1 </dev/null
sed "s/^/serve: /" serve.log | tail -12 >"$out/serve-log.txt"
kill $one $two; sleep 0.5; umount full; cd /; rm -rf "$work"
