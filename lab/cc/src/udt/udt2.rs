//! UDT 2: the rate rises with each report, and a random draw selects the NAKs that lower it.
//!
//! Source: [UDT2]; [DAIMD] for its goals.
//! Model, each SYN interval with an ACK (DEV-046), after slow start: the period falls (`udt`).
//! On a NAK beyond the largest number sent at the last decrease, n the NAKs since, U a draw:
//!     P ×= 9/8, a pause of one interval
//!     avg = 1 + ceil(0.875 avg + 0.125 n);  every = floor(U × avg) + ceil(avg / 5)
//! On each later NAK of the epoch whose count `every` divides: P ×= 9/8, and all packets sent so
//! far belong to the epoch.
//! Window and bounds: `early`.
//! States:      slow start --NAK | full window--> steady
//! Invariants:  1 <= every.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, IntervalReport, LossReport, ParamSpec, ParamValues,
    Phase, Reason, SendLimits, SentNumber,
};
use sabul_units::{Bytes, Instant, Random};

use super::early::Early;
use super::{CAPACITY, WINDOW, WINDOW_MIN, draw};

/// [UDT2] Initial average of NAKs per epoch, and initial number of NAKs per cut.
const AVERAGE_START: f64 = 2.0;
const EVERY_START: u64 = 2;

pub(crate) const ENTRY: Entry = Entry::new("udt2", Family::Rate, build)
    .summary("UDT 2's rate and window: randomly selected NAKs lower the rate")
    .source("[UDT2] Gu 2006; [DAIMD] Gu, Hong, Grossman 2004")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    WINDOW,
    WINDOW_MIN,
    CAPACITY,
    ParamSpec::word("ninth", &["off", "on"], "off")
        .doc("'on' limits the increase below the rate before the last decrease, as in version 4: at most a \
              ninth of the capacity counts as free")
        .source("[UDT2]: not in the modules of 2006"),
];

#[derive(Debug)]
struct Udt2 {
    early: Early,
    is_ninth: bool,
    last_decrease: Option<SentNumber>,
    /// Period before the newest NAK.
    period_us_before: f64,
    average_naks: f64,
    nak_count: u64,
    every: u64,
    last_nak: Option<Instant>,
}

impl Udt2 {
    fn new(params: &ParamValues) -> Self {
        let early = Early::new(params);
        Self {
            period_us_before: early.period_us,
            early,
            is_ninth: params.is_on("ninth"),
            last_decrease: None,
            average_naks: AVERAGE_START,
            nak_count: 0,
            every: EVERY_START,
            last_nak: None,
        }
    }

    /// Begins an epoch: averages the NAK count of the last epoch, and draws `every`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least one")]
    fn begin_epoch(&mut self, largest_sent: SentNumber, random: &mut dyn Random) {
        let naks = 0.875 * self.average_naks + 0.125 * self.nak_count as f64;
        self.average_naks = 1.0 + naks.ceil();
        let drawn = (draw(random) * self.average_naks).floor();
        self.every = (drawn + (self.average_naks / 5.0).ceil()) as u64;
        self.nak_count = 1;
        self.last_decrease = Some(largest_sent);
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Udt2::new(params)))
}

