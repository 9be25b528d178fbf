//! Sending in batches: by GSO where supported, else one datagram per system call.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use quinn_udp::{EcnCodepoint, Transmit, UdpSockRef, UdpSocketState};
use socket2::Socket;

use crate::ecn::Ecn;
use crate::options::SocketOptions;
use crate::socket::{UdpSocket, attach};

/// Most datagrams in one GSO send; the limit of all kernels that have GSO (`UDP_MAX_SEGMENTS`).
pub const MAX_GSO_SEGMENTS: usize = 64;

/// Most bytes in one GSO send: the kernel builds one IPv4 packet of at most 65 535 bytes first, of
/// which 20 are IP header and 8 UDP header.
pub const MAX_GSO_BYTES: usize = 65_507;

/// Progress of a [`UdpSocket::send`].
#[must_use = "a send may stop early"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOutcome {
    /// Bytes accepted: where in `datagrams` to resume.
    pub bytes: usize,
    /// Datagrams accepted.
    pub segments: usize,
    /// Why the call ended.
    pub status: SendStatus,
}

/// Why a [`UdpSocket::send`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendStatus {
    /// All datagrams were accepted.
    Complete,
    /// The send buffer (or the device's queue) is full: wait until the socket is writable.
    WouldBlock,
    /// The next datagram is larger than the interface's MTU, or than any UDP datagram: it can
    /// never be sent. Skip or shrink it.
    TooLarge,
    /// An earlier datagram was refused by a closed port. The next datagram was not tried and may be
    /// sent at once.
    Refused,
    /// The peer is unreachable now: no route, an interface that is down, the socket's own address
    /// gone from this machine, or a firewall's refusal. A later attempt may succeed.
    Unreachable,
}

/// State of the sending half of a socket.
#[derive(Debug)]
pub(crate) struct Sending(RwLock<Inner>);

#[derive(Debug)]
struct Inner {
    peer: Option<SocketAddr>,
    /// Sends one datagram per call.
    plain: UdpSocketState,
    /// Sends many datagrams per call; `None` if off, unsupported, or found not to work.
    gso: Option<UdpSocketState>,
}

impl Sending {
    pub(crate) fn new(socket: &Socket, options: &SocketOptions) -> io::Result<Self> {
        let gso = Some(attach(socket, options)?)
            .filter(|state| options.gso && state.max_gso_segments() > 1);
        Ok(Self(RwLock::new(Inner { peer: None, plain: attach(socket, options)?, gso })))
    }

    // A panic cannot leave `Inner` half changed, so a poisoned lock is as good as a clean one.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_peer(&self, peer: SocketAddr) {
        self.write().peer = Some(peer);
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.read().peer
    }

    pub(crate) fn gso_segments_max(&self) -> usize {
        if self.read().gso.is_some() { MAX_GSO_SEGMENTS } else { 1 }
    }
}

/// Parameters shared by all datagrams of one [`UdpSocket::send`].
struct Job {
    destination: SocketAddr,
    /// Whether the destination is the connected peer, because the caller named no other.
    connected: bool,
    ecn: Option<EcnCodepoint>,
    segment_size: usize,
    /// Local address from which the datagrams leave, if not chosen by the kernel.
    source: Option<IpAddr>,
}

impl Job {
    fn transmit<'a>(&self, contents: &'a [u8]) -> Transmit<'a> {
        Transmit {
            destination: self.destination,
            ecn: self.ecn,
            contents,
            segment_size: Some(self.segment_size),
            src_ip: self.source,
        }
    }
}

impl UdpSocket {
    /// Sends `datagrams`: segments of `segment_size` bytes back to back; the last may be shorter.
    /// Without a `destination` the segments go to the connected peer.
    ///
    /// Datagrams are accepted in order. When [`SendOutcome::status`] is not
    /// [`Complete`](SendStatus::Complete), the first [`SendOutcome::bytes`] were accepted and
    /// nothing after them; call again with the rest. Where a network driver refuses GSO, the socket
    /// stops using GSO permanently and sends one datagram per call.
    ///
    /// # Errors
    /// If the arguments are invalid (no destination, port 0, segments of 0 bytes), or the system
    /// reports an error outside [`SendStatus`]. The error does not include what was accepted
    /// before.
    pub fn send(
        &self,
        datagrams: &[u8],
        segment_size: usize,
        destination: Option<SocketAddr>,
        ecn: Ecn,
    ) -> io::Result<SendOutcome> {
        if segment_size == 0 {
            return Err(invalid("a segment size of 0 bytes"));
        }
        let peer = || self.sending.read().peer;
        let to = destination
            .or_else(peer)
            .ok_or_else(|| invalid("no destination on a socket that is not connected"))?;
        if to.port() == 0 {
            // The kernel would return the same error as for "no GSO here".
            return Err(invalid("destination port 0"));
        }
        let job = Job {
            destination: self.to_family(to),
            connected: destination.is_none(),
            ecn: if self.options.ecn { ecn.to_codepoint() } else { None },
            segment_size,
            source: None,
        };
        self.run(&job, datagrams)
    }

