//! IP packets as the kernel hands them over: one header and up to 64 KiB behind it, to be cut.
//!
//! Model: a TUN device with virtio headers leaves segmentation and checksums to its reader. A
//! [`Bundle`] is one such frame, kept as it was read; its segments are what a wire would carry. Each
//! can be asked about at once, and neighbours leave again under one header, so that the receiving
//! kernel, too, handles many segments at the cost of one.
//! Cutting does what the kernel's own segmentation does: each IPv4 segment has the next
//! identification, TCP's sequence number counts on, FIN and PSH stay with the last segment and CWR
//! with the first.
//! Checksums:   what was cut leaves with the sum of its pseudo-header, to be finished by the
//!     receiving kernel; a packet that came whole leaves as it came.
//! Invariants:  no bytes that a device or a test hands in make [`Bundle::parse`] panic, and whatever
//!     it accepts can be written. Nothing here allocates per segment.
//! Not here:    putting IP fragments together: each is a packet of its own, without ports.
//!
//! Source: the virtio specification 1.2 §5.1.6 for the virtio header; RFC 1071 for the checksum.

mod checksum;
mod parse;
#[cfg(test)]
mod tests;
mod write;

use std::net::IpAddr;
use std::ops::Range;

/// Bytes of the virtio header before each packet.
pub const VNET_BYTES: usize = 10;
/// The largest frame that a device reads or writes, virtio header included: IPv6 does not count its
/// own 40 bytes in its length.
pub const FRAME_MAX: usize = VNET_BYTES + 40 + 65_535;

/// The receiver has to finish the checksum at the place that the virtio header names.
const NEEDS_CSUM: u8 = 1;
/// The checksum has been checked already.
const DATA_VALID: u8 = 2;
/// Not to be cut.
const GSO_NONE: u8 = 0;
/// TCP over IPv4, to be cut.
const GSO_TCP4: u8 = 1;
/// TCP over IPv6, to be cut.
const GSO_TCP6: u8 = 4;
/// UDP over either, to be cut into datagrams.
const GSO_UDP: u8 = 5;
/// Added to the type of TCP that carries CWR.
const GSO_ECN: u8 = 0x80;

/// What travels above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Anything else, by its number; fragments without ports, too.
    Other(u8),
}

/// What tells conversations apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// What travels above IP.
    pub protocol: Protocol,
    /// Where it comes from.
    pub source: IpAddr,
    /// Zero where there are no ports.
    pub source_port: u16,
    /// Where it goes.
    pub destination: IpAddr,
    /// Zero where there are no ports.
    pub destination_port: u16,
}

/// A frame that is no IP packet, or one that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// One packet of the kernel: several segments under one header, or just one.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The IP packet, without the virtio header.
    bytes: Box<[u8]>,
    tuple: Tuple,
    /// Where TCP or UDP starts: behind the IP header and the extension headers that were understood.
    transport: u16,
    /// Where the payload starts, for anything but TCP and UDP the same.
    payload: u16,
    segments: u16,
    /// Payload bytes of each segment but the last; zero if there is only one.
    segment_bytes: u16,
    checksum: Checksum,
    /// Sum of the pseudo-header without its length; only for TCP and UDP.
    pseudo: u32,
}

/// How far the sender has got with the checksum above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    /// As far as it ever will; the flags go on unchanged.
    Whole { flags: u8 },
    /// The sum of everything from `start` on is still to be put at `field`. Both are places in the
    /// IP packet; `start` is TCP's or UDP's, unless another packet is inside.
    Partial { start: u16, field: u16 },
}

/// What a segment of a bundle carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of the IP packet that the segment is, headers included.
    pub ip_bytes: u32,
    /// Bytes above TCP or UDP; above IP for anything else.
    pub payload_bytes: u32,
    /// TCP sequence number of its first byte (of SYN or FIN where there is no byte).
    pub sequence: Option<u32>,
    /// SYN and FIN flags, which use a sequence number each without being payload.
    pub is_syn: bool,
    /// See `is_syn`.
    pub is_fin: bool,
}

impl Bundle {
    /// How many segments it is; at least one.
    pub fn segments(&self) -> u16 {
        self.segments
    }

    /// What one of them carries.
    pub fn carried(&self, segment: u16) -> Carried {
        let span = self.span(&(segment..segment + 1));
        let payload_bytes = count(span.len());
        let ip_bytes = u32::from(self.payload) + payload_bytes;
        if self.tuple.protocol != Protocol::Tcp {
            let (is_syn, is_fin) = (false, false);
            return Carried { ip_bytes, payload_bytes, sequence: None, is_syn, is_fin };
        }
        let header = usize::from(self.transport);
        let flags = self.bytes[header + tcp::FLAGS];
        let is_syn = flags & tcp::SYN != 0;
        let is_fin = flags & tcp::FIN != 0 && segment + 1 == self.segments;
        // SYN uses the number before the first byte. Only a whole packet has it.
        let before = count(span.start) + u32::from(is_syn && payload_bytes > 0);
        let sequence = read_u32(&self.bytes, header + tcp::SEQUENCE).wrapping_add(before);
        Carried { ip_bytes, payload_bytes, sequence: Some(sequence), is_syn, is_fin }
    }

    /// Whose conversation it belongs to.
    pub fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// Whether its sender understands ECN marks (ECT(0), ECT(1) or CE in the IP header).
    pub fn is_ecn_capable(&self) -> bool {
        let ecn = if self.is_v4() { self.bytes[1] } else { self.bytes[1] >> 4 };
        ecn & 3 != 0
    }

    /// The bytes behind the headers of neighbouring segments.
    pub fn payload(&self, segments: Range<u16>) -> &[u8] {
        &self.bytes[usize::from(self.payload)..][self.span(&segments)]
    }

    fn is_v4(&self) -> bool {
        self.tuple.source.is_ipv4()
    }

    /// Where the payload of neighbouring segments is, counted from the first byte of payload.
    fn span(&self, segments: &Range<u16>) -> Range<usize> {
        debug_assert!(segments.start < segments.end && segments.end <= self.segments);
        let all = self.bytes.len() - usize::from(self.payload);
        let step = usize::from(self.segment_bytes);
        let end = if segments.end < self.segments { usize::from(segments.end) * step } else { all };
        usize::from(segments.start) * step..end
    }
}

/// Places and flags of a TCP header.
mod tcp {
    pub(super) const SEQUENCE: usize = 4;
    pub(super) const HEADER_WORDS: usize = 12;
    pub(super) const FLAGS: usize = 13;
    pub(super) const CHECKSUM: u16 = 16;
    pub(super) const HEADER_MIN: usize = 20;

    pub(super) const FIN: u8 = 0x01;
    pub(super) const SYN: u8 = 0x02;
    pub(super) const PSH: u8 = 0x08;
    pub(super) const CWR: u8 = 0x80;
}

/// Places of a UDP header.
mod udp {
    pub(super) const LENGTH: usize = 4;
    pub(super) const CHECKSUM: u16 = 6;
    pub(super) const HEADER: usize = 8;
}

/// Where the checksum of a protocol is, behind its start.
fn checksum_offset(protocol: Protocol) -> Option<u16> {
    match protocol {
        Protocol::Tcp => Some(tcp::CHECKSUM),
        Protocol::Udp => Some(udp::CHECKSUM),
        Protocol::Other(_) => None,
    }
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from(read_u16(bytes, at)) << 16 | u32::from(read_u16(bytes, at + 2))
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A number of bytes of one frame.
fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a frame has less than 64 KiB and some headers")
}
