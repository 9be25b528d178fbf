//! Helpers shared by the tests.

use std::net::SocketAddr;
use std::time::Duration;

use sabul_udp::{Ecn, RecvBuffers, SocketOptions, UdpSocket, Wait};

/// The loopback addresses of both families, with a port the system chooses.
pub(crate) const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

/// How long a socket must be silent before a test assumes that nothing more arrives.
pub(crate) const SILENCE: Duration = Duration::from_millis(50);

/// One datagram in the form that tests compare.
pub(crate) type Received = (Vec<u8>, SocketAddr, Ecn);

/// Opens a socket; panics on failure.
pub(crate) fn bind(address: &str, options: &SocketOptions) -> UdpSocket {
    UdpSocket::bind(address.parse().expect("a test writes valid addresses"), options)
        .expect("loopback can be bound")
}

/// Returns all datagrams that reach `socket` until it is silent for [`SILENCE`].
pub(crate) fn drain(socket: &UdpSocket) -> Vec<Received> {
    let mut buffers = RecvBuffers::default();
    let mut all = Vec::new();
    while socket.wait(Wait::READABLE, Some(SILENCE)).expect("waiting never fails").readable {
        let count = socket.recv(&mut buffers).expect("receiving never fails");
        let before = all.len();
        all.extend(buffers.datagrams().map(|d| (d.payload.to_vec(), d.source, d.ecn)));
        assert_eq!(all.len() - before, count, "recv must count what it delivers");
    }
    all
}
