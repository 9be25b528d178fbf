//! Congestion headers of segments: found, carried beside them, written back.
//!
//! The words of a header always add up to the same, and it begins at an even place of its datagram, so a checksum
//! that covers it stays right whatever routers write, finished or not; segments whose headers differ may leave as
//! one frame. (ADR 23)

use std::ops::Range;

use sabul_units::CongestionHeader;
use sabul_wire::{decode_congestion, encode_congestion, find_congestion};

use crate::packet::{Bundle, Protocol};

/// The congestion header of a segment, if it has one. In a box: few have.
pub(super) fn of_segment(bundle: &Bundle, segment: u16) -> Option<Box<CongestionHeader>> {
    if bundle.tuple().protocol != Protocol::Udp {
        return None;
    }
    let payload = bundle.payload(segment..segment + 1);
    let header = decode_congestion(&payload[find_congestion(payload)?]).ok()?;
    Some(Box::new(header))
}

/// Puts the payload of neighbouring segments into `body`, which is cleared, with what routers made of their headers.
pub(super) fn write<'a>(
    bundle: &Bundle,
    segments: Range<u16>,
    headers: impl Iterator<Item = Option<&'a CongestionHeader>>,
    body: &mut Vec<u8>,
) {
    body.clear();
    for (segment, header) in segments.zip(headers) {
        let from = body.len();
        body.extend_from_slice(bundle.payload(segment..segment + 1));
        let payload = &mut body[from..];
        if let (Some(header), Some(range)) = (header, find_congestion(payload)) {
            encode_congestion(header, &mut payload[range]);
        }
    }
}
