//! Packets of TCP hosts.

use sabul_units::Instant;

/// Bytes of IPv4 and TCP headers in every segment, without options.
///
/// Each segment and ACK carries a time as the timestamps option does [RFC7323 §3], but the twelve
/// bytes of that option are not counted. A full segment of 1500 bytes therefore holds 1460, the
/// usual size in the literature.
pub const TCP_HEADER_BYTES: u32 = 40;

/// Kind, length and padding of the SACK option. [RFC2018 §3]
const SACK_OPTION_BYTES: u32 = 4;
/// Two edges of four bytes. [RFC2018 §3]
const SACK_BLOCK_BYTES: u32 = 8;
/// Number of blocks that fit beside the timestamps option. [RFC2018 §3]
pub(super) const SACK_BLOCKS: usize = 3;

/// A segment of the byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Stream offset of its first byte, from zero.
    pub seq: u64,
    /// When this copy was sent; the ACK echoes this time.
    pub sent_at: Instant,
    /// Payload bytes.
    pub length: u32,
    /// Whether the bytes were sent before.
    pub is_resent: bool,
    /// Whether a router may mark the segment instead of dropping it.
    pub is_ecn_capable: bool,
    /// Whether the sender has reduced its window after the echoed marks (CWR).
    pub is_window_reduced: bool,
}

impl Segment {
    /// Stream offset after its last byte.
    pub const fn end(&self) -> u64 {
        self.seq + self.length as u64
    }

    /// Size on the wire, IP header included.
    pub const fn wire_bytes(&self) -> u32 {
        self.length + TCP_HEADER_BYTES
    }
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpAck {
    /// Everything before this stream offset has arrived.
    pub ack: u64,
    /// Send time of the segment that this ACK answers. [RFC7323 §4]
    pub echo: Instant,
    /// Distance of each block's first byte from `ack`, and its length; unused entries have length
    /// zero.
    blocks: [(u32, u32); SACK_BLOCKS],
    /// Whether a mark has arrived that the sender has not answered yet.
    pub is_marked: bool,
    /// Whether the answered segment was a duplicate: DSACK. [RFC2883 §4]
    pub has_duplicate: bool,
}

impl TcpAck {
    /// Creates an ACK without blocks.
    pub const fn new(ack: u64, echo: Instant, is_marked: bool) -> Self {
        Self { ack, echo, blocks: [(0, 0); SACK_BLOCKS], is_marked, has_duplicate: false }
    }

    /// Marks the ACK as the answer to a duplicate segment, which uses the room of a block.
    #[must_use]
    pub const fn with_duplicate(mut self) -> Self {
        self.has_duplicate = true;
        self
    }

    /// Adds the block of bytes from `start` to before `end`, if there is room for another block.
    ///
    /// A block that is 4 GiB or more beyond `ack` is omitted, because TCP cannot encode it.
    #[must_use]
    pub fn with_block(mut self, start: u64, end: u64) -> Self {
        let offset = start.checked_sub(self.ack).and_then(|offset| u32::try_from(offset).ok());
        let length = end.checked_sub(start).and_then(|length| u32::try_from(length).ok());
        let room = SACK_BLOCKS - usize::from(self.has_duplicate);
        let free = self.blocks[..room].iter_mut().find(|(_, length)| *length == 0);
        if let (Some(offset), Some(length), Some(free)) = (offset, length, free) {
            *free = (offset, length);
        }
        self
    }

    /// Blocks beyond `ack` that have arrived, newest first: offset of the first byte, and after the
    /// last.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks.iter().filter(|(_, length)| *length > 0).map(|(offset, length)| {
            let start = self.ack + u64::from(*offset);
            (start, start + u64::from(*length))
        })
    }

    /// Size on the wire, IP header included.
    #[expect(clippy::cast_possible_truncation, reason = "at most three")]
    pub fn wire_bytes(&self) -> u32 {
        match self.blocks().count() as u32 + u32::from(self.has_duplicate) {
            0 => TCP_HEADER_BYTES,
            blocks => TCP_HEADER_BYTES + SACK_OPTION_BYTES + blocks * SACK_BLOCK_BYTES,
        }
    }
}

const _: () = assert!(size_of::<Segment>() <= 40 && size_of::<TcpAck>() <= 48, "queues hold many");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_holds_three_sack_blocks_and_its_size_includes_them() {
        let ack = TcpAck::new(1000, Instant::ZERO, false);
        assert_eq!((ack.wire_bytes(), ack.blocks().count()), (40, 0));
        let ack = ack.with_block(3000, 4000);
        assert_eq!(ack.wire_bytes(), 52);
        let full = ack.with_block(2000, 2500).with_block(9000, 9001).with_block(7000, 8000);
        assert_eq!(full.wire_bytes(), 68);
        assert_eq!(full.blocks().collect::<Vec<_>>(), [(3000, 4000), (2000, 2500), (9000, 9001)]);
    }

    #[test]
    fn a_dsack_replaces_a_sack_block() {
        let ack = TcpAck::new(1000, Instant::ZERO, false).with_duplicate();
        assert_eq!((ack.wire_bytes(), ack.blocks().count()), (52, 0));
        let full = ack.with_block(3000, 4000).with_block(2000, 2500).with_block(7000, 8000);
        assert_eq!((full.wire_bytes(), full.blocks().count()), (68, 2));
    }

    #[test]
    fn sack_blocks_that_cannot_be_encoded_are_omitted() {
        let ack = TcpAck::new(1000, Instant::ZERO, false);
        for (start, end) in [(999, 2000), (1000, 1000), (3000, 2000), (1000 + (1 << 32), 1 << 40)] {
            assert_eq!(ack.with_block(start, end), ack, "{start}..{end}");
        }
    }
}
