//! Events and small paths for tests of TCP controllers.

use sabul_units::{Bytes, Instant, Packets, Span};

use super::law::{Law, LossDriven};
use crate::controller::{Acked, Context, Controller, LossReport, Moment, RttEstimate, SentNumber};
use crate::params::{ParamSpec, ParamValues};

pub(super) const RTT: Span = Span::from_millis(100);

/// Checked parameters.
pub(super) fn values(specs: &'static [ParamSpec], given: &[(&str, &str)]) -> ParamValues {
    let given: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    ParamValues::check("the controller of a test", specs, &given).unwrap()
}

/// Creates a law in congestion avoidance, with a window of `cwnd`.
pub(super) fn avoiding<L: Law>(specs: &'static [ParamSpec], cwnd: f64, law: L) -> LossDriven<L> {
    let mut driven = LossDriven::new(&values(specs, &[]), law);
    driven.window.set(cwnd);
    driven.window.end_slow_start();
    driven
}

/// Returns a context at `now` after the start, on a path of at least [`RTT`].
pub(super) fn cx(now: Span, rtt: Span) -> Context<'static> {
    let min = RTT.min(rtt);
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min };
    Context::without_chance(&Moment::new(Instant::ZERO + now, Some(rtt), Bytes(1500)))
}

/// Returns an ACK: packet `largest` arrives with `newly - 1` packets before it, `in_flight` packets
/// are in flight.
pub(super) fn ack(newly: u64, in_flight: u64, largest: u64) -> Acked {
    Acked {
        newly: Packets(newly),
        in_flight: Packets(in_flight),
        largest: SentNumber(largest),
        settled: SentNumber(largest),
        next: SentNumber(largest + in_flight + 1),
        ..Acked::default()
    }
}

pub(super) fn loss(first: u64, largest: u64) -> LossReport {
    LossReport::new(Packets(1), Packets(0), SentNumber(first), SentNumber(largest))
}

/// Reports a loss of a packet sent after the arrival of `largest`.
pub(super) fn lose(controller: &mut dyn Controller, largest: &mut u64, now: Span) {
    *largest += 1;
    controller.on_loss(&loss(*largest, *largest), &mut cx(now, RTT));
}

/// Acknowledges packets one by one for one RTT that starts at `now`, with the whole window in
/// flight.
pub(super) fn round(controller: &mut dyn Controller, largest: &mut u64, now: Span, rtt: Span) {
    let window = controller.limits().window.unwrap().0;
    for n in 0..window {
        *largest += 1;
        let in_flight = controller.limits().window.unwrap().0 - 1;
        controller.on_ack(&ack(1, in_flight, *largest), &mut cx(now + rtt * n / window, rtt));
    }
}
