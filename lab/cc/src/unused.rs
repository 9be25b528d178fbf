//! Rate validation: an unused rate does not rise.
//!
//! Source: ours, as [RFC9438 §5.8] for windows.
//! Model:       if the newest packet that arrived left while the application limited the sender, an
//!              interval that used less than half of the rate shows nothing about the path.
//! Not here:    the rates (`sabul2002`, `sabul2003`).

use sabul_cc::{Acked, ParamSpec, ParamValues};
use sabul_units::{Packets, Span};

pub(crate) const UNUSED: ParamSpec = ParamSpec::word("unused", &["hold", "rise"], "hold")
    .doc("Rate while the application or the receive buffer leaves more than half of the rate unused: 'hold', \
          no increase; 'rise', as published")
    .source("ours; the papers' sources always have data");

/// State of the rule; see the module.
#[derive(Debug)]
pub(crate) struct Unused {
    is_held: bool,
    is_limited: bool,
}

impl Unused {
    pub(crate) fn new(params: &ParamValues) -> Self {
        let is_held = params.choice(UNUSED.name, &[("hold", true), ("rise", false)]);
        Self { is_held, is_limited: false }
    }

    pub(crate) const fn on_ack(&mut self, acked: &Acked) {
        self.is_limited = acked.is_app_limited;
    }

    /// DEV-070: returns whether an interval raises nothing: `sent` packets left, with one packet
    /// per `gap` allowed.
    pub(crate) fn holds(&self, sent: Packets, elapsed: Span, gap: Span) -> bool {
        let used = u128::from(sent.0) * u128::from(gap.0) * 2;
        self.is_held && self.is_limited && used < u128::from(elapsed.0)
    }
}
