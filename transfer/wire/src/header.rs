//! Common header: the first 16 bytes of every datagram.
//!
//! ```text
//!  0               1               2               3
//! +-------+-------+---------------+-------------------------------+
//! |version| kind  | cc len (×4 B) |            flags              |
//! +-------+-------+---------------+-------------------------------+
//! |                        connection id                          |
//! |                          (64 bits)                            |
//! +---------------------------------------------------------------+
//! |                 packet number, low 32 bits                    |
//! +---------------------------------------------------------------+
//! ```
//! The only flag is bit 0, on DATA: the packet holds the last byte of its block.
//! The header is authenticated and not encrypted. `cc len` is the length of the congestion header.
//! Routers may rewrite the bytes of the congestion header, which are outside the AEAD, but not its
//! length.

use sabul_units::PacketNumber;

use crate::bytes::{DecodeError, Reader, Reason};

/// Protocol version of this build.
pub const VERSION: u8 = 1;
/// Bytes of [`Header`].
pub const HEADER_LEN: usize = 16;
/// Bytes of the AEAD tag that ends every datagram.
pub const TAG_LEN: usize = 16;
/// Largest congestion header, in bytes.
pub const MAX_CONGESTION_HEADER: usize = 60;

/// Identifies a channel at the endpoint that receives the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConnectionId(pub u64);

/// Kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A piece of a block. [SABUL §II-C]
    Data = 0,
    /// Positive acknowledgement and flow state. [SABUL §II-C]
    Ack = 1,
    /// Loss list. [SABUL §II-C]
    Nak = 2,
    /// Confirmation of an ACK: confirms its loss list and serves to measure the RTT.
    Ack2 = 3,
    /// Connector opens the path; the payload may repeat the listener's challenge.
    Hello = 4,
    /// Listener's answer to a hello, never longer than the hello.
    HelloAck = 5,
    /// Path MTU probe: padding up to a size.
    Probe = 6,
    /// Acknowledgement of a probe; the payload is the size of the probe.
    ProbeAck = 7,
    /// End of a round: the sender has sent all data that it may send.
    Mark = 8,
    /// Listener to a new address of the connector; the payload is random.
    Challenge = 9,
    /// Connector's answer to a challenge, with its payload; zeros only announce an address.
    Response = 10,
}

/// Decoded form of the first 16 bytes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the datagram.
    pub kind: Kind,
    /// Bytes of congestion header, a multiple of four up to [`MAX_CONGESTION_HEADER`].
    pub congestion_len: u8,
    /// DATA only: this packet holds the last byte of its block.
    pub ends_block: bool,
    /// Channel.
    pub connection: ConnectionId,
    /// Low 32 bits of the packet number; see [`PacketNumber::expand`].
    pub number_low: u32,
}

impl Header {
    /// The header of a datagram without congestion header.
    pub const fn new(kind: Kind, connection: ConnectionId, number: PacketNumber) -> Self {
        Self { kind, congestion_len: 0, ends_block: false, connection, number_low: number.low() }
    }

    /// The wire form.
    pub const fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0] = VERSION << 4 | self.kind as u8;
        out[1] = self.congestion_len / 4;
        out[3] = self.ends_block as u8;
        let connection = self.connection.0.to_be_bytes();
        let number = self.number_low.to_be_bytes();
        let mut i = 0;
        while i < 8 {
            out[4 + i] = connection[i];
            if i < 4 {
                out[12 + i] = number[i];
            }
            i += 1;
        }
        out
    }

    /// Reads the front of a datagram.
    ///
    /// # Errors
    /// On another version, an unknown kind, a reserved bit, or fewer than 16 bytes.
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(datagram);
        let first = r.u8()?;
        if first >> 4 != VERSION {
            return r.fail(Reason::UnknownVersion(first >> 4));
        }
        let kind = match first & 0x0F {
            0 => Kind::Data,
            1 => Kind::Ack,
            2 => Kind::Nak,
            3 => Kind::Ack2,
            4 => Kind::Hello,
            5 => Kind::HelloAck,
            6 => Kind::Probe,
            7 => Kind::ProbeAck,
            8 => Kind::Mark,
            9 => Kind::Challenge,
            10 => Kind::Response,
            other => return r.fail(Reason::UnknownKind(other)),
        };
        let words = r.u8()?;
        if words > 15 {
            return r.fail(Reason::Reserved);
        }
        let ends_block = match (r.u16()?, kind) {
            (0, _) => false,
            (1, Kind::Data) => true,
            _ => return r.fail(Reason::Reserved),
        };
        let connection = ConnectionId(r.u64()?);
        let number_low = r.u32()?;
        Ok(Self { kind, congestion_len: words * 4, ends_block, connection, number_low })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let header = Header {
            kind: Kind::Nak,
            congestion_len: 8,
            ends_block: false,
            connection: ConnectionId(0x0102_0304_0506_0708),
            number_low: 9,
        };
        let bytes = header.encode();
        assert_eq!(bytes, [0x12, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9]);
        assert_eq!(Header::decode(&bytes), Ok(header));
    }

    #[test]
    fn only_a_data_packet_may_end_a_block() {
        let decode = |kind| {
            let header = Header::new(kind, ConnectionId(1), PacketNumber(2));
            let header = Header { ends_block: true, ..header };
            (header, Header::decode(&header.encode()))
        };
        let (header, decoded) = decode(Kind::Data);
        assert_eq!(decoded, Ok(header));
        assert_eq!(decode(Kind::Nak).1.unwrap_err().reason, Reason::Reserved);
    }

    #[test]
    fn invalid_headers_are_refused_with_position_and_reason() {
        let good = Header::new(Kind::Data, ConnectionId(1), PacketNumber(2)).encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Header::decode(&bytes).unwrap_err().reason
        };
        assert_eq!(with(0, 0x20), Reason::UnknownVersion(2));
        assert_eq!(with(0, 0x1F), Reason::UnknownKind(15));
        assert_eq!(with(1, 16), Reason::Reserved);
        assert_eq!(with(3, 2), Reason::Reserved);
        assert_eq!(Header::decode(&good[..15]).unwrap_err().reason, Reason::Truncated);
    }
}
