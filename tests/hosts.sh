# What tests between network namespaces share: hosts, counts, and what is shown of a failure. To be sourced, with the
# program in $sabul and the names of logs below $work in ${logs[@]}.
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

# Why nothing can be tested here.
refuse() { echo "$(basename "$0"): $*" >&2 && exit 2; }

need() {
    command -v "$1" >/dev/null || refuse "$1 is missing; install $2"
}

# make_hosts NAME...: a folder for everything, and namespaces with their loopback.
make_hosts() {
    need ip iproute2
    [ -x "$sabul" ] || refuse "no program $sabul; run make build"
    work=$(mktemp -d "${TMPDIR:-/tmp}/sabul-hosts.XXXXXX")
    # What these copies see of paths is for them alone.
    export XDG_CACHE_HOME=$work/cache
    local ns
    for ns in "$@"; do
        ip netns add "$ns" || refuse "cannot make a network namespace; run it as root"
        ip -n "$ns" link set lo up
    done
}

# remove_hosts NAME...: what make_hosts made, and whatever of these is there.
remove_hosts() {
    local ns
    for ns in "$@"; do ip netns del "$ns" 2>/dev/null || true; done
    [ -z "$work" ] || rm -rf "$work"
}

# end PID: ends what was started, if it was.
end() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
