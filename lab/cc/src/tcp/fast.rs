//! FAST: delay-based window that keeps a fixed number of packets queued.
//!
//! Source: [FAST] (equations); the end of slow start is ours.
//! Model, R the averaged RTT, every second RTT:
//!     cwnd = min(2 cwnd, (1 - gamma) cwnd + gamma (RTT_min / R × cwnd + alpha))
//!     R   += min(3 n / cwnd, 1/4) × (RTT - R)                  for an ACK of n packets
//! so in equilibrium cwnd (1 - RTT_min / R) = alpha packets are queued, whatever the rate.
//! Slow start ends once more than alpha packets are queued.
//! On a loss event:      cwnd = max(flight / 2, 2)
//! States, invariants:   `window`.
//! Not here:    a share of the window in place of alpha while no queue exists; a choice of alpha by
//!              the rate.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::newreno::BETA;
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH, Window};
use sabul_cc::{Acked, ConfigError, Context, Controller, ParamSpec, ParamValues, Reason, Unit};
use sabul_units::{Bytes, Instant, Span};

/// [FAST] The average has a time constant of a third of a window, and takes at most a quarter of a
/// sample.
const AVERAGE_WINDOWS: f64 = 3.0;
const AVERAGE_MAX: f64 = 0.25;
/// [FAST] The window changes every second RTT, because the effect shows in the next RTT.
const UPDATE_ROUNDS: u64 = 2;
/// [FAST] Largest factor of one change.
const GROWTH_MAX: f64 = 2.0;

pub(crate) const ENTRY: Entry = Entry::new("fast", Family::Window, build)
    .summary(
        "FAST's window: keeps a fixed number of packets queued, estimated from the delay; paced",
    )
    .source("[FAST] Jin, Wei, Low 2004")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    INITIAL_WINDOW,
    SSTHRESH,
    ParamSpec::new("alpha_packets", Unit::Packets, "100", (1.0, 100_000.0))
        .doc("Packets that the flow keeps queued; the path's queue needs room for the queued packets of all flows")
        .source("ours; [FAST] chooses it by the rate, up to some hundred at 1 Gb/s"),
    ParamSpec::new("gamma", Unit::Number, "0.5", (0.01, 1.0))
        .doc("Gain: part of the difference to the target window that one update corrects")
        .source("[FAST]: 0.5"),
];

#[derive(Debug)]
struct Fast {
    alpha: f64,
    gamma: f64,
    /// Averaged RTT, in seconds.
    average: Option<f64>,
    next_update: Instant,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, Fast::new(params))))
}

impl Fast {
    fn new(params: &ParamValues) -> Self {
        Self {
            alpha: params.number("alpha_packets"),
            gamma: params.number("gamma"),
            average: None,
            next_update: Instant::ZERO,
        }
    }

    /// Adds the RTT sample of an ACK of `packets`.
    fn sample(&mut self, packets: f64, cwnd: f64, latest: Span) {
        let latest = latest.as_secs_f64();
        let average = self.average.get_or_insert(latest);
        let weight = (AVERAGE_WINDOWS * packets / cwnd).min(AVERAGE_MAX);
        *average += weight * (latest - *average);
    }

    /// Returns the next window; `share` is RTT_min relative to the averaged RTT.
    fn goal(&self, cwnd: f64, share: f64) -> f64 {
        let way = (1.0 - self.gamma) * cwnd + self.gamma * (share * cwnd + self.alpha);
        way.min(GROWTH_MAX * cwnd)
    }
}

impl Law for Fast {
    fn observe(&mut self, window: &mut Window, acked: &Acked, cx: &mut Context<'_>) {
        let Some(rtt) = cx.rtt else { return };
        let cwnd = window.cwnd();
        self.sample(acked.newly.0 as f64, cwnd, rtt.latest);
        let queueing = rtt.latest.saturating_sub(rtt.min);
        if window.is_slow_start()
            && cwnd * queueing.as_secs_f64() > self.alpha * rtt.latest.as_secs_f64()
        {
            cx.log_reason(Reason::DelayRose);
            window.end_slow_start();
        }
    }

    fn grow(&mut self, cwnd: f64, _packets: f64, cx: &Context<'_>) -> f64 {
        let (Some(rtt), Some(average)) = (&cx.rtt, self.average) else { return 0.0 };
        if cx.now < self.next_update {
            return 0.0;
        }
        self.next_update = cx.now + rtt.smoothed * UPDATE_ROUNDS;
        self.goal(cwnd, rtt.min.as_secs_f64() / average) - cwnd
    }

