//! Where a scenario is to run.

/// One of the two places that run scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The simulator: links, hosts and clock are ours, and so is every TCP.
    Sim,
    /// The lab: real hosts, real time, the kernel's TCP, and programs of the user's.
    Lab,
}

impl Arm {
    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Lab => "lab",
        }
    }

    /// Whether the kernel runs the congestion control of a transport of that name.
    pub(crate) fn leaves_to_the_kernel(self, transport: &str) -> bool {
        match transport {
            "tcp" => self == Self::Lab,
            other => other == "command",
        }
    }
}
