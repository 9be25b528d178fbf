//! Receiving in batches, and splitting datagrams that GRO joined.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use quinn_udp::{RecvMeta, UdpSockRef};

use crate::ecn::Ecn;
use crate::socket::UdpSocket;

/// Most slots of a [`RecvBuffers`]: the most that one system call fills.
pub const MAX_BATCH: usize = 32;

/// Bytes per slot. GRO joins datagrams up to the size of one IP packet, 65 535 bytes; a single
/// datagram on loopback can be as large.
const SLOT_BYTES: usize = 65_536;

/// Pending ICMP reports that one `recv` skips; the next call handles the rest.
const REPORTS_PER_RECV: usize = 8;

/// Buffers for one batch of received datagrams; allocated once, owned by the caller.
pub struct RecvBuffers {
    bytes: Box<[u8]>,
    metas: Box<[RecvMeta]>,
    /// Slots that hold data.
    filled: usize,
}

impl RecvBuffers {
    /// Creates `batch` slots of 64 KiB. Each slot holds one datagram, or up to 64 joined by GRO.
    ///
    /// Few slots keep the data in the processor's cache; many slots save system calls without GRO.
    ///
    /// # Panics
    /// If `batch` is outside `1..=MAX_BATCH`.
    pub fn new(batch: usize) -> Self {
        assert!(
            (1..=MAX_BATCH).contains(&batch),
            "a batch has 1 to {MAX_BATCH} slots, not {batch}"
        );
        Self {
            bytes: vec![0; batch * SLOT_BYTES].into_boxed_slice(),
            metas: vec![RecvMeta::default(); batch].into_boxed_slice(),
            filled: 0,
        }
    }

    /// Returns the datagrams of the last [`UdpSocket::recv`], in order of arrival.
    ///
    /// Payloads are mutable, for decryption in place. Empty datagrams are left out.
    pub fn datagrams(&mut self) -> impl Iterator<Item = Datagram<'_>> {
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES);
        self.metas[..self.filled].iter().zip(slots).flat_map(|(meta, slot)| {
            let source = canonical(meta.addr);
            let local_ip = meta.dst_ip.map(|ip| ip.to_canonical());
            let ecn = Ecn::from_codepoint(meta.ecn);
            slot[..meta.len].chunks_mut(meta.stride.max(1)).map(move |payload| Datagram {
                payload,
                source,
                local_ip,
                ecn,
            })
        })
    }

    /// Fills the slots from a source other than a [`UdpSocket`], one datagram per slot, until the
    /// source or the slots run out. Replaces the old contents; returns the number of datagrams.
    /// Datagrams over 64 KiB are cut.
    pub fn fill(
        &mut self,
        source: SocketAddr,
        mut datagrams: impl Iterator<Item = Vec<u8>>,
    ) -> usize {
        self.filled = 0;
        for slot in self.bytes.chunks_exact_mut(SLOT_BYTES) {
            let Some(datagram) = datagrams.next() else { break };
            let length = datagram.len().min(SLOT_BYTES);
            slot[..length].copy_from_slice(&datagram[..length]);
            let mut meta = RecvMeta::default();
            (meta.addr, meta.len, meta.stride) = (source, length, length);
            self.metas[self.filled] = meta;
            self.filled += 1;
        }
        self.filled
    }

    fn datagram_count(&self) -> usize {
        self.metas[..self.filled].iter().map(|meta| meta.len.div_ceil(meta.stride.max(1))).sum()
    }
}

impl Default for RecvBuffers {
    /// Four slots, 256 KiB: more show no gain in the `blast` example, with or without GRO.
    fn default() -> Self {
        Self::new(4)
    }
}

impl fmt::Debug for RecvBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBuffers")
            .field("batch", &self.metas.len())
            .field("datagrams", &self.datagram_count())
            .finish_non_exhaustive()
    }
}

/// One received datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Payload of the datagram.
    pub payload: &'a mut [u8],
    /// Source address; not authenticated.
    pub source: SocketAddr,
    /// Destination address of the datagram on this machine, where the system reports it. A listener
    /// on a wildcard address binds the session's socket to this address.
    pub local_ip: Option<IpAddr>,
    /// The ECN bits it arrived with.
    pub ecn: Ecn,
}

impl UdpSocket {
    /// Receives waiting datagrams, at most one batch. Returns their number; 0 if none is waiting.
    /// Replaces the contents of `buffers`.
    ///
    /// # Errors
    /// If the system itself fails, for example by lack of memory. ICMP reports are not errors;
    /// [`refusals`](Self::refusals) counts reports of a closed port.
    pub fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        buffers.filled = 0;
        let batch = buffers.metas.len();
        let mut slots = buffers.bytes.chunks_exact_mut(SLOT_BYTES);
        let mut slices: [IoSliceMut<'_>; MAX_BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        for _ in 0..REPORTS_PER_RECV {
            match self.receiving.recv(
                UdpSockRef::from(&self.socket),
                &mut slices[..batch],
                &mut buffers.metas,
            ) {
                Ok(filled) => {
                    buffers.filled = filled;
                    if !self.options.ecn {
                        buffers.metas[..filled].iter_mut().for_each(|meta| meta.ecn = None);
                    }
                    return Ok(buffers.datagram_count());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.refusals.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if is_icmp_report(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }
}

/// Whether a failed receive only delivers an ICMP report about an earlier datagram. The next
/// receive works in any case, and any host on the path can forge such a report.
fn is_icmp_report(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EMSGSIZE
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
                | libc::EACCES
        )
    )
}

/// Returns `address` with an IPv4-mapped IPv6 address converted to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalesced_datagrams_are_split_at_the_stride() {
        let mut buffers = RecvBuffers::new(3);
        for (slot, (len, stride)) in [(10, 4), (0, 0), (3, 3)].into_iter().enumerate() {
            buffers.metas[slot].len = len;
            buffers.metas[slot].stride = stride;
            buffers.bytes[slot * SLOT_BYTES..][..len].fill(b'a' + u8::try_from(slot).unwrap());
        }
        buffers.filled = 3;
        assert_eq!(buffers.datagram_count(), 4);
        let payloads: Vec<_> = buffers.datagrams().map(|d| d.payload.to_vec()).collect();
        assert_eq!(payloads, [&b"aaaa"[..], b"aaaa", b"aa", b"ccc"]);
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        let v4: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let v6: SocketAddr = "[2001:db8::1]:7".parse().unwrap();
        assert_eq!(canonical("[::ffff:192.0.2.1]:7".parse().unwrap()), v4);
        assert_eq!(canonical(v4), v4);
        assert_eq!(canonical(v6), v6);
    }
}
