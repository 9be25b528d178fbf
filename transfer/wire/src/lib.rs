//! Wire formats of sabul: UDP datagrams, the blocks inside them, and control messages over TLS.
//!
//! Every datagram starts with the same 16 bytes ([`Header`]); the rest depends on its kind.
//! Decoding is checked and never panics; an error has the offset and the reason. This crate defines which bytes the
//! AEAD authenticates and which it encrypts; it does no cryptography itself.

pub mod block;
mod bytes;
mod congestion;
pub mod control;
mod data;
mod feedback;
mod header;
mod printable;

pub use bytes::{DecodeError, Reason};
pub use congestion::{
    CONGESTION_MAGIC, CONGESTION_VERSION, CongestionFound, congestion_len, congestion_place,
    decode_congestion, encode_congestion, find_congestion, locate_congestion,
};
pub use data::{DATA_HEADER_LEN, DATA_OVERHEAD, DataHeader};
pub use feedback::{
    Ack, ERROR_RATE_MAX, Echo, Feedback, LossPolicy, MAX_RANGES, Mark, Missing, Nak, NumberRange,
};
pub use header::{ConnectionId, HEADER_LEN, Header, Kind, MAX_CONGESTION_HEADER, TAG_LEN, VERSION};
pub use printable::{Printable, steers};
