//! What one flow knows of a path that the next one may begin with.
//!
//! Source: [CAREFUL-RESUME], whose phases these are: what is remembered is believed only where the round trip is
//!         like the one of then, and half of it is tried before any of it counts.
//! Not here:    who keeps it, for how long, and for which peers, which is the host's; what a start makes of it
//!              (`search.rs`).

use sabul_units::{Rate, Span};

/// A path as a flow has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFacts {
    /// What arrived of the flow at its best in its last seconds, headers included.
    pub rate: Rate,
    /// The smallest round trip.
    pub rtt: Span,
}

/// Round trips that differ by more than this factor are those of two paths. [CAREFUL-RESUME] takes half to ten times;
/// ours is as narrow above as below, since a queue is no reason to send more.
const RTT_FACTOR: u64 = 2;
/// The part that is tried first. [CAREFUL-RESUME]
const FIRST_PART: u64 = 2;

impl PathFacts {
    /// Whether a path with this smallest round trip may be the one.
    pub(crate) fn may_be(&self, rtt: Span) -> bool {
        self.rtt / RTT_FACTOR <= rtt && rtt / RTT_FACTOR <= self.rtt
    }

    /// How many of the packets that fill the path are tried first.
    pub(crate) const fn first(packets: u64) -> u64 {
        packets / FIRST_PART
    }

    /// Whether a first estimate of the rate speaks against it.
    pub(crate) fn is_refuted_by(&self, estimate: Rate) -> bool {
        estimate < self.rate.mul_ratio(1, FIRST_PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_another_one_where_its_round_trip_is_twice_as_long_or_short() {
        let facts = PathFacts { rate: Rate::from_mbps(100), rtt: Span::from_millis(40) };
        let ms = Span::from_millis;
        assert_eq!(
            [19, 20, 40, 80, 82].map(|rtt| facts.may_be(ms(rtt))),
            [false, true, true, true, false]
        );
        assert_eq!([49, 50].map(|mbps| facts.is_refuted_by(Rate::from_mbps(mbps))), [true, false]);
    }
}
