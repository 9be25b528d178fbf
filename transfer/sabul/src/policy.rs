//! Limits on the settings that a peer may choose for data sent by this end.
//!
//! The requesting side names a controller and a rate, but the sending side is responsible for the effect on the
//! network. The sending side therefore applies this policy to each request.

use sabul_cc::{Policy, registry};
use sabul_channel::rules;
use sabul_units::Rate;
use sabul_wire::LossPolicy;
use sabul_wire::control::{ChannelParams, Failure, FailureCode};

use crate::ceiling::Ceiling;

/// Controllers that a peer may choose for data sent by this end.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Controllers {
    /// All controllers that react to loss; those of publications with their own parameters, and only under rules that
    /// find false reports.
    #[default]
    Adaptive,
    /// The named controllers.
    Named(Vec<String>),
    /// All controllers, including those with a constant rate.
    Any,
}

impl Controllers {
    fn allow(&self, name: &str) -> bool {
        match self {
            Self::Adaptive => registry::find(name).is_ok_and(|entry| entry.is_adaptive),
            Self::Named(names) => names.iter().any(|allowed| allowed == name),
            Self::Any => true,
        }
    }

    /// The allowed names, for a message.
    fn list(&self) -> String {
        let allowed = registry::all().map(|entry| entry.name).filter(|name| self.allow(name));
        allowed.collect::<Vec<_>>().join(", ")
    }
}

/// Limits on the settings that a peer may choose for data sent by this end. Transfers opened by this end are not
/// limited by the policy.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SendPolicy {
    /// Allowed controllers.
    pub controllers: Controllers,
    /// Upper limit of the rate of one transfer.
    pub rate_limit: Option<Rate>,
    /// Rate limit of all transfers together.
    pub ceiling: Option<Ceiling>,
}

setters!(SendPolicy {
    controllers: Controllers,
    rate_limit: Option<Rate>,
    ceiling: Option<Ceiling>,
});

impl SendPolicy {
    /// Allows every controller and rate: for measurements, on paths that tolerate them.
    pub fn any() -> Self {
        Self { controllers: Controllers::Any, ..Self::default() }
    }

    /// Rejects a controller that is not allowed, and lowers the rate limit.
    pub(crate) fn apply(&self, params: &mut ChannelParams) -> Result<(), Failure> {
        if !self.controllers.allow(&params.controller) {
            let text = format!(
                "the server does not send with the controller {}; choose one of these by --cc: {}; \
                 or have it served with --allow-cc {0}",
                params.controller,
                self.controllers.list()
            );
            return Err(Failure::new(FailureCode::Refused, text));
        }
        if self.controllers == Controllers::Adaptive {
            check(params)?;
        }
        let limits = [params.rate_limit_bps, self.rate_limit.map(|rate| rate.0)];
        params.rate_limit_bps = limits.into_iter().flatten().min();
        Ok(())
    }
}

/// Rejects rules under which a receiver that reports too much is not found, and parameters with which a published
/// controller no longer reacts to loss.
fn check(params: &ChannelParams) -> Result<(), Failure> {
    let finds_lies = |(policy, _)| policy == LossPolicy::Current;
    let what = if !rules::of_code(params.rules).is_some_and(finds_lies) {
        "under the historical rules for losses"
    } else if params.controller_params.is_empty()
        || registry::find(&params.controller).is_ok_and(|entry| entry.is_ours())
    {
        return Ok(());
    } else {
        "with parameters of the other end"
    };
    let text = format!(
        "this end does not send {what} with the controller {0}; leave them out, or have it served with --allow-cc {0}",
        params.controller
    );
    Err(Failure::new(FailureCode::Refused, text))
}

/// Rejects a controller that would ignore the policy of the peer's ticket or key.
pub(crate) fn check_granted(params: &ChannelParams, policy: Option<Policy>) -> Result<(), Failure> {
    let (Some(policy), Ok(entry)) = (policy, registry::find(&params.controller)) else {
        return Ok(());
    };
    registry::check_policy(entry, policy).map_err(|error| {
        let text = format!("the ticket or key has the policy {policy}: {error}");
        Failure::new(FailureCode::Refused, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(controller: &str, rate_limit_bps: Option<u64>) -> ChannelParams {
        ChannelParams { rate_limit_bps, ..ChannelParams::new(controller) }
    }

    #[test]
    fn a_granted_policy_needs_a_controller_that_follows_policies() {
        sabul_lab_cc::register();
        let is_allowed = |name, granted| check_granted(&params(name, None), granted).is_ok();
        for granted in [None, Some(Policy::Fair), Some(Policy::Low)] {
            assert!(is_allowed("sabul2026", granted));
            assert_eq!(is_allowed("cubic", granted), granted != Some(Policy::Low), "{granted:?}");
        }
    }

    #[test]
    fn a_peer_may_choose_only_adaptive_controllers_by_default() {
        sabul_lab_cc::register();
        let allows = |controllers: Controllers, name: &str| {
            let policy = SendPolicy { controllers, ..SendPolicy::default() };
            policy.apply(&mut params(name, None))
        };
        for name in ["sabul2026", "sabul2003", "cubic", "tsunami"] {
            assert_eq!(allows(Controllers::Adaptive, name), Ok(()));
        }
        let checked = |controllers: Controllers, name: &str, rules: u8, key: Option<&str>| {
            let policy = SendPolicy { controllers, ..SendPolicy::default() };
            let pairs = key.map(|key| (key.to_owned(), "1".to_owned()));
            let mut params = params(name, None);
            (params.rules, params.controller_params) = (rules, pairs.into_iter().collect());
            policy.apply(&mut params).is_ok()
        };
        for (name, rules, key, is_allowed) in [
            ("sabul2026", 0, Some("theta_ms"), true),
            ("sabul2026", 1, None, false),
            ("cubic", 1, None, false),
            ("tsunami", 3, None, false),
            ("tsunami", 0, Some("slower"), false),
        ] {
            assert_eq!(
                checked(Controllers::Adaptive, name, rules, key),
                is_allowed,
                "{name} {rules}"
            );
            let named = Controllers::Named(vec![name.to_owned()]);
            assert!(checked(named, name, rules, key));
        }
        for name in ["fixed", "rbudp", "fobs", "netblt", "unknown"] {
            let refusal = allows(Controllers::Adaptive, name).unwrap_err();
            assert_eq!(refusal.code, FailureCode::Refused);
            assert!(refusal.message.contains("sabul2026, "), "{refusal}");
            assert!(refusal.message.contains(&format!("--allow-cc {name}")), "{refusal}");
            assert_eq!(allows(Controllers::Any, name), Ok(()));
        }
        let named = || Controllers::Named(vec!["fixed".to_owned()]);
        assert_eq!(allows(named(), "fixed"), Ok(()));
        assert!(allows(named(), "sabul2026").unwrap_err().message.contains("--cc: fixed;"));
    }

    #[test]
    fn the_lower_rate_limit_applies() {
        for (asked, allowed, expected) in [
            (None, None, None),
            (Some(5), None, Some(5)),
            (None, Some(7), Some(7)),
            (Some(5), Some(7), Some(5)),
            (Some(9), Some(7), Some(7)),
        ] {
            let policy = SendPolicy::default().rate_limit(allowed.map(Rate));
            let mut params = params("sabul2026", asked);
            policy.apply(&mut params).unwrap();
            assert_eq!(params.rate_limit_bps, expected);
        }
    }
}
