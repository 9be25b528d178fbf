//! Report times of protocols without NAKs.

use sabul_channel::{AckRule, ReportRule};
use sabul_units::Span;
use sabul_wire::LossPolicy;

/// Reports of protocols without NAKs, whose lists name sequence numbers. ACKs still carry room,
/// RTT and cumulative acknowledgements (DEV-060).
pub(super) fn lists(_policy: LossPolicy) -> (LossPolicy, ReportRule) {
    (LossPolicy::Historical, ReportRule::sabul2003())
}

/// As [`lists`]; ACKs leave with the lists.
pub(super) fn lists_with_acks(policy: LossPolicy) -> (LossPolicy, ReportRule) {
    let (policy, reports) = lists(policy);
    (policy, ReportRule { ack: AckRule::Every(Span::ZERO), ..reports })
}
