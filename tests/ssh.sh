#!/usr/bin/env bash
# `sabul cp` through a real ssh and a real sshd on loopback, in a separate folder with keys, configuration and home.
# The ssh configuration of this machine is neither read nor changed.
#
# Needs root, for namespaces with its own accounts and ports, and a built `sabul` (SABUL=PROGRAM names another program).
# Without an installed sshd, Debian's package is unpacked into that folder; if the package is not available, the test
# is skipped with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

sabul=$(realpath "${SABUL:-target/release/sabul}")
skip() { echo "SKIPPED tests/ssh.sh: $*"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
command -v ssh >/dev/null || skip "no ssh here: apt-get install openssh-client"
if [ -z "${1:-}" ]; then
    unshare -mn true 2>/dev/null || skip "this machine lets nobody make namespaces"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    code=0
    WORK=$work timeout -k 10 600 unshare -m "$0" download || code=$?
    exit "$code"
fi

work=$WORK
mkdir -p "$work"/{home,near,etc,debian,run}
sshd=$(command -v sshd || command -v /usr/sbin/sshd || true)
libraries=
if [ -z "$sshd" ]; then
    (cd "$work/debian" && apt-get download -q openssh-server libwrap0) >"$work/log" 2>&1 ||
        skip "no sshd here and none to be had: $(tail -n 1 "$work/log")"
    for package in "$work"/debian/*.deb; do dpkg -x "$package" "$work/debian"; done
    sshd=$work/debian/usr/sbin/sshd
    libraries=$(echo "$work"/debian/usr/lib/*-linux-gnu*)
fi
LD_LIBRARY_PATH=$libraries "$sshd" -V >"$work/log" 2>&1 || true
# The rest has a network of its own, because it closes ports.
[ "$1" = download ] && exec unshare -n "$0" inside
ip link set lo up
grep -q OpenSSH "$work/log" || skip "the sshd that is here does not run: $(head -n 1 "$work/log")"

# Accounts of this namespace: root with our home, and the account that sshd drops its privileges to.
{ echo "root:x:0:0:root:$work/home:/bin/sh"; echo "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin"; } >"$work/etc/passwd"
echo 'root:*:20000:0:99999:7:::' >"$work/etc/shadow"
mount --bind "$work/etc/passwd" /etc/passwd
mount --bind "$work/etc/shadow" /etc/shadow
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd

for key in host user locked; do
    phrase= && [ "$key" = locked ] && phrase='open sesame'
    ssh-keygen -q -t ed25519 -N "$phrase" -f "$work/etc/$key"
done
cat "$work"/etc/{user,locked}.pub >"$work/etc/authorized"
port=$((20000 + RANDOM % 10000))
# An address where nothing but the port of ssh answers: packets to other ports go into a device without an end.
walled=10.77.0.1
ip addr add $walled/32 dev lo
ip link add void type veth peer name end && ip link set void up && ip link set end up ||
    skip "this machine has no virtual cables"
ip neigh add $walled lladdr 02:00:00:00:00:77 dev void nud permanent
ip route add default dev void table 77
ip rule add pref 10 lookup local && ip rule del pref 0
for protocol in tcp udp; do ip rule add pref 1 to $walled ipproto $protocol dport 4000-5999 lookup 77; done
cat >"$work/etc/sshd_config" <<END
ListenAddress 127.0.0.1
ListenAddress $walled
Port $port
HostKey $work/etc/host
AuthorizedKeysFile $work/etc/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
AllowTcpForwarding yes
PrintMotd no
Banner $work/etc/banner
PidFile none
END
echo "*** all that you do here is @sabul watched ***" >"$work/etc/banner"
cat >"$work/etc/config" <<END
Host walled
    HostName $walled
    IdentityFile $work/etc/user
Host far gated locked
    HostName 127.0.0.1
Host far gated locked walled
    Port $port
    User root
    UserKnownHostsFile $work/etc/known
    StrictHostKeyChecking yes
    IdentitiesOnly yes
    RemoteCommand uptime
    RequestTTY force
Host gated
    ProxyCommand ssh -F $work/etc/config -oRemoteCommand=none -oRequestTTY=no -W 127.0.0.1:$port far
Host far gated
    IdentityFile $work/etc/user
Host locked
    IdentityFile $work/etc/locked
Host stranger
    HostName 127.0.0.1
    Port $port
    UserKnownHostsFile /dev/null
    StrictHostKeyChecking yes
END
for address in 127.0.0.1 $walled; do
    echo "[$address]:$port $(cut -d ' ' -f 1,2 "$work/etc/host.pub")"
done >"$work/etc/known"
LD_LIBRARY_PATH=$libraries "$sshd" -D -e -f "$work/etc/sshd_config" >"$work/sshd.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 50); do (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null && break; sleep 0.1; done
kill -0 "$server" 2>/dev/null || skip "sshd does not start here: $(tail -n 1 "$work/sshd.log")"

failed=0
# check NAME CODE PATTERN COMMAND...: checks the command's exit code, and that its output matches the pattern.
check() {
    local code=0
    local run=(timeout -k 5 60)
    [ "$(type -t "$4")" = function ] && run=()
    "${run[@]}" "${@:4}" >"$work/said" 2>&1 </dev/null || code=$?
    if [ "$code" -eq "$2" ] && { [ -z "$3" ] || grep -Eq -- "$3" "$work/said"; }; then
        echo "ok   $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1: exit code $code"
        tail -n 5 "$work/said" "$work/sshd.log" | sed 's/^/     /'
    fi
}
# Processes of this namespace with this text in their command line.
ours() { pgrep --ns $$ --nslist net -f "$@"; }
flat() { "$@" 2>&1 | tr '\n' ' '; return "${PIPESTATUS[0]}"; }
same() { check "$1" 0 '' cmp "$2" "$3"; }

cd "$work/near"
export SABUL_SSH="ssh -F $work/etc/config" HOME=$work/near
unset SSH_AUTH_SOCK SSH_CONNECTION
head -c 20000000 /dev/urandom >big
mkdir -p tree/sub && for n in $(seq 50); do echo "$n" >"tree/sub/$n"; done

check "a host without sabul says where it was looked for" 1 'far .* has no sabul in /.*--push' "$sabul" cp big far:
check "--push takes this one along" 0 verified "$sabul" cp --push big far:
same "the file is there" big "$work/home/big"
check "what was pushed is found again" 0 verified "$sabul" cp far:big back
same "and the file is back" big back
check "a folder goes through another host" 0 '50 files' "$sabul" cp -r tree gated:there/
check "a folder comes back" 0 verified "$sabul" cp -r gated:there/tree again
check "the folders are the same" 0 '' diff -r tree again
check "a path from the root" 0 verified "$sabul" cp -e "ssh -F $work/etc/config -v" --remote-sabul "$sabul" big "far:$work/home/other"
check "sabul:// without a ticket or key goes through ssh, to the home directory" 0 verified "$sabul" cp big sabul://far/scheme
same "the file is there" big "$work/home/scheme"
check "with a user, and back" 0 verified "$sabul" cp sabul://root@far/scheme scheme
same "the file is back" big scheme
check "two slashes begin a path from the root" 0 verified "$sabul" cp big "sabul://far/$work/home/scheme2"
same "the file is there" big "$work/home/scheme2"
check "sync" 0 '' "$sabul" sync tree/ sabul://far/scheme-tree
check "verify" 0 '' "$sabul" verify tree/ sabul://far/scheme-tree
check "mkdir" 0 '' "$sabul" mkdir sabul://far/scheme-made
check "mv" 0 '' "$sabul" mv sabul://far/scheme sabul://far/scheme-made/moved
check "stat" 0 "19.1 MiB" "$sabul" stat sabul://far/scheme-made/moved
check "ls" 0 'moved$' "$sabul" ls sabul://root@far/scheme-made
check "cat" 0 '^50$' "$sabul" cat sabul://far/scheme-tree/sub/50
check "rm" 0 '' "$sabul" rm -r sabul://far/scheme-made
check "what was removed is gone" 1 '' test -e "$work/home/scheme-made"
check "sabul:// without a ticket on both sides" 0 verified "$sabul" cp sabul://far/big sabul://root@gated/scheme-between
check "with a port, sabul:// needs a ticket or key" 2 'not a trusted server' "$sabul" ls sabul://far:4850/
check "a host that ssh does not know is refused by ssh" 4 'could not log in' "$sabul" cp big stranger:
check "no permission for a path that is none" 1 'nobody/has/this' "$sabul" cp far:/nobody/has/this .
if command -v script >/dev/null; then
    # The passphrase is read from the terminal, although none of ssh's three streams is the terminal.
    ask() { (sleep 2; echo 'open sesame'; sleep 2) | script -qec "$*" /dev/null; }
    export -f ask
    check "a passphrase is asked for at the terminal" 0 'verified' \
        bash -c "ask '$sabul' cp big locked:third"
fi

# Copies between two other machines; both are this account, reached in two ways.
check "a copy between two hosts runs at the source" 0 'verified, durable' "$sabul" cp far:big gated:between/
same "the file is there" big "$work/home/between/big"
check "its JSON is the document of a copy" 0 '"bytes":20000000,.*"exit":0,.*"schema":1' \
    "$sabul" cp --again --json far:big gated:between/
check "a copy between two hosts through this machine" 0 'verified, durable' \
    "$sabul" cp --relay far:big gated:between/relayed
same "the relayed file is there" big "$work/home/between/relayed"
check "a relayed copy names ssh as its carrier" 0 '"carrier":"ssh","carrier_reason":"as requested with --relay"' \
    "$sabul" cp --again --relay --json far:big gated:between/relayed
check "no UDP through this machine" 2 'needs TCP' "$sabul" cp --relay --carrier udp far:big gated:between/
check "a tree between two hosts" 0 '50 files' "$sabul" cp -r far:there/tree gated:between/
check "the trees are the same" 0 '' diff -r tree "$work/home/between/tree"
check "a sync between two hosts finds nothing to do" 0 'nothing to copy' \
    "$sabul" sync far:there/tree/ gated:between/tree/
check "a pattern of the source runs at the destination" 0 '11 files' \
    "$sabul" cp 'far:there/tree/sub/1*' gated:between/some/
check "a destination that cannot be reached dials the source" 0 'dials the source now' \
    "$sabul" cp far:big walled:between/dialled
one() { "$@" 2>/dev/null | python3 -c 'import json, sys; print(json.loads(sys.stdin.read())["bytes"])'; }
check "JSON stays one document if both ends try" 0 '^20000000$' one "$sabul" cp --again --json far:big walled:between/dialled
check "a host that ssh does not know gives a document, too" 4 '^0$' one "$sabul" cp --json far:big stranger:
same "the file is there, too" big "$work/home/between/dialled"
check "a missing source is named" 1 'missing' "$sabul" cp far:missing gated:between/
check "a receipt is refused between two hosts" 2 'receipt is not supported' "$sabul" cp --receipt r far:big gated:x
# Striped copies. Both pairs are this account, so both sides share a file system.
printf 'far gated # one pair in each line\ngated far\n' >pairs
echo "stranger gated" >>pairs && mv pairs pairs-with-stranger && head -n 2 pairs-with-stranger >pairs
head -c 70000001 /dev/urandom >"$work/home/large"
check "two pairs of hosts copy one file" 0 'striped 66.8 MiB in 1 file.*far to gated .*gated to far' \
    "$sabul" cp --stripe pairs far:large gated:striped
same "the striped file is right" "$work/home/large" "$work/home/striped"
check "the same command finds nothing to do" 0 'nothing to copy' "$sabul" cp --stripe pairs far:large gated:striped
mkdir -p "$work/home/stripes/deep" && cp -r tree "$work/home/stripes/"
for n in 1 2 3; do head -c $((n * 9000000)) /dev/urandom >"$work/home/stripes/deep/large $n"; done
chmod 600 "$work/home/stripes/deep/large 2"
head -c 30000000 /dev/zero >"$work/home/stripes/zeros"
check "a tree of large and small files is striped" 0 '50 files' "$sabul" cp -a --stripe pairs far:stripes gated:striped-tree/
check "the striped tree is the same" 0 '' diff -r "$work/home/stripes" "$work/home/striped-tree/stripes"
check "with its rights" 0 '^600$' stat -c %a "$work/home/striped-tree/stripes/deep/large 2"
check "no part stays behind" 1 '' bash -c "find '$work/home/striped-tree' -name '*.sabul-part' | grep ."
check "JSON counts the striped files" 0 '"files":54,.*"striped_bytes":84000000' \
    "$sabul" cp -a --json --stripe pairs far:stripes/ gated:striped-json/
check "a pair that cannot be reached takes no part" 0 'stranger to gated: takes no part.*striped' \
    flat "$sabul" cp --stripe pairs-with-stranger far:large gated:striped-without
same "the file is right without that pair" "$work/home/large" "$work/home/striped-without"
check "hosts that are not in the file are named" 2 "'walled' is no destination host" \
    "$sabul" cp --stripe pairs far:large walled:x
check "options of one copy are refused with --stripe" 2 'again is not supported with --stripe' \
    "$sabul" cp --again --stripe pairs far:large gated:x
"$sabul" cp --bwlimit 160M --stripe pairs far:large gated:striped-lost >"$work/broken" 2>&1 &
copy=$!
for _ in $(seq 100); do
    [ "$(du -k "$work/home"/striped-lost.*.sabul-part 2>/dev/null | cut -f 1)" -gt 16000 ] 2>/dev/null && break
    sleep 0.1
done
# The hosts of the second pair.
kill -KILL $(ours "[-]-pieces" | tail -n 1)
code=0 && wait "$copy" || code=$?
check "a pair that is lost is named" 0 'the other pairs go on' cat "$work/broken"
[ "$code" -eq 0 ] || { failed=$((failed + 1)); echo "FAIL exit code $code after the loss of a pair"; cat "$work/broken"; }
same "the file is right after the loss of a pair" "$work/home/large" "$work/home/striped-lost"
head -c 100000000 /dev/zero | tr '\0' 'x' >"$work/home/source"
"$sabul" cp --bwlimit 80M --stripe pairs far:source gated:striped-cut >"$work/broken" 2>&1 &
copy=$!
for _ in $(seq 100); do ls "$work/home"/striped-cut.*.sabul-part >/dev/null 2>&1 && break; sleep 0.1; done
sleep 1 && kill -INT "$copy"
code=0 && wait "$copy" || code=$?
[ "$code" -eq 130 ] || { failed=$((failed + 1)); echo "FAIL exit code $code after an interrupt of a striped copy"; }
sleep 2
check "an interrupt ends the hosts of all pairs" 1 '' ours "[-]-stdio"
check "and removes the part" 1 '' bash -c "ls '$work/home'/striped-cut* | grep ."

"$sabul" cp --bwlimit 160M far:source gated:between/slow >"$work/broken" 2>&1 &
copy=$!
for _ in $(seq 100); do
    part=$(stat -c %s "$work/home"/between/slow.*.sabul-part 2>/dev/null || echo 0)
    [ "$part" -gt 40000000 ] && break
    sleep 0.1
done
kill -INT "$copy"
code=0 && wait "$copy" || code=$?
check "an interrupt reaches both hosts" 0 'interrupted' cat "$work/broken"
[ "$code" -eq 130 ] || { failed=$((failed + 1)); echo "FAIL exit code $code after an interrupt"; }
sleep 1
check "neither end runs on" 1 '' ours "[-]-stdio"
check "the same command resumes" 0 'resumed' "$sabul" cp far:source gated:between/slow
same "the file is complete" "$work/home/source" "$work/home/between/slow"

check "where only ssh answers, ssh carries the data" 0 'over ssh: no other port answers' "$sabul" cp big walled:up
same "the file is there" big "$work/home/up"
check "and back" 0 'over ssh' "$sabul" cp walled:up down
same "the file is back" big down
check "with the carrier in JSON" 0 '"carrier": ?"ssh"' "$sabul" cp --again --json --carrier ssh walled:up down
check "a folder goes through ssh" 0 '50 files.*over ssh' "$sabul" cp -r tree walled:wall/
check "a folder comes back through ssh" 0 'over ssh' "$sabul" cp -r walled:wall/tree wall
check "the folders are the same" 0 '' diff -r tree wall
check "other commands go through ssh" 0 'up$' "$sabul" ls walled:
check "ssh carries the data on request" 0 'over ssh: as requested' "$sabul" cp --carrier ssh far:up asked
check "without ssh as the carrier, the port and the remedy are named" 3 'TCP port 48.. there is unreachable.*--carrier' \
    "$sabul" cp --carrier udp big walled:never
head -c 100000000 /dev/zero | tr '\0' 'x' >long
"$sabul" cp --carrier ssh --bwlimit 160M long walled:long >"$work/broken" 2>&1 &
copy=$!
for _ in $(seq 100); do
    part=$(stat -c %s "$work/home"/long.*.sabul-part 2>/dev/null || echo 0)
    [ "$part" -gt 40000000 ] && break
    sleep 0.1
done
# The ssh of this copy, and no other.
kill -9 "$(pgrep -P "$copy" -x ssh)"
code=0 && wait "$copy" || code=$?
check "the end of ssh ends the copy with a message" 0 'ssh or the program at its other end has ended' cat "$work/broken"
[ "$code" -eq 3 ] || { failed=$((failed + 1)); echo "FAIL exit code $code after the end of ssh"; }
sleep 4
check "the same command resumes through ssh" 0 'resumed.*over ssh' "$sabul" cp --carrier ssh long walled:long
same "the file is complete" long "$work/home/long"
sleep 1
check "nothing runs on at the other end" 1 '' ours "[s]erve --stdio --ports 4850-4949"
[ "$failed" -eq 0 ] || exit 1
