//! Common parts of UDT 1 and 2: window, period, capacity, freeze.
//!
//! Source: [UDT1], [UDT2].
//! Model, at the end of each SYN interval with an ACK (DEV-046), a the arrival speed:
//!     slow start:  W = packets that have arrived
//!     else:        W = ceil(0.875 W + 0.125 a × (RTT + SYN)), where a is known; at least 16 (DEV-071)
//! Slow start ends when W exceeds its maximum, or as the version defines; the period stays unchanged.
//! Invariants:  1 µs <= P; after a report P <= RTT, where the RTT is above 1 µs; 1 <= W.

use sabul_cc::{Acked, Context, ParamValues, Phase, SYN_INTERVAL, SendLimits};
use sabul_units::{Bytes, Gap, Instant, Packets, Span};

use super::arrivals::{Arrivals, Capacity};
use super::{CAPACITY, CUT, PERIOD_US_MAX, WINDOW, WINDOW_MIN, increase, risen};

/// [UDT1] Intervals count if they are within a factor of two of the median.
const ALIKE: f64 = 2.0;
/// [UDT1], [UDT2] Least and initial period, in microseconds.
const PERIOD_US_MIN: f64 = 1.0;
/// [UDT1], [UDT2] Initial window in packets.
const WINDOW_START: f64 = 2.0;
/// [UDT1], [UDT2] RTT before the first measurement.
const RTT_START: Span = Span::from_secs(1);
/// [UDT2] Least increase: 1/MTU packets per SYN interval, with an MTU of 1500 as a pure number.
const INCREASE_MIN: f64 = 1.0 / 1500.0;

/// Common state; see the module.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) period_us: f64,
    pub(super) window: f64,
    /// DEV-071: least window after slow start, and largest window.
    window_min: f64,
    window_max: f64,
    pub(super) is_slow_start: bool,
    arrivals: Arrivals,
    pub(super) capacity: Capacity,
    /// Packets that have arrived.
    arrived: f64,
    /// True if an ACK arrived since the last report was taken.
    has_feedback: bool,
    hold_until: Option<Instant>,
}

impl Early {
    pub(super) fn new(params: &ParamValues) -> Self {
        Self {
            period_us: PERIOD_US_MIN,
            window: WINDOW_START,
            window_min: params.number(WINDOW_MIN.name),
            window_max: params.number(WINDOW.name),
            is_slow_start: true,
            arrivals: Arrivals::new(ALIKE),
            capacity: Capacity::new(params.number_or_word(CAPACITY.name)),
            arrived: 0.0,
            has_feedback: false,
            hold_until: None,
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    pub(super) fn limits(&self) -> SendLimits {
        let window = Some(Packets(self.window.clamp(1.0, self.window_max) as u64));
        let gap = Gap(Span::from_secs_f64(self.period_us * 1e-6));
        SendLimits { gap, window, hold_until: self.hold_until }
    }

    pub(super) const fn phase(&self) -> Phase {
        if self.is_slow_start { Phase::Named("slow-start") } else { Phase::Named("steady") }
    }

    pub(super) fn on_ack(&mut self, acked: &Acked) {
        self.arrivals.on_ack(acked);
        self.arrived = acked.total.0 as f64;
        self.has_feedback = true;
    }

    /// Updates window and capacity from the ACKs of one SYN interval; returns false without an ACK.
    pub(super) fn take_report(&mut self, cx: &Context<'_>) -> bool {
        if !std::mem::take(&mut self.has_feedback) {
            return false;
        }
        let speed = self.arrivals.speed();
        if self.is_slow_start {
            self.window = self.window.max(self.arrived);
        } else if let Some(speed) = speed {
            let target = speed * (rtt(cx) + SYN_INTERVAL).as_secs_f64();
            self.window = (0.875 * self.window + 0.125 * target).ceil();
        }
        if !self.is_slow_start {
            self.window = self.window.max(self.window_min);
        }
        if self.window > self.window_max {
            self.window = self.window_max;
            self.is_slow_start = false;
        }
        self.capacity.take(self.arrivals.fastest());
        true
    }

    /// Returns the packets/s that are free beside this flow.
    pub(super) fn headroom(&self, packet_bytes: Bytes) -> f64 {
        self.capacity.packets_per_s(packet_bytes) - 1e6 / self.period_us
    }

    pub(super) fn rise(&mut self, headroom: f64, cx: &Context<'_>) {
        let inc = increase(headroom, cx.packet_bytes, INCREASE_MIN);
        self.period_us = risen(self.period_us, inc).max(PERIOD_US_MIN);
    }

    pub(super) fn cut(&mut self) {
        self.period_us = (self.period_us * CUT).min(PERIOD_US_MAX);
    }

    /// [UDT1], [UDT2] Starts a pause of one SYN interval.
    pub(super) fn freeze(&mut self, now: Instant) {
        self.hold_until = Some(now + SYN_INTERVAL);
    }

    /// [UDT1], [UDT2] Bounds the period by the RTT: at least one packet per RTT.
    pub(super) fn bound(&mut self, cx: &Context<'_>) {
        let most = rtt(cx).as_secs_f64() * 1e6;
        self.period_us = self.period_us.min(most).max(PERIOD_US_MIN);
    }
}

fn rtt(cx: &Context<'_>) -> Span {
    cx.rtt.map_or(RTT_START, |rtt| rtt.smoothed)
}
