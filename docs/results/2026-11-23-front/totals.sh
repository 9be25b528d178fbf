#!/usr/bin/env bash
# How early totals are true where each look at a file takes 1 ms longer (strace delays statx).
# totals.sh SABUL: 10 000 files in 100 directories, 49.5 MB; SIGUSR1 asks for the line every 0.25 s.
S=$(realpath "$1")
cd "$(mktemp -d)"
mkdir tree root
for d in $(seq 0 99); do mkdir tree/$d; for f in $(seq 0 99); do head -c $((f*100)) /dev/zero >tree/$d/$f; done; done
delay() { strace --seccomp-bpf -f -qq -o /dev/null -e trace=statx,newfstatat -e inject=statx:delay_enter=1000 "$@"; }
ask() { # pid
    for n in 1 2 3 4 5 6 7 8; do sleep 0.25; echo "  $(printf %d.%02d $((n*25/100)) $((n*25%100))) s after the destination appeared:"; kill -USR1 "$1" 2>/dev/null || break; done
}
echo "one look after the other (statx of each name, 1 ms longer):"
began=$(date +%s%N)
strace --seccomp-bpf -f -qq -o /dev/null -e trace=statx -e inject=statx:delay_enter=1000 stat -c %s $(find tree) | awk '{s+=$1} END {print "  " NR " names"}'
echo "  $((($(date +%s%N)-began)/1000000)) ms"
for way in up down; do
    wrap= server=; [ $way = up ] && wrap=delay || server=delay
    rm -f t; $server "$S" serve --root . --listen 127.0.0.1:0 --ticket-file t 2>/dev/null &
    for _ in $(seq 200); do [ -e t ] && break; sleep 0.05; done
    if [ $way = up ]; then
        echo "upload, looks delayed at the sender:"
        $wrap "$S" cp -q -r --bwlimit 20M tree sabul:///up --ticket t 2>&1 &
    else
        echo "download, looks delayed at the server that sends:"
        "$S" cp -q -r --bwlimit 20M sabul:///tree down --ticket t 2>&1 &
    fi
    for _ in $(seq 200); do pid=$(pgrep -nf "^$S cp -q -r") && [ -e up -o -e down ] && break; sleep 0.02; done
    pid=$(pgrep -f "^$S cp -q -r" | tail -1)
    ask "$pid"
    kill -INT "$pid"; sleep 2
    kill $(pgrep -f "^$S serve --root . --listen 127.0.0.1:0") 2>/dev/null
    sleep 1
done
