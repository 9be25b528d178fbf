//! DATA packet header. [SABUL §II-C]: application data with a 32-bit sequence number.
//!
//! ```text
//! | header (16) | data seq (4) | block (4) | offset (4) | congestion header (0–60) | payload | tag |
//! |<---------------- authenticated ------------------->|<--- rewritable -------->|<-- sealed -->|
//! ```
//! The position of the payload (block and offset) is authenticated but not encrypted, so the receiver can decrypt the
//! payload straight into its block (`docs/adr/0005-data-header.md`).

use sabul_units::{PacketNumber, SeqNo};

use crate::bytes::{DecodeError, Reader, Reason};
use crate::header::{ConnectionId, HEADER_LEN, Header, Kind, TAG_LEN};

/// Bytes before the congestion header and the payload.
pub const DATA_HEADER_LEN: usize = HEADER_LEN + 12;
/// Bytes of a DATA datagram besides the payload, without congestion header.
pub const DATA_OVERHEAD: usize = DATA_HEADER_LEN + TAG_LEN;

/// Authenticated fields of a DATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Channel.
    pub connection: ConnectionId,
    /// Length of the congestion header in bytes.
    pub congestion_len: u8,
    /// The payload is the end of its block.
    pub ends_block: bool,
    /// Low 32 bits of the packet number, new for each transmission.
    pub number_low: u32,
    /// Low 32 bits of the data sequence number, the same in each retransmission.
    pub seq_low: u32,
    /// Number of the block in the stream.
    pub block: u32,
    /// Offset of the payload in the block, in bytes.
    pub offset: u32,
}

impl DataHeader {
    /// Makes the header of a packet without congestion header.
    pub const fn new(
        connection: ConnectionId,
        number: PacketNumber,
        seq: SeqNo,
        block: u32,
        offset: u32,
    ) -> Self {
        let (number_low, seq_low) = (number.low(), seq.low());
        Self {
            connection,
            congestion_len: 0,
            ends_block: false,
            number_low,
            seq_low,
            block,
            offset,
        }
    }

    /// Returns the wire form, which is also the associated data of the AEAD.
    pub fn encode(&self) -> [u8; DATA_HEADER_LEN] {
        let mut out = [0; DATA_HEADER_LEN];
        let (connection, number_low) = (self.connection, self.number_low);
        let common = Header {
            kind: Kind::Data,
            congestion_len: self.congestion_len,
            ends_block: self.ends_block,
            connection,
            number_low,
        };
        out[..HEADER_LEN].copy_from_slice(&common.encode());
        out[16..20].copy_from_slice(&self.seq_low.to_be_bytes());
        out[20..24].copy_from_slice(&self.block.to_be_bytes());
        out[24..28].copy_from_slice(&self.offset.to_be_bytes());
        out
    }

    /// Reads the header of a DATA datagram and checks that payload and tag can follow.
    ///
    /// # Errors
    /// On another kind, or if the datagram is shorter than header, congestion header, one byte of payload and tag. A
    /// packet with a congestion header may have no payload: such a packet only carries the congestion header.
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        Self::after(Header::decode(datagram)?, datagram)
    }

    /// Reads the rest of the header, after the front of the datagram was decoded into `header`.
    ///
    /// # Errors
    /// As [`Self::decode`].
    #[inline]
    pub fn after(header: Header, datagram: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(datagram);
        r.array::<HEADER_LEN>()?;
        if header.kind != Kind::Data {
            return r.fail(Reason::UnknownKind(header.kind as u8));
        }
        let (seq_low, block, offset) = (r.u32()?, r.u32()?, r.u32()?);
        let headers = DATA_OVERHEAD + usize::from(header.congestion_len);
        let least = headers + usize::from(header.congestion_len == 0);
        if datagram.len() < least {
            return r.fail(Reason::Truncated);
        }
        Ok(Self {
            connection: header.connection,
            congestion_len: header.congestion_len,
            ends_block: header.ends_block,
            number_low: header.number_low,
            seq_low,
            block,
            offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_headers_round_trip() {
        let header = DataHeader::new(ConnectionId(7), PacketNumber(8), SeqNo(9), 10, 11);
        let mut datagram = header.encode().to_vec();
        datagram.extend([0; TAG_LEN + 1]);
        assert_eq!(DataHeader::decode(&datagram), Ok(header));
        datagram.pop();
        assert_eq!(DataHeader::decode(&datagram).unwrap_err().reason, Reason::Truncated);
    }

    #[test]
    fn a_packet_without_payload_must_have_a_congestion_header() {
        let mut header = DataHeader::new(ConnectionId(7), PacketNumber(8), SeqNo(9), 10, 11);
        header.congestion_len = 20;
        let mut datagram = header.encode().to_vec();
        datagram.extend([0; TAG_LEN + 20]);
        assert_eq!(DataHeader::decode(&datagram), Ok(header));
        datagram.pop();
        assert_eq!(DataHeader::decode(&datagram).unwrap_err().reason, Reason::Truncated);
    }
}