    /// Answers a datagram: sends `datagram` to `destination` from the local address at which the other one arrived. A host with
    /// several addresses would otherwise answer from another one, which NATs and connected sockets drop.
    ///
    /// # Errors
    /// As [`Self::send`], or if the local address is none of this machine.
    pub fn answer(
        &self,
        datagram: &[u8],
        destination: SocketAddr,
        arrived_at: Option<IpAddr>,
        ecn: Ecn,
    ) -> io::Result<SendOutcome> {
        if destination.port() == 0 {
            return Err(invalid("destination port 0"));
        }
        let job = Job {
            destination: self.to_family(destination),
            connected: false,
            ecn: if self.options.ecn { ecn.to_codepoint() } else { None },
            segment_size: datagram.len().max(1),
            source: arrived_at.map(|ip| self.to_family(SocketAddr::new(ip, 0)).ip()),
        };
        self.run(&job, datagram)
    }

    fn run(&self, job: &Job, datagrams: &[u8]) -> io::Result<SendOutcome> {
        let segment_size = job.segment_size;
        let mut outcome = SendOutcome { bytes: 0, segments: 0, status: SendStatus::Complete };
        while outcome.bytes < datagrams.len() {
            let rest = &datagrams[outcome.bytes..];
            let mut result = self.send_some(job, rest);
            if is_too_large(&result) {
                // An ICMP report about an earlier datagram gives the same error. Clear the error
                // and send again; then clear the error that IPv4 leaves behind for this datagram.
                self.socket.take_error()?;
                result = self.send_some(job, rest);
                if is_too_large(&result) {
                    self.socket.take_error()?;
                }
            }
            match result {
                Ok(bytes) => {
                    outcome.bytes += bytes;
                    outcome.segments += bytes.div_ceil(segment_size);
                }
                Err(error) => {
                    outcome.status = status_of(error)?;
                    if outcome.status == SendStatus::Refused {
                        self.refusals.fetch_add(1, Ordering::Relaxed);
                    }
                    break;
                }
            }
        }
        Ok(outcome)
    }

    /// Sends as many of the first `datagrams` as one system call takes; returns the bytes accepted.
    fn send_some(&self, job: &Job, datagrams: &[u8]) -> io::Result<usize> {
        let size = job.segment_size;
        let segments_max = MAX_GSO_SEGMENTS.min(MAX_GSO_BYTES / size).max(1);
        let first = &datagrams[..datagrams.len().min(size)];
        let batch = &datagrams[..datagrams.len().min(size.saturating_mul(segments_max))];
        let inner = self.sending.read();
        let Some(gso) = inner.gso.as_ref().filter(|_| batch.len() > first.len()) else {
            return self.send_single(&inner.plain, job, first);
        };
        match gso.try_send(UdpSockRef::from(&self.socket), &job.transmit(batch)) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                // Either GSO does not work here, or (on older kernels) the segments exceed the MTU.
                // A single datagram distinguishes the two cases.
                let single = self.send_single(&inner.plain, job, first);
                drop(inner);
                self.after_gso_failure(single.is_ok())?;
                single
            }
            result => result.map(|()| batch.len()),
        }
    }

    fn send_single(&self, plain: &UdpSocketState, job: &Job, datagram: &[u8]) -> io::Result<usize> {
        if cfg!(target_os = "linux") || !job.connected {
            plain.try_send(UdpSockRef::from(&self.socket), &job.transmit(datagram))?;
        } else {
            // quinn-udp always sets the destination, which other systems refuse on a connected
            // socket. Plain `send` works there, without the ECN bits.
            self.socket.send(datagram)?;
        }
        Ok(datagram.len())
    }

    /// Handles a failed GSO send. `single_works` is whether a single datagram was sent afterwards.
    ///
    /// quinn-udp stops writing IPv4 ECN bits after such an error, hence the fresh state.
    fn after_gso_failure(&self, single_works: bool) -> io::Result<()> {
        let gso = if single_works { None } else { Some(attach(&self.socket, &self.options)?) };
        let mut inner = self.sending.write();
        // Another thread may have turned GSO off meanwhile; then GSO stays off.
        if inner.gso.is_some() {
            inner.gso = gso;
        }
        Ok(())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("cannot send: {what}"))
}

