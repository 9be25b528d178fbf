//! Load of a router per interval, and its mean RTT, computed as by RCP's authors.
//!
//! Source: [RCP], router of the authors' module for ns-2.
//! Model:       d_T = sum of rtt × size / sum of size,  d += g (d_T - d),
//!              g = T / d, or (R / C)(d_T / d)(T / d) where d_T < d

use sabul_units::{Bytes, Span};

use super::number::Number;

/// [RCP] Initial RTT, in seconds.
const RTT_START: f64 = 0.2;

/// Bytes of the interval, and mean RTT.
#[derive(Debug)]
pub(super) struct LoadEstimator<N> {
    /// Mean RTT, in seconds.
    pub(super) rtt: f64,
    /// Interval so far: bytes with an RTT, sum of RTT (in picoseconds) times bytes, and bytes
    /// without an RTT.
    own: N,
    rtts: N,
    other: N,
}

impl<N: Number> LoadEstimator<N> {
    pub(super) fn new() -> Self {
        let zero = N::default();
        Self { rtt: RTT_START, own: zero, rtts: zero, other: zero }
    }

    /// Adds a packet of this size, with the sender's RTT if known.
    #[inline]
    pub(super) fn add(&mut self, size: Bytes, rtt: Option<Span>) {
        let size = N::of(size.0 as f64);
        match rtt {
            Some(rtt) if rtt > Span::ZERO => {
                self.own = self.own + size;
                self.rtts = self.rtts + N::of(rtt.0 as f64) * size;
            }
            _ => self.other = self.other + size,
        }
    }

    /// Ends an interval of `seconds`, in which flows were assigned the part `signalled` of the link;
    /// returns the load in bits a second.
    pub(super) fn end(&mut self, seconds: f64, signalled: f64) -> f64 {
        let zero = N::default();
        let take = |sum: &mut N| std::mem::replace(sum, zero).value();
        let (own, rtts, other) = (take(&mut self.own), take(&mut self.rtts), take(&mut self.other));
        if own > 0.0 {
            self.note_rtt(rtts / own / 1e12, seconds, signalled);
        }
        (own + other) * 8.0 / seconds
    }

    fn note_rtt(&mut self, newest: f64, seconds: f64, signalled: f64) {
        let part = if newest >= self.rtt {
            seconds / self.rtt
        } else {
            signalled * (newest / self.rtt) * (seconds / self.rtt)
        };
        self.rtt += part.min(1.0) * (newest - self.rtt);
    }

    /// Returns the interval length: the mean RTT, at most `longest`.
    pub(super) fn interval(&self, longest: Span) -> Span {
        Span::from_secs_f64(self.rtt.clamp(0.0, 10.0)).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rtt_average_rises_faster_than_it_falls() {
        let mut load = LoadEstimator::<f64>::new();
        load.rtt = 0.05;
        load.note_rtt(0.1, 0.01, 0.1);
        assert!((load.rtt - 0.06).abs() < 1e-9, "a fifth of the way");
        load.rtt = 0.1;
        load.note_rtt(0.05, 0.01, 0.1);
        // 0.1 × 0.5 × 0.1 of the way down.
        assert!((load.rtt - 0.099_75).abs() < 1e-9);
    }
}
