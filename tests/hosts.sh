# Shared functions of tests between network namespaces: hosts, counters, and output after a failure. To be sourced,
# with the program in $sabul and the names of logs below $work in ${logs[@]}.
. tests/counts.sh
work=

fail() {
    failed=$((failed + 1))
    echo "FAIL $*"
    local log
    for log in "${logs[@]}"; do
        [ ! -s "$work/$log.err" ] || sed "s/^/     $log: /" "$work/$log.err" | tail -n 15
    done
}

# Ends the test with the reason why nothing can be tested.
refuse() { echo "$(basename "$0"): $*" >&2 && exit 2; }

need() {
    command -v "$1" >/dev/null || refuse "$1 is missing; install $2"
}

# make_hosts NAME...: makes a working folder, and namespaces with their loopback.
make_hosts() {
    need ip iproute2
    [ -x "$sabul" ] || refuse "no program $sabul; run make build"
    work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-hosts.XXXXXX")
    # A private cache: these copies neither use nor change the user's path records.
    export XDG_CACHE_HOME=$work/cache
    local ns
    for ns in "$@"; do
        ip netns add "$ns" || refuse "cannot make a network namespace; run it as root"
        ip -n "$ns" link set lo up
    done
}

# join NS INTERFACE ADDRESS NS INTERFACE ADDRESS: links two namespaces.
join() {
    ip link add "$2" netns "$1" type veth peer name "$5" netns "$4"
    ip -n "$1" addr add "$3" dev "$2"
    ip -n "$4" addr add "$6" dev "$5"
    ip -n "$1" link set "$2" up
    ip -n "$4" link set "$5" up
}

# remove_hosts NAME...: removes everything that make_hosts made, as far as it exists.
remove_hosts() {
    local ns
    for ns in "$@"; do ip netns del "$ns" 2>/dev/null || true; done
    [ -z "$work" ] || rm -rf "$work"
}

# end PID: ends a process if it was started.
end() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
