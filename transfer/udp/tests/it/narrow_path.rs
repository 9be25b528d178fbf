//! A narrow, slow interface: sizes beyond its MTU, and a send buffer that fills up.
//!
//! Each test runs itself again inside a network namespace whose loopback device has an MTU of 1500
//! bytes. A namespace needs root; without root the test prints a notice and checks nothing.
#![cfg(target_os = "linux")]

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{LOOPBACKS, bind, drain};
use sabul_udp::{Ecn, RecvBuffers, SendOutcome, SendStatus, SocketOptions, Wait};

const INSIDE: &str = "SABUL_UDP_TEST_INSIDE_NAMESPACE";

/// Runs the test `name` in a fresh namespace after the shell commands `setup`; returns true inside
/// the namespace.
fn inside_namespace(name: &str, setup: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        // With a process namespace, every process that the script leaves running ends with it.
        command.args(["--net", "--pid", "--fork", "--mount-proc"]);
        command.args(["sh", "-e", "-c", script, "sh"]);
        let this = env::current_exe().expect("a test knows its own program");
        command.arg(this).args([name, "--exact", "--nocapture"]);
        command.env(INSIDE, "1");
        command
    };
    let possible = unshare(setup).output().is_ok_and(|output| output.status.success());
    if !possible {
        eprintln!("{name}: skipped, it needs root, unshare, ip and tc");
        return false;
    }
    // As the first process of a namespace, `timeout` of coreutils 9.10 fails.
    let script = format!("{setup}\ntimeout 30 \"$@\"\nexit 0");
    let output = unshare(&script).output().expect("unshare ran a moment ago");
    assert!(output.status.success(), "inside the namespace:\n{output:?}");
    false
}

#[test]
fn segments_beyond_the_mtu_are_too_large_and_keep_gso_enabled() {
    let name = "segments_beyond_the_mtu_are_too_large_and_keep_gso_enabled";
    if !inside_namespace(name, "ip link set lo mtu 1500 up") {
        return;
    }
    for (host, headers) in LOOPBACKS.into_iter().zip([28, 48]) {
        for gso in [false, true] {
            let options = SocketOptions { gso, ..SocketOptions::default() };
            let receiver = bind(host, &options);
            let sender = bind(host, &options);
            sender.connect(receiver.local_addr()).unwrap();
            assert_eq!(sender.path_mtu(), Some(1_500));
            let before = sender.capabilities();
            let fits = 1_500 - headers;
            let data = vec![5; 10 * (fits + 1)];
            for (size, want) in [
                (fits + 1, SendOutcome { bytes: 0, segments: 0, status: SendStatus::TooLarge }),
                (
                    fits,
                    SendOutcome { bytes: data.len(), segments: 11, status: SendStatus::Complete },
                ),
            ] {
                let got = sender.send(&data, size, None, Ecn::Ect0).unwrap();
                assert_eq!(got, want, "segments of {size} to {host}, gso {gso}");
                let received = drain(&receiver);
                assert_eq!(received.len(), want.segments);
                assert!(received.iter().all(|d| d.2 == Ecn::Ect0), "ECN bits after TooLarge");
            }
            assert_eq!(sender.capabilities(), before);
        }
    }
}

