//! UDP socket: opening, capabilities and counters.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use quinn_udp::{UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::UdpError;
use crate::options::{Capabilities, SocketOptions, buffer_hint};
use crate::send::Sending;
use crate::sockopt;
use crate::wait::Waker;

/// A nonblocking UDP socket that never fragments.
///
/// All calls take `&self`, so threads may share it; one thread per socket is fastest.
#[derive(Debug)]
pub struct UdpSocket {
    pub(crate) socket: Socket,
    pub(crate) options: SocketOptions,
    pub(crate) local: SocketAddr,
    pub(crate) receiving: UdpSocketState,
    pub(crate) sending: Sending,
    pub(crate) waker: Waker,
    pub(crate) refusals: AtomicU64,
    drops: AtomicU64,
    recv_buffer_granted: usize,
    send_buffer_granted: usize,
}

impl UdpSocket {
    /// Opens a socket on `address`; port 0 lets the system choose one.
    ///
    /// A socket bound to `[::]` also serves IPv4. IPv4 addresses stay IPv4 addresses in this
    /// interface.
    ///
    /// # Errors
    /// If the address cannot be bound, or the system refuses a required socket option.
    pub fn bind(address: SocketAddr, options: &SocketOptions) -> Result<Self, UdpError> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
            .map_err(UdpError::configure("socket"))?;
        if let IpAddr::V6(ip) = address.ip() {
            // The default differs between systems; only the wildcard address can serve both
            // families.
            socket.set_only_v6(!ip.is_unspecified()).map_err(UdpError::configure("IPV6_V6ONLY"))?;
        }
        if options.reuse_port {
            socket.set_reuse_port(true).map_err(UdpError::configure("SO_REUSEPORT"))?;
        }
        let recv_buffer_granted = enlarge_recv_buffer(&socket, options.recv_buffer_requested())
            .map_err(UdpError::configure("SO_RCVBUF"))?;
        let send_buffer_granted = enlarge_send_buffer(&socket, options.send_buffer_requested())
            .map_err(UdpError::configure("SO_SNDBUF"))?;
        // Before binding, so that no datagram arrives at a partly configured socket.
        let receiving =
            attach(&socket, options).map_err(UdpError::configure("offload and path MTU"))?;
        let sending =
            Sending::new(&socket, options).map_err(UdpError::configure("offload and path MTU"))?;
        let waker = Waker::new().map_err(UdpError::configure("wake handle"))?;

