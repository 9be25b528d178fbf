//! Congestion headers of segments: found, copied out, written back.
//!
//! The words of a header have a constant sum, and the header begins at an even offset of its
//! datagram. A checksum that covers the header therefore stays valid whatever routers write,
//! whether the checksum is complete or partial. Segments with different headers may leave as one
//! frame. (ADR 23)

use std::ops::Range;

use sabul_units::CongestionHeader;
use sabul_wire::{CongestionFound, congestion_place, encode_congestion, locate_congestion};

use crate::{Bundle, Protocol};

/// Returns what a segment contains at the position of a congestion header.
pub fn find(bundle: &Bundle, segment: u16) -> CongestionFound {
    if bundle.tuple().protocol != Protocol::Udp {
        return CongestionFound::Nothing;
    }
    locate_congestion(bundle.payload(segment..segment + 1))
}

/// Returns the congestion header of a segment, if any. Boxed, because few segments have a header.
pub fn of_segment(bundle: &Bundle, segment: u16) -> Option<Box<CongestionHeader>> {
    match find(bundle, segment) {
        CongestionFound::Header(header) => Some(Box::new(header)),
        CongestionFound::Nothing | CongestionFound::Later { .. } => None,
    }
}

/// Writes the payload of neighbouring segments into `body`, which is cleared first, with the given
/// headers in place. Each header must have the form that [`find`] found in its segment.
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