impl Controller for Udt2 {
    fn limits(&self) -> SendLimits {
        self.early.limits()
    }

    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.early.on_ack(acked);
    }

    fn on_interval(&mut self, _report: &IntervalReport, cx: &mut Context<'_>) {
        if !self.early.take_report(cx) {
            return;
        }
        if !self.early.is_slow_start {
            let mut headroom = self.early.headroom(cx.packet_bytes);
            if self.is_ninth && self.early.period_us > self.period_us_before {
                headroom = headroom.min(self.early.capacity.packets_per_s(cx.packet_bytes) / 9.0);
            }
            cx.log_reason(Reason::Rise);
            self.early.rise(headroom, cx);
        }
        self.early.bound(cx);
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        // DEV-045: only the count of NAKs bounds the cuts of an epoch.
        if self.last_nak.replace(cx.now) == Some(cx.now) {
            return;
        }
        self.early.is_slow_start = false;
        self.period_us_before = self.early.period_us;
        if self.last_decrease.is_none_or(|last| loss.first_lost > last) {
            cx.log_reason(Reason::LossEpoch);
            self.early.freeze(cx.now);
            self.early.cut();
            self.begin_epoch(loss.largest_sent, cx.random);
        } else {
            self.nak_count += 1;
            if self.nak_count.is_multiple_of(self.every) {
                cx.log_reason(Reason::FurtherLoss);
                self.early.cut();
                self.last_decrease = Some(loss.largest_sent);
            }
        }
        self.early.bound(cx);
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
    use sabul_cc::SYN_INTERVAL;
    use sabul_units::Span;

    use super::super::testing::{Steps, cx, loss, values};
    use super::*;

    /// Creates a controller past slow start, at `period_us` on a path of a known 1000 Mb/s, 83 333
    /// packets/s.
    fn steady(period_us: f64, given: &[(&str, &str)]) -> Udt2 {
        let given: Vec<_> = given.iter().copied().chain([("capacity_mbps", "1000")]).collect();
        let mut udt2 = Udt2::new(&values(PARAMS, &given));
        udt2.early.is_slow_start = false;
        udt2.early.period_us = period_us;
        udt2
    }

    fn mbps(udt2: &Udt2) -> f64 {
        12_000.0 / udt2.early.period_us
    }

    #[test]
    fn a_report_raises_the_rate_and_a_missing_report_does_not() {
        // 800 of 1000 Mb/s: 200 are free, so one packet per interval, 1.2 Mb/s.
        let (mut udt2, mut steps) = (steady(15.0, &[]), Steps::default());
        steps.step(&mut udt2, 600);
        assert!((mbps(&udt2) - 801.2).abs() < 1e-9);
        udt2.on_interval(&super::super::testing::interval(0), &mut cx(steps.now));
        assert!((mbps(&udt2) - 801.2).abs() < 1e-9, "no ACK came");
    }

    #[test]
    fn a_loss_epoch_cuts_the_rate_freezes_and_draws_a_new_nak_count() {
        let mut udt2 = steady(16.0, &[]);
        let now = Span::from_secs(1);
        udt2.on_loss(&loss(50, 100), &mut cx(now));
        assert!((udt2.early.period_us - 18.0).abs() < 1e-12);
        assert_eq!(udt2.limits().hold_until, Some(Instant::ZERO + now + SYN_INTERVAL));
        // 1 + ceil(0.875 × 2 + 0.125 × 0) = 3; floor(3 U) + ceil(3 / 5).
        assert!((udt2.average_naks - 3.0).abs() < 1e-12);
        assert_eq!(udt2.every, 2, "U is 0.5: 1 + 1");
        // 1 + ceil(0.875 × 3 + 0.125 × 17) = 1 + ceil(4.75) = 6.
        udt2.nak_count = 17;
        udt2.on_loss(&loss(101, 200), &mut cx(now + SYN_INTERVAL));
        assert!((udt2.average_naks - 6.0).abs() < 1e-12);
        assert_eq!(udt2.every, 5, "U is 0.5: 3 + 2");
        assert_eq!((udt2.nak_count, udt2.last_decrease), (1, Some(SentNumber(200))));
    }

    #[test]
    fn within_an_epoch_each_nth_nak_cuts_and_extends_the_epoch() {
        let mut udt2 = steady(16.0, &[]);
        udt2.on_loss(&loss(50, 100), &mut cx(Span::ZERO));
        udt2.every = 3;
        let hold = udt2.limits().hold_until;
        for (nak, period) in [(2, 18.0), (3, 20.25), (4, 20.25), (5, 20.25), (6, 22.781_25)] {
            // NAKs at the same time count as one NAK.
            for _ in 0..3 {
                udt2.on_loss(&loss(60, 100 + nak), &mut cx(Span::from_millis(nak)));
            }
            assert!((udt2.early.period_us - period).abs() < 1e-12, "NAK {nak}");
        }
        assert_eq!((udt2.last_decrease, udt2.limits().hold_until), (Some(SentNumber(106)), hold));
    }

    #[test]
    fn recovery_is_bounded_by_a_ninth_of_the_capacity_if_configured() {
        // 8 of 81 Gb/s: 73 are free, a ninth of the capacity is 9.
        for (word, inc) in [("off", 100.0), ("on", 10.0)] {
            let mut udt2 = steady(0.3, &[("ninth", word)]);
            udt2.early.capacity = super::super::arrivals::Capacity::new(Some(81_000.0));
            udt2.period_us_before = 0.25;
            udt2.early.period_us = 1.5;
            Steps::default().step(&mut udt2, 600);
            let found = 1e4 / udt2.early.period_us - 1e4 / 1.5;
            assert!((found - inc).abs() < 1e-6, "{word}: {found}");
        }
    }
}
