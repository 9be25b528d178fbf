//! Path measurements of an earlier flow, for a faster start of the next flow.
//!
//! Source: [CAREFUL-RESUME], whose phases are used: remembered values apply only where the RTT is
//!         similar, and half of the remembered rate is tried first.
//! Not here:    storage, lifetime and peers, which the host decides; the use in a start
//!              (`search.rs`).

use sabul_units::{Rate, Span};

/// Measurements of a path by one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// Largest arrival rate of the flow in its last seconds, headers included.
    pub rate: Rate,
    /// Smallest RTT.
    pub rtt: Span,
}

/// RTTs that differ by more than this factor belong to different paths. [CAREFUL-RESUME] allows
/// half to ten times; ours is as narrow above as below, because a queue is no reason to send more.
const RTT_FACTOR: u64 = 2;
/// The first try is the remembered rate divided by this. [CAREFUL-RESUME]
const FIRST_PART: u64 = 2;

impl PathFacts {
    /// Returns whether a path with this smallest RTT may be the remembered path.
    pub(crate) fn may_be(&self, rtt: Span) -> bool {
        self.rtt / RTT_FACTOR <= rtt && rtt / RTT_FACTOR <= self.rtt
    }

    /// Returns the number of packets of the first try, for the packets that fill the path.
    pub(crate) const fn first(packets: u64) -> u64 {
        packets / FIRST_PART
    }

    /// Returns whether a first rate estimate contradicts the remembered rate.
    pub(crate) fn is_refuted_by(&self, estimate: Rate) -> bool {
        estimate < self.rate.mul_ratio(1, FIRST_PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_path_is_rejected_if_its_rtt_differs_by_a_factor_of_two() {
        let facts = PathFacts { rate: Rate::from_mbps(100), rtt: Span::from_millis(40) };
        let ms = Span::from_millis;
        assert_eq!(
            [19, 20, 40, 80, 82].map(|rtt| facts.may_be(ms(rtt))),
            [false, true, true, true, false]
        );
        assert_eq!([49, 50].map(|mbps| facts.is_refuted_by(Rate::from_mbps(mbps))), [true, false]);
    }
}
