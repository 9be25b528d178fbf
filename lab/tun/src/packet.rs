//! IP packets as the kernel passes them: one header and up to 64 KiB of payload, to be cut into
//! segments.
//!
//! Model: a TUN device with virtio headers leaves segmentation and checksums to its reader. A
//! [`Bundle`] is one such frame, kept as it was read; its segments are the packets that a wire
//! would carry. Each segment can be inspected alone. Neighbouring segments leave again under one
//! header, so the receiving kernel also handles many segments at the cost of one. Cutting follows
//! the kernel's own segmentation: each IPv4 segment has the next identification, TCP's sequence
//! number advances, FIN and PSH stay with the last segment and CWR with the first.
//! Checksums:   cut segments leave with the sum of their pseudo-header, for the receiving kernel to
//!              complete; an uncut packet leaves unchanged.
//! Invariants:  no input bytes make [`Bundle::parse`] panic, and every accepted packet can be
//!              written. No allocation per segment.
//! Not here:    reassembly of IP fragments: each fragment is a packet of its own, without ports.
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
/// Largest frame that a device reads or writes, virtio header included. The length field of IPv6
/// excludes its own 40 bytes.
pub const FRAME_MAX: usize = VNET_BYTES + 40 + 65_535;

/// The receiver must complete the checksum at the offset in the virtio header.
const NEEDS_CSUM: u8 = 1;
/// The checksum has been verified.
const DATA_VALID: u8 = 2;
/// No segmentation.
const GSO_NONE: u8 = 0;
/// Segmentation of TCP over IPv4.
const GSO_TCP4: u8 = 1;
/// Segmentation of TCP over IPv6.
const GSO_TCP6: u8 = 4;
/// Segmentation of UDP over IPv4 or IPv6 into datagrams.
const GSO_UDP: u8 = 5;
/// Flag in the segmentation type of TCP with CWR.
const GSO_ECN: u8 = 0x80;

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Any other protocol, by its number; also fragments without ports.
    Other(u8),
}

/// Addresses, ports and protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Source address.
    pub source: IpAddr,
    /// Source port; zero without ports.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// Destination port; zero without ports.
    pub destination_port: u16,
}

/// Error: the frame is not an IP packet, or its fields contradict each other; the text gives the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

/// One packet of the kernel: one or more segments under one header.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The IP packet, without the virtio header.
    bytes: Box<[u8]>,
    tuple: Tuple,
    /// Offset of TCP or UDP: behind the IP header and the known extension headers.
    transport: u16,
    /// Offset of the payload; equal to `transport` for other protocols.
    payload: u16,
    segments: u16,
    /// Payload bytes of each segment but the last; zero for a single segment.
    segment_bytes: u16,
    checksum: Checksum,
    /// Sum of the pseudo-header without its length; only for TCP and UDP.
    pseudo: u32,
}

/// State of the transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    /// The checksum is final; the flags are passed on unchanged.
    Whole { flags: u8 },
    /// The sum of everything from `start` on must still be written at `field`. Both are offsets in
    /// the IP packet; `start` is the offset of TCP or UDP, unless there is an inner packet.
    Partial { start: u16, field: u16 },
}

/// Contents of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of the segment's IP packet, headers included.
    pub ip_bytes: u32,
    /// Payload bytes of TCP or UDP; of IP for other protocols.
    pub payload_bytes: u32,
    /// TCP sequence number of the first byte (of SYN or FIN where there is no payload).
    pub sequence: Option<u32>,
    /// SYN flag. SYN and FIN each use a sequence number without being payload.
    pub is_syn: bool,
    /// FIN flag; see `is_syn`.
    pub is_fin: bool,
}

impl Bundle {
    /// Number of segments; at least one.
    pub fn segments(&self) -> u16 {
        self.segments
    }

    /// Returns the contents of a segment.
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
        // SYN uses the number before the first byte. Only an uncut packet has SYN.
        let before = count(span.start) + u32::from(is_syn && payload_bytes > 0);
        let sequence = read_u32(&self.bytes, header + tcp::SEQUENCE).wrapping_add(before);
        Carried { ip_bytes, payload_bytes, sequence: Some(sequence), is_syn, is_fin }
    }

    /// Returns the flow of the packet.
    pub fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// Whether the transport is ECN-capable (ECT(0), ECT(1) or CE in the IP header).
    pub fn is_ecn_capable(&self) -> bool {
        let ecn = if self.is_v4() { self.bytes[1] } else { self.bytes[1] >> 4 };
        ecn & 3 != 0
    }

    /// Returns the payload of neighbouring segments.
    pub fn payload(&self, segments: Range<u16>) -> &[u8] {
        &self.bytes[usize::from(self.payload)..][self.span(&segments)]
    }

    fn is_v4(&self) -> bool {
        self.tuple.source.is_ipv4()
    }

    /// Range of neighbouring segments within the payload.
    fn span(&self, segments: &Range<u16>) -> Range<usize> {
        debug_assert!(segments.start < segments.end && segments.end <= self.segments);
        let all = self.bytes.len() - usize::from(self.payload);
        let step = usize::from(self.segment_bytes);
        let end = if segments.end < self.segments { usize::from(segments.end) * step } else { all };
        usize::from(segments.start) * step..end
    }
}

/// Offsets and flags of a TCP header.
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

/// Offsets of a UDP header.
mod udp {
    pub(super) const LENGTH: usize = 4;
    pub(super) const CHECKSUM: u16 = 6;
    pub(super) const HEADER: usize = 8;
}

/// Offset of the checksum within a protocol's header.
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

/// Converts a byte count of one frame.
fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a frame has less than 64 KiB and some headers")
}
