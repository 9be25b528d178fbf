//! Attacker on the path that overwrites congestion headers.
//!
//! Model:       behind the router of a link, each passing header receives other values of its own
//!              form, and counts as answered by a router.
//! Not here:    bytes that do not decode as a header: `sabul-wire` rejects them, and the packet
//!              continues as if without a header.

use sabul_units::{
    CongestionFields, CongestionHeader, JetMaxFields, Random, Rate, SeededRandom, Span,
};

/// Values written into the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// An unlimited path: the highest rate, the least loss and price, no queue.
    Huge,
    /// A path without capacity: rate zero, the highest loss and price.
    Zero,
    /// Random bits, different in each packet.
    Random,
}

/// Names of the forgeries, and `none`.
pub(crate) const FORGERIES: &[&str] = &["none", "huge", "zero", "random"];

impl Forgery {
    /// Returns the forgery of this name, if any.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "huge" => Some(Self::Huge),
            "zero" => Some(Self::Zero),
            "random" => Some(Self::Random),
            _ => None,
        }
    }
}

/// Forger at a link.
#[derive(Clone, Debug)]
pub(crate) struct Forger {
    how: Forgery,
    random: SeededRandom,
    /// Number of a router's interval; each is new.
    round: u32,
}

impl Forger {
    pub(crate) const fn new(how: Forgery, random: SeededRandom) -> Self {
        Self { how, random, round: 0 }
    }

    /// Overwrites a passing header.
    pub(crate) fn forge(&mut self, header: &mut CongestionHeader) {
        self.round = self.round.wrapping_add(1);
        header.routers = header.routers.max(1);
        header.queued = Span::ZERO;
        match self.how {
            Forgery::Huge => self.fill(&mut header.fields, true),
            Forgery::Zero => self.fill(&mut header.fields, false),
            Forgery::Random => {
                header.routers = self.bits().to_le_bytes()[0];
                header.queued = Span(self.bits() >> 24);
                self.scramble(&mut header.fields);
            }
        }
    }

    const fn fill(&self, fields: &mut CongestionFields, is_endless: bool) {
        match fields {
            CongestionFields::Xcp { delta, .. } => {
                *delta = if is_endless { i64::MAX } else { i64::MIN };
            }
            CongestionFields::Rcp { rate, .. } | CongestionFields::PiqiRcp { rate, .. } => {
                *rate = if is_endless { Rate(u64::MAX - 1) } else { Rate(0) };
            }
            CongestionFields::JetMax(values) => {
                values.fair = if is_endless { Rate(u64::MAX - 1) } else { Rate(0) };
                (values.loss, values.loss_max) =
                    if is_endless { (i32::MIN + 1, i32::MIN + 1) } else { (i32::MAX, i32::MAX) };
                values.suggested = if values.controlling == 0 { 1 } else { values.controlling };
                values.round = (self.round & 0xFFFF) as u16;
            }
            CongestionFields::Emkc { loss, router, round, .. } => {
                *loss = if is_endless { i64::MIN + 1 } else { i64::MAX };
                (*router, *round) = (1, self.round);
            }
            CongestionFields::MaxNet { price } => {
                *price = if is_endless { Span::ZERO } else { Span(u64::MAX) };
            }
            CongestionFields::Own(values) => *values = [if is_endless { u64::MAX } else { 0 }; 4],
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "any bits")]
    fn scramble(&mut self, fields: &mut CongestionFields) {
        match fields {
            CongestionFields::Xcp { rtt, interval, delta } => {
                (*rtt, *interval) = (Span(self.bits()), Span(self.bits()));
                *delta = self.bits() as i64;
            }
            CongestionFields::Rcp { rtt, rate } | CongestionFields::PiqiRcp { rtt, rate } => {
                (*rtt, *rate) = (Span(self.bits()), Rate(self.bits()));
            }
            CongestionFields::JetMax(values) => {
                *values = JetMaxFields {
                    interval: Span(self.bits()),
                    fair: Rate(self.bits()),
                    loss: self.bits() as i32,
                    loss_max: self.bits() as i32,
                    // With any other value the flow would treat the header as an answer to an
                    // earlier packet.
                    controlling: values.controlling,
                    suggested: self.bits() as u32,
                    round: self.bits() as u16,
                };
            }
            CongestionFields::Emkc { interval, loss, router, round } => {
                (*interval, *loss) = (Span(self.bits()), self.bits() as i64);
                (*router, *round) = (self.bits() as u32, self.bits() as u32);
            }
            CongestionFields::MaxNet { price } => *price = Span(self.bits()),
            CongestionFields::Own(values) => {
                values.fill_with(|| self.random.next_u64());
            }
        }
    }

    /// Returns random bits; small and large numbers are equally likely.
    fn bits(&mut self) -> u64 {
        self.random.next_u64() >> self.random.below(64)
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::CongestionForm;

    use super::*;

    #[test]
    fn each_forgery_has_a_name_and_keeps_the_header_form() {
        assert_eq!(Forgery::named("none"), None);
        for name in &FORGERIES[1..] {
            let how = Forgery::named(name).unwrap();
            let mut forger = Forger::new(how, SeededRandom::new(1));
            for form in CongestionForm::ALL {
                let mut header = CongestionHeader::new(form.blank());
                forger.forge(&mut header);
                assert_eq!(header.fields.form(), form);
                assert_ne!(header, CongestionHeader::new(form.blank()), "{name}");
            }
        }
    }

    #[test]
    fn huge_and_zero_forgeries_set_extreme_rates() {
        for (name, wanted) in [("huge", u64::MAX - 1), ("zero", 0)] {
            let mut header = CongestionHeader::new(CongestionForm::Rcp.blank());
            Forger::new(Forgery::named(name).unwrap(), SeededRandom::new(1)).forge(&mut header);
            let CongestionFields::Rcp { rate, .. } = header.fields else { panic!("{header:?}") };
            assert_eq!((rate, header.routers), (Rate(wanted), 1));
        }
    }
}
