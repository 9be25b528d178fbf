//! Constant-rate baseline.
//!
//! Not a congestion controller. For dedicated paths, for measuring the machine, and as a reference
//! flow in tests.

use sabul_units::{Bytes, Gap, Packets, Rate};

use crate::controller::{Context, Controller, IntervalReport, LossReport, SendLimits};
use crate::entry::{Entry, Family};
use crate::params::{ConfigError, ParamSpec, ParamValues, Unit};
use crate::phase::Phase;

pub(crate) const ENTRY: Entry = Entry::new("fixed", Family::Rate, build)
    .summary("Constant rate without reaction to loss: a baseline for dedicated paths")
    .source("ours")
    .params(PARAMS)
    .without_loss_response();

const PARAMS: &[ParamSpec] = &[
    ParamSpec::new("rate_mbps", Unit::Mbps, "0", (0.0, 1e6))
        .doc("Sending rate including IP headers; 0 disables pacing")
        .source("ours: a baseline"),
    ParamSpec::new("window_packets", Unit::Packets, "0", (0.0, 1e9))
        .doc("Maximum number of unacknowledged packets; with 0 only the flow window limits this number")
        .source("ours: a baseline"),
];

#[derive(Debug)]
struct Fixed {
    rate: Option<Rate>,
    packet_bytes: Bytes,
    window: Option<Packets>,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranges are checked")]
fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let rate = params.rate("rate_mbps");
    let window = params.number("window_packets") as u64;
    Ok(Box::new(Fixed {
        rate: (rate.0 > 0).then_some(rate),
        packet_bytes,
        window: (window > 0).then_some(Packets(window)),
    }))
}

impl Controller for Fixed {
    fn limits(&self) -> SendLimits {
        let gap = self.rate.map_or(Gap::NONE, |rate| rate.gap(self.packet_bytes));
        SendLimits { gap, window: self.window, hold_until: None }
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    fn on_interval(&mut self, _report: &IntervalReport, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
    }
    fn phase(&self) -> Phase {
        Phase::Constant
    }
}