#[test]
fn an_icmp_report_lowers_the_path_mtu_and_fails_no_later_call() {
    let name = "an_icmp_report_lowers_the_path_mtu_and_fails_no_later_call";
    // A router in a namespace of its own, whose far link has an MTU of 1300 bytes.
    let setup = "ip link set lo up
        unshare --net sleep 60 </dev/null >/dev/null 2>&1 &
        router=$!
        ip link add near type veth peer name wide
        # Before it has a namespace of its own, wide would move to where it is.
        here=$(readlink /proc/self/ns/net)
        until [ \"$(readlink /proc/$router/ns/net)\" != \"$here\" ]; do sleep 0.01; done
        ip link set wide netns $router
        ip addr add 10.1.0.1/24 dev near
        ip addr add fd00:1::1/64 dev near nodad
        ip link set near up
        ip route add 10.2.0.0/24 via 10.1.0.2
        ip -6 route add fd00:2::/64 via fd00:1::2
        nsenter --net --target $router sh -e -c '
            ip link add far mtu 1300 type veth peer name end
            ip addr add 10.1.0.2/24 dev wide
            ip addr add fd00:1::2/64 dev wide nodad
            ip addr add 10.2.0.1/24 dev far
            ip addr add fd00:2::1/64 dev far nodad
            ip neigh add 10.2.0.9 lladdr 02:00:00:00:00:09 dev far
            ip neigh add fd00:2::9 lladdr 02:00:00:00:00:09 dev far
            for link in wide far end; do ip link set $link up; done
            echo 1 >/proc/sys/net/ipv4/ip_forward
            echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'";
    if !inside_namespace(name, setup) {
        return;
    }
    for (host, peer) in [("10.1.0.1:0", "10.2.0.9:9"), ("[fd00:1::1]:0", "[fd00:2::9]:9")] {
        let sender = bind(host, &SocketOptions::default());
        sender.connect(peer.parse().unwrap()).unwrap();
        assert_eq!(sender.path_mtu(), Some(1_500));
        let send = |size| sender.send(&[0; 2_000][..size], size, None, Ecn::NotEct).unwrap().status;
        let report_arrives = || {
            assert_eq!(send(1_400), SendStatus::Complete);
            assert!(sender.wait(Wait::READABLE, Some(Duration::from_secs(5))).unwrap().readable);
        };
        report_arrives();
        assert_eq!(sender.path_mtu(), Some(1_300));
        assert_eq!(send(1_000), SendStatus::Complete, "the report was about another datagram");
        report_arrives();
        assert_eq!(send(1_600), SendStatus::TooLarge);
        assert_eq!(send(1_000), SendStatus::Complete);
        report_arrives();
        assert_eq!(sender.recv(&mut RecvBuffers::new(1)).unwrap(), 0);
        assert!(sender.wait(Wait::READABLE, Some(Duration::ZERO)).unwrap().timed_out());
    }
}

#[test]
fn a_full_send_buffer_blocks_and_nothing_is_lost_or_repeated() {
    let name = "a_full_send_buffer_blocks_and_nothing_is_lost_or_repeated";
    // 80 Mbit/s and a queue larger than the send buffer, so that nothing is dropped.
    let setup = "ip link set lo mtu 1500 up\n\
                 tc qdisc add dev lo root tbf rate 80mbit burst 64kb limit 10mb";
    if !inside_namespace(name, setup) {
        return;
    }
    for host in LOOPBACKS {
        for gso in [false, true] {
            let options =
                SocketOptions { gso, send_buffer: Some(100_000), ..SocketOptions::default() };
            let receiver = bind(host, &options);
            let sender = bind(host, &options);
            sender.connect(receiver.local_addr()).unwrap();
            let data: Vec<u8> = (0u32..1_000).flat_map(|i| i.to_be_bytes().repeat(250)).collect();
            let mut buffers = RecvBuffers::new(8);
            let (mut offset, mut blocked, mut numbers) = (0, 0, Vec::new());
            let start = Instant::now();
            while numbers.len() < 1_000 && start.elapsed() < Duration::from_secs(5) {
                let done = offset == data.len();
                if !done {
                    let outcome = sender.send(&data[offset..], 1_000, None, Ecn::NotEct).unwrap();
                    assert_eq!(outcome.bytes, outcome.segments * 1_000);
                    offset += outcome.bytes;
                    if outcome.status == SendStatus::WouldBlock {
                        blocked += 1;
                        let ready = sender.wait(Wait::WRITABLE, Some(Duration::from_secs(1)));
                        assert!(ready.unwrap().writable);
                    } else {
                        assert_eq!(outcome.status, SendStatus::Complete);
                    }
                } else if !receiver
                    .wait(Wait::READABLE, Some(crate::common::SILENCE))
                    .unwrap()
                    .readable
                {
                    break;
                }
                receiver.recv(&mut buffers).unwrap();
                numbers.extend(buffers.datagrams().map(|d| {
                    assert_eq!(d.payload.len(), 1_000);
                    u32::from_be_bytes(*d.payload.first_chunk().unwrap())
                }));
            }
            assert!(blocked > 0, "1 MB does not fit into a buffer of 100 kB");
            assert!(numbers.into_iter().eq(0..1_000), "to {host}, gso {gso}");
        }
    }
}
