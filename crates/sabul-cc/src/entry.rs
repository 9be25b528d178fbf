//! What the table of controllers knows of each: name, source, parameters, how one is made.
//!
//! An algorithm brings its own; the table (`registry`) only lists them.

use sabul_units::Bytes;

use crate::controller::Controller;
use crate::params::{ConfigError, ParamSpec, ParamValues};

/// Makes a controller.
pub type Build = fn(&ParamValues, Bytes) -> Result<Box<dyn Controller>, ConfigError>;

/// What a controller limits at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The gap between packets.
    Rate,
    /// The packets on the way: what a TCP host needs.
    Window,
    /// Both, each in need of the other: a TCP host that keeps the gap.
    PacedWindow,
}

/// One registered controller.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name users type.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Where the algorithm comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [ParamSpec],
    /// What it limits.
    pub family: Family,
    /// Whether it reacts to loss; baselines do not.
    pub is_adaptive: bool,
    /// Whether it follows policies: its `on_policy` does something.
    pub follows_policy: bool,
    /// Whether it begins with what an earlier flow saw of the path: its `on_memory` does something.
    pub remembers_path: bool,
    /// Makes one from checked parameters and the size of a full packet on the wire.
    pub build: Build,
}

impl Entry {
    /// Whether the algorithm is this project's own; its [source](Self::source) says so. Published algorithms run
    /// as published in the simulator, without the circuit breaker.
    pub fn is_ours(&self) -> bool {
        self.source.starts_with("ours")
    }
}
