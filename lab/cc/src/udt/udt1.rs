//! UDT 1: SABUL's decrease, an increase by the free capacity, and a window.
//!
//! Source: [UDT1].
//! Model, each SYN interval, rho its loss rate, h = 0.125 h + 0.875 rho:
//!     the period falls (`udt`) where h <= 1 % and slow start is over
//! On a NAK beyond the largest number sent at the last decrease: P ×= 9/8, a pause of one interval.
//! On the 16th, 32nd, 64th … NAK of the epoch: P ×= 9/8. If the RTT grows (`trend`): P ×= 9/8.
//! Each of these ends slow start. Window and bounds: `early`.
//! States:      slow start --NAK | trend | full window--> steady
//! Not here:    the warning as a packet: DEV-044, the sender measures the RTT itself.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, IntervalReport, LossReport, ParamSpec, ParamValues,
    Phase, Reason, SendLimits, SentNumber,
};
use sabul_units::Bytes;

use super::early::Early;
use super::trend::Trend;
use super::{CAPACITY, WINDOW, WINDOW_MIN};

/// [UDT1] The rate rises only while the averaged loss rate is at most this.
const LOSS_MAX: f64 = 0.01;
/// [UDT1] Weight of the newest interval in the averaged loss rate.
const LOSS_WEIGHT_NEW: f64 = 0.875;
/// [UDT1] As [SABUL §II-E]: the next decrease of an epoch is at the 16th NAK.
const DEC_COUNT_START: u32 = 4;

pub(crate) const ENTRY: Entry = Entry::new("udt1", Family::Rate, build)
    .summary("UDT 1's rate and window: decrease as in SABUL, increase by the free capacity")
    .source("[UDT1] Gu, Grossman 2003")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    WINDOW,
    WINDOW_MIN,
    CAPACITY,
    ParamSpec::word("delay_warning", &["on", "off"], "on")
        .doc("Delay warning: 'on' decreases the rate when the RTT grows")
        .source("[UDT1]: on in 2003, off in 2004"),
    ParamSpec::word("whole_loss_rate", &["off", "on"], "off")
        .doc("Defect: 'on' truncates the loss rate to an integer, which is 0 if fewer packets are lost than sent")
        .source("[UDT1] has it"),
];

#[derive(Debug)]
struct Udt1 {
    early: Early,
    trend: Option<Trend>,
    is_loss_rate_whole: bool,
    averaged_loss: f64,
    /// Largest number sent at the start of the current loss epoch.
    last_decrease: Option<SentNumber>,
    nak_count: u64,
    dec_count: u32,
}

impl Udt1 {
    fn new(params: &ParamValues) -> Self {
        Self {
            early: Early::new(params),
            trend: params.is_on("delay_warning").then(Trend::default),
            is_loss_rate_whole: params.is_on("whole_loss_rate"),
            averaged_loss: 0.0,
            last_decrease: None,
            nak_count: 0,
            dec_count: DEC_COUNT_START,
        }
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Udt1::new(params)))
}

