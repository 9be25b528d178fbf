//! Bounds on the rate control of 2003 besides its own decreases: window and largest rate.
//!
//! Source: [SABUL §II-D] suggests a largest window of bandwidth × RTT, set by the application.
//! Measuring both is ours; the window formula is UDT's [UDT4 ccc.cpp].
//! Model. `a` is the largest arrival rate of the last few RTTs. R is the averaged RTT, at least SYN.
//!     W    = a × (R + SYN) + 16 packets
//!     rate <= a + the increases of one feedback delay
//! While a queue grows, `a` is constant. Packets in flight then grow by at most a × SYN per RTT,
//! which bounds the loss at an overflow.
//! Not here:    the rates (`sabul2003`), an unused rate (`unused`).

use std::collections::VecDeque;

use sabul_cc::{Acked, Context, RttEstimate};
use sabul_units::{Packets, Rate, Span};

/// [UDT4 ccc.cpp] Packets of the window beyond the flow's need.
const SLACK: f64 = 16.0;
/// Ours: number of measurement periods, one smallest RTT each, of which the fastest counts. A freeze slows at
/// most two periods.
const STRETCHES: usize = 4;

/// Kind of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bounds {
    /// Ours, DEV-008: bounds from the arrival rate.
    Measured,
    /// The application's largest window, and the timer limit of 2003.
    Published,
    /// No bounds.
    None,
}

pub(super) const BOUNDS: [(&str, Bounds); 3] =
    [("measured", Bounds::Measured), ("published", Bounds::Published), ("none", Bounds::None)];

/// Arrival rates, in packets per SYN interval.
#[derive(Debug)]
pub(super) struct Arrivals {
    syn: Span,
    /// Receiver's clock and count at the start of the current period.
    from: Option<(Span, Packets)>,
    /// True if the sender was limited by data or room in part of the period.
    is_limited: bool,
    stretches: VecDeque<f64>,
}

impl Arrivals {
    pub(super) fn new(syn: Span) -> Self {
        Self { syn, from: None, is_limited: false, stretches: VecDeque::with_capacity(STRETCHES) }
    }

    /// Sets the rate that the start has found.
    pub(super) fn found(&mut self, rate: Rate, cx: &Context<'_>) {
        let packets = rate.bytes_in(self.syn).0 as f64 / cx.packet_bytes.0.max(1) as f64;
        self.stretches.clear();
        self.stretches.push_back(packets);
    }

    /// Processes an ACK.
    pub(super) fn on_ack(&mut self, acked: &Acked, rtt: RttEstimate) {
        let (began, count) = *self.from.get_or_insert((acked.arrived_at, acked.total));
        self.is_limited |= acked.is_app_limited || acked.is_room_limited;
        let time = acked.arrived_at.saturating_sub(began);
        if time < rtt.min.max(self.syn) {
            return;
        }
        let packets =
            acked.total.0.saturating_sub(count.0) as f64 * self.syn.0 as f64 / time.0 as f64;
        // A limited period shows the path's rate only if its rate is larger.
        if !self.is_limited || self.fastest().is_none_or(|fastest| packets > fastest) {
            if self.stretches.len() == STRETCHES {
                self.stretches.pop_front();
            }
            self.stretches.push_back(packets);
        }
        self.is_limited = false;
        self.from = Some((acked.arrived_at, acked.total));
    }

