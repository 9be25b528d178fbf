//! Wire codes of channel rules.

use sabul_cc::ChannelRules;
use sabul_wire::LossPolicy;
use sabul_wire::control::ChannelParams;

/// Returns the code of the rules in an `Open` message. Codes are never reused.
pub(crate) fn rules_code(rules: ChannelRules, policy: LossPolicy) -> u8 {
    match (rules, policy) {
        (ChannelRules::Standard, LossPolicy::Current) => 0,
        (ChannelRules::Standard, LossPolicy::Historical) => 1,
        (ChannelRules::Rounds, _) => 2,
        (ChannelRules::Requests, _) => 3,
        (ChannelRules::Cyclic, _) => 4,
        (ChannelRules::Buffers, _) => 5,
        (ChannelRules::Pairs, LossPolicy::Current) => 6,
        (ChannelRules::Pairs, LossPolicy::Historical) => 7,
    }
}

/// Returns the rules of a channel; `None` if the code is unknown to this version.
pub(crate) fn rules(params: &ChannelParams) -> Option<(LossPolicy, ChannelRules)> {
    let all = ChannelRules::ALL.into_iter();
    all.flat_map(|rules| {
        [LossPolicy::Current, LossPolicy::Historical].map(|policy| (policy, rules))
    })
    .find(|(policy, rules)| rules_code(*rules, *policy) == params.rules)
}
