//! RBUDP: a constant rate chosen by the user for the path. [RBUDP]
//!
//! Everything else is [`ROUNDS`](crate::rules::ROUNDS).

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    ConfigError, Constants, Context, Controller, IntervalReport, LossReport, ParamSpec,
    ParamValues, Phase, SendLimits, Unit,
};
use sabul_units::{Bytes, Rate};

use crate::rules::ROUNDS;

pub(crate) const ENTRY: Entry = Entry::new("rbudp", Family::Rate, build)
    .summary("RBUDP: constant rate; each round sends the data that the previous round lost")
    .source("[RBUDP] He, Leigh, Yu 2002")
    .params(PARAMS)
    .without_loss_response();

const PARAMS: &[ParamSpec] = &[ParamSpec::new("rate_mbps", Unit::Mbps, "100", (0.01, 1e6))
    .doc("Sending rate including IP headers")
    .source("[RBUDP] leaves it to the user; default ours")];

#[derive(Debug)]
struct Rbudp {
    rate: Rate,
    packet_bytes: Bytes,
}

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let rate = params.rate("rate_mbps");
    Ok(Box::new(Rbudp { rate, packet_bytes }))
}

impl Controller for Rbudp {
    fn limits(&self) -> SendLimits {
        SendLimits { gap: self.rate.gap(self.packet_bytes), window: None, hold_until: None }
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    fn on_interval(&mut self, _report: &IntervalReport, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
    }
    fn constants(&self) -> Constants {
        Constants { rules: ROUNDS, ..Constants::default() }
    }
    fn phase(&self) -> Phase {
        Phase::Constant
    }
}