    fn keep(&mut self, _cwnd: f64, _cx: &Context<'_>) -> f64 {
        BETA
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, loss, values};

    fn fast(cwnd: f64) -> LossDriven<Fast> {
        avoiding(PARAMS, cwnd, Fast::new(&values(PARAMS, &[])))
    }

    #[test]
    fn the_window_moves_halfway_to_its_target_every_second_rtt() {
        let mut fast = fast(1000.0);
        let queued = Span::from_millis(125);
        fast.on_ack(&ack(10, 990, 10), &mut cx(Span::ZERO, queued));
        // 0.5 × 1000 + 0.5 × (100 / 125 × 1000 + 100) = 500 + 450 = 950.
        assert!((fast.window.cwnd() - 950.0).abs() < 1e-9, "{fast:?}");
        fast.on_ack(&ack(10, 940, 20), &mut cx(queued * 2 - Span(1), queued));
        assert!((fast.window.cwnd() - 950.0).abs() < 1e-9, "held for two round trips");
        fast.on_ack(&ack(10, 940, 30), &mut cx(queued * 2, queued));
        // 475 + 0.5 × (760 + 100) = 905.
        assert!((fast.window.cwnd() - 905.0).abs() < 1e-9);
        // In equilibrium: 500 × (1 - 100 / 125) = 100 packets are queued.
        fast.window.set_avoiding(500.0);
        fast.on_ack(&ack(10, 490, 40), &mut cx(queued * 4, queued));
        assert!((fast.window.cwnd() - 500.0).abs() < 1e-9);
        // 10 / 2 + (10 + 100) / 2 = 60 is more than twice 10.
        assert!((fast.law.goal(10.0, 1.0) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn the_rtt_average_covers_a_third_of_a_window() {
        let mut law = Fast::new(&values(PARAMS, &[]));
        let mut sample = |packets, latest| {
            law.sample(packets, 600.0, latest);
            law.average.unwrap()
        };
        assert!((sample(1.0, RTT) - 0.1).abs() < 1e-12, "the first sample");
        // 3 × 2 / 600 = 0.01: 0.1 + 0.01 × 0.1.
        assert!((sample(2.0, RTT * 2) - 0.101).abs() < 1e-12);
        // At most a quarter: 0.101 + 0.25 × 0.099.
        assert!((sample(600.0, RTT * 2) - 0.12575).abs() < 1e-12);
    }

    #[test]
    fn slow_start_ends_when_alpha_packets_are_queued() {
        let values = values(PARAMS, &[("initial_window", "400")]);
        let mut fast = LossDriven::new(&values, Fast::new(&values));
        // 400 × 25 / 125 = 80 queued: not yet.
        fast.on_ack(&ack(100, 300, 100), &mut cx(Span::ZERO, Span::from_millis(125)));
        assert!((fast.window.cwnd() - 500.0).abs() < 1e-9);
        assert_eq!(fast.phase().name(), "slow-start");
        // 500 × 26 / 126 = 103.
        fast.on_ack(&ack(100, 400, 200), &mut cx(RTT, Span::from_millis(126)));
        assert_eq!(fast.phase().name(), "avoidance");
        assert!(fast.window.cwnd() < 505.0);
    }

    #[test]
    fn a_window_below_its_threshold_does_not_return_to_slow_start() {
        let mut fast = fast(1000.0);
        fast.on_ack(&ack(10, 990, 10), &mut cx(Span::ZERO, RTT * 2));
        // 0.5 × 1000 + 0.5 × (500 + 100) = 800.
        assert!((fast.window.cwnd() - 800.0).abs() < 1e-9);
        fast.on_ack(&ack(100, 700, 110), &mut cx(RTT, RTT * 2));
        assert_eq!((fast.limits().window.unwrap().0, fast.phase().name()), (800, "avoidance"));
    }

    #[test]
    fn a_loss_halves_the_window() {
        let mut fast = fast(600.0);
        fast.on_loss(&loss(5, 10), &mut cx(Span::ZERO, RTT));
        assert!((fast.window.cwnd() - 300.0).abs() < 1e-9);
        fast.on_timeout(&mut cx(RTT, RTT));
        assert!((fast.window.cwnd() - 1.0).abs() < 1e-9);
    }
}
