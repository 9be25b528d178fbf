//! One port for all sessions: the kernel delivers datagrams by peer.
#![cfg(target_os = "linux")]

use std::net::SocketAddr;

use crate::common::{LOOPBACKS, bind, drain};
use sabul_udp::{Ecn, RecvBuffers, SendStatus, SocketOptions, UdpSocket, Wait};

fn reusing() -> SocketOptions {
    SocketOptions { reuse_port: true, ..SocketOptions::default() }
}

fn say(socket: &UdpSocket, text: &str, to: SocketAddr) {
    let sent =
        socket.send(text.as_bytes(), text.len(), Some(to), Ecn::NotEct).expect("loopback works");
    assert_eq!(sent.status, SendStatus::Complete);
}

/// Checks that each of `peers` reaches the session at its own index, and each of `strangers` the
/// main socket. All send to the same address `port`.
fn check_sorting(
    main: &UdpSocket,
    sessions: &[UdpSocket],
    peers: &[UdpSocket],
    strangers: &[UdpSocket],
    port: SocketAddr,
) {
    for socket in peers.iter().chain(strangers) {
        say(socket, "hello", port);
    }
    let mut at_main: Vec<_> = drain(main).into_iter().map(|d| d.1).collect();
    at_main.sort();
    let mut expected: Vec<_> = strangers.iter().map(UdpSocket::local_addr).collect();
    expected.sort();
    assert_eq!(at_main, expected);
    for (session, peer) in sessions.iter().zip(peers) {
        let sources: Vec<_> = drain(session).into_iter().map(|d| d.1).collect();
        assert_eq!(sources, [peer.local_addr()]);
    }
}

#[test]
fn datagrams_reach_their_session_socket_or_else_the_main_socket() {
    for host in LOOPBACKS {
        let main = bind(host, &reusing());
        let port = main.local_addr();
        let open =
            |n| -> Vec<_> { (0..n).map(|_| bind(host, &SocketOptions::default())).collect() };
        let (peers, strangers) = (open(6), open(20));
        let mut sessions = Vec::new();
        for peer in &peers {
            let session = UdpSocket::bind(port, &reusing()).unwrap();
            session.connect(peer.local_addr()).unwrap();
            assert_eq!(session.peer_addr(), Some(peer.local_addr()));
            sessions.push(session);
        }
        check_sorting(&main, &sessions, &peers, &strangers, port);

        // Sessions answer from the shared port.
        for (session, peer) in sessions.iter().zip(&peers) {
            assert_eq!(session.send(b"hi", 2, None, Ecn::NotEct).unwrap().bytes, 2);
            assert_eq!(drain(peer), [(b"hi".to_vec(), port, Ecn::NotEct)]);
        }

        // The peer of an ended session counts as a stranger again.
        drop(sessions.pop());
        say(&peers[5], "still there?", port);
        assert_eq!(drain(&main).len(), 1);
    }
}

#[test]
fn a_wildcard_listener_serves_both_families_through_sessions_on_the_address_dialled() {
    let main = bind("[::]:0", &reusing());
    let number = main.local_addr().port();
    for host in ["127.0.0.1", "127.0.0.2", "::1"] {
        let port = SocketAddr::new(host.parse().unwrap(), number);
        let any = if port.is_ipv4() { LOOPBACKS[0] } else { LOOPBACKS[1] };
        let peer = bind(any, &SocketOptions::default());
        let stranger = bind(any, &SocketOptions::default());
        say(&peer, "first", port);

        assert!(main.wait(Wait::READABLE, Some(crate::common::SILENCE)).unwrap().readable);
        let mut buffers = RecvBuffers::new(1);
        assert_eq!(main.recv(&mut buffers).unwrap(), 1);
        let first = buffers.datagrams().next().unwrap();
        assert_eq!((first.source, first.local_ip), (peer.local_addr(), Some(port.ip())));

        let session = UdpSocket::bind(port, &reusing()).unwrap();
        session.connect(first.source).unwrap();
        // The main socket can answer strangers of either family as well.
        say(&main, "who are you?", stranger.local_addr());
        assert_eq!(drain(&stranger).len(), 1);
        check_sorting(&main, &[session], &[peer], &[stranger], port);
    }
}

#[test]
fn a_port_in_use_is_named_in_the_error() {
    let first = bind(LOOPBACKS[0], &SocketOptions::default());
    let error = UdpSocket::bind(first.local_addr(), &SocketOptions::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains(&first.local_addr().to_string()) && text.contains("another port"),
        "{text}"
    );
    assert_eq!(error.io_error().kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn an_answer_leaves_from_the_address_at_which_the_question_arrived() {
    for host in ["0.0.0.0:0", "[::]:0"] {
        let main = UdpSocket::bind(host.parse().unwrap(), &SocketOptions::default()).unwrap();
        let client = bind("127.0.0.1:0", &SocketOptions::default());
        let requested = SocketAddr::from(([127, 0, 0, 2], main.local_addr().port()));
        say(&client, "question", requested);
        let mut buffers = RecvBuffers::default();
        main.wait(Wait::READABLE, Some(std::time::Duration::from_secs(5))).unwrap();
        main.recv(&mut buffers).unwrap();
        let question = buffers.datagrams().next().expect("loopback works");
        let (source, arrived_at) = (question.source, question.local_ip);
        assert_eq!(arrived_at, Some(requested.ip()), "{host}");
        let sent = main.answer(b"answer", source, arrived_at, Ecn::NotEct).unwrap();
        assert_eq!(sent.status, SendStatus::Complete, "{host}");
        let sources: Vec<_> = drain(&client).into_iter().map(|d| d.1).collect();
        assert_eq!(sources, [requested], "{host}");
    }
}
