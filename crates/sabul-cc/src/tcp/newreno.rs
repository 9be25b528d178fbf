//! NewReno: one packet more each round trip, half the window at each loss event.
//!
//! Source: [RFC5681 §3.1] (slow start, avoidance), [RFC6582 §3.2] (one decrease a window of data),
//! [RFC6928 §2] (initial window).
//! Model, per packet acknowledged outside recovery while the window is what binds:
//!     cwnd < ssthresh:  cwnd += 1
//!     else:             cwnd += 1 / cwnd
//! On a loss event:      ssthresh = cwnd = max(flight / 2, 2)
//! On a timeout:         ssthresh = max(flight / 2, 2), cwnd = 1
//! States, invariants:   `window`.
//! Not here:    which packet goes out again (the sender's part; with selective acknowledgement no
//!              window needs inflating).

use sabul_units::Bytes;

use super::window::{Heard, INITIAL_WINDOW, SSTHRESH, Window};
use crate::controller::{Acked, Context, Controller, LossReport, SendLimits};
use crate::params::{ConfigError, ParamSpec, ParamValues};

/// [RFC5681 §3.1] eq. 4: half of what is in flight stays.
const BETA: f64 = 0.5;

pub(crate) const PARAMS: &[ParamSpec] = &[INITIAL_WINDOW, SSTHRESH];

#[derive(Debug)]
struct NewReno {
    window: Window,
}

pub(crate) fn build(
    params: &ParamValues,
    _packet_bytes: Bytes,
) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(NewReno { window: Window::new(params) }))
}

impl Controller for NewReno {
    fn limits(&self) -> SendLimits {
        self.window.limits()
    }

    fn on_ack(&mut self, acked: &Acked, cx: &Context) {
        match self.window.hear(acked, cx) {
            Heard::Mark => self.window.shrink(BETA),
            Heard::Hold => {}
            Heard::Grow(packets) => {
                let rest = self.window.slow_start(packets);
                // [RFC5681 §3.1] eq. 3, for as many packets as the ACK covers.
                let cwnd = self.window.cwnd();
                self.window.set(cwnd + rest / cwnd);
            }
        }
    }

    fn on_loss(&mut self, loss: &LossReport, _cx: &Context) {
        if self.window.opens_epoch(loss) {
            self.window.shrink(BETA);
        }
    }

    fn on_timeout(&mut self, _cx: &Context) {
        self.window.time_out(BETA);
    }

    fn phase(&self) -> &'static str {
        self.window.phase()
    }
}

#[cfg(test)]
mod tests;
