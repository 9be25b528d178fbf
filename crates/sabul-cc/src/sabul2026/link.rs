//! How fast the link is, in packets a second, whoever else uses it.
//!
//! Source: ours; trains, [UDT4]'s packet pairs made longer.
//! Model:       the larger of what trains of packets arrived at when the flow started, and the largest rate of
//!              the last five to ten seconds.
//! Not here:    trains later on: a link that became slower is taken for one with more flows, which costs a
//!              queue of theta for each.

use sabul_units::{Instant, Span};

/// Ours: how long a rate that arrived counts, at least.
const AGE: Span = Span::from_secs(5);
/// Ours: the same for the rate before somebody else took it.
const AGE_BEFORE: Span = Span::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    trained: f64,
    /// The largest rate of the present spell, and of the one before.
    fastest: [f64; 2],
    since: Instant,
    /// The same of longer spells.
    before: [f64; 2],
    before_since: Instant,
}

impl Link {
    pub(super) const fn new() -> Self {
        Self {
            trained: 0.0,
            fastest: [0.0; 2],
            since: Instant::ZERO,
            before: [0.0; 2],
            before_since: Instant::ZERO,
        }
    }

    /// What trains found, if they did.
    pub(super) fn train(&mut self, rate: Option<f64>, now: Instant) {
        *self = Self { trained: rate.unwrap_or(self.trained), since: now, ..*self };
    }

    /// Trains have shown it.
    pub(super) fn is_trained(&self) -> bool {
        self.trained > 0.0
    }

    pub(super) const fn rate(&self) -> f64 {
        self.trained.max(self.carried())
    }

    /// The largest that arrived in the last five to ten seconds.
    pub(super) const fn carried(&self) -> f64 {
        self.fastest[0].max(self.fastest[1])
    }

    /// The largest that arrived in the last half to whole minute.
    pub(super) const fn carried_before(&self) -> f64 {
        self.before[0].max(self.before[1])
    }

    /// So much arrived a second.
    pub(super) fn note(&mut self, rate: f64, now: Instant) {
        if now.since(self.since) > AGE {
            self.since = now;
            self.fastest = [0.0, self.fastest[0]];
        }
        self.fastest[0] = self.fastest[0].max(rate);
        if now.since(self.before_since) > AGE_BEFORE {
            self.before_since = now;
            self.before = [0.0, self.before[0]];
        }
        self.before[0] = self.before[0].max(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_are_the_least_and_what_arrived_counts_for_five_to_ten_seconds() {
        let mut link = Link::new();
        link.train(Some(1000.0), Instant::ZERO);
        let second = |n| Instant::ZERO + Span::from_secs(n);
        link.note(800.0, second(1));
        assert!((link.rate() - 1000.0).abs() < 1e-9);
        link.note(1500.0, second(4));
        link.note(900.0, second(6));
        assert!((link.rate() - 1500.0).abs() < 1e-9);
        link.note(900.0, second(12));
        assert!((link.rate() - 1000.0).abs() < 1e-9);
    }
}
