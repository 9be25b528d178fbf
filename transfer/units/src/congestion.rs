//! Congestion header: the values that hosts and routers exchange, independent of the encoding.
//!
//! Source: [ECC]: a header between the transport and network headers of each data packet. Routers
//! rewrite the header and the receiver echoes it. Each algorithm uses its own set of values, a
//! [`CongestionForm`], which is the same for all packets of a channel.
//! Not here:    the encoding (`sabul-wire`); the algorithms of hosts and routers.

use crate::rate::Rate;
use crate::time::Span;

/// Scale of the losses in headers: one is 10^9 billionths.
pub const LOSS_ONE: i64 = 1_000_000_000;

/// Which values a congestion header holds: one form per algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CongestionForm {
    /// XCP's.
    Xcp,
    /// RCP's.
    Rcp,
    /// PIQI-RCP's.
    PiqiRcp,
    /// JetMax's.
    JetMax,
    /// EMKC's.
    Emkc,
    /// MaxNet's.
    MaxNet,
    /// Four numbers for a program's own algorithm.
    Own,
}

impl CongestionForm {
    /// All forms.
    pub const ALL: [Self; 7] =
        [Self::Xcp, Self::Rcp, Self::PiqiRcp, Self::JetMax, Self::Emkc, Self::MaxNet, Self::Own];

    /// Code of the form on the wire, 1 to 15.
    pub const fn code(self) -> u8 {
        match self {
            Self::Xcp => 1,
            Self::Rcp => 2,
            Self::PiqiRcp => 3,
            Self::JetMax => 4,
            Self::Emkc => 5,
            Self::MaxNet => 6,
            Self::Own => 15,
        }
    }

    /// Returns the form with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.code() == code)
    }

    /// Returns the fields of a flow that does not take part. Routers take no values from these
    /// fields and count the flow as uncontrolled traffic.
    pub const fn blank(self) -> CongestionFields {
        match self {
            Self::Xcp => CongestionFields::Xcp { rtt: Span::ZERO, interval: Span::ZERO, delta: 0 },
            Self::Rcp => CongestionFields::Rcp { rtt: Span::ZERO, rate: NO_RATE },
            Self::PiqiRcp => CongestionFields::PiqiRcp { rtt: Span::ZERO, rate: NO_RATE },
            Self::JetMax => CongestionFields::JetMax(JetMaxFields {
                interval: Span::ZERO,
                fair: NO_RATE,
                loss: i32::MIN,
                loss_max: i32::MIN,
                controlling: 0,
                suggested: 0,
                round: 0,
            }),
            Self::Emkc => {
                CongestionFields::Emkc { interval: Span::ZERO, loss: i64::MIN, router: 0, round: 0 }
            }
            Self::MaxNet => CongestionFields::MaxNet { price: Span::ZERO },
            Self::Own => CongestionFields::Own([0; 4]),
        }
    }
}

/// Interval in a packet that carries only a header: the flow is already counted by its data. Not
/// zero, which would mark a flow as uncontrolled.
pub const PROBE_INTERVAL: Span = Span(1);

/// No rate: no router has set a rate yet.
pub const NO_RATE: Rate = Rate(u64::MAX);

/// The values of a form. Spans are the sender's; [`Span::ZERO`] stands for an unknown value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionFields {
    /// XCP in its throughput form.
    Xcp {
        /// RTT of the sender.
        rtt: Span,
        /// Mean time between two packets: the RTT divided by the window in packets.
        interval: Span,
        /// Change of the throughput in bytes per second: the sender's request, as reduced by
        /// routers.
        delta: i64,
    },
    /// RCP.
    Rcp {
        /// RTT of the sender.
        rtt: Span,
        /// Smallest rate that a router allows; [`NO_RATE`] before the first router.
        rate: Rate,
    },
    /// PIQI-RCP.
    PiqiRcp {
        /// RTT of the sender.
        rtt: Span,
        /// Smallest rate that a router allows; [`NO_RATE`] before the first router.
        rate: Rate,
    },
    /// JetMax.
    JetMax(JetMaxFields),
    /// EMKC.
    Emkc {
        /// Time between two packets at the present sending rate.
        interval: Span,
        /// Largest loss of the path's routers, in billionths; negative where no router is full.
        loss: i64,
        /// Identifier of that router; 0 for none.
        router: u32,
        /// Number of that router's interval.
        round: u32,
    },
    /// MaxNet.
    MaxNet {
        /// Highest price of the path's routers.
        price: Span,
    },
    /// Numbers of a program's own algorithm.
    Own([u64; 4]),
}

/// JetMax's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JetMaxFields {
    /// Time between two packets at the present sending rate.
    pub interval: Span,
    /// Fair rate at the controlling router; [`NO_RATE`] before that router has set it.
    pub fair: Rate,
    /// Loss at the controlling router, in billionths; negative where the router is not full.
    pub loss: i32,
    /// Largest loss of the path's routers.
    pub loss_max: i32,
    /// Router that controls the flow; 0 for none.
    pub controlling: u32,
    /// Router with the largest loss.
    pub suggested: u32,
    /// Number of the controlling router's interval.
    pub round: u16,
}

impl CongestionFields {
    /// Returns the fields for a packet that carries only a header. Routers answer the packet and
    /// count no extra flow.
    #[must_use]
    pub const fn for_probe(mut self) -> Self {
        match &mut self {
            Self::JetMax(JetMaxFields { interval, .. }) | Self::Emkc { interval, .. } => {
                if interval.0 > PROBE_INTERVAL.0 {
                    *interval = PROBE_INTERVAL;
                }
            }
            Self::Xcp { rtt, interval, delta } => {
                (*rtt, *interval, *delta) = (Span::ZERO, Span::ZERO, 0);
            }
            Self::Rcp { .. } | Self::PiqiRcp { .. } | Self::MaxNet { .. } | Self::Own(_) => {}
        }
        self
    }

    /// Returns the form of these values.
    pub const fn form(&self) -> CongestionForm {
        match self {
            Self::Xcp { .. } => CongestionForm::Xcp,
            Self::Rcp { .. } => CongestionForm::Rcp,
            Self::PiqiRcp { .. } => CongestionForm::PiqiRcp,
            Self::JetMax(_) => CongestionForm::JetMax,
            Self::Emkc { .. } => CongestionForm::Emkc,
            Self::MaxNet { .. } => CongestionForm::MaxNet,
            Self::Own(_) => CongestionForm::Own,
        }
    }
}

/// A congestion header, as sent or as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionHeader {
    /// Number of routers that took part so far; 255 stands for 255 or more.
    pub routers: u8,
    /// Total queueing delay that these routers reported.
    pub queued: Span,
    /// Values of the algorithm.
    pub fields: CongestionFields,
}

impl CongestionHeader {
    /// Creates a header as sent, before the first router.
    pub const fn new(fields: CongestionFields) -> Self {
        Self { routers: 0, queued: Span::ZERO, fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_congestion_form_has_its_own_code_and_blank_fields() {
        for form in CongestionForm::ALL {
            assert_eq!(CongestionForm::from_code(form.code()), Some(form));
            assert_eq!(form.blank().form(), form);
        }
        assert_eq!(CongestionForm::from_code(0), None);
        assert_eq!(CongestionForm::from_code(14), None);
    }
}