    fn fastest(&self) -> Option<f64> {
        self.stretches.iter().copied().reduce(f64::max)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, bounded"
    )]
    /// Returns the most packets in flight; `None` before a measurement.
    pub(super) fn window(&self, rtt: RttEstimate) -> Option<Packets> {
        let intervals = (rtt.smoothed.max(self.syn) + self.syn).0 as f64 / self.syn.0 as f64;
        self.fastest().map(|arriving| Packets((arriving * intervals + SLACK) as u64))
    }

    /// Returns the least gap of an increase, with `inc` packets added per interval. Packets that arrive now
    /// left between one RTT and a period more ago, and each interval since then has added `inc`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, bounded"
    )]
    pub(super) fn gap_min(&self, inc: f64, rtt: RttEstimate) -> Option<Span> {
        let late = rtt.smoothed + rtt.min.max(self.syn) + self.syn;
        let most = self.fastest()? + inc * (late.0 as f64 / self.syn.0 as f64);
        Some(Span((self.syn.0 as f64 / most) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYN: Span = Span::from_millis(10);

    fn rtt(min: u64, smoothed: u64) -> RttEstimate {
        let [min, smoothed] = [min, smoothed].map(Span::from_millis);
        RttEstimate { latest: smoothed, smoothed, variance: Span::ZERO, min }
    }

    /// Sends ACKs with these times and counts.
    fn deliver(arrivals: &mut Arrivals, acks: &[(u64, u64, bool)]) {
        for (ms, total, is_app_limited) in acks {
            let acked = Acked {
                total: Packets(*total),
                arrived_at: Span::from_millis(*ms),
                is_app_limited: *is_app_limited,
                ..Acked::default()
            };
            arrivals.on_ack(&acked, rtt(100, 100));
        }
    }

    #[test]
    fn the_window_is_arrivals_in_rtt_plus_syn_interval_plus_sixteen_packets() {
        let mut arrivals = Arrivals::new(SYN);
        deliver(&mut arrivals, &[(0, 10, false), (50, 400, false)]);
        assert_eq!(arrivals.window(rtt(100, 100)), None, "not a round trip yet");
        deliver(&mut arrivals, &[(100, 1010, false)]);
        // 100 packets per SYN interval; 10, 15 and, for the shortest, 1 of them, and one more.
        assert_eq!(arrivals.window(rtt(100, 100)), Some(Packets(1116)));
        assert_eq!(arrivals.window(rtt(100, 150)), Some(Packets(1616)));
        assert_eq!(arrivals.window(rtt(1, 1)), Some(Packets(216)));
    }

    #[test]
    fn the_arrival_rate_is_the_fastest_of_four_round_trips() {
        let mut arrivals = Arrivals::new(SYN);
        deliver(&mut arrivals, &[(0, 0, false), (100, 1000, false)]);
        deliver(&mut arrivals, &[(200, 1500, false), (300, 2000, false), (400, 2500, false)]);
        assert_eq!(arrivals.window(rtt(100, 100)), Some(Packets(1116)));
        deliver(&mut arrivals, &[(500, 3000, false)]);
        assert_eq!(arrivals.window(rtt(100, 100)), Some(Packets(566)));
    }

    #[test]
    fn app_limited_periods_do_not_lower_the_window() {
        let mut arrivals = Arrivals::new(SYN);
        deliver(&mut arrivals, &[(0, 0, false), (100, 1000, false)]);
        let slow: Vec<_> = (2..20).map(|n| (n * 100, 1000 + n * 10, n % 2 == 0)).collect();
        deliver(&mut arrivals, &slow[..1]);
        assert_eq!(arrivals.window(rtt(100, 100)), Some(Packets(1116)));
        let limited: Vec<_> = slow.iter().map(|(ms, total, _)| (*ms, *total, true)).collect();
        deliver(&mut arrivals, &limited[1..]);
        assert_eq!(arrivals.window(rtt(100, 100)), Some(Packets(1116)));
        deliver(&mut arrivals, &[(2000, 9000, true)]);
        assert!(arrivals.window(rtt(100, 100)).unwrap().0 > 8000, "more is more");
    }

    #[test]
    fn the_rate_bound_exceeds_the_arrival_rate_by_the_feedback_delays_growth() {
        let mut arrivals = Arrivals::new(SYN);
        assert_eq!(arrivals.gap_min(1.0, rtt(100, 180)), None);
        deliver(&mut arrivals, &[(0, 0, false), (100, 9710, false)]);
        // 971 per SYN interval, and one more in each of (180 + 100 + 10) ÷ 10: 1000, a gap of 10 µs.
        assert_eq!(arrivals.gap_min(1.0, rtt(100, 180)), Some(Span::from_micros(10)));
    }
}
