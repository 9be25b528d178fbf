//! Builds frames, cuts them and checks packets as a kernel would, without any of the code under
//! test.

use super::super::VNET_BYTES;

/// A frame to build; by default TCP over IPv4 with a hundred bytes that stay whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) is_v6: bool,
    pub(super) is_tcp: bool,
    /// IPv6 only: eight bytes of destination options.
    pub(super) has_extension: bool,
    /// Bytes of TCP options.
    pub(super) options: u8,
    pub(super) flags: u8,
    pub(super) ecn: u8,
    pub(super) sequence: u32,
    pub(super) payload: usize,
    /// Zero for no segmentation.
    pub(super) gso: u16,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            is_v6: false,
            is_tcp: true,
            has_extension: false,
            options: 0,
            flags: 0x10,
            ecn: 0,
            sequence: 1_000_000,
            payload: 100,
            gso: 0,
        }
    }
}

impl Sample {
    pub(super) const IDENTIFICATION: u16 = 0x1FFE;
    pub(super) const DSCP: u8 = 46;
    pub(super) const V4_SOURCE: [u8; 4] = [10, 1, 2, 3];
    pub(super) const V4_DESTINATION: [u8; 4] = [192, 168, 200, 9];
    pub(super) const V6_SOURCE: [u16; 8] = [0xFD00, 1, 2, 3, 4, 5, 6, 7];
    pub(super) const V6_DESTINATION: [u16; 8] = [0xFD00, 0xFFFF, 0, 0, 0xABCD, 0, 0, 1];

    pub(super) fn bytes(&self) -> Vec<u8> {
        (0..self.payload).map(|n| u8::try_from(n * n % 251).unwrap()).collect()
    }

    /// Returns the frame, with its checksum left to the reader.
    pub(super) fn frame(&self) -> Vec<u8> {
        let protocol: u8 = if self.is_tcp { 6 } else { 17 };
        let above = self.transport();
        let mut packet = Vec::new();
        if self.is_v6 {
            let class = u32::from(Self::DSCP << 2 | self.ecn);
            packet.extend((6 << 28 | class << 20 | 0x12345).to_be_bytes());
            let extension = if self.has_extension { 8 } else { 0 };
            packet.extend(u16::try_from(above.len() + extension).unwrap().to_be_bytes());
            packet.extend([if self.has_extension { 60 } else { protocol }, 64]);
            packet.extend(Self::V6_SOURCE.iter().flat_map(|word| word.to_be_bytes()));
            packet.extend(Self::V6_DESTINATION.iter().flat_map(|word| word.to_be_bytes()));
            if self.has_extension {
                packet.extend([protocol, 0, 1, 0, 0, 0, 0, 0]);
            }
        } else {
            packet.extend([0x45, Self::DSCP << 2 | self.ecn]);
            packet.extend(u16::try_from(20 + above.len()).unwrap().to_be_bytes());
            packet.extend(Self::IDENTIFICATION.to_be_bytes());
            packet.extend([0x40, 0, 64, protocol, 0, 0]);
            packet.extend(Self::V4_SOURCE);
            packet.extend(Self::V4_DESTINATION);
            let sum = !words(&packet, 0);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let start = packet.len();
        packet.extend(&above);
        let offset = if self.is_tcp { 16 } else { 6 };
        let sum = words(&pseudo_header(&packet, start), 0);
        packet[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());

        let kind = match (self.gso, self.is_tcp, self.is_v6) {
            (0, ..) => 0,
            (_, false, _) => 5,
            (_, true, false) => 1,
            (_, true, true) => 4,
        };
        let header = start + above.len() - self.payload;
        let mut frame =
            vec![1, if self.flags & 0x80 != 0 && kind % 5 != 0 { kind | 0x80 } else { kind }];
        let header = if self.gso == 0 { 0 } else { header };
        for number in [header, self.gso.into(), start, offset] {
            frame.extend(u16::try_from(number).unwrap().to_ne_bytes());
        }
        frame.extend(packet);
        frame
    }

    /// Returns TCP or UDP with the payload; the checksum is zero.
    fn transport(&self) -> Vec<u8> {
        let mut out = [4660_u16.to_be_bytes(), 443_u16.to_be_bytes()].concat();
        if self.is_tcp {
            out.extend(self.sequence.to_be_bytes());
            out.extend([
                9,
                8,
                7,
                6,
                ((20 + self.options) / 4) << 4,
                self.flags,
                0x20,
                0,
                0,
                0,
                0,
                0,
            ]);
            out.extend(vec![1; self.options.into()]);
        } else {
            out.extend(u16::try_from(8 + self.payload).unwrap().to_be_bytes());
            out.extend([0, 0]);
        }
        out.extend(self.bytes());
        out
    }
}

/// Sums words one after the other, with the carry added at once.
fn words(bytes: &[u8], start: u16) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        let word = u16::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u16::from(low));
        let (next, carry) = sum.overflowing_add(word);
        sum = next + u16::from(carry);
    }
    sum
}

