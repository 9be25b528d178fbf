//! Policy and rate limit of a running transfer; both may change while it runs.
//!
//! Model:       limit = minimum of the limits of this side's application, of the receiver's messages, and of this end's
//!              owner; the policy is that of the side that opened the transfer
//! Not here:    the meaning of a policy (`sabul-cc`); how a sender keeps a limit (`sabul-channel`).

use sabul_cc::{Policy, registry};
use sabul_wire::control::{Failure, FailureCode};

use crate::error::Error;

/// A change by the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// New policy towards competing traffic.
    Policy(Policy),
    /// New rate limit in bit/s.
    RateLimit(Option<u64>),
}

/// Policy and rate limits of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steering {
    pub(crate) policy: Policy,
    /// Limit of the application in bit/s. `announced` is the receiver's limit, `allowed` the limit of this end's owner.
    wanted: Option<u64>,
    announced: Option<u64>,
    allowed: Option<u64>,
    /// Limit of the peer's user in bit/s.
    granted: Option<u64>,
    /// The policy is that of the peer's user, and the peer cannot change it.
    is_policy_granted: bool,
}

impl Steering {
    pub(crate) const fn requested(policy: Policy, rate_limit_bps: Option<u64>) -> Self {
        Self {
            policy,
            wanted: rate_limit_bps,
            announced: None,
            allowed: None,
            granted: None,
            is_policy_granted: false,
        }
    }

    /// Settings of a transfer opened by the peer: the limit in its request, and the limit of this end's owner.
    pub(crate) const fn from_peer(rate_limit_bps: Option<u64>, allowed_bps: Option<u64>) -> Self {
        Self {
            announced: rate_limit_bps,
            allowed: allowed_bps,
            ..Self::requested(Policy::Fair, None)
        }
    }

    /// Returns these settings within the limits of the peer's user.
    pub(crate) const fn granted(mut self, rate_bps: Option<u64>, policy: Option<Policy>) -> Self {
        self.granted = rate_bps;
        if let Some(policy) = policy {
            self.policy = policy;
            self.is_policy_granted = true;
        }
        self
    }

    /// Whether the peer's user has limits.
    pub(crate) const fn has_grant(&self) -> bool {
        self.granted.is_some() || self.is_policy_granted
    }

    /// The effective rate limit in bit/s; `None` without a limit.
    pub(crate) fn limit_bps(&self) -> Option<u64> {
        [self.wanted, self.announced, self.allowed, self.granted].into_iter().flatten().min()
    }

    /// Whether the settings differ from those of a sender that has only the request.
    pub(crate) fn differs_from(&self, requested_bps: Option<u64>) -> bool {
        self.policy != Policy::Fair || self.limit_bps() != requested_bps
    }

    /// Applies a change by the application.
    pub(crate) const fn change(&mut self, change: Change) {
        match change {
            Change::Policy(policy) => self.policy = policy,
            Change::RateLimit(limit) => self.wanted = limit,
        }
    }

    /// Sets the limit of this end's owner in bit/s; `None` removes it.
    pub(crate) const fn allow(&mut self, allowed_bps: Option<u64>) {
        self.allowed = allowed_bps;
    }

    /// Applies the settings of a receiver that opened the transfer.
    pub(crate) fn take(
        &mut self,
        policy: &str,
        rate_limit_bps: Option<u64>,
    ) -> Result<(), Failure> {
        let policy = Policy::named(policy).ok_or_else(|| {
            let known = Policy::ALL.map(Policy::name).join(", ");
            let text = format!("the other end has no policy '{policy}', only {known}; use the same version on both sides");
            Failure::new(FailureCode::BadSetting, text)
        })?;
        self.take_limit(rate_limit_bps)?;
        if !self.is_policy_granted {
            self.policy = policy;
        }
        Ok(())
    }

    /// Applies the rate limit of a receiver when this side opened the transfer; the policy remains that of this side.
    pub(crate) fn take_limit(&mut self, rate_limit_bps: Option<u64>) -> Result<(), Failure> {
        check_rate_limit(rate_limit_bps).map_err(|error| Failure::from(&error))?;
        self.announced = rate_limit_bps;
        Ok(())
    }
}

/// Rejects a policy that the controller does not support.
pub(crate) fn check_policy(controller: &str, policy: Policy) -> Result<(), Error> {
    Ok(registry::check_policy(registry::find(controller)?, policy)?)
}

/// Rejects a rate limit of zero.
pub(crate) fn check_rate_limit(limit_bps: Option<u64>) -> Result<(), Error> {
    if limit_bps == Some(0) {
        let allowed = "1 bit/s or more, or no limit: 0 would send nothing";
        return Err(Error::setting("rate limit", "0 bit/s", allowed));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_rate_limit_of_any_side_applies() {
        let mut steering = Steering::requested(Policy::Low, Some(9));
        assert_eq!(steering.limit_bps(), Some(9));
        steering.take("high", Some(5)).unwrap();
        assert_eq!((steering.policy, steering.limit_bps()), (Policy::High, Some(5)));
        steering.change(Change::RateLimit(Some(3)));
        assert_eq!(steering.limit_bps(), Some(3));
        steering.take("fair", None).unwrap();
        steering.change(Change::RateLimit(None));
        assert_eq!(steering.limit_bps(), None);
    }

    #[test]
    fn a_peer_may_raise_its_own_limit_but_not_the_allowed_limit() {
        let mut steering = Steering::from_peer(Some(4), Some(7));
        assert_eq!(steering.limit_bps(), Some(4));
        steering.take("fair", Some(100)).unwrap();
        assert_eq!(steering.limit_bps(), Some(7));
        steering.take("fair", None).unwrap();
        assert_eq!(steering.limit_bps(), Some(7));
    }

    #[test]
    fn a_peer_cannot_leave_the_limits_of_its_user() {
        let mut steering = Steering::from_peer(None, Some(9)).granted(Some(5), Some(Policy::Low));
        assert!(steering.has_grant() && !Steering::from_peer(None, Some(9)).has_grant());
        assert_eq!((steering.policy, steering.limit_bps()), (Policy::Low, Some(5)));
        steering.take("high", Some(100)).unwrap();
        assert_eq!((steering.policy, steering.limit_bps()), (Policy::Low, Some(5)));
        steering.allow(Some(3));
        assert_eq!(steering.limit_bps(), Some(3));
    }

    #[test]
    fn a_receiving_client_sets_the_rate_limit_but_not_the_policy() {
        let mut steering = Steering::requested(Policy::Low, Some(9));
        steering.take_limit(Some(5)).unwrap();
        assert_eq!((steering.policy, steering.limit_bps()), (Policy::Low, Some(5)));
        assert!(steering.take_limit(Some(0)).is_err());
        steering.take_limit(None).unwrap();
        assert_eq!(steering.limit_bps(), Some(9));
        steering.allow(Some(2));
        assert_eq!(steering.limit_bps(), Some(2));
    }

    #[test]
    fn an_unknown_policy_or_zero_limit_is_refused() {
        let mut steering = Steering::default();
        let text = steering.take("rude", None).unwrap_err().to_string();
        assert!(text.contains("rude") && text.contains("fair, high, low"), "{text}");
        assert!(steering.take("fair", Some(0)).is_err());
        assert_eq!(steering, Steering::default());
    }
}
