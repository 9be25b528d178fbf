//! Report timing of receivers: the published rules and ours.
//!
//! Source: [SABUL §II-D] for 2003, [OVV04 §2, §3] and the authors' code [SABUL2] for 2002. Both
//! ends of a channel receive the same rule. A sender whose peer sends SYN reports runs rate control
//! on these reports. A sender whose peer acknowledges rarely has a longer expiry time.

use sabul_cc::{ChannelRules, ConfigError, SYN_INTERVAL};
use sabul_units::Span;
use sabul_wire::LossPolicy;

use crate::rules::{self, RuleSet};

/// [SABUL2] ACK interval of the 2002 receiver.
const ACK_INTERVAL_2002: Span = Span::from_millis(100);
/// [SABUL2] Interval at which the 2002 receiver checks for losses to repeat; also the least age.
pub(crate) const ERR_INTERVAL: Span = Span::from_millis(20);

/// When a receiver reports; the sender derives its timeouts from the same rule.
#[derive(Clone, Copy, Debug)]
pub struct ReportRule {
    /// When ACKs leave.
    pub ack: AckRule,
    /// Interval of SYN reports from the first DATA packet on, whatever arrives; only these reports
    /// then drive the sender's rate control. `None`: no SYN reports, and the sender uses its own
    /// clock.
    pub syn_interval: Option<Span>,
    /// When a loss is reported again; historical policy only.
    pub repeat: Repeat,
    /// RTT used for the timing of repeats.
    pub repeat_rtt: RepeatRtt,
    /// Rules of the channel. Rules without NAKs have their own loss reports, which list data
    /// sequence numbers.
    pub rules: &'static RuleSet,
}

/// When ACKs leave, provided that something has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRule {
    /// Four ACKs per round trip, and at least one per SYN interval of 10 ms (DEV-005).
    PerRtt,
    /// At this interval.
    Every(Span),
}

/// When a loss is reported again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// After k × RTT, k = 2, 3, …, separately for each loss. [SABUL §II-D]
    KTimesRtt,
    /// Every 20 ms all losses whose last report is older than 1.5 × RTT, or than 20 ms where the
    /// RTT is 20 ms or less. [OVV04 §3] item 4, [SABUL2 recver.cpp]
    Periodic,
}

/// RTT used for the timing of repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatRtt {
    /// The smoothed RTT.
    Averaged,
    /// The first sample, without updates. [OVV04 §3] item 3
    First,
}

impl ReportRule {
    /// The rule of the current policy. Ours.
    pub const fn current() -> Self {
        Self {
            ack: AckRule::PerRtt,
            syn_interval: None,
            repeat: Repeat::KTimesRtt,
            repeat_rtt: RepeatRtt::Averaged,
            rules: &RuleSet::STANDARD,
        }
    }

    /// [SABUL §II-D] ACKs each SYN interval, repeats after k × RTT.
    pub const fn sabul2003() -> Self {
        Self { ack: AckRule::Every(SYN_INTERVAL), ..Self::current() }
    }

    /// [OVV04 §2, §3; SABUL2] The 2002 rule with its defects: SYN reports each `syn_interval`, ACKs
    /// each 100 ms, repeats by a check each 20 ms and by the first RTT sample.
    ///
    /// For a rule without the defects, set `repeat` to [`Repeat::KTimesRtt`] and `repeat_rtt` to
    /// [`RepeatRtt::Averaged`].
    pub const fn sabul2002(syn_interval: Span) -> Self {
        Self {
            ack: AckRule::Every(ACK_INTERVAL_2002),
            syn_interval: Some(syn_interval),
            repeat: Repeat::Periodic,
            repeat_rtt: RepeatRtt::First,
            rules: &RuleSet::STANDARD,
        }
    }

    /// Returns the policy and the report rule for channel rules; `policy` applies unless the rules
    /// set one.
    ///
    /// # Errors
    /// If no rules have this name.
    pub fn of_rules(
        rules: ChannelRules,
        policy: LossPolicy,
    ) -> Result<(LossPolicy, Self), ConfigError> {
        Ok(rules::find(rules)?.for_policy(policy))
    }

    /// The default rule of a policy.
    pub const fn of_policy(policy: LossPolicy) -> Self {
        match policy {
            LossPolicy::Historical => Self::sabul2003(),
            LossPolicy::Current => Self::current(),
        }
    }

    /// Returns whether NAKs report losses, and not lists of missing data.
    pub(crate) const fn has_naks(self) -> bool {
        self.rules.rules.has_naks
    }

    /// Returns the least time between two ACKs, given the smallest RTT.
    pub(crate) fn ack_interval(self, rtt_min: Option<Span>) -> Span {
        match (self.ack, rtt_min) {
            (AckRule::Every(interval), _) => interval,
            (AckRule::PerRtt, Some(rtt)) => sabul_cc::ack_interval(rtt),
            (AckRule::PerRtt, None) => SYN_INTERVAL / 10,
        }
    }

    /// Returns the longest time that arrived data may stay unacknowledged at the receiver.
    pub(crate) const fn ack_interval_max(self) -> Span {
        match self.ack {
            AckRule::Every(interval) => interval,
            AckRule::PerRtt => SYN_INTERVAL,
        }
    }

    /// Returns the least age of a report that [`Repeat::Periodic`] repeats.
    pub(crate) fn report_age(rtt: Span) -> Span {
        // [SABUL2] Scaled only above the floor, so the age jumps from 20 to 30 ms there.
        if rtt > ERR_INTERVAL { rtt.mul_ratio(3, 2) } else { ERR_INTERVAL }
    }
}
