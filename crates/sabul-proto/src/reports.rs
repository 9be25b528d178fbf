//! When a receiver reports what: the published rules and ours.
//!
//! Source: [SABUL §II-D] for 2003, [OVV04 §2, §3] and the authors' code [SABUL2] for 2002. Both ends
//! of a channel are given the same rule: a sender whose peer sends SYN reports lets them drive rate
//! control, and one whose peer acknowledges rarely waits longer before it expires.

use sabul_cc::{ChannelRules, SYN_INTERVAL};
use sabul_units::Span;
use sabul_wire::LossPolicy;

/// [SABUL2] The 2002 receiver acknowledges this often.
const ACK_INTERVAL_2002: Span = Span::from_millis(100);
/// [SABUL2] The 2002 receiver looks for losses to report again this often; also the least age.
pub(crate) const ERR_INTERVAL: Span = Span::from_millis(20);

/// The reporting of a receiver, and what its sender may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRule {
    /// When ACKs leave.
    pub ack: AckRule,
    /// A SYN report leaves this often from the first DATA packet on, whatever arrives, and the
    /// sender's rate control ticks on those reports alone. None: there are no SYN reports and the
    /// sender ticks by its own clock.
    pub syn_interval: Option<Span>,
    /// When a loss is reported again; historical policy only.
    pub repeat: Repeat,
    /// Which round trip the repeats go by.
    pub repeat_rtt: RepeatRtt,
    /// Which rules the channel follows. Those without NAKs take the place of NAKs and their repeats, and
    /// name data sequence numbers.
    pub channel: ChannelRules,
}

/// When ACKs leave, if anything has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRule {
    /// Four times a round trip, at least each SYN interval of 10 ms (DEV-005).
    PerRtt,
    /// This often.
    Every(Span),
}

/// When a loss is reported again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// After k × RTT, k = 2, 3, …, each loss for itself. [SABUL §II-D]
    KTimesRtt,
    /// Every 20 ms all those whose last report is older than 1.5 × RTT, or than 20 ms where the RTT
    /// is that or less. [OVV04 §3] item 4, [SABUL2 recver.cpp]
    Periodic,
}

/// Which round trip repeats go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatRtt {
    /// The average, kept up to date.
    Averaged,
    /// The first one measured, for ever. [OVV04 §3] item 3
    First,
}

impl ReportRule {
    /// Ours.
    pub const fn current() -> Self {
        Self {
            ack: AckRule::PerRtt,
            syn_interval: None,
            repeat: Repeat::KTimesRtt,
            repeat_rtt: RepeatRtt::Averaged,
            channel: ChannelRules::Standard,
        }
    }

    /// [SABUL §II-D] ACKs each SYN interval, repeats after k × RTT.
    pub const fn sabul2003() -> Self {
        Self { ack: AckRule::Every(SYN_INTERVAL), ..Self::current() }
    }

    /// [OVV04 §2, §3; SABUL2] As it was, defects included: SYN reports each `syn_interval`, ACKs
    /// each 100 ms, repeats by a check each 20 ms and the round trip measured first.
    ///
    /// Without the defects: `repeat` is [`Repeat::KTimesRtt`], `repeat_rtt` is
    /// [`RepeatRtt::Averaged`].
    pub const fn sabul2002(syn_interval: Span) -> Self {
        Self {
            ack: AckRule::Every(ACK_INTERVAL_2002),
            syn_interval: Some(syn_interval),
            repeat: Repeat::Periodic,
            repeat_rtt: RepeatRtt::First,
            channel: ChannelRules::Standard,
        }
    }

    /// The rules of SABUL's relatives, over the historical policy. ACKs keep the channel's accounts:
    /// room, round trip, what need not be kept (DEV-060); *cyclic* ones leave with its lists.
    pub const fn bulk(channel: ChannelRules) -> Self {
        let ack = match channel {
            ChannelRules::Cyclic => AckRule::Every(Span::ZERO),
            _ => AckRule::Every(SYN_INTERVAL),
        };
        Self { ack, channel, ..Self::current() }
    }

    /// The policy and rule of a channel with these rules; the given policy where they have NAKs.
    pub const fn of_rules(channel: ChannelRules, policy: LossPolicy) -> (LossPolicy, Self) {
        match channel {
            ChannelRules::Standard | ChannelRules::Pairs => {
                (policy, Self { channel, ..Self::of_policy(policy) })
            }
            _ => (LossPolicy::Historical, Self::bulk(channel)),
        }
    }

    /// The rule that a policy has where nobody names another.
    pub const fn of_policy(policy: LossPolicy) -> Self {
        match policy {
            LossPolicy::Historical => Self::sabul2003(),
            LossPolicy::Current => Self::current(),
        }
    }

    /// How long after an ACK the next may leave, given the smallest round trip.
    pub(crate) fn ack_interval(self, rtt_min: Option<Span>) -> Span {
        match (self.ack, rtt_min) {
            (AckRule::Every(interval), _) => interval,
            (AckRule::PerRtt, Some(rtt)) => sabul_cc::ack_interval(rtt),
            (AckRule::PerRtt, None) => SYN_INTERVAL / 10,
        }
    }

    /// The longest that data which arrived may stay unacknowledged at the receiver.
    pub(crate) const fn ack_interval_max(self) -> Span {
        match self.ack {
            AckRule::Every(interval) => interval,
            AckRule::PerRtt => SYN_INTERVAL,
        }
    }

    /// How old a report must be for [`Repeat::Periodic`].
    pub(crate) fn report_age(rtt: Span) -> Span {
        // [SABUL2] Scaled only above the floor, so the age leaps from 20 to 30 ms there.
        if rtt > ERR_INTERVAL { rtt.mul_ratio(3, 2) } else { ERR_INTERVAL }
    }
}
