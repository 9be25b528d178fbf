//! Facts and small paths for the tests of the family.

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

/// A law in avoidance, with a window of `cwnd`.
pub(super) fn avoiding<L: Law>(specs: &'static [ParamSpec], cwnd: f64, law: L) -> LossDriven<L> {
    let mut driven = LossDriven::new(&values(specs, &[]), law);
    driven.window.set(cwnd);
    driven.window.end_slow_start();
    driven
}

/// `now` after the start, on a path of at least [`RTT`].
pub(super) fn cx(now: Span, rtt: Span) -> Context<'static> {
    let min = RTT.min(rtt);
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min };
    Context::without_chance(&Moment::new(Instant::ZERO + now, Some(rtt), Bytes(1500)))
}

/// Packet `largest` arrives with `newly - 1` before it, while `in_flight` are on their way.
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

/// A loss of something sent after `largest` has arrived.
pub(super) fn lose(controller: &mut dyn Controller, largest: &mut u64, now: Span) {
    *largest += 1;
    controller.on_loss(&loss(*largest, *largest), &mut cx(now, RTT));
}

/// Packets arrive one by one for one round trip that starts at `now`, the whole window in flight.
pub(super) fn round(controller: &mut dyn Controller, largest: &mut u64, now: Span, rtt: Span) {
    let window = controller.limits().window.unwrap().0;
    for n in 0..window {
        *largest += 1;
        let in_flight = controller.limits().window.unwrap().0 - 1;
        controller.on_ack(&ack(1, in_flight, *largest), &mut cx(now + rtt * n / window, rtt));
    }
}
