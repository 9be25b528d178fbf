//! FOBS: a constant rate, or a rate that follows the loss of each segment. [FOBS]
//!
//! Everything else is [`CYCLIC`](crate::rules::CYCLIC). The rate-controlled variant has no published
//! constants (DEV-064).

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    Acked, BulkReport, ConfigError, Constants, Context, Controller, IntervalReport, LossReport,
    ParamSpec, ParamValues, Phase, Reason, SendLimits, SentNumber, Unit,
};
use sabul_units::{Bytes, Gap, Packets, Span};

use crate::rules::CYCLIC;

/// [FOBS] Packets of a segment, after which loss is evaluated; from a review of its code.
const SEGMENT_PACKETS: u64 = 10_000;
/// [FOBS] Loss share above which the rate falls; from a review of its code.
const LOSS_TOLERATED: f64 = 0.01;
/// Ours: factor of the period after a segment without such loss.
const FASTER: f64 = 0.95;
/// Ours: bounds of the period, against a long run of segments with the same result.
const PERIOD_MIN: Span = Span::from_nanos(100);
const PERIOD_MAX: Span = Span::from_millis(100);

pub(crate) const ENTRY: Entry = Entry::new("fobs", Family::Rate, build)
    .summary("FOBS: sends the unacknowledged data in cycles without waiting")
    .source("[FOBS] Dickens, Gropp 2002")
    .params(PARAMS)
    .without_loss_response();

const PARAMS: &[ParamSpec] = &[
    ParamSpec::new("rate_mbps", Unit::Mbps, "100", (0.0, 1e6))
        .doc("Sending rate including IP headers, or the initial rate with 'control=on'; 0 disables pacing")
        .source("ours: published is as fast as the interface goes"),
    ParamSpec::word("control", &["off", "on"], "off")
        .doc("Rate control: 'on' changes the rate by the loss of each segment; 'off' keeps the rate constant")
        .source("[FOBS] greedy; the rule of the other is ours"),
];

#[derive(Debug)]
struct Fobs {
    period: Span,
    is_controlled: bool,
    packet_bytes: Bytes,
    sent: Packets,
    arrived: Packets,
    /// Packet numbers at the newest ACK: the largest that has arrived, and the next to be used.
    largest: SentNumber,
    next: SentNumber,
    /// First number that was sent at the present rate; earlier packets do not count.
    judge_from: SentNumber,
}

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let rate = params.rate("rate_mbps");
    let is_controlled = params.is_on("control");
    if is_controlled && rate.0 == 0 {
        return Err(ConfigError {
            setting: "parameter rate_mbps of fobs".to_owned(),
            value: params.word("rate_mbps").to_owned(),
            allowed: "a rate above 0 to start from, or control=off".to_owned(),
        });
    }
    let period = if rate.0 == 0 { Span::ZERO } else { rate.gap(packet_bytes).0 };
    let none = Packets(0);
    Ok(Box::new(Fobs {
        period,
        is_controlled,
        packet_bytes,
        sent: none,
        arrived: none,
        largest: SentNumber(0),
        next: SentNumber(0),
        judge_from: SentNumber(0),
    }))
}

impl Fobs {
    #[expect(clippy::cast_precision_loss, reason = "a segment is some ten thousand packets")]
    fn end_segment(&mut self, cx: &mut Context<'_>) {
        let (lost, sent) = ((self.sent.0 - self.arrived.0) as f64, self.sent.0 as f64);
        let is_too_much = lost > LOSS_TOLERATED * sent;
        cx.log_reason(if is_too_much { Reason::Fall } else { Reason::Rise });
        let factor = if is_too_much { 1.0 + lost / sent } else { FASTER };
        let period = Span::from_secs_f64(self.period.as_secs_f64() * factor);
        self.period = period.max(PERIOD_MIN).min(PERIOD_MAX);
        (self.sent, self.arrived) = (Packets(0), Packets(0));
        self.judge_from = self.next;
    }
}

