//! Writing segments: joined for a receiving kernel, damaged, or as plain packets.

use std::ops::Range;

use super::{
    Bundle, Checksum, GSO_ECN, GSO_NONE, GSO_TCP4, GSO_TCP6, GSO_UDP, NEEDS_CSUM, Protocol,
    VNET_BYTES, checksum, checksum_offset, put_u16, read_u16, read_u32, tcp, udp,
};

/// Offsets of an IPv4 header.
const V4_LENGTH: usize = 2;
const V4_IDENTIFICATION: usize = 4;
const V4_TTL: usize = 8;
const V4_CHECKSUM: usize = 10;
/// Offset of the length in an IPv6 header, and the header bytes that the length excludes.
const V6_LENGTH: usize = 4;
const V6_HEADER: usize = 40;

impl Bundle {
    /// Writes the virtio header and packet headers of one frame with these segments into `head`,
    /// which is cleared first. The caller must send [`Bundle::payload`] of the same segments next.
    /// With `is_marked`, the IP header gets CE (if the transport is ECN-capable).
    pub fn write_head(&self, segments: Range<u16>, is_marked: bool, head: &mut Vec<u8>) {
        head.clear();
        head.extend_from_slice(&self.offload(&segments));
        self.append_headers(&segments, is_marked, head);
    }

    /// Writes one segment as a frame with a damaged byte, which the receiver's checksum will
    /// detect. A datagram without a checksum gets a checksum first. `seed` selects the byte and the
    /// change.
    pub fn write_damaged(&self, segment: u16, seed: u64, frame: &mut Vec<u8>) {
        frame.clear();
        frame.extend_from_slice(&[0; VNET_BYTES]);
        self.append_segment(segment, frame);
        let packet = &mut frame[VNET_BYTES..];
        let transport = usize::from(self.transport);
        if let Some(offset) = checksum_offset(self.tuple.protocol) {
            put_u16(packet, transport + usize::from(offset), 0);
            let length = (packet.len() - transport) as u64;
            let sum = u64::from(self.pseudo) + length + checksum::sum(&packet[transport..]);
            put_u16(packet, transport + usize::from(offset), closed(sum));
        }
        let payload = usize::from(self.payload);
        let target = match (packet.len() > payload, self.tuple.protocol) {
            (true, _) => &mut packet[payload..],
            // Without payload, a port: damage to a checksum of UDP might turn it into "none".
            (false, Protocol::Tcp | Protocol::Udp) => &mut packet[transport..transport + 4],
            // Only IP: a byte that IPv4's own checksum covers.
            (false, Protocol::Other(_)) => &mut packet[V4_TTL..=V4_TTL],
        };
        // The sum is modulo 2^16 - 1, and no change of one byte is a multiple of that.
        let (places, changes) = (target.len() as u64, 255);
        let place = usize::try_from(seed % places).expect("less than the length of a slice");
        let change = u8::try_from(1 + seed / places % changes).expect("1 to 255");
        target[place] ^= change;
    }

    /// Writes one segment as a plain IP packet with correct checksums, truncated to `bytes_max`,
    /// for a packet capture.
    pub fn write_plain(&self, segment: u16, bytes_max: usize, packet: &mut Vec<u8>) {
        packet.clear();
        self.append_segment(segment, packet);
        packet.truncate(bytes_max);
    }

    /// Returns the virtio header for one frame of these segments.
    fn offload(&self, segments: &Range<u16>) -> [u8; VNET_BYTES] {
        let mut offload = [0; VNET_BYTES];
        match self.checksum {
            Checksum::Whole { flags } => offload[0] = flags,
            Checksum::Partial { start, field } => {
                offload[0] = NEEDS_CSUM;
                offload[6..8].copy_from_slice(&start.to_ne_bytes());
                offload[8..10].copy_from_slice(&(field - start).to_ne_bytes());
            }
        }
        offload[1] = GSO_NONE;
        if segments.len() > 1 {
            offload[1] = match self.tuple.protocol {
                Protocol::Tcp if self.is_v4() => GSO_TCP4,
                Protocol::Tcp => GSO_TCP6,
                _ => GSO_UDP,
            };
            if self.tuple.protocol == Protocol::Tcp
                && segments.start == 0
                && self.bytes[usize::from(self.transport) + tcp::FLAGS] & tcp::CWR != 0
            {
                offload[1] |= GSO_ECN;
            }
            offload[2..4].copy_from_slice(&self.payload.to_ne_bytes());
            offload[4..6].copy_from_slice(&self.segment_bytes.to_ne_bytes());
        }
        offload
    }

