//! Target of a scenario: simulator or lab.

/// Simulator or lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The simulator: simulated links, hosts and clock, and our own model of TCP.
    Sim,
    /// The lab: real hosts, real time, the kernel's TCP, and user's programs.
    Lab,
}

impl Arm {
    /// Returns the name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Lab => "lab",
        }
    }

    /// Whether the kernel runs the congestion control of this transport.
    pub(crate) fn leaves_to_the_kernel(self, transport: &str) -> bool {
        match transport {
            "tcp" => self == Self::Lab,
            other => other == "command",
        }
    }
}
