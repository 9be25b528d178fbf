//! Share policy of a flow: its weight beside other flows, and whether it yields to them.
//!
//! Source: ours, with usual names: a fair share, twice that share, and left-over capacity.
//! Not here:    the effect on a control law, which each controller defines; a constant rate (`fixed`).

use std::fmt;

/// Share of a flow beside others; set before the first packet and at each change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The share of one flow.
    #[default]
    Fair,
    /// The share of two fair flows.
    High,
    /// Left-over capacity: the flow yields to all others.
    Low,
}

impl Policy {
    /// All policies, in the order shown to users.
    pub const ALL: [Self; 3] = [Self::Fair, Self::High, Self::Low];

    /// Returns the name that users type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::High => "high",
            Self::Low => "low",
        }
    }

    /// Returns the policy with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Returns the weight in fair flows.
    pub const fn weight(self) -> f64 {
        match self {
            Self::Fair => 1.0,
            Self::High => 2.0,
            Self::Low => 0.5,
        }
    }

    /// Returns whether the flow yields to all other flows on the path.
    pub const fn yields(self) -> bool {
        matches!(self, Self::Low)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(Policy::named(policy.name()), Some(policy));
        }
        assert_eq!(Policy::named("rude"), None);
    }
}
