//! Echo of congestion headers: the newest header by its send time, and a sum over all.
//!
//! Source: [XCP]: the receiver copies the header, as routers left it, into its ACK. The echoed
//! change is a running sum, so a lost or delayed ACK loses none of it.
//! Invariants:  an overtaken header does not replace the newest, but its rate change counts.
//! Not here:    detection of copies that a link makes: TCP has no packet number, so each copy
//!              counts.

use sabul_units::{CongestionFields, CongestionHeader, Instant};

/// Congestion headers to echo; see the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpEchoes {
    newest: Option<(Instant, CongestionHeader)>,
    sum: i64,
}

impl TcpEchoes {
    /// Records the header of a segment that left at `sent_at`.
    pub(crate) fn note(&mut self, sent_at: Instant, header: &CongestionHeader) {
        if let CongestionFields::Xcp { delta, .. } = header.fields {
            self.sum = self.sum.wrapping_add(delta);
        }
        if self.newest.is_none_or(|(newest, _)| sent_at >= newest) {
            self.newest = Some((sent_at, *header));
        }
    }

    /// Returns the header for an ACK, with the sum of all changes.
    pub(crate) fn newest(&self) -> Option<CongestionHeader> {
        let (_, mut header) = self.newest?;
        if let CongestionFields::Xcp { delta, .. } = &mut header.fields {
            *delta = self.sum;
        }
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Span;

    use super::*;

    #[test]
    fn the_newest_header_is_echoed_with_the_sum_of_all() {
        let mut echoes = TcpEchoes::default();
        assert_eq!(echoes.newest(), None);
        for (ms, delta, rtt_ms, sum) in [(5, 10, 5, 10), (3, 7, 5, 17), (6, -20, 6, -3)] {
            let rtt = Span::from_millis(ms);
            let fields = CongestionFields::Xcp { rtt, interval: Span::ZERO, delta };
            echoes.note(Instant::ZERO + rtt, &CongestionHeader::new(fields));
            let rtt = Span::from_millis(rtt_ms);
            let fields = CongestionFields::Xcp { rtt, interval: Span::ZERO, delta: sum };
            assert_eq!(echoes.newest(), Some(CongestionHeader::new(fields)));
        }
    }
}