        let bind_failed = |source| UdpError::Bind { address, source };
        socket.bind(&address.into()).map_err(bind_failed)?;
        let local = socket.local_addr().map_err(bind_failed)?.as_socket().ok_or_else(|| {
            bind_failed(io::Error::other("the system reports an address that is not IP"))
        })?;
        Ok(Self {
            socket,
            options: options.clone(),
            local,
            receiving,
            sending,
            waker,
            refusals: AtomicU64::new(0),
            drops: AtomicU64::new(0),
            recv_buffer_granted,
            send_buffer_granted,
        })
    }

    /// Connects the socket to one peer: the socket then receives from that peer only, and
    /// [`send`](Self::send) needs no destination. May be repeated with another peer.
    ///
    /// # Errors
    /// If there is no route to the peer, or its address family is not the socket's.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), UdpError> {
        let failed = |source| UdpError::Connect { peer, source };
        if peer.port() == 0 {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "port 0 is no port")));
        }
        self.socket.connect(&self.to_family(peer).into()).map_err(failed)?;
        self.sending.set_peer(peer);
        Ok(())
    }

    /// The address the socket was bound to, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer given to [`connect`](Self::connect).
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.sending.peer()
    }

    /// Returns present capabilities; `gso_segments_max` falls to 1 if a network driver refuses GSO.
    pub fn capabilities(&self) -> Capabilities {
        let (recv, send) = (self.recv_buffer_granted, self.send_buffer_granted);
        Capabilities {
            gso_segments_max: self.sending.gso_segments_max(),
            gro_segments_max: if self.options.gro { self.receiving.gro_segments() } else { 1 },
            ecn: self.options.ecn,
            recv_buffer_granted: recv,
            send_buffer_granted: send,
            hint: buffer_hint(&self.options, recv, send),
        }
    }

    /// Returns how often the receive buffer has overflowed since the socket was opened; always 0 on
    /// systems other than Linux.
    ///
    /// A train of datagrams that the kernel joined (GRO) is lost and counted as one. The number of
    /// lost datagrams equals this count without GRO, and is up to 64 times as large with GRO.
    ///
    /// The value is the socket's own drop counter (`SO_MEMINFO`), the number that `SO_RXQ_OVFL`
    /// would attach to each datagram. A call costs one system call, and nothing per datagram. The
    /// count includes the few datagrams with a wrong checksum.
    ///
    /// # Errors
    /// If the kernel does not support the option (Linux before 4.12).
    pub fn overflow_drops(&self) -> io::Result<u64> {
        let low = sockopt::drops(&self.socket)?;
        // The kernel counts in 32 bits. Extend from the last count, which other threads may advance
        // at the same time.
        let mut last = self.drops.load(Ordering::Relaxed);
        loop {
            let Some(now) = extend(last, low) else { return Ok(last) };
            match self.drops.compare_exchange_weak(last, now, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(now),
                Err(other) => last = other,
            }
        }
    }

    /// Returns how often the system reported that the peer's port is closed (ICMP port
    /// unreachable), on sending and receiving together. Only connected sockets receive such
    /// reports.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Returns the largest IP packet, in bytes, that the kernel would now send to the peer: the
    /// outgoing interface's MTU, or less after an ICMP report.
    ///
    /// A hint for the upper bound of MTU discovery; the path beyond may be narrower. `None` if the
    /// socket is not connected, or the system does not report the MTU.
    pub fn path_mtu(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        {
            let mtu = if self.peer_addr()?.is_ipv4() {
                rustix::net::sockopt::ip_mtu(&self.socket)
            } else {
                rustix::net::sockopt::ipv6_mtu(&self.socket)
            };
            mtu.ok()
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Returns `address` in the form that this socket's family needs.
    pub(crate) fn to_family(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(ip) if self.local.is_ipv6() => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
            }
            _ => address,
        }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets up DF, packet information and offload on `socket`, then turns off options that are not set.
pub(crate) fn attach(socket: &Socket, options: &SocketOptions) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(UdpSockRef::from(socket))?;
    // This fails only on a kernel without timestamps, where there is nothing to undo.
    let _ = sockopt::disable_timestamps(socket);
    if !options.gro && state.gro_segments() > 1 {
        sockopt::disable_gro(socket)?;
    }
    Ok(state)
}

/// Requests `bytes`, beyond the system's limit if privileged; returns the size granted.
fn enlarge_recv_buffer(socket: &Socket, bytes: usize) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    let forced = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_ok();
    #[cfg(not(target_os = "linux"))]
    let forced = false;
    if !forced {
        set_largest(bytes, |bytes| socket.set_recv_buffer_size(bytes))?;
    }
    Ok(socket.recv_buffer_size()? / OVERHEAD_FACTOR)
}

/// Requests `bytes`, beyond the system's limit if privileged; returns the size granted.
fn enlarge_send_buffer(socket: &Socket, bytes: usize) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    let forced = rustix::net::sockopt::set_socket_send_buffer_size_force(socket, bytes).is_ok();
    #[cfg(not(target_os = "linux"))]
    let forced = false;
    if !forced {
        set_largest(bytes, |bytes| socket.set_send_buffer_size(bytes))?;
    }
    Ok(socket.send_buffer_size()? / OVERHEAD_FACTOR)
}

/// Linux reports twice the requested buffer; see socket(7).
const OVERHEAD_FACTOR: usize = if cfg!(target_os = "linux") { 2 } else { 1 };

/// Linux caps a size that is too large; other systems refuse it, so the size is halved until
/// accepted.
fn set_largest(mut bytes: usize, set: impl Fn(usize) -> io::Result<()>) -> io::Result<()> {
    loop {
        match set(bytes) {
            Err(_) if !cfg!(target_os = "linux") && bytes > 65_536 => bytes /= 2,
            result => return result,
        }
    }
}

/// Returns the next number from `last` on whose low half is `low`; `None` if `low` is an older
/// count.
fn extend(last: u64, low: u32) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what the kernel counts")]
    let ahead = low.wrapping_sub(last as u32);
    (ahead < 1 << 31).then(|| last + u64::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drop_count_survives_the_wrap_of_the_kernels_counter() {
        assert_eq!(extend(0, 5), Some(5));
        assert_eq!(extend(u64::from(u32::MAX), 2), Some((1 << 32) + 2));
        // An older count, which another thread has already replaced.
        assert_eq!(extend(7, 5), None);
    }
}