fn is_too_large(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EMSGSIZE))
}

/// Returns the status for an expected error; passes on every other error.
fn status_of(error: io::Error) -> io::Result<SendStatus> {
    if error.kind() == io::ErrorKind::WouldBlock {
        return Ok(SendStatus::WouldBlock);
    }
    match error.raw_os_error() {
        Some(libc::ENOBUFS) => Ok(SendStatus::WouldBlock),
        Some(libc::EMSGSIZE) => Ok(SendStatus::TooLarge),
        Some(libc::ECONNREFUSED) => Ok(SendStatus::Refused),
        Some(
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::ENODEV
            | libc::EADDRNOTAVAIL
            // Linux, where a connected socket's own address is gone. Arguments that could
            // cause this error have been checked before the call.
            | libc::EINVAL
            | libc::EPERM
            | libc::EACCES,
        ) => Ok(SendStatus::Unreachable),
        _ => Err(error),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::recv::RecvBuffers;
    use crate::sockopt;
    use crate::wait::Wait;

    /// Returns all payloads and ECN bits that reach `socket` until it has been silent for 50 ms.
    fn drain(socket: &UdpSocket) -> Vec<(Vec<u8>, Ecn)> {
        let mut buffers = RecvBuffers::new(4);
        let mut all = Vec::new();
        let silence = Some(Duration::from_millis(50));
        while socket.wait(Wait::READABLE, silence).is_ok_and(|ready| ready.readable) {
            socket.recv(&mut buffers).expect("receiving never fails");
            all.extend(buffers.datagrams().map(|d| (d.payload.to_vec(), d.ecn)));
        }
        all
    }

    #[test]
    fn without_gso_datagrams_are_sent_singly_with_the_same_ecn_bits() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let options = SocketOptions::default();
            let receiver = UdpSocket::bind(host.parse().unwrap(), &options).unwrap();
            let sender = UdpSocket::bind(host.parse().unwrap(), &options).unwrap();
            sender.connect(receiver.local_addr()).unwrap();
            assert_eq!(sender.capabilities().gso_segments_max, MAX_GSO_SEGMENTS);
            // Linux returns EINVAL for GSO without checksums: a stand-in for a driver without GSO.
            for socket in [&sender.socket, &receiver.socket] {
                sockopt::disable_checksums(socket, sender.local.is_ipv6()).unwrap();
            }

            let data: Vec<u8> = (0..=255).cycle().take(2_500).collect();
            for _ in 0..2 {
                let outcome = sender.send(&data, 1_000, None, Ecn::Ect0).unwrap();
                assert_eq!(
                    outcome,
                    SendOutcome { bytes: 2_500, segments: 3, status: SendStatus::Complete }
                );
                assert_eq!(sender.capabilities().gso_segments_max, 1);
                let expected: Vec<_> =
                    data.chunks(1_000).map(|c| (c.to_vec(), Ecn::Ect0)).collect();
                assert_eq!(drain(&receiver), expected);
            }
        }
    }

    #[test]
    fn invalid_send_calls_are_refused_and_keep_gso_enabled() {
        let socket =
            UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default()).unwrap();
        let port_0 = "127.0.0.1:0".parse().ok();
        for (size, destination) in [(100, None), (100, port_0), (0, Some(socket.local_addr()))] {
            let error = socket.send(&[0; 300], size, destination, Ecn::NotEct).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert_eq!(socket.capabilities().gso_segments_max, MAX_GSO_SEGMENTS);
    }

    #[test]
    fn every_recoverable_send_error_has_a_status() {
        for (errno, status) in [
            (libc::EAGAIN, SendStatus::WouldBlock),
            (libc::ENOBUFS, SendStatus::WouldBlock),
            (libc::EMSGSIZE, SendStatus::TooLarge),
            (libc::ECONNREFUSED, SendStatus::Refused),
            (libc::ENETUNREACH, SendStatus::Unreachable),
            (libc::ENETDOWN, SendStatus::Unreachable),
            (libc::EADDRNOTAVAIL, SendStatus::Unreachable),
            (libc::EINVAL, SendStatus::Unreachable),
            (libc::EPERM, SendStatus::Unreachable),
        ] {
            assert_eq!(status_of(io::Error::from_raw_os_error(errno)).unwrap(), status);
        }
        assert!(status_of(io::Error::from_raw_os_error(libc::EBADF)).is_err());
    }
}
