//! Events and small paths for unit tests of window controllers, in this crate and in others.

use sabul_units::{Bytes, Instant, Packets, Span};

use super::law::{Law, LossDriven};
use crate::controller::{Acked, Context, Controller, LossReport, Moment, RttEstimate, SentNumber};
use crate::params::{ParamSpec, ParamValues};

/// Smallest RTT of the path in the tests.
pub const RTT: Span = Span::from_millis(100);

/// Returns checked parameters.
///
/// # Panics
/// If a value is not allowed.
pub fn values(specs: &'static [ParamSpec], given: &[(&str, &str)]) -> ParamValues {
    let given: Vec<_> = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    ParamValues::check("the controller of a test", specs, &given)
        .expect("the test's own values are allowed")
}

/// Creates a law in congestion avoidance, with a window of `cwnd`.
///
/// # Panics
/// If the specs lack a parameter of every window controller.
pub fn avoiding<L: Law>(specs: &'static [ParamSpec], cwnd: f64, law: L) -> LossDriven<L> {
    let mut driven = LossDriven::new(&values(specs, &[]), law);
    driven.window.set(cwnd);
    driven.window.end_slow_start();
    driven
}

/// Returns a context at `now` after the start, on a path of at least [`RTT`].
pub fn cx(now: Span, rtt: Span) -> Context<'static> {
    let min = RTT.min(rtt);
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min };
    Context::without_chance(&Moment::new(Instant::ZERO + now, Some(rtt), Bytes(1500)))
}

/// Returns an ACK: packet `largest` arrives with `newly - 1` packets before it, `in_flight` packets
/// are in flight.
pub fn ack(newly: u64, in_flight: u64, largest: u64) -> Acked {
    Acked {
        newly: Packets(newly),
        in_flight: Packets(in_flight),
        largest: SentNumber(largest),
        cumulative_ack: SentNumber(largest),
        next: SentNumber(largest + in_flight + 1),
        ..Acked::default()
    }
}

/// Returns a report of one loss, number `first`, where `largest` is the newest number.
pub fn loss(first: u64, largest: u64) -> LossReport {
    LossReport::new(Packets(1), Packets(0), SentNumber(first), SentNumber(largest))
}

/// Reports a loss of a packet sent after the arrival of `largest`.
pub fn lose(controller: &mut dyn Controller, largest: &mut u64, now: Span) {
    *largest += 1;
    controller.on_loss(&loss(*largest, *largest), &mut cx(now, RTT));
}

/// Acknowledges packets one by one for one RTT that starts at `now`, with the whole window in
/// flight.
///
/// # Panics
/// If the controller has no window.
pub fn round(controller: &mut dyn Controller, largest: &mut u64, now: Span, rtt: Span) {
    let window = window_of(controller);
    for n in 0..window {
        *largest += 1;
        let in_flight = window_of(controller) - 1;
        controller.on_ack(&ack(1, in_flight, *largest), &mut cx(now + rtt * n / window, rtt));
    }
}

fn window_of(controller: &dyn Controller) -> u64 {
    controller.limits().window.expect("a window controller has a window").0
}
