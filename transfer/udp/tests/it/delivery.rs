//! Delivery tests: every datagram arrives unchanged, for each combination of offloads.

use crate::common::{LOOPBACKS, bind, drain};
use sabul_udp::{Ecn, SendOutcome, SendStatus, SocketOptions};

/// Returns `segments` datagrams of `size` bytes, the last one shorter by `short`, all different.
fn pattern(segments: usize, size: usize, short: usize) -> Vec<u8> {
    (0..segments * size - short).map(|i| (i / size * 31 + i % size).to_le_bytes()[0]).collect()
}

#[test]
fn all_offload_combinations_deliver_the_same_datagrams() {
    let shapes = [
        (1, 1, 0),
        (2, 1_200, 1_199),
        // More segments than one GSO send holds, and a short last one.
        (150, 900, 7),
        // More bytes than one GSO send holds; the second fills 65 505 of the 65 507 possible.
        (40, 9_000, 0),
        (110, 1_191, 0),
        // One GSO send does not hold two of these.
        (3, 40_000, 1),
    ];
    for host in LOOPBACKS {
        for (gso, gro) in [(false, false), (false, true), (true, false), (true, true)] {
            let options = SocketOptions { gso, gro, ..SocketOptions::default() };
            let receiver = bind(host, &options);
            let sender = bind(host, &options);
            if cfg!(target_os = "linux") {
                let can = sender.capabilities();
                assert_eq!((can.gso_segments_max > 1, can.gro_segments_max > 1), (gso, gro));
            }
            for (segments, size, short) in shapes {
                let data = pattern(segments, size, short);
                let outcome =
                    sender.send(&data, size, Some(receiver.local_addr()), Ecn::NotEct).unwrap();
                let all = SendOutcome { bytes: data.len(), segments, status: SendStatus::Complete };
                assert_eq!(outcome, all);
                let expected: Vec<_> = data
                    .chunks(size)
                    .map(|c| (c.to_vec(), sender.local_addr(), Ecn::NotEct))
                    .collect();
                assert!(
                    drain(&receiver) == expected,
                    "{segments} × {size} to {host}, gso {gso}, gro {gro}"
                );
            }
        }
    }
}

#[test]
fn ecn_bits_survive_loopback_unless_turned_off() {
    for host in LOOPBACKS {
        for gso in [false, true] {
            let on = SocketOptions { gso, ..SocketOptions::default() };
            let off = SocketOptions { ecn: false, ..on.clone() };
            let receiver = bind(host, &on);
            let deaf = bind(host, &off);
            for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
                for (sender_options, socket, expected) in [
                    (&on, &receiver, ecn),
                    (&on, &deaf, Ecn::NotEct),
                    (&off, &receiver, Ecn::NotEct),
                ] {
                    let sender = bind(host, sender_options);
                    let outcome =
                        sender.send(&[7; 300], 100, Some(socket.local_addr()), ecn).unwrap();
                    assert_eq!(outcome.segments, 3);
                    let got: Vec<_> = drain(socket).into_iter().map(|d| d.2).collect();
                    assert_eq!(got, [expected; 3], "{ecn:?} to {host}, gso {gso}");
                }
            }
        }
    }
}

#[test]
fn a_datagram_over_the_ip_limit_is_too_large() {
    for host in LOOPBACKS {
        let receiver = bind(host, &SocketOptions::default());
        let sender = bind(host, &SocketOptions::default());
        sender.connect(receiver.local_addr()).unwrap();
        let data = vec![1; 2 * 70_000];
        let outcome = sender.send(&data, 70_000, None, Ecn::NotEct).unwrap();
        assert_eq!(outcome, SendOutcome { bytes: 0, segments: 0, status: SendStatus::TooLarge });
        assert_eq!(drain(&receiver), []);
    }
}

#[test]
fn payloads_can_be_changed_in_place() {
    use sabul_udp::{RecvBuffers, Wait};
    let receiver = bind(LOOPBACKS[0], &SocketOptions::default());
    let sender = bind(LOOPBACKS[0], &SocketOptions::default());
    let outcome = sender.send(b"aabbcc", 2, Some(receiver.local_addr()), Ecn::NotEct).unwrap();
    assert_eq!(outcome.segments, 3);
    let mut buffers = RecvBuffers::new(1);
    let mut got = Vec::new();
    while receiver.wait(Wait::READABLE, Some(crate::common::SILENCE)).unwrap().readable {
        receiver.recv(&mut buffers).unwrap();
        buffers.datagrams().for_each(|d| d.payload.make_ascii_uppercase());
        got.extend(buffers.datagrams().map(|d| d.payload.to_vec()));
    }
    assert_eq!(got, [b"AA", b"BB", b"CC"]);
}