/// Returns the offset of TCP or UDP, and the protocol; `None` for others.
fn transport_of(packet: &[u8]) -> Option<(usize, u8)> {
    let (start, protocol) = match (packet[0] >> 4, packet[6]) {
        (4, _) => (usize::from(packet[0] & 15) * 4, packet[9]),
        (_, 60) => (48, packet[40]),
        (_, next) => (40, next),
    };
    matches!(protocol, 6 | 17).then_some((start, protocol))
}

/// Returns the pseudo-header of a packet as bytes.
fn pseudo_header(packet: &[u8], start: usize) -> Vec<u8> {
    let (_, protocol) = transport_of(packet).unwrap();
    let length = u32::try_from(packet.len() - start).unwrap().to_be_bytes();
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    [addresses, &length, &[0, 0, 0, protocol]].concat()
}

/// Whether a receiver would accept the checksums of a TCP or UDP packet.
pub(super) fn is_right(packet: &[u8]) -> bool {
    let (start, _) = transport_of(packet).unwrap();
    let is_network_right = packet[0] >> 4 == 6 || words(&packet[..start], 0) == 0xFFFF;
    let sum = words(&packet[start..], words(&pseudo_header(packet, start), 0));
    is_network_right && sum == 0xFFFF
}

/// Cuts a frame as a kernel does when it is written to a device: as the virtio header requests, and
/// with the sum in the checksum field corrected by the change of length.
pub(super) fn kernel_cut(frame: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| usize::from(u16::from_ne_bytes([frame[at], frame[at + 1]]));
    let (kind, header, size, start) = (frame[1] & 0x7F, number(2), number(4), number(6));
    let field = start + number(8);
    let packet = &frame[VNET_BYTES..];
    assert_eq!(frame[0], 1, "these tests leave all checksums to the kernel");
    if kind == 0 {
        let mut packet = packet.to_vec();
        finish(&mut packet, start, field);
        return vec![packet];
    }
    let (is_v4, is_tcp) = (kind == 1 || packet[0] >> 4 == 4, kind != 5);
    let header = {
        let own = if is_tcp { usize::from(packet[start + 12] >> 4) * 4 } else { 8 };
        assert_eq!(header, start + own, "the header length is a hint, and ours is exact");
        header
    };
    let pieces: Vec<_> = packet[header..].chunks(size).collect();
    let cut = pieces.iter().enumerate().map(|(n, piece)| {
        let mut out = [&packet[..header], piece].concat();
        let put = |out: &mut [u8], at: usize, value: usize| {
            out[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_be_bytes());
        };
        let get = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let length = out.len();
        if is_v4 {
            put(&mut out, 2, length);
            put(&mut out, 4, usize::from(get(4)) + n);
            put(&mut out, 10, 0);
            let sum = !words(&out[..start], 0);
            put(&mut out, 10, sum.into());
        } else {
            put(&mut out, 4, length - 40);
        }
        if is_tcp {
            let first = u32::from_be_bytes([0, 1, 2, 3].map(|at| packet[start + 4 + at]));
            let sequence = first.wrapping_add(u32::try_from(n * size).unwrap());
            out[start + 4..start + 8].copy_from_slice(&sequence.to_be_bytes());
            out[start + 13] &= if n + 1 < pieces.len() { !0x09 } else { 0xFF };
            out[start + 13] &= if n > 0 { !0x80 } else { 0xFF };
        } else {
            put(&mut out, start + 4, length - start);
        }
        let lengths = [packet.len() - start, length - start].map(|l| u16::try_from(l).unwrap());
        let change = [(!lengths[0]).to_be_bytes(), lengths[1].to_be_bytes()].concat();
        put(&mut out, field, words(&change, get(field)).into());
        finish(&mut out, start, field);
        out
    });
    cut.collect()
}

fn finish(packet: &mut [u8], start: usize, field: usize) {
    let sum = match !words(&packet[start..], 0) {
        0 => 0xFFFF,
        sum => sum,
    };
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}
