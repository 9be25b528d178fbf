//! Making the relay's sockets.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;

use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Receive and send room asked of the kernel: 128 ms of 1 Gb/s. It gives less to those who may not
/// have it.
const BUFFER: usize = 16 * 1024 * 1024;
/// What an ordinary user may have on a common configuration.
const BUFFER_MODEST: usize = 4 * 1024 * 1024;
/// How many free TCP ports to try until one is free for UDP too.
const PORT_TRIES: usize = 16;
/// Connections the kernel keeps for us until we accept them.
const BACKLOG: i32 = 128;

/// UDP and TCP on one port.
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

/// A socket of its own towards the target, for one client.
pub(super) fn connect_udp(target: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    Ok(socket)
}

/// Batches and large buffers for a UDP socket.
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

/// Asks for buffers beyond the system's limit, which takes privileges.
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

/// The number by which the kernel's tables know a socket.
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

/// Begins a TCP connection; it is complete when the socket can be written to.
pub(super) fn dial(target: SocketAddr) -> io::Result<std::net::TcpStream> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&target.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}
