//! Low-priority TCP: a rising delay counts as congestion, and the flow yields to others.
//!
//! Source: [TCPLP] with Reno's growth, [HSTCPLP] with HighSpeed's.
//! Model, d the delay of the path, s its average, s += (d - s) / 8 for each ACK:
//!     s > d_min + 0.15 (d_max - d_min)     early congestion
//!     first sign:                          cwnd = keep × cwnd, and no growth for 3 RTT
//!     further sign within these 3 RTT:     cwnd = 1, and no growth for 3 RTT
//!     otherwise, and at a loss:            as the law defines: Reno or HighSpeed
//! d_min and d_max cover the whole connection. Slow start measures both and ignores early signs.
//! States:      Probing --early sign--> Inference --3 RTT without another sign--> Probing
//! Invariants:  as `window`.
//! Not here:    DEV-031, the one-way delay: the delay is the RTT's.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::newreno::NewReno;
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH, Window};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, ParamSpec, ParamValues, Reason, RttEstimate,
    SentNumber, Unit,
};
use sabul_units::{Bytes, Instant};

use super::highspeed::HighSpeed;

/// [TCPLP] Length of the inference phase without growth, in RTTs.
const INFERENCE_ROUNDS: u64 = 3;
/// [TCPLP] Weight of a new delay in the average.
const AVERAGE_WEIGHT: f64 = 0.125;
/// DEV-031: a receiver may delay an ACK until the next packet, which is no delay of the path. At
/// least one sample of this many in a row was not delayed. In smaller windows the next packet is
/// too far away for such samples.
const SAMPLES: usize = 2;
const WINDOW_MIN: f64 = 4.0;

pub(crate) const TCP_LP: Entry = Entry::new("tcp-lp", Family::Window, build_tcp_lp)
    .summary("TCP-LP's window: as newreno, with a decrease when the delay grows; paced")
    .source("[TCPLP] Kuzmanovic, Knightly 2003")
    .params(PARAMS);

pub(crate) const HSTCP_LP: Entry = Entry::new("hstcp-lp", Family::Window, build_hstcp_lp)
    .summary("HSTCP-LP's window: as highspeed, with a decrease when the delay grows; paced")
    .source("[HSTCPLP] Kuzmanovic, Knightly, Cottrell 2004")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::new("threshold", Unit::Number, "0.15", (0.01, 0.99))
        .doc("Threshold between the smallest delay (0) and the largest delay (1); a larger delay is a sign of \
              other traffic")
        .source("[TCPLP]: 0.15"),
    ParamSpec::word("regrow", &["avoidance", "slow-start"], "avoidance")
        .doc("Growth after a sign of other traffic: 'avoidance', as in congestion avoidance; 'slow-start', by \
              slow start up to the window of the last loss")
        .source("[TCPLP] adds a packet a round trip; [LINUX tcp_lp.c] leaves the threshold as it was"),
];

/// Delays, in seconds.
#[derive(Clone, Copy, Debug)]
struct Delays {
    /// Newest samples since the last decrease; infinite where fewer exist.
    recent: [f64; SAMPLES],
    max: f64,
    average: Option<f64>,
}

impl Delays {
    const fn clear(&mut self) {
        self.recent = [f64::INFINITY; SAMPLES];
        self.average = None;
    }
}

#[derive(Debug)]
struct LowPriority<L> {
    law: L,
    threshold: f64,
    may_slow_start_again: bool,
    delays: Delays,
    /// End of the current inference phase.
    inference_until: Option<Instant>,
    /// First number sent after the last early decrease.
    first_after: SentNumber,
    /// True once slow start has ended, so both ends of the delay range are known.
    is_measured: bool,
    /// True once the delay was below the threshold after that.
    was_clear: bool,
}

/// [TCPLP] Builds Reno at low priority.
fn build_tcp_lp(
    params: &ParamValues,
    _packet_bytes: Bytes,
) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, LowPriority::new(params, NewReno))))
}

/// [HSTCPLP] Builds HighSpeed at low priority.
fn build_hstcp_lp(
    params: &ParamValues,
    _packet_bytes: Bytes,
) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, LowPriority::new(params, HighSpeed))))
}

impl<L: Law> LowPriority<L> {
    fn new(params: &ParamValues, law: L) -> Self {
        Self {
            law,
            threshold: params.number("threshold"),
            may_slow_start_again: params
                .choice("regrow", &[("avoidance", false), ("slow-start", true)]),
            delays: Delays { recent: [f64::INFINITY; SAMPLES], max: 0.0, average: None },
            inference_until: None,
            first_after: SentNumber(0),
            is_measured: false,
            was_clear: false,
        }
    }

