//! Mean time between two packets.

use sabul_units::{Instant, Span};

/// Weight of the newest distance, 1/64: longer than most bursts.
const WEIGHT: u64 = 64;

/// Moving average of the time between packets.
#[derive(Debug)]
pub(super) struct Spacing {
    last: Option<Instant>,
    mean: Span,
}

impl Spacing {
    pub(super) const fn new() -> Self {
        Self { last: None, mean: Span::ZERO }
    }

    pub(super) fn note(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            self.mean = self.mean - self.mean / WEIGHT + now.since(last) / WEIGHT;
        }
    }

    pub(super) const fn mean(&self) -> Span {
        self.mean
    }
}
