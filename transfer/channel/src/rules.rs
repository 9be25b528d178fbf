//! Channel rules: order of transmission, and content and time of receiver reports.
//!
//! SABUL's own rules are in sender and receiver: losses first, then new data; a NAK for each loss. A
//! related protocol implements [`SenderRules`] and [`ReceiverRules`] and lists them in a [`RuleSet`],
//! which its crate adds with [`include()`]. Rules that differ only in the kind and time of ACKs, NAKs
//! and SYN reports, as those of SABUL 2002, need neither: their set names a [`ReportRule`].

use std::fmt;
use std::sync::OnceLock;

use sabul_cc::{BulkReport, ChannelRules, ConfigError};
use sabul_units::{Instant, PacketNumber, SeqNo};
use sabul_wire::{LossPolicy, Mark, Missing, NumberRange};

use crate::reports::ReportRule;

pub use crate::marks::Marks;
pub use crate::receiver::context::ReceiverContext;
pub use crate::receiver::lists::Listing;
pub use crate::receiver::sequence::Sequence;
pub use crate::sender::pace::PaceReference;

/// One set of channel rules: what both ends of a channel need to follow them.
#[derive(Clone, Copy, Debug)]
pub struct RuleSet {
    /// Name by which controllers ask for the rules.
    pub rules: ChannelRules,
    /// Codes in an `Open` message under the current and the historical policy; the same number
    /// twice where the rules set the policy. Codes are never reused.
    pub codes: [u8; 2],
    /// Returns loss policy and times of reports; the argument is the policy that the user chose.
    pub reports: fn(LossPolicy) -> (LossPolicy, ReportRule),
    /// Creates the sender's half; `None` for losses first, then new data.
    pub sender: Option<fn() -> Box<dyn SenderRules>>,
    /// Creates the receiver's half; `None` for NAKs only.
    pub receiver: Option<fn() -> Box<dyn ReceiverRules>>,
}

impl RuleSet {
    /// SABUL's own rules.
    pub const STANDARD: Self = Self {
        rules: ChannelRules::STANDARD,
        codes: [0, 1],
        reports: |policy| (policy, ReportRule::of_policy(policy)),
        sender: None,
        receiver: None,
    };

    /// Returns the code of the rules in an `Open` message.
    pub const fn code(&self, policy: LossPolicy) -> u8 {
        match policy {
            LossPolicy::Current => self.codes[0],
            LossPolicy::Historical => self.codes[1],
        }
    }

    /// Returns loss policy and report rule of a channel; `policy` applies unless the rules set one.
    pub fn for_policy(&'static self, policy: LossPolicy) -> (LossPolicy, ReportRule) {
        let (policy, reports) = (self.reports)(policy);
        (policy, ReportRule { rules: self, ..reports })
    }
}

/// Kind of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// New data.
    New,
    /// The first transmission of a part that was cut off a larger piece.
    Rest,
    /// A retransmission.
    Again,
}

/// Counts over all DATA packets so far.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Packets sent and no longer in flight.
    pub resolved: u64,
    /// Packets that arrived.
    pub arrived: u64,
}

/// Result of processing a list of missing numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do: the list answers a repeated mark and was processed before.
    Known,
    /// The listed numbers are lost.
    Lost {
        /// Whether the numbers go onto the loss list.
        resend: bool,
        /// Report for the controller.
        report: Option<BulkReport>,
    },
}

/// Sender's half of channel rules. Each method defaults to losses first, then new data.
pub trait SenderRules: fmt::Debug + Send {
    /// Records that a DATA packet left.
    fn on_sent(&mut self, _seq: SeqNo, _sending: Sending) {}
    /// Returns the reference time for the gap after the packet that has just left.
    fn pace_from(&mut self, _number: PacketNumber) -> PaceReference {
        PaceReference::Due
    }
    /// Returns whether nothing may leave before the newest mark is answered.
    fn is_waiting(&self) -> bool {
        false
    }
    /// Returns whether pieces can be repeated that are not on the loss list.
    fn has_repeats(&self) -> bool {
        false
    }
    /// Returns the next piece to repeat that is not on the loss list. With `begins_again` the order
    /// begins at the first piece again.
    fn next_repeat(&mut self, _begins_again: bool) -> Option<SeqNo> {
        None
    }
    /// Returns the timer of marks; `None` where the rules have no marks.
    fn marks(&mut self) -> Option<&mut Marks> {
        None
    }
    /// Processes the cumulative acknowledgement; `seq` is the first unacknowledged number. Returns a
    /// report for the controller.
    fn on_acknowledged(&mut self, _seq: SeqNo) -> Option<BulkReport> {
        None
    }
    /// Processes a list of missing numbers in a range; all other numbers of the range have arrived.
    fn on_missing(&mut self, _missing: &Missing, _totals: Totals) -> Verdict {
        Verdict::Lost { resend: true, report: None }
    }
    /// Returns whether the peer may send this report for the controller.
    fn accepts(&self, _report: BulkReport) -> bool {
        false
    }
    /// Checks the invariants that hold between any two calls; `unacknowledged` has the numbers that
    /// were sent and not acknowledged, and is inverted if there are none.
    ///
    /// # Panics
    /// If an invariant does not hold.
    fn check_invariants(&self, _unacknowledged: NumberRange) {}
}