#[test]
fn a_closed_port_is_reported_and_does_no_harm() {
    for host in LOOPBACKS {
        let gone = bind(host, &SocketOptions::default()).local_addr();
        let sender = bind(host, &SocketOptions::default());
        sender.connect(gone).unwrap();
        let send = || sender.send(b"anyone?", 7, None, Ecn::NotEct).unwrap().status;
        assert_eq!(send(), SendStatus::Complete);
        // Loopback returns the ICMP message before the call ends.
        assert_eq!(send(), SendStatus::Refused);
        assert_eq!(sender.refusals(), 1);
        assert_eq!(send(), SendStatus::Complete);
        assert_eq!(drain(&sender), [], "the report is no datagram");
        assert_eq!(sender.refusals(), 2);

        let back = bind(&gone.to_string(), &SocketOptions::default());
        assert_eq!(send(), SendStatus::Complete);
        assert_eq!(drain(&back).len(), 1);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_datagram_within_the_loopback_mtu_is_sent_and_a_larger_one_is_not() {
    for host in LOOPBACKS {
        let socket = bind(host, &SocketOptions::default());
        assert_eq!(socket.path_mtu(), None);
        socket.connect(socket.local_addr()).unwrap();
        // The device's MTU is 65 536, which the length field of IPv4 cannot express.
        let mtu = if socket.local_addr().is_ipv4() { 65_535 } else { 65_536 };
        assert_eq!(socket.path_mtu(), Some(mtu));
        let headers = if socket.local_addr().is_ipv4() { 28 } else { 48 };
        let data = vec![1; 65_536];
        for (size, status) in
            [(mtu - headers, SendStatus::Complete), (mtu - headers + 1, SendStatus::TooLarge)]
        {
            let data = &data[..size as usize];
            assert_eq!(socket.send(data, data.len(), None, Ecn::NotEct).unwrap().status, status);
        }
        assert_eq!(drain(&socket).len(), 1);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn datagrams_lost_in_the_receive_buffer_are_counted() {
    for host in LOOPBACKS {
        let tiny = SocketOptions { recv_buffer: Some(8_192), ..SocketOptions::default() };
        let receiver = bind(host, &tiny);
        assert_eq!(receiver.capabilities().recv_buffer_granted, 8_192);
        assert_eq!(receiver.capabilities().hint, None);
        let sender = bind(host, &SocketOptions { gso: false, ..SocketOptions::default() });
        sender.connect(receiver.local_addr()).unwrap();
        let mut lost = 0;
        for _ in 0..2 {
            let outcome = sender.send(&[0; 200_000], 1_000, None, Ecn::NotEct).unwrap();
            assert_eq!(outcome.segments, 200);
            let arrived = drain(&receiver).len() as u64;
            assert!((1..200).contains(&arrived), "{arrived} of 200 arrived");
            lost += 200 - arrived;
            assert_eq!(receiver.overflow_drops().unwrap(), lost);
        }
        assert_eq!(sender.overflow_drops().unwrap(), 0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_lost_batch_of_coalesced_datagrams_counts_once() {
    let tiny = SocketOptions { recv_buffer: Some(8_192), ..SocketOptions::default() };
    let receiver = bind(LOOPBACKS[0], &tiny);
    let sender = bind(LOOPBACKS[0], &SocketOptions::default());
    sender.connect(receiver.local_addr()).unwrap();
    // The kernel accepts one train over the limit, then nothing until that train is read.
    for _ in 0..5 {
        let outcome = sender.send(&[0; 50_000], 1_000, None, Ecn::NotEct).unwrap();
        assert_eq!(outcome.segments, 50);
    }
    let arrived = drain(&receiver).len() as u64;
    assert_eq!(arrived % 50, 0);
    assert_eq!(receiver.overflow_drops().unwrap(), 5 - arrived / 50);
    assert!(arrived < 250, "an 8 kB buffer took 250 kB");
}
