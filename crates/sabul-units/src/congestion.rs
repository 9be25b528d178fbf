//! What a congestion header says: the values that hosts and routers exchange in it, whatever its layout.
//!
//! Source: [ECC]: a header between transport and network header of each data packet, which routers rewrite
//! and the receiver echoes. Which values each algorithm needs is its own; a [`CongestionForm`] is one set of
//! them, and the same for all packets of a channel.
//! Not here:    the bytes (`sabul-wire`); what either half makes of the values (`sabul-cc`).

use crate::rate::Rate;
use crate::time::Span;

/// Parts of one in the losses that headers tell: billionths.
pub const LOSS_ONE: i64 = 1_000_000_000;

/// Which values a congestion header holds.
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
    /// Four numbers whose meaning only a program's own algorithm knows.
    Own,
}

impl CongestionForm {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Xcp, Self::Rcp, Self::PiqiRcp, Self::JetMax, Self::Emkc, Self::MaxNet, Self::Own];

    /// The number that stands for it on the wire: 1 to 15.
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

    /// The form that this number stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.code() == code)
    }

    /// Its fields as a flow writes them that does not take part: routers learn nothing from it, and count it
    /// as traffic that nobody controls.
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

/// The interval of a packet that is nothing but a header: its flow is counted by its data. Not zero, which says that
/// a flow does not listen.
pub const ASKING: Span = Span(1);

/// The rate that stands for none: no router has told one.
pub const NO_RATE: Rate = Rate(u64::MAX);

/// The values of a form. Spans are the sender's; [`Span::ZERO`] stands for one that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionFields {
    /// XCP in its form for throughputs.
    Xcp {
        /// The sender's round trip.
        rtt: Span,
        /// Between two packets, were they even: the round trip over the window in packets.
        interval: Span,
        /// By how much the throughput shall change, in bytes a second: what the sender wishes, then what
        /// routers have made of it.
        delta: i64,
    },
    /// RCP.
    Rcp {
        /// The sender's round trip.
        rtt: Span,
        /// The least that a router allows; [`NO_RATE`] before the first.
        rate: Rate,
    },
    /// PIQI-RCP.
    PiqiRcp {
        /// The sender's round trip.
        rtt: Span,
        /// The least that a router allows; [`NO_RATE`] before the first.
        rate: Rate,
    },
    /// JetMax.
    JetMax(JetMaxFields),
    /// EMKC.
    Emkc {
        /// Between two packets, at the rate at which this one left.
        interval: Span,
        /// The largest loss of a router's that the path has, in billionths; below zero where none is full.
        loss: i64,
        /// Which router that is; 0 for none.
        router: u32,
        /// Which of its intervals.
        round: u32,
    },
    /// MaxNet.
    MaxNet {
        /// The highest price of a router's that the path has.
        price: Span,
    },
    /// A program's own.
    Own([u64; 4]),
}

/// JetMax's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JetMaxFields {
    /// Between two packets, at the rate at which this one left.
    pub interval: Span,
    /// The fair rate at the controlling router; [`NO_RATE`] before that has told it.
    pub fair: Rate,
    /// The loss at that router, in billionths; below zero where it is not full.
    pub loss: i32,
    /// The largest loss of a router's that the path has.
    pub loss_max: i32,
    /// The router that the flow obeys; 0 for none.
    pub controlling: u32,
    /// The router of the largest loss.
    pub suggested: u32,
    /// Which interval of the controlling router it was.
    pub round: u16,
}

impl CongestionFields {
    /// The same for a packet that is nothing but a header: routers answer it, and count no flow more for it.
    #[must_use]
    pub const fn asking(mut self) -> Self {
        match &mut self {
            Self::JetMax(JetMaxFields { interval, .. }) | Self::Emkc { interval, .. } => {
                if interval.0 > ASKING.0 {
                    *interval = ASKING;
                }
            }
            Self::Xcp { rtt, interval, delta } => {
                (*rtt, *interval, *delta) = (Span::ZERO, Span::ZERO, 0);
            }
            Self::Rcp { .. } | Self::PiqiRcp { .. } | Self::MaxNet { .. } | Self::Own(_) => {}
        }
        self
    }

    /// The form that has these values.
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

/// A congestion header, as it left or as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionHeader {
    /// Routers that took part so far; 255 stands for more.
    pub routers: u8,
    /// How long the packet waited in their queues, by their own account.
    pub queued: Span,
    /// The values of the algorithm.
    pub fields: CongestionFields,
}

impl CongestionHeader {
    /// As a sender writes it: no router has seen it.
    pub const fn new(fields: CongestionFields) -> Self {
        Self { routers: 0, queued: Span::ZERO, fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_own_number_and_blank_fields_of_its_own() {
        for form in CongestionForm::ALL {
            assert_eq!(CongestionForm::from_code(form.code()), Some(form));
            assert_eq!(form.blank().form(), form);
        }
        assert_eq!(CongestionForm::from_code(0), None);
        assert_eq!(CongestionForm::from_code(14), None);
    }
}
