//! NETBLT: bursts of a fixed size at a fixed interval. [RFC998]
//!
//! The receiver's reports follow [`BUFFERS`](crate::rules::BUFFERS). [RFC998] leaves the choice of burst
//! size and interval open; the rule of `adaptation` is ours (DEV-066).

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    BulkReport, ConfigError, Constants, Context, Controller, LossReport, ParamSpec, ParamValues,
    Reason, SendLimits, Unit,
};
use sabul_units::{Gap, Packets, Span};

use crate::rules::{BUFFER_PACKETS, BUFFERS};

/// Ours: loss share of a buffer above which the interval is stretched, and the factor.
const LOSS_TOLERATED: f64 = 0.05;
const SLOWER: f64 = 1.125;
/// Ours: loss-free buffers in a row that shorten the interval, and the factor.
const CLEAN_BUFFERS: u32 = 4;
const FASTER: f64 = 0.95;
/// Ours: bounds of an adaptive interval.
const INTERVAL_MIN: Span = Span::from_micros(10);
const INTERVAL_MAX: Span = Span::from_secs(10);

pub(crate) const ENTRY: Entry = Entry::new("netblt", Family::Rate, build)
    .summary(
        "NETBLT: sends bursts at a fixed interval; the receiver requests missing data per buffer",
    )
    .source("[RFC998] Clark, Lambert, Zhang 1987")
    .params(PARAMS)
    .without_loss_response();

const PARAMS: &[ParamSpec] = &[
    ParamSpec::new("burst_packets", Unit::Packets, "50", (1.0, 10_000.0))
        .doc("Packets per burst, sent back to back")
        .source("[RFC998] leaves it to both ends; default ours"),
    ParamSpec::new("burst_interval_ms", Unit::Millis, "10", (0.01, 10_000.0))
        .doc("Time between the starts of two bursts")
        .source("[RFC998] leaves it to both ends; default ours"),
    ParamSpec::new("max_buffers", Unit::Number, "64", (1.0, 512.0))
        .doc("Maximum number of unacknowledged buffers of 64 packets")
        .source("[RFC998] leaves it to both ends; default ours"),
    ParamSpec::word("adaptation", &["off", "on"], "off")
        .doc("Control of the burst interval: 'on' changes the interval by the loss of each buffer; 'off' \
              keeps the interval constant")
        .source("ours: [RFC998] leaves it open"),
];

#[derive(Debug)]
struct Netblt {
    burst: u64,
    interval: Span,
    window: u64,
    is_adaptive: bool,
    clean: u32,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranges are checked")]
fn build(
    params: &ParamValues,
    _packet_bytes: sabul_units::Bytes,
) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Netblt {
        burst: params.number("burst_packets") as u64,
        interval: Span::from_secs_f64(params.number("burst_interval_ms") / 1e3),
        window: params.number("max_buffers") as u64 * BUFFER_PACKETS,
        is_adaptive: params.is_on("adaptation"),
        clean: 0,
    }))
}

impl Controller for Netblt {
    fn limits(&self) -> SendLimits {
        SendLimits {
            gap: Gap(self.interval / self.burst),
            window: Some(Packets(self.window)),
            hold_until: None,
        }
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    #[expect(clippy::cast_precision_loss, reason = "a buffer is some tens of packets")]
    fn on_report(&mut self, report: &BulkReport, cx: &mut Context<'_>) {
        let &BulkReport::Account { sent, arrived } = report else { return };
        if !self.is_adaptive || sent.0 == 0 {
            return;
        }
        let lost = sent.0.saturating_sub(arrived.0);
        self.clean = if lost == 0 { self.clean + 1 } else { 0 };
        let factor = if lost as f64 > LOSS_TOLERATED * sent.0 as f64 {
            cx.log_reason(Reason::Fall);
            SLOWER
        } else if self.clean == CLEAN_BUFFERS {
            cx.log_reason(Reason::Rise);
            self.clean = 0;
            FASTER
        } else {
            return;
        };
        let interval = Span::from_secs_f64(self.interval.as_secs_f64() * factor);
        self.interval = interval.max(INTERVAL_MIN).min(INTERVAL_MAX);
    }
    fn constants(&self) -> Constants {
        Constants { rules: BUFFERS, burst: Packets(self.burst), ..Constants::default() }
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::{Guarded, Moment};
    use sabul_units::{Bytes, Instant};

    use super::*;

    fn netblt(params: &[(&str, &str)]) -> Guarded {
        let given: Vec<_> =
            params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ENTRY.build(&given, Bytes(1500)).unwrap()
    }

    fn deliver(netblt: &mut Guarded, sent: u64, arrived: u64) -> f64 {
        let cx = Moment::new(Instant::ZERO, None, Bytes(1500));
        let report = BulkReport::Account { sent: Packets(sent), arrived: Packets(arrived) };
        netblt.on_report(&report, &cx);
        netblt.limits().gap.0.as_secs_f64() * 50e3
    }

    #[test]
    fn rate_is_burst_times_size_over_interval() {
        let limits = netblt(&[]).limits();
        // 50 × 1500 × 8 bit ÷ 10 ms = 60 Mb/s.
        assert_eq!(limits.rate(Bytes(1500)).unwrap().0, 60_000_000);
        assert_eq!(netblt(&[("burst_packets", "7")]).constants().burst, Packets(7));
        assert_eq!(limits.window, Some(Packets(64 * 64)));
    }

    #[test]
    fn four_clean_buffers_shorten_the_interval_over_5_percent_loss_extends_it() {
        let mut on = netblt(&[("adaptation", "on")]);
        for expected in [10.0, 10.0, 10.0, 9.5, 9.5] {
            assert!((deliver(&mut on, 64, 64) - expected).abs() < 1e-6);
        }
        // 3 of 64 are 4.7 %, 4 are 6.25 %.
        assert!((deliver(&mut on, 64, 61) - 9.5).abs() < 1e-6);
        assert!((deliver(&mut on, 64, 60) - 9.5 * 1.125).abs() < 1e-6);
        let mut off = netblt(&[]);
        assert!((deliver(&mut off, 64, 0) - 10.0).abs() < 1e-6);
    }
}