    /// Adds an RTT sample; returns whether it is an early sign of congestion.
    fn is_congested(&mut self, acked: &Acked, cwnd: f64, rtt: &RttEstimate) -> bool {
        // Ours: the delay of packets sent before the decrease does not show its effect.
        if acked.cumulative_ack < self.first_after || cwnd < WINDOW_MIN {
            return false;
        }
        let Delays { recent, max, average } = &mut self.delays;
        recent.rotate_right(1);
        recent[0] = rtt.latest.as_secs_f64();
        if recent[SAMPLES - 1].is_infinite() {
            return false;
        }
        let delay = recent.iter().copied().fold(f64::INFINITY, f64::min);
        *max = max.max(delay);
        let average = average.get_or_insert(delay);
        *average += AVERAGE_WEIGHT * (delay - *average);
        let min = rtt.min.as_secs_f64();
        let is_above = *average > min + self.threshold * (*max - min);
        self.was_clear |= self.is_measured && !is_above;
        self.is_measured && is_above
    }

    fn is_inferring(&self, now: Instant) -> bool {
        self.inference_until.is_some_and(|until| now < until)
    }
}

impl<L: Law> Law for LowPriority<L> {
    fn observe(&mut self, window: &mut Window, acked: &Acked, cx: &mut Context<'_>) {
        self.is_measured |= !window.is_slow_start();
        let Some(rtt) = cx.rtt else { return };
        let cwnd = window.cwnd();
        if window.is_recovering() {
            // The window has just shrunk; the queue drains and fills again.
            return self.delays.clear();
        }
        if !self.is_congested(acked, cwnd, &rtt) {
            return;
        }
        cx.log_reason(Reason::DelayRose);
        // Ours: the queue of slow start is reduced by first signs, however many are needed.
        let is_in_vain = self.was_clear && self.is_inferring(cx.now);
        let left = if is_in_vain { 1.0 } else { self.law.keep(cwnd, cx) * cwnd };
        if self.may_slow_start_again {
            window.set(left);
        } else {
            window.set_avoiding(left);
        }
        self.inference_until = Some(cx.now + rtt.smoothed * INFERENCE_ROUNDS);
        self.first_after = acked.next;
        self.delays.clear();
    }

    fn grow(&mut self, cwnd: f64, packets: f64, cx: &Context<'_>) -> f64 {
        self.law.grow(cwnd, packets, cx)
    }

    fn holds(&self, cx: &Context<'_>) -> bool {
        self.is_inferring(cx.now)
    }

    fn keep(&mut self, cwnd: f64, cx: &Context<'_>) -> f64 {
        self.law.keep(cwnd, cx)
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, loss, values};
    use sabul_units::Span;

    use super::*;

    const SLOW: Span = Span::from_millis(200);

    /// Creates a law in avoidance, with measured delays from 100 to 200 ms.
    fn measured<L: Law>(cwnd: f64, law: L) -> LossDriven<LowPriority<L>> {
        let mut law = LowPriority::new(&values(PARAMS, &[]), law);
        law.delays = Delays { recent: [0.1; SAMPLES], max: 0.2, average: Some(0.1) };
        avoiding(PARAMS, cwnd, law)
    }

    /// Sends ACKs of one packet each, all with this RTT at `now`.
    fn arrive(
        driven: &mut dyn Controller,
        packets: std::ops::RangeInclusive<u64>,
        now: Span,
        rtt: Span,
    ) {
        for largest in packets {
            let in_flight = driven.limits().window.unwrap().0 - 1;
            driven.on_ack(&ack(1, in_flight, largest), &mut cx(now, rtt));
        }
    }

    #[test]
    fn an_averaged_delay_beyond_the_threshold_halves_the_window() {
        let mut driven = measured(1000.0, NewReno);
        // The smaller of two is 100 ms at first; then 100 + 100 / 8 = 112.5 ms is below
        // 100 + 0.15 × 100 = 115.
        arrive(&mut driven, 1..=2, Span::ZERO, SLOW);
        assert!((driven.window.cwnd() - 1000.002).abs() < 1e-6);
        // 112.5 + 87.5 / 8 = 123.4: half of 1000.002.
        arrive(&mut driven, 3..=3, Span::ZERO, SLOW);
        assert!((driven.window.cwnd() - 500.001).abs() < 1e-3, "{driven:?}");
        assert_eq!(driven.phase().name(), "avoidance");
    }

    /// Returns a window of 1000 halved by a first sign at time 0; packet 1003 is the first sent
    /// later.
    fn cut() -> LossDriven<LowPriority<NewReno>> {
        let mut driven = measured(1000.0, NewReno);
        arrive(&mut driven, 1..=3, Span::ZERO, SLOW);
        assert_eq!(driven.limits().window.unwrap().0, 500);
        assert_eq!(driven.law.first_after, SentNumber(1003));
        driven
    }

