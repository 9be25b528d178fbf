//! The rules of a channel, as requests name them.

use sabul_cc::ChannelRules;
use sabul_wire::LossPolicy;
use sabul_wire::control::ChannelParams;

/// The code of rules in an `Open`. Codes are never used again for others.
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

/// The rules of a channel; none where this version does not know them.
pub(crate) fn rules(params: &ChannelParams) -> Option<(LossPolicy, ChannelRules)> {
    let all = ChannelRules::ALL.into_iter();
    all.flat_map(|rules| {
        [LossPolicy::Current, LossPolicy::Historical].map(|policy| (policy, rules))
    })
    .find(|(policy, rules)| rules_code(*rules, *policy) == params.rules)
}
