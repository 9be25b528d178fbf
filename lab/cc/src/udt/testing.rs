//! Events for tests of UDT controllers.

use sabul_cc::{
    Acked, Context, Controller, IntervalReport, LossReport, Moment, ParamSpec, ParamValues,
    RttEstimate, SYN_INTERVAL, SentNumber,
};
use sabul_units::{Bytes, Instant, Packets, Span};

pub(super) const RTT: Span = Span::from_millis(40);

/// Checked parameters.
pub(super) fn values(specs: &'static [ParamSpec], given: &[(&str, &str)]) -> ParamValues {
    let given: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    ParamValues::check("the controller of a test", specs, &given).unwrap()
}

/// Returns a context at `now` after the start, on a path of [`RTT`].
pub(super) fn cx(now: Span) -> Context<'static> {
    let rtt = RttEstimate { latest: RTT, smoothed: RTT, variance: Span::ZERO, min: RTT };
    Context::without_chance(&Moment::new(Instant::ZERO + now, Some(rtt), Bytes(1500)))
}

/// Returns a NAK of one packet.
pub(super) fn loss(first: u64, largest: u64) -> LossReport {
    LossReport::new(Packets(1), Packets(0), SentNumber(first), SentNumber(largest))
}

/// Returns an interval in which 1000 packets left and `lost` were lost.
pub(super) fn interval(lost: u64) -> IntervalReport {
    IntervalReport::new(Packets(1000), Packets(0), Packets(lost), SYN_INTERVAL, false)
}

/// Sends one interval after another, each with an ACK.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) now: Span,
    pub(super) total: u64,
}

impl Steps {
    /// Sends an interval in which `packets` arrive without loss.
    pub(super) fn step(&mut self, controller: &mut dyn Controller, packets: u64) {
        self.step_with(controller, packets, &interval(0));
    }

    pub(super) fn step_with(
        &mut self,
        controller: &mut dyn Controller,
        packets: u64,
        report: &IntervalReport,
    ) {
        self.now += SYN_INTERVAL;
        self.total += packets;
        let acked = Acked {
            newly: Packets(packets),
            total: Packets(self.total),
            largest: SentNumber(self.total),
            next: SentNumber(self.total + 1),
            arrived_at: self.now,
            ..Acked::default()
        };
        controller.on_ack(&acked, &mut cx(self.now));
        controller.on_interval(report, &mut cx(self.now));
    }
}
