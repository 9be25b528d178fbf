//! Sockets of the relay.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;

use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Requested receive and send buffers: 128 ms of 1 Gb/s. Without the privilege the kernel grants
/// less.
const BUFFER: usize = 16 * 1024 * 1024;
/// Buffer size that a common configuration grants to an ordinary user.
const BUFFER_MODEST: usize = 4 * 1024 * 1024;
/// Attempts to find a TCP port that is also free for UDP.
const PORT_TRIES: usize = 16;
/// Connections that the kernel queues until the relay accepts.
const BACKLOG: i32 = 128;

/// Binds UDP and TCP to one port.
pub(super) fn bind_pair(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let mut tries = if address.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        let tcp = listen(address)?;
        match UdpSocket::bind(tcp.local_addr()?) {
            Ok(udp) => return Ok((udp, tcp)),
            Err(error) if tries == 1 => return Err(error),
            Err(_) => tries -= 1,
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Opens a socket to the target, for one client.
pub(super) fn connect_udp(target: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    Ok(socket)
}

/// Enables batches and large buffers on a UDP socket.
pub(super) fn prepare_udp(socket: &UdpSocket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    if !force_buffers(socket) {
        let socket = SockRef::from(socket);
        // Smaller buffers still work; drops are counted and reported.
        let _ = socket.set_recv_buffer_size(BUFFER_MODEST);
        let _ = socket.set_send_buffer_size(BUFFER_MODEST);
    }
    Ok(state)
}

/// Requests buffers beyond the system's limit, which needs privileges.
#[cfg(target_os = "linux")]
fn force_buffers(socket: impl AsFd) -> bool {
    use rustix::net::sockopt::{
        set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force,
    };
    set_socket_recv_buffer_size_force(&socket, BUFFER).is_ok()
        && set_socket_send_buffer_size_force(&socket, BUFFER).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn force_buffers(_: impl AsFd) -> bool {
    false
}

/// Returns the socket's inode number, as used by the kernel's tables.
#[cfg(target_os = "linux")]
pub(super) fn inode(socket: impl AsFd) -> Option<u64> {
    use std::os::fd::AsRawFd;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd())).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn inode(_: impl AsFd) -> Option<u64> {
    None
}
