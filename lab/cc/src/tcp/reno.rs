//! Reno: as NewReno, but a decrease covers the losses of one RTT, not of a window of data.
//!
//! Source: [RFC5681 §3.1] (slow start, avoidance), [RFC5681 §3.2] (fast recovery).
//! Model:       as `newreno`. Fast recovery ends with the first ACK of new data, which acknowledges
//!              the first retransmission: one RTT after the decrease. Later loss reports are new
//!              events, even of packets sent before.
//! States, invariants:   `window`.
//! Not here:    recovery without selective acknowledgements, in which Reno detects one loss per RTT
//!              and often ends in a timeout. The sender selects retransmissions, and this project's
//!              senders have complete ACKs.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::law::{Law, LossDriven};
use sabul_cc::tcp::newreno::BETA;
use sabul_cc::tcp::window::{INITIAL_WINDOW, SSTHRESH};
use sabul_cc::{ConfigError, Context, Controller, ParamSpec, ParamValues};
use sabul_units::{Bytes, Span};

pub(crate) const ENTRY: Entry = Entry::new("reno", Family::Window, build)
    .summary("TCP Reno's window: as newreno, but one decrease for all losses of one RTT")
    .source("[RFC5681 §3.1], [RFC5681 §3.2]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[INITIAL_WINDOW, SSTHRESH];

#[derive(Debug)]
struct Reno;

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, Reno)))
}

impl Law for Reno {
    fn grow(&mut self, cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
        // [RFC5681 §3.1] eq. 3, for all packets that the ACK covers.
        packets / cwnd
    }

    fn keep(&mut self, _cwnd: f64, _cx: &Context<'_>) -> f64 {
        BETA
    }

    fn recovery_max(&self, cx: &Context<'_>) -> Option<Span> {
        // [RFC5681 §3.2] step 6.
        cx.rtt.map(|rtt| rtt.smoothed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_cc::tcp::testing::{RTT, ack, avoiding, cx, loss};

    #[test]
    fn one_decrease_covers_the_losses_of_one_round_trip() {
        let mut reno = avoiding(PARAMS, 100.0, Reno);
        reno.on_loss(&loss(5, 99), &mut cx(Span::ZERO, RTT));
        reno.on_loss(&loss(7, 120), &mut cx(RTT - Span(1), RTT));
        assert!((reno.window.cwnd() - 50.0).abs() < 1e-9, "once in a round trip");
        // Packet 9 was sent before the first decrease: NewReno leaves 50, Reno 25.
        reno.on_loss(&loss(9, 120), &mut cx(RTT, RTT));
        assert!((reno.window.cwnd() - 25.0).abs() < 1e-9, "{reno:?}");
    }

    #[test]
    fn reno_recovery_ends_after_one_round_trip() {
        let mut reno = avoiding(PARAMS, 100.0, Reno);
        reno.on_loss(&loss(5, 99), &mut cx(Span::ZERO, RTT));
        reno.on_ack(&ack(5, 45, 20), &mut cx(RTT - Span(1), RTT));
        assert_eq!(reno.phase().name(), "recovery");
        // A partial ACK: packets up to 99 have not all arrived. 50 + 10 / 50 = 50.2.
        reno.on_ack(&ack(10, 40, 30), &mut cx(RTT, RTT));
        assert_eq!(reno.phase().name(), "avoidance");
        assert!((reno.window.cwnd() - 50.2).abs() < 1e-9, "{reno:?}");
    }
}
