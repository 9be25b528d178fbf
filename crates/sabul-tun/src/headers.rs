//! Congestion headers of segments: found, carried beside them, written back.
//!
//! The words of a header always add up to the same, and it begins at an even place of its datagram, so a checksum
//! that covers it stays right whatever routers write, finished or not; segments whose headers differ may leave as
//! one frame. (ADR 23)

use std::ops::Range;

use sabul_units::CongestionHeader;
use sabul_wire::{CongestionFound, congestion_place, encode_congestion, look_for_congestion};

use crate::{Bundle, Protocol};

/// What a segment has where a congestion header would be.
pub fn look(bundle: &Bundle, segment: u16) -> CongestionFound {
    if bundle.tuple().protocol != Protocol::Udp {
        return CongestionFound::Nothing;
    }
    look_for_congestion(bundle.payload(segment..segment + 1))
}

/// The congestion header of a segment, if it has one. In a box: few have.
pub fn of_segment(bundle: &Bundle, segment: u16) -> Option<Box<CongestionHeader>> {
    match look(bundle, segment) {
        CongestionFound::Header(header) => Some(Box::new(header)),
        CongestionFound::Nothing | CongestionFound::Later { .. } => None,
    }
}

/// Puts the payload of neighbouring segments into `body`, which is cleared, with what routers made of their headers:
/// each of the form that [`look`] found in its segment.
pub fn write<'a>(
    bundle: &Bundle,
    segments: Range<u16>,
    headers: impl Iterator<Item = Option<&'a CongestionHeader>>,
    body: &mut Vec<u8>,
) {
    body.clear();
    for (segment, header) in segments.zip(headers) {
        let from = body.len();
        body.extend_from_slice(bundle.payload(segment..segment + 1));
        let Some(header) = header else { continue };
        let place = congestion_place(header.fields.form());
        if let Some(place) = body[from..].get_mut(place) {
            encode_congestion(header, place);
        }
    }
}
