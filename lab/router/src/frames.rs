//! Frame builder: joins departing neighbours of one bundle into one frame, with rewritten headers.

use std::io::IoSlice;
use std::ops::Range;
use std::rc::Rc;

use sabul_tun::headers;

use crate::bottleneck::Leaving;

/// Builds frames from packets; owns the buffers.
#[derive(Debug, Default)]
pub struct Frames {
    head: Vec<u8>,
    /// Payload with rewritten headers.
    body: Vec<u8>,
}

impl Frames {
    /// Passes the parts of each frame to `write`, in order. Returns the number of frames that
    /// `write` refused.
    pub fn of(
        &mut self,
        leaving: &[Leaving],
        mut write: impl FnMut(&[IoSlice<'_>]) -> bool,
    ) -> u64 {
        let mut refused = 0;
        for neighbours in leaving.chunk_by(are_neighbours) {
            let Some((first, segments)) = segments(neighbours) else { continue };
            first.bundle.write_head(segments.clone(), false, &mut self.head);
            let is_written = neighbours.iter().any(|leaving| leaving.header.is_some());
            let payload: &[u8] = if is_written {
                let headers = neighbours.iter().map(|leaving| leaving.header.as_deref());
                headers::write(&first.bundle, segments, headers, &mut self.body);
                &self.body
            } else {
                first.bundle.payload(segments)
            };
            let is_taken = write(&[IoSlice::new(&self.head), IoSlice::new(payload)]);
            refused += u64::from(!is_taken);
        }
        refused
    }
}

/// Whether two consecutive packets can leave in one frame.
fn are_neighbours(one: &Leaving, next: &Leaving) -> bool {
    Rc::ptr_eq(&one.bundle, &next.bundle) && next.segment == one.segment + 1
}

fn segments(neighbours: &[Leaving]) -> Option<(&Leaving, Range<u16>)> {
    let (first, last) = (neighbours.first()?, neighbours.last()?);
    Some((first, first.segment..last.segment + 1))
}

#[cfg(test)]
mod tests {
    use sabul_tun::Bundle;
    use sabul_units::{CongestionForm, Instant, Span};
    use sabul_wire::{decode_congestion, find_congestion};

    use super::*;
    use crate::Bottleneck;
    use crate::bottleneck::frames::{explicit, fields};
    use crate::bottleneck::testing::{bundle, settings};

    #[test]
    fn adjacent_packets_leave_in_one_frame_with_only_router_fields_changed() {
        let datagram = explicit(fields(CongestionForm::JetMax, Span::from_micros(100)), 1_250);
        let sent = bundle(&[datagram.clone(), datagram.clone(), datagram.clone()]);
        let other = bundle(&[vec![7; 500]]);
        let mut bottleneck = Bottleneck::new(&settings()).unwrap();
        bottleneck.push(Instant::ZERO, &sent);
        bottleneck.push(Instant::ZERO, &other);
        let now = Instant::ZERO + Span::from_millis(10);
        let mut leaving: Vec<_> = std::iter::from_fn(|| bottleneck.poll(now).ready()).collect();
        // The round robin may send the single packet between two of the others.
        leaving.sort_by_key(|leaving| leaving.header.is_none());
        let mut written = Vec::new();
        let refused = Frames::default().of(&leaving, |parts| {
            written.push(parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<_>>());
            written.len() == 1
        });
        assert_eq!((written.len(), refused), (2, 1));
        let joined = Bundle::parse(&written[0]).unwrap();
        assert_eq!(joined.segments(), 3);
        for segment in 0..3 {
            let mut payload = joined.payload(segment..segment + 1).to_vec();
            let place = find_congestion(&payload).unwrap();
            assert_eq!(decode_congestion(&payload[place.clone()]).unwrap().routers, 1);
            payload[place.clone()].copy_from_slice(&datagram[place]);
            assert_eq!(payload, datagram);
        }
        assert_eq!(Bundle::parse(&written[1]).unwrap().payload(0..1), [7; 500]);
    }
}