impl Controller for Udt1 {
    fn limits(&self) -> SendLimits {
        self.early.limits()
    }

    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.early.on_ack(acked);
    }

    fn on_interval(&mut self, report: &IntervalReport, cx: &mut Context<'_>) {
        let lost = report.lost.0 as f64;
        let exact =
            if lost > 0.0 { (lost / (report.sent.0 as f64).max(1.0)).min(1.0) } else { 0.0 };
        let newest = if self.is_loss_rate_whole { exact.floor() } else { exact };
        self.averaged_loss =
            (1.0 - LOSS_WEIGHT_NEW) * self.averaged_loss + LOSS_WEIGHT_NEW * newest;
        if self.early.take_report(cx) {
            if let (Some(trend), Some(rtt)) = (&mut self.trend, &cx.rtt)
                && trend.warns(cx.now, rtt.latest, rtt.smoothed)
            {
                cx.log_reason(Reason::DelayRose);
                self.early.is_slow_start = false;
                self.early.cut();
            }
            self.early.bound(cx);
        }
        if self.early.is_slow_start {
            return;
        }
        let is_rising = self.averaged_loss <= LOSS_MAX;
        cx.log_reason(if is_rising { Reason::Rise } else { Reason::Hold });
        if is_rising {
            self.early.rise(self.early.headroom(cx.packet_bytes), cx);
        }
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        self.early.is_slow_start = false;
        if self.last_decrease.is_none_or(|last| loss.first_lost > last) {
            cx.log_reason(Reason::LossEpoch);
            self.early.cut();
            self.early.freeze(cx.now);
            self.last_decrease = Some(loss.largest_sent);
            self.nak_count = 1;
            self.dec_count = DEC_COUNT_START;
        } else {
            self.nak_count += 1;
            if self.dec_count < 63 && self.nak_count >= 1 << self.dec_count {
                cx.log_reason(Reason::FurtherLoss);
                self.early.cut();
                self.dec_count += 1;
            }
        }
    }

    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        // DEV-042: no response as published.
        self.early.is_slow_start = false;
        self.early.cut();
    }

    fn phase(&self) -> Phase {
        self.early.phase()
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::{Moment, RttEstimate, SYN_INTERVAL};
    use sabul_units::{Instant, Packets, Span};

    use super::super::testing::{RTT, Steps, cx, interval, loss, values};
    use super::*;

    fn udt1(given: &[(&str, &str)]) -> Udt1 {
        Udt1::new(&values(PARAMS, given))
    }

    /// Creates a controller past slow start, at `period_us` on a path of a known 100 Mb/s, 8333.3
    /// packets/s.
    fn steady(period_us: f64, given: &[(&str, &str)]) -> Udt1 {
        let given: Vec<_> = given.iter().copied().chain([("capacity_mbps", "100")]).collect();
        let mut udt1 = udt1(&given);
        udt1.early.is_slow_start = false;
        udt1.early.period_us = period_us;
        udt1
    }

    #[test]
    fn the_window_equals_arrivals_and_then_follows_the_arrival_speed() {
        let (mut udt1, mut steps) = (udt1(&[("window_packets", "200")]), Steps::default());
        assert_eq!(udt1.limits().window, Some(Packets(2)));
        for (packets, window) in [(2, 2), (2, 4), (4, 8), (80, 88)] {
            steps.step(&mut udt1, packets);
            assert_eq!(
                (udt1.limits().window, udt1.phase().name()),
                (Some(Packets(window)), "slow-start")
            );
        }
        steps.step(&mut udt1, 120);
        assert_eq!((udt1.limits().window, udt1.phase().name()), (Some(Packets(200)), "steady"));
        // 80 in 10 ms: 0.875 × 200 + 0.125 × 8000 × (0.04 + 0.01) = 175 + 50 = 225, at most 200.
        steps.step(&mut udt1, 80);
        assert_eq!(udt1.limits().window, Some(Packets(200)));
        // 20 in 10 ms: 175 + 0.125 × 2000 × 0.05 = 187.5.
        steps.step(&mut udt1, 20);
        assert_eq!(udt1.limits().window, Some(Packets(188)));
    }

    #[test]
    fn the_rate_rises_with_free_capacity_up_to_one_packet_in_a_microsecond() {
        // 12 of 100 Mb/s: 88 are free, so 0.1 packets per interval: 10 + 0.1.
        let mut udt1 = steady(1000.0, &[]);
        Steps::default().step(&mut udt1, 10);
        assert!((SYN_INTERVAL.as_secs_f64() * 1e6 / udt1.early.period_us - 10.1).abs() < 1e-9);
        // Nothing is free: 1/1500 of a packet.
        let mut full = steady(100.0, &[]);
        Steps::default().step(&mut full, 100);
        assert!((1e4 / full.early.period_us - 100.0 - 1.0 / 1500.0).abs() < 1e-9);
        let mut fast = steady(1.0, &[]);
        Steps::default().step(&mut fast, 100);
        assert!((fast.early.period_us - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_rate_is_held_while_more_than_one_percent_is_lost() {
        // 0.875 × 12 / 1000 = 0.0105; then an eighth of it.
        let (mut udt1, mut steps) = (steady(1000.0, &[]), Steps::default());
        steps.step_with(&mut udt1, 10, &interval(12));
        assert!((udt1.averaged_loss - 0.0105).abs() < 1e-12);
        assert!((udt1.early.period_us - 1000.0).abs() < 1e-9);
        steps.step(&mut udt1, 10);
        assert!((udt1.averaged_loss - 0.001_312_5).abs() < 1e-12);
        assert!(udt1.early.period_us < 1000.0);
        // The defect ignores a loss of 999 of 1000.
        let mut defect = steady(1000.0, &[("whole_loss_rate", "on")]);
        Steps::default().step_with(&mut defect, 10, &interval(999));
        assert!(defect.averaged_loss < 1e-12 && defect.early.period_us < 1000.0);
    }

    #[test]
    fn an_epoch_is_cut_at_its_first_nak_and_at_the_16th_and_32nd() {
        let mut udt1 = steady(80.0, &[]);
        let now = Span::from_secs(1);
        let mut cuts = Vec::new();
        for nak in 1..=40 {
            let before = udt1.early.period_us;
            udt1.on_loss(&loss(50, 100), &mut cx(now));
            if udt1.early.period_us > before {
                assert!((udt1.early.period_us / before - 1.125).abs() < 1e-12);
                cuts.push(nak);
            }
        }
        assert_eq!(cuts, [1, 16, 32]);
        assert_eq!(udt1.limits().hold_until, Some(Instant::ZERO + now + SYN_INTERVAL));
        udt1.on_loss(&loss(101, 200), &mut cx(now + RTT));
        assert_eq!(udt1.limits().hold_until, Some(Instant::ZERO + now + RTT + SYN_INTERVAL));
        assert_eq!((udt1.nak_count, udt1.dec_count), (1, 4));
    }

    #[test]
    fn the_period_is_at_most_the_round_trip() {
        let mut udt1 = steady(1000.0, &[]);
        for _ in 0..60 {
            udt1.on_timeout(&mut cx(Span::ZERO));
        }
        assert!(udt1.early.period_us > 90_000.0);
        Steps::default().step_with(&mut udt1, 1, &interval(1000));
        assert!((udt1.early.period_us - 40_000.0).abs() < 1e-9);
    }

    #[test]
    fn a_growing_round_trip_ends_slow_start_and_cuts_once() {
        for (word, phase) in [("on", "steady"), ("off", "slow-start")] {
            let mut udt1 = udt1(&[("delay_warning", word)]);
            for n in 1..=16 {
                let latest = RTT + Span::from_millis(n);
                let rtt = RttEstimate { latest, smoothed: RTT, variance: RTT, min: RTT };
                let now = Instant::ZERO + Span::from_millis(10) * n;
                let mut cx = Context::without_chance(&Moment::new(now, Some(rtt), Bytes(1500)));
                udt1.on_ack(&Acked { total: Packets(n), ..Acked::default() }, &mut cx);
                udt1.on_interval(&interval(1000), &mut cx);
            }
            assert_eq!(udt1.phase().name(), phase);
            let period = if word == "on" { 1.125 } else { 1.0 };
            assert!((udt1.early.period_us - period).abs() < 1e-12, "{word}");
        }
    }
}
