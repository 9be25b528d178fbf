//! NewReno: one more packet per RTT, half of the window at each loss event.
//!
//! Source: [RFC5681 §3.1] (slow start, avoidance), [RFC6582 §3.2] (one decrease a window of data),
//! [RFC6928 §2] (initial window).
//! Model, per packet acknowledged outside recovery while the window is the limit:
//!     cwnd < ssthresh:  cwnd += 1
//!     else:             cwnd += 1 / cwnd
//! On a loss event:      ssthresh = cwnd = max(flight / 2, 2)
//! On a timeout:         ssthresh = max(flight / 2, 2), cwnd = 1
//! States, invariants:   `window`.
//! Not here:    retransmissions, which the sender selects; window inflation, which selective
//!              acknowledgements make unnecessary.

use sabul_units::Bytes;

use super::law::{Law, LossDriven};
use super::window::{INITIAL_WINDOW, SSTHRESH};
use crate::controller::{Context, Controller};
use crate::entry::{Entry, Family};
use crate::params::{ConfigError, ParamSpec, ParamValues};

/// [RFC5681 §3.1] eq. 4: half of the packets in flight remains.
pub const BETA: f64 = 0.5;

pub(crate) const ENTRY: Entry = Entry::new("newreno", Family::Window, build)
    .summary("TCP NewReno's window: grows by one packet per RTT, halves at each loss; paced")
    .source("[RFC5681 §3.1], [RFC6582 §3.2]")
    .params(PARAMS);

/// Parameters of NewReno, and of each law without parameters of its own.
pub const PARAMS: &[ParamSpec] = &[INITIAL_WINDOW, SSTHRESH];

/// NewReno's law; see the module.
#[derive(Debug)]
pub struct NewReno;

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(LossDriven::new(params, NewReno)))
}

impl Law for NewReno {
    fn grow(&mut self, cwnd: f64, packets: f64, _cx: &Context<'_>) -> f64 {
        // [RFC5681 §3.1] eq. 3, for all packets that the ACK covers.
        packets / cwnd
    }

    fn keep(&mut self, _cwnd: f64, _cx: &Context<'_>) -> f64 {
        BETA
    }
}

#[cfg(test)]
mod tests;
