# Two namespaces with a switch between them, for tests that cut a path. To be sourced; the test sets near, far and middle to
# names of namespaces, and removes them.

# connect_ends RATE: makes the namespaces. After a cut at the switch, the carrier at the ends stays up.
connect_ends() {
    local ns end
    for ns in "$near" "$far" "$middle"; do ip netns add "$ns"; done
    ip -n "$middle" link add switch type bridge
    ip -n "$middle" link set switch up
    for end in near far; do
        ip link add "$end" netns "${!end}" type veth peer name "to-$end" netns "$middle"
        ip -n "${!end}" link set lo up
        ip -n "${!end}" link set "$end" up
        ip -n "$middle" link set "to-$end" master switch up
        ip netns exec "$middle" tc qdisc add dev "to-$end" root tbf rate "${1}bit" burst 256k latency 20ms
    done
    ip -n "$near" addr add 10.79.0.1/24 dev near
    ip -n "$far" addr add 10.79.0.2/24 dev far
}
pull() { ip -n "$middle" link set to-far nomaster; }
plug() { ip -n "$middle" link set to-far master switch; }
