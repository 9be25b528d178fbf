//! How a transfer goes on: its policy, and the least of the limits of its rate. Both may change while it runs.
//!
//! Model:       limit = least of what this side wants, what the receiver has told, and what the owner of this end allows;
//!              the policy is that of whoever asked for the transfer
//! Not here:    what a policy means (`sabul-cc`); how a sender keeps to a limit (`sabul-proto`).

use sabul_cc::{Policy, registry};
use sabul_wire::control::{Failure, FailureCode};

use crate::error::Error;

/// What the application changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// How it stands beside other traffic.
    Policy(Policy),
    /// Its highest rate in bit/s.
    RateLimit(Option<u64>),
}

/// How a transfer goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steering {
    pub(crate) policy: Policy,
    /// In bit/s, as the other two.
    wanted: Option<u64>,
    told: Option<u64>,
    allowed: Option<u64>,
}

impl Steering {
    /// What this side wants.
    pub(crate) const fn wanted(policy: Policy, rate_limit_bps: Option<u64>) -> Self {
        Self { policy, wanted: rate_limit_bps, told: None, allowed: None }
    }

    /// What the peer asked for in its request, within what this end's owner allows.
    pub(crate) const fn told(rate_limit_bps: Option<u64>, allowed_bps: Option<u64>) -> Self {
        Self { policy: Policy::Fair, wanted: None, told: rate_limit_bps, allowed: allowed_bps }
    }

    /// The highest rate in bit/s; none without a limit.
    pub(crate) fn limit_bps(&self) -> Option<u64> {
        [self.wanted, self.told, self.allowed].into_iter().flatten().min()
    }

    /// Whether a sender that knows only what was asked for goes on otherwise.
    pub(crate) fn differs_from(&self, asked_bps: Option<u64>) -> bool {
        self.policy != Policy::Fair || self.limit_bps() != asked_bps
    }

    /// The application changes something.
    pub(crate) const fn change(&mut self, change: Change) {
        match change {
            Change::Policy(policy) => self.policy = policy,
            Change::RateLimit(limit) => self.wanted = limit,
        }
    }

    /// The owner of this end allows no more than this, in bit/s, or anything.
    pub(crate) const fn allow(&mut self, allowed_bps: Option<u64>) {
        self.allowed = allowed_bps;
    }

    /// The receiver, which asked for the transfer, says how to go on.
    pub(crate) fn take(
        &mut self,
        policy: &str,
        rate_limit_bps: Option<u64>,
    ) -> Result<(), Failure> {
        let policy = Policy::named(policy).ok_or_else(|| {
            let known = Policy::ALL.map(Policy::name).join(", ");
            let text = format!("the policy '{policy}' is not known here; this end has {known}");
            Failure::new(FailureCode::BadSetting, text)
        })?;
        self.take_limit(rate_limit_bps)?;
        self.policy = policy;
        Ok(())
    }

    /// The receiver, which this side has asked to take part, says how fast it may be; how it stands beside other
    /// traffic is for this side to say.
    pub(crate) fn take_limit(&mut self, rate_limit_bps: Option<u64>) -> Result<(), Failure> {
        if rate_limit_bps == Some(0) {
            let text = "a rate limit of 0 bit/s would send nothing";
            return Err(Failure::new(FailureCode::BadSetting, text));
        }
        self.told = rate_limit_bps;
        Ok(())
    }
}

/// Refuses a policy that the controller would not follow.
pub(crate) fn check_policy(controller: &str, policy: Policy) -> Result<(), Error> {
    let entry = registry::find(controller).map_err(|error| Error::Config(error.to_string()))?;
    registry::check_policy(entry, policy).map_err(|error| Error::Config(error.to_string()))
}

/// Refuses a limit with which nothing would be sent.
pub(crate) fn check_rate_limit(limit_bps: Option<u64>) -> Result<(), Error> {
    if limit_bps == Some(0) {
        return Err(Error::Config("a rate limit of 0 bit/s would send nothing".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts_whoever_names_it() {
        let mut steering = Steering::wanted(Policy::Low, Some(9));
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
    fn a_peer_raises_its_own_wish_and_not_what_is_allowed() {
        let mut steering = Steering::told(Some(4), Some(7));
        assert_eq!(steering.limit_bps(), Some(4));
        steering.take("fair", Some(100)).unwrap();
        assert_eq!(steering.limit_bps(), Some(7));
        steering.take("fair", None).unwrap();
        assert_eq!(steering.limit_bps(), Some(7));
    }

    #[test]
    fn a_receiver_that_was_asked_says_how_fast_and_not_how_rude() {
        let mut steering = Steering::wanted(Policy::Low, Some(9));
        steering.take_limit(Some(5)).unwrap();
        assert_eq!((steering.policy, steering.limit_bps()), (Policy::Low, Some(5)));
        assert!(steering.take_limit(Some(0)).is_err());
        steering.take_limit(None).unwrap();
        assert_eq!(steering.limit_bps(), Some(9));
        steering.allow(Some(2));
        assert_eq!(steering.limit_bps(), Some(2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut steering = Steering::default();
        let text = steering.take("rude", None).unwrap_err().to_string();
        assert!(text.contains("rude") && text.contains("fair, high, low"), "{text}");
        assert!(steering.take("fair", Some(0)).is_err());
        assert_eq!(steering, Steering::default());
    }
}
