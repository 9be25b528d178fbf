#!/bin/bash
# across-routers.sh SABUL RATE RTT MIB QUEUE CONTROLLER...: a copy over the lab's path with the router half of each.
sabul=$1 rate=$2 rtt=$3 mib=$4 queue=$5
shift 5
work=$(mktemp -d /tmp/sabul-across.XXXXXX)
trap 'rm -rf "$work"' EXIT
head -c "${mib}M" /dev/urandom >"$work/big"
for cc in "$@"; do
    rm -rf "$work/root" "$work/ticket" && mkdir "$work/root"
    serve="$sabul serve --once --root $work/root --listen 0.0.0.0:4900 --ticket-file $work/ticket"
    copy="while [ ! -s $work/ticket ]; do sleep .01; done
        $sabul cp -q --cc $cc --ticket $work/ticket $work/big sabul://far:4900/"
    echo "== $cc"
    "$sabul" lab shell --rate "$rate" --rtt "$rtt" --queue "$queue" --router "$cc" --peer "$serve" -- bash -c "$copy" 2>&1 |
        grep -E 'path|near to far'
    cmp -s "$work/big" "$work/root/big" || echo "NOT WHOLE"
done