    /// Appends the headers of one packet with these segments.
    fn append_headers(&self, segments: &Range<u16>, is_marked: bool, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&self.bytes[..usize::from(self.payload)]);
        let head = &mut out[from..];
        let is_cut = self.segments > 1;
        if is_cut {
            self.adjust(segments, head);
        }
        let is_marked = is_marked && self.is_ecn_capable();
        if is_marked {
            head[1] |= if self.is_v4() { 0x03 } else { 0x30 };
        }
        if self.is_v4() && (is_cut || is_marked) {
            let header_bytes = usize::from(head[0] & 0x0F) * 4;
            put_u16(head, V4_CHECKSUM, 0);
            let sum = checksum::fold(checksum::sum(&head[..header_bytes]));
            put_u16(head, V4_CHECKSUM, !sum);
        }
    }

    /// Changes the headers of the whole bundle to those of some of its segments, except for the
    /// checksum of IPv4.
    fn adjust(&self, segments: &Range<u16>, head: &mut [u8]) {
        let span = self.span(segments);
        let transport = usize::from(self.transport);
        let bytes = head.len() + span.len();
        if self.is_v4() {
            put_u16(head, V4_LENGTH, length(bytes));
            let identification = read_u16(head, V4_IDENTIFICATION);
            put_u16(head, V4_IDENTIFICATION, identification.wrapping_add(segments.start));
        } else {
            put_u16(head, V6_LENGTH, length(bytes - V6_HEADER));
        }
        let transport_bytes = length(bytes - transport);
        if self.tuple.protocol == Protocol::Tcp {
            let at = transport + tcp::SEQUENCE;
            let sequence = read_u32(head, at).wrapping_add(super::count(span.start));
            head[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut head[transport + tcp::FLAGS];
            if segments.end < self.segments {
                *flags &= !(tcp::FIN | tcp::PSH);
            }
            if segments.start > 0 {
                *flags &= !tcp::CWR;
            }
        } else {
            put_u16(head, transport + udp::LENGTH, transport_bytes);
        }
        // The receiving kernel expects the length of the whole frame in this sum.
        let pseudo = checksum::fold(u64::from(self.pseudo) + u64::from(transport_bytes));
        if let Checksum::Partial { field, .. } = self.checksum {
            put_u16(head, usize::from(field), pseudo);
        }
    }

    /// Appends one segment as an IP packet with complete checksums.
    fn append_segment(&self, segment: u16, out: &mut Vec<u8>) {
        let from = out.len();
        let segments = segment..segment + 1;
        self.append_headers(&segments, false, out);
        out.extend_from_slice(self.payload(segments));
        let packet = &mut out[from..];
        if let Checksum::Partial { start, field } = self.checksum {
            // The field holds the sum of the pseudo-header so far.
            let sum = checksum::sum(&packet[usize::from(start)..]);
            put_u16(packet, usize::from(field), closed(sum));
        }
    }
}

/// Returns the value of a checksum field for a sum. Zero would mean "none" in UDP, and 0xFFFF is
/// equivalent; RFC 768.
fn closed(sum: u64) -> u16 {
    match !checksum::fold(sum) {
        0 => 0xFFFF,
        value => value,
    }
}

/// Converts the length of a part of a packet, which fits because the whole packet's length did.
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("its whole packet had a length of 16 bits, too")
}