    #[test]
    fn a_second_early_indication_within_three_rtts_leaves_one_packet() {
        let mut driven = cut();
        arrive(&mut driven, 995..=1002, SLOW, SLOW);
        assert_eq!(driven.limits().window.unwrap().0, 500, "sent before the cut");
        arrive(&mut driven, 1003..=1003, SLOW * 3 - Span(1), SLOW);
        assert_eq!(driven.limits().window.unwrap().0, 500, "one sample is too few");
        arrive(&mut driven, 1004..=1004, SLOW * 3 - Span(1), SLOW);
        assert_eq!(driven.limits().window.unwrap().0, 1, "{driven:?}");
    }

    #[test]
    fn the_window_does_not_grow_for_three_rtts_after_a_cut() {
        let mut driven = cut();
        arrive(&mut driven, 1003..=1020, SLOW * 3 - Span(1), RTT);
        assert!((driven.window.cwnd() - 500.001).abs() < 1e-3, "{driven:?}");
        arrive(&mut driven, 1021..=1025, SLOW * 3, RTT);
        // 5 / 500 = 0.01.
        assert!((driven.window.cwnd() - 500.011).abs() < 1e-3, "{driven:?}");
        // A later sign is a first sign again.
        arrive(&mut driven, 1026..=1028, SLOW * 3, SLOW);
        assert_eq!(driven.limits().window.unwrap().0, 250, "{driven:?}");
    }

    #[test]
    fn with_linux_regrowth_slow_start_resumes_up_to_the_last_loss_window() {
        let given = values(PARAMS, &[("regrow", "slow-start")]);
        let mut law = LowPriority::new(&given, NewReno);
        law.delays = Delays { recent: [0.1; SAMPLES], max: 0.2, average: Some(0.1) };
        let mut driven = avoiding(PARAMS, 1000.0, law);
        arrive(&mut driven, 1..=3, Span::ZERO, SLOW);
        let left = driven.window.cwnd();
        assert!((left - 500.0).abs() < 0.1, "{left}");
        arrive(&mut driven, 1003..=1020, SLOW * 3 - Span(1), RTT);
        assert!((driven.window.cwnd() - left).abs() < 1e-9, "nothing grows for three round trips");
        arrive(&mut driven, 1021..=1030, SLOW * 3, RTT);
        assert!((driven.window.cwnd() - left - 10.0).abs() < 1e-9, "a packet for each");
        assert_eq!(driven.phase().name(), "slow-start");
    }

    #[test]
    fn early_indications_drain_the_queue_of_slow_start() {
        let mut driven = measured(1000.0, NewReno);
        driven.law.delays.clear();
        arrive(&mut driven, 1..=2, Span::ZERO, SLOW);
        assert_eq!(driven.limits().window.unwrap().0, 500);
        arrive(&mut driven, 1003..=1004, SLOW, SLOW);
        assert_eq!(
            driven.limits().window.unwrap().0,
            250,
            "the delay was never below the threshold"
        );
    }

    #[test]
    fn slow_start_and_small_windows_ignore_early_indications() {
        let given = values(PARAMS, &[("initial_window", "20")]);
        let mut driven = LossDriven::new(&given, LowPriority::new(&given, NewReno));
        for ms in [100, 150, 200, 200, 200, 200, 200, 200] {
            arrive(&mut driven, 1..=10, RTT, Span::from_millis(ms));
        }
        assert_eq!((driven.phase().name(), driven.limits().window.unwrap().0), ("slow-start", 100));
        assert!((driven.law.delays.max - 0.2).abs() < 1e-12, "measured all the same");
        for (cwnd, reacts) in [(3.0, false), (5.0, true)] {
            let mut driven = measured(cwnd, NewReno);
            arrive(&mut driven, 1..=3, RTT, SLOW);
            assert_eq!(driven.window.cwnd() < cwnd, reacts, "{driven:?}");
        }
    }

    #[test]
    fn highspeed_uses_its_own_curve_for_early_indications_and_losses() {
        let mut driven = measured(10_661.0, HighSpeed);
        arrive(&mut driven, 1..=3, Span::ZERO, SLOW);
        // 1 - b(10661) = 0.79325.
        let kept = driven.window.cwnd() / 10_661.0;
        assert!((kept - 0.79325).abs() < 1e-4, "{kept}");
        driven.on_loss(&loss(20_000, 20_001), &mut cx(RTT, RTT));
        // b(8457) = 0.5 - 0.4 × ln(222.55) / 7.6890 = 0.21882: 0.79325 × 0.78118.
        let kept = driven.window.cwnd() / 10_661.0;
        assert!((kept - 0.61967).abs() < 1e-4, "{kept}");
    }
}
