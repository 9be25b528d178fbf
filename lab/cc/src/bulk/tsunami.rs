//! Tsunami: the gap between blocks follows the receiver's error rate. [TSUNAMI]
//!
//! Source: server/protocol.c and client/config.c. An error rate E above the threshold E0 stretches
//! the gap slightly; any other shortens it by a sixth. A timeout counts as an error rate of 100 %.
//! [`REQUESTS`](crate::rules::REQUESTS) defines E and the requests.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    BulkReport, ConfigError, Constants, Context, Controller, IntervalReport, LossReport, ParamSpec,
    ParamValues, Reason, SendLimits, Unit,
};
use sabul_units::{Bytes, Gap, Rate, Span};

use crate::rules::REQUESTS;

/// Error rate if everything was lost, in percent × 1000.
const ALL_LOST: f64 = 100_000.0;
/// Longest gap, unless the target's gap is longer.
const GAP_MAX: Span = Span::from_millis(10);
/// Initial gap, in gaps of the target rate.
const START: u64 = 3;

pub(crate) const ENTRY: Entry = Entry::new("tsunami", Family::Rate, build)
    .summary("Tsunami: the gap depends on the share of blocks that the receiver requests again")
    .source("[TSUNAMI] Indiana University's client and server, 2006 to 2010")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    ParamSpec::new("rate_mbps", Unit::Mbps, "650", (0.01, 1e6))
        .doc("Target rate including IP headers; the sending rate never exceeds the target rate")
        .source("[TSUNAMI] client/config.c"),
    ParamSpec::new("error_threshold", Unit::Number, "7500", (0.0, 99_999.0))
        .doc("Error rate above which the gap grows, in percent × 1000")
        .source("[TSUNAMI] client/config.c"),
    ParamSpec::new("slower", Unit::Number, "1.0416666666666667", (1.0, 10.0))
        .doc("Factor applied to the gap at an error rate of 100 %")
        .source("[TSUNAMI] client/config.c: 25/24"),
    ParamSpec::new("faster", Unit::Number, "0.8333333333333334", (0.01, 1.0))
        .doc("Factor applied to the gap at an error rate up to the threshold")
        .source("[TSUNAMI] client/config.c: 5/6"),
];

#[derive(Debug)]
struct Tsunami {
    target: Rate,
    threshold: f64,
    slower: f64,
    faster: f64,
    gap: Span,
    /// Gap of the target rate.
    gap_min: Span,
}

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let target = params.rate("rate_mbps");
    let gap_min = target.gap(packet_bytes).0;
    Ok(Box::new(Tsunami {
        target,
        threshold: params.number("error_threshold"),
        slower: params.number("slower"),
        faster: params.number("faster"),
        gap: gap_min * START,
        gap_min,
    }))
}

impl Tsunami {
    fn adjust(&mut self, error: f64, cx: &mut Context<'_>) {
        cx.log_reason(if error > self.threshold { Reason::Fall } else { Reason::Rise });
        let factor = if error > self.threshold {
            let excess = (1.0 + error - self.threshold) / (ALL_LOST - self.threshold);
            1.0 + (self.slower - 1.0) * excess
        } else {
            self.faster
        };
        self.gap = Span::from_secs_f64(self.gap.as_secs_f64() * factor);
        self.keep_bounds();
    }

    fn keep_bounds(&mut self) {
        self.gap = self.gap.min(GAP_MAX).max(self.gap_min);
    }
}

impl Controller for Tsunami {
    fn limits(&self) -> SendLimits {
        SendLimits { gap: Gap(self.gap), window: None, hold_until: None }
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.adjust(ALL_LOST, cx);
    }
    fn on_interval(&mut self, _report: &IntervalReport, cx: &mut Context<'_>) {
        let gap_min = self.target.gap(cx.packet_bytes).0;
        if gap_min != self.gap_min {
            self.gap_min = gap_min;
            self.keep_bounds();
        }
    }
    fn on_report(&mut self, report: &BulkReport, cx: &mut Context<'_>) {
        if let BulkReport::ErrorRate(error) = report {
            self.adjust(f64::from(*error).min(ALL_LOST), cx);
        }
    }
    fn constants(&self) -> Constants {
        Constants { rules: REQUESTS, ..Constants::default() }
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::{Guarded, Moment};
    use sabul_units::Instant;

    use super::*;

    fn tsunami(rate_mbps: &str) -> Guarded {
        let given = [("rate_mbps".to_owned(), rate_mbps.to_owned())];
        ENTRY.build(&given, Bytes(1500)).unwrap()
    }

    fn cx() -> Moment {
        Moment::new(Instant::ZERO, None, Bytes(1500))
    }

    /// Returns the factor by which one report changes the gap.
    fn factor(error: u32) -> f64 {
        let mut tsunami = tsunami("100");
        let before = tsunami.limits().gap.0.as_secs_f64();
        tsunami.on_report(&BulkReport::ErrorRate(error), &cx());
        tsunami.limits().gap.0.as_secs_f64() / before
    }

    #[test]
    fn tsunami_gap_changes_follow_the_published_steps() {
        for (error, expected) in [(10_000, 1.0011), (100_000, 1.0417), (7_500, 0.8333), (0, 0.8333)]
        {
            let factor = factor(error);
            assert!((factor - expected).abs() < 5e-5, "E = {error}: × {factor}");
        }
    }

    #[test]
    fn tsunami_starts_at_a_third_of_its_target_rate_and_stays_in_its_range() {
        let mut tsunami = tsunami("100");
        assert_eq!(tsunami.limits().gap.0, Span::from_micros(360));
        for _ in 0..10 {
            tsunami.on_report(&BulkReport::ErrorRate(0), &cx());
        }
        assert_eq!(tsunami.limits().gap.0, Span::from_micros(120));
        // ln(10 000 / 120) ÷ ln(25 / 24) = 108.3 steps.
        for step in 0..120 {
            let is_at_end = tsunami.limits().gap.0 == Span::from_millis(10);
            assert_eq!(is_at_end, step > 108, "step {step}");
            tsunami.on_timeout(&cx());
        }
    }

    #[test]
    fn a_target_rate_below_the_range_keeps_its_own_gap() {
        // 1 Mb/s of 1500 bytes: 12 ms.
        let mut tsunami = tsunami("1");
        for _ in 0..20 {
            tsunami.on_report(&BulkReport::ErrorRate(50_000), &cx());
        }
        assert_eq!(tsunami.limits().gap.0, Span::from_millis(12));
    }
}