/// Receiver's half of channel rules. Each method defaults to no report beside ACKs and NAKs.
pub trait ReceiverRules: fmt::Debug + Send {
    /// Returns whether the sender may send marks.
    fn has_marks(&self) -> bool {
        false
    }
    /// Returns whether the newest packet, number `packets` to arrive, requests an ACK.
    fn needs_ack(&self, _packets: u64) -> bool {
        true
    }
    /// Handles newly missing numbers.
    fn on_gap(&mut self, _context: &mut ReceiverContext<'_>, _gap: NumberRange) {}
    /// Handles a piece; the piece and the gap before it are already recorded.
    fn on_piece(&mut self, _context: &mut ReceiverContext<'_>, _number: PacketNumber, _seq: SeqNo) {
    }
    /// Handles a mark: the sender has sent everything before the mark's end, and nothing more for
    /// now. `tail` is the newly missing part.
    fn on_mark(
        &mut self,
        _context: &mut ReceiverContext<'_>,
        _mark: Mark,
        _tail: Option<NumberRange>,
    ) {
    }
    /// Runs the timers of the rules.
    fn run(&mut self, _context: &mut ReceiverContext<'_>) {}
    /// Returns when a timer of the rules fires.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Checks the invariants that hold between any two calls.
    ///
    /// # Panics
    /// If an invariant does not hold.
    fn check_invariants(&self) {}
}

/// Sets added by another crate; set at most once.
static INCLUDED: OnceLock<&'static [RuleSet]> = OnceLock::new();

/// Adds the rules of another crate. Call before any look-up. A second call with the same names has no
/// effect.
///
/// # Errors
/// If other rules were added before, or if a name or code is taken.
pub fn include(sets: &'static [RuleSet]) -> Result<(), ConfigError> {
    for (index, set) in sets.iter().enumerate() {
        let mut others = std::iter::once(&RuleSet::STANDARD).chain(&sets[..index]);
        if others.any(|other| is_alike(other, set)) {
            return Err(refusal("added", set.rules.name, "a name and codes of their own"));
        }
    }
    let names = |sets: &[RuleSet]| -> Vec<_> { sets.iter().map(|set| set.rules.name).collect() };
    if names(INCLUDED.get_or_init(|| sets)) == names(sets) {
        return Ok(());
    }
    Err(refusal("added", &names(sets).join(", "), "one table for all"))
}

fn is_alike(one: &RuleSet, other: &RuleSet) -> bool {
    one.rules.name == other.rules.name || one.codes.iter().any(|code| other.codes.contains(code))
}

fn refusal(which: &str, value: &str, allowed: &str) -> ConfigError {
    ConfigError {
        setting: format!("{which} channel rules"),
        value: value.to_owned(),
        allowed: allowed.to_owned(),
    }
}

fn all() -> impl Iterator<Item = &'static RuleSet> {
    std::iter::once(&RuleSet::STANDARD).chain(INCLUDED.get().copied().unwrap_or_default())
}

/// Returns the rules that a controller asks for.
///
/// # Errors
/// If no rules have this name.
pub fn find(rules: ChannelRules) -> Result<&'static RuleSet, ConfigError> {
    all().find(|set| set.rules == rules).ok_or_else(|| {
        let names: Vec<_> = all().map(|set| set.rules.name).collect();
        refusal("requested", rules.name, &format!("one of: {}", names.join(", ")))
    })
}

/// Returns loss policy and report rule for a code of an `Open` message; `None` if the code is
/// unknown to this program.
pub fn of_code(code: u8) -> Option<(LossPolicy, ReportRule)> {
    let policies = [LossPolicy::Current, LossPolicy::Historical];
    let mut choices = all().flat_map(|set| policies.map(|policy| (set, policy)));
    let (set, policy) = choices.find(|(set, policy)| set.code(*policy) == code)?;
    Some(set.for_policy(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ChannelRules = ChannelRules { name: "own", has_naks: true };
    const SET: RuleSet = RuleSet { rules: OWN, codes: [200, 200], ..RuleSet::STANDARD };

    #[test]
    fn another_crate_includes_its_rules_once_and_names_and_codes_stay_unique() {
        let named = |name, codes| RuleSet { rules: ChannelRules { name, ..OWN }, codes, ..SET };
        let text = |sets: Vec<RuleSet>| include(sets.leak()).unwrap_err().to_string();
        assert!(text(vec![named("standard", [9, 9])]).contains("of their own"));
        assert!(text(vec![named("twin", [9, 1])]).contains("of their own"));
        assert!(text(vec![SET, named("twin", [9, 200])]).contains("of their own"));
        let unknown = find(OWN).unwrap_err().to_string();
        assert!(unknown.contains("own") && unknown.contains("standard"), "{unknown}");
        assert_eq!((include(&[SET]), include(&[SET])), (Ok(()), Ok(())));
        assert!(text(vec![named("twin", [9, 9])]).contains("one table for all"));
        assert_eq!(find(OWN).unwrap().rules, OWN);
    }

    #[test]
    fn a_code_selects_rules_and_policy() {
        for (code, policy) in [(0, LossPolicy::Current), (1, LossPolicy::Historical)] {
            let (given, reports) = of_code(code).unwrap();
            assert_eq!((given, reports.rules.rules), (policy, ChannelRules::STANDARD));
            assert_eq!(reports.rules.code(policy), code);
        }
        assert!(of_code(199).is_none());
    }

    /// SYN reports, periodic loss reports and one RTT sample need no code in sender and receiver.
    #[test]
    fn a_set_can_have_the_reports_of_sabul_2002() {
        let interval = sabul_cc::SYN_INTERVAL;
        let set: &'static RuleSet = Box::leak(Box::new(RuleSet {
            reports: |_| (LossPolicy::Historical, ReportRule::sabul2002(sabul_cc::SYN_INTERVAL)),
            ..SET
        }));
        let (policy, reports) = set.for_policy(LossPolicy::Current);
        assert_eq!((policy, reports.syn_interval), (LossPolicy::Historical, Some(interval)));
        assert_eq!(reports.rules.rules, OWN);
    }
}
