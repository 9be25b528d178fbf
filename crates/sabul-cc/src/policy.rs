//! How a flow stands beside others: its weight, and whether it gives way.
//!
//! Source: ours, with the names that users of such tools know: a fair share, twice that, and what others leave.
//! Not here:    what a law makes of it, which is the law's; a constant rate, which is a controller (`fixed`).

use std::fmt;

/// Phase of a controller that has lowered its rate for others, as its policy asks.
pub const YIELDING: &str = "yielding";

/// Phase of a controller that sends at the constant rate that its user gave.
pub const CONSTANT: &str = "fixed";

/// How a flow stands beside others; told to a controller before the first packet, and again when it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// A share like that of others.
    #[default]
    Fair,
    /// As much as two fair flows.
    High,
    /// What others leave: it gives way to all of them.
    Low,
}

impl Policy {
    /// All of them, in the order shown to users.
    pub const ALL: [Self; 3] = [Self::Fair, Self::High, Self::Low];

    /// The name users type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fair => "fair",
            Self::High => "high",
            Self::Low => "low",
        }
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// How many fair flows this one counts as.
    pub const fn weight(self) -> f64 {
        match self {
            Self::Fair => 1.0,
            Self::High => 2.0,
            Self::Low => 0.5,
        }
    }

    /// Whether it gives way to whatever else uses the path.
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
    fn each_policy_has_a_name_and_is_found_by_it() {
        for policy in Policy::ALL {
            assert_eq!(Policy::named(policy.name()), Some(policy));
        }
        assert_eq!(Policy::named("rude"), None);
    }
}
