//! Echo of congestion headers: the newest header by packet number, and a sum over all.
//!
//! Source: [ECC]: the receiver echoes what routers wrote.
//! Invariants:  each packet is recorded once, so its rate change counts once; a header that a newer
//!              packet overtook does not replace the newer header.

use sabul_units::{CongestionFields, CongestionHeader, PacketNumber};
use sabul_wire::Echo;

/// Congestion headers to echo; see the module.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    newest: Option<Echo>,
}

impl Echoes {
    /// Records the congestion header of a packet.
    pub(super) fn note(&mut self, number: PacketNumber, header: &CongestionHeader) {
        let mut delta_sum = self.newest.map_or(0, |echo| echo.delta_sum);
        if let CongestionFields::Xcp { delta, .. } = header.fields {
            delta_sum = delta_sum.wrapping_add(delta);
        }
        self.newest = Some(match self.newest {
            Some(newest) if newest.number >= number => Echo { delta_sum, ..newest },
            _ => Echo { number, header: *header, delta_sum },
        });
    }

    /// The echo for an ACK.
    pub(super) const fn newest(&self) -> Option<Echo> {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Span;

    use super::*;

    #[test]
    fn the_newest_header_is_echoed_and_all_are_summed() {
        let mut echoes = Echoes::default();
        assert_eq!(echoes.newest(), None);
        for (number, delta, newest, sum) in [(5, 10, 5, 10), (3, 7, 5, 17), (6, i64::MAX, 6, 0)] {
            let fields = CongestionFields::Xcp { rtt: Span::ZERO, interval: Span::ZERO, delta };
            echoes.note(PacketNumber(number), &CongestionHeader::new(fields));
            let echo = echoes.newest().unwrap();
            assert_eq!(echo.number, PacketNumber(newest));
            let sum = if number == 6 { 17i64.wrapping_add(i64::MAX) } else { sum };
            assert_eq!(echo.delta_sum, sum, "it wraps around");
        }
    }
}