impl Controller for Fobs {
    fn limits(&self) -> SendLimits {
        SendLimits { gap: Gap(self.period), window: None, hold_until: None }
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    fn on_interval(&mut self, _report: &IntervalReport, cx: &mut Context<'_>) {
        if cx.packet_bytes != self.packet_bytes && self.packet_bytes.0 > 0 {
            self.period = self.period.mul_ratio(cx.packet_bytes.0, self.packet_bytes.0);
            self.packet_bytes = cx.packet_bytes;
        }
    }
    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.largest = self.largest.max(acked.largest);
        self.next = self.next.max(acked.next);
    }
    fn on_report(&mut self, report: &BulkReport, cx: &mut Context<'_>) {
        let &BulkReport::Account { sent, arrived } = report else { return };
        if !self.is_controlled || self.largest < self.judge_from {
            return;
        }
        self.sent.0 = self.sent.0.saturating_add(sent.0);
        self.arrived.0 = self.arrived.0.saturating_add(arrived.0.min(sent.0));
        if self.sent.0 >= SEGMENT_PACKETS {
            self.end_segment(cx);
        }
    }
    fn constants(&self) -> Constants {
        Constants { rules: CYCLIC, ..Constants::default() }
    }
    fn phase(&self) -> Phase {
        if self.is_controlled { Phase::Named("steady") } else { Phase::Named("greedy") }
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::{Guarded, Moment};
    use sabul_units::Instant;

    use super::*;

    fn fobs(params: &[(&str, &str)]) -> Result<Guarded, ConfigError> {
        let given: Vec<_> =
            params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ENTRY.build(&given, Bytes(1500))
    }

    fn account(sent: u64, arrived: u64) -> BulkReport {
        BulkReport::Account { sent: Packets(sent), arrived: Packets(arrived) }
    }

    #[test]
    fn a_segment_with_over_one_percent_loss_slows_fobs_and_others_speed_it_up() {
        let cx = Moment::new(Instant::ZERO, None, Bytes(1500));
        let mut fobs = fobs(&[("control", "on")]).unwrap();
        // 100 Mb/s of 1500 bytes: 120 µs.
        let period = |fobs: &Guarded| fobs.limits().gap.0.as_secs_f64() * 1e6;
        fobs.on_report(&account(9_999, 0), &cx);
        assert!((period(&fobs) - 120.0).abs() < 1e-6, "the segment is not over");
        fobs.on_report(&account(1, 0), &cx);
        assert!((period(&fobs) - 240.0).abs() < 1e-6, "all lost: twice the period");
        fobs.on_report(&account(10_000, 9_900), &cx);
        assert!((period(&fobs) - 228.0).abs() < 1e-6, "one per cent is tolerated");
        fobs.on_report(&account(10_000, 9_000), &cx);
        assert!((period(&fobs) - 250.8).abs() < 1e-6, "ten per cent: × 1.1");
    }

    #[test]
    fn packets_sent_before_the_last_rate_change_do_not_affect_the_new_rate() {
        let cx = Moment::new(Instant::ZERO, None, Bytes(1500));
        let mut fobs = fobs(&[("control", "on")]).unwrap();
        let ack = |largest, next| {
            let [largest, next] = [largest, next].map(SentNumber);
            Acked { largest, next, ..Acked::default() }
        };
        fobs.on_ack(&ack(10_000, 30_000), &cx);
        fobs.on_report(&account(10_000, 5_000), &cx);
        let after_one = fobs.limits();
        fobs.on_ack(&ack(29_999, 31_000), &cx);
        fobs.on_report(&account(19_999, 9_000), &cx);
        assert_eq!(fobs.limits(), after_one);
        fobs.on_ack(&ack(40_000, 41_000), &cx);
        fobs.on_report(&account(10_001, 10_001), &cx);
        assert!(fobs.limits().gap < after_one.gap);
    }

    #[test]
    fn greedy_fobs_ignores_reports_and_rate_control_without_a_rate_is_refused() {
        let cx = Moment::new(Instant::ZERO, None, Bytes(1500));
        let mut greedy = fobs(&[]).unwrap();
        let before = greedy.limits();
        greedy.on_report(&account(20_000, 1), &cx);
        assert_eq!(greedy.limits(), before);
        assert_eq!(fobs(&[("rate_mbps", "0")]).unwrap().limits().gap, Gap::NONE);
        let error = fobs(&[("rate_mbps", "0"), ("control", "on")]).unwrap_err();
        assert!(error.to_string().contains("rate_mbps"), "{error}");
    }
}
