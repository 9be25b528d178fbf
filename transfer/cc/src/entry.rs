//! Registry entry of a controller: name, source, parameters, traits and constructor.
//!
//! Each algorithm defines its own entry; `registry` only lists the entries.

use sabul_units::Bytes;

use crate::controller::Controller;
use crate::params::{ConfigError, ParamSpec, ParamValues};

/// Constructor of a controller.
pub type Build = fn(&ParamValues, Bytes) -> Result<Box<dyn Controller>, ConfigError>;

/// Limits that a controller always sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Only the gap between packets.
    Rate,
    /// Only the window: packets in flight, as a TCP host needs.
    Window,
    /// Window and gap, which depend on each other: a TCP host with pacing.
    PacedWindow,
}

/// One registered controller.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name that users type.
    pub name: &'static str,
    /// One-line description for lists.
    pub summary: &'static str,
    /// Publication or other origin of the algorithm.
    pub source: &'static str,
    /// Parameters of the controller.
    pub params: &'static [ParamSpec],
    /// Limits that the controller always sets.
    pub family: Family,
    /// True if the controller reacts to loss; false for baselines.
    pub is_adaptive: bool,
    /// True if the controller follows policies: `on_policy` has an effect.
    pub follows_policy: bool,
    /// True if the controller can start from an earlier flow's measurements: `on_memory` has an
    /// effect.
    pub remembers_path: bool,
    /// Builds a controller from checked parameters and the size of a full packet on the wire.
    pub build: Build,
}

impl Entry {
    /// Creates the entry of a controller that reacts to loss, without description, source and
    /// parameters.
    pub const fn new(name: &'static str, family: Family, build: Build) -> Self {
        Self {
            name,
            summary: "",
            source: "",
            params: &[],
            family,
            is_adaptive: true,
            follows_policy: false,
            remembers_path: false,
            build,
        }
    }

    /// Sets the one-line description.
    pub const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// Sets the publication or other origin of the algorithm.
    pub const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    /// Sets the parameters.
    pub const fn params(self, params: &'static [ParamSpec]) -> Self {
        Self { params, ..self }
    }

    /// Declares that the controller does not react to loss.
    pub const fn without_loss_response(self) -> Self {
        Self { is_adaptive: false, ..self }
    }

    /// Declares that the controller follows policies.
    pub const fn with_policies(self) -> Self {
        Self { follows_policy: true, ..self }
    }

    /// Declares that the controller can start from an earlier flow's measurements.
    pub const fn with_path_memory(self) -> Self {
        Self { remembers_path: true, ..self }
    }

    /// Returns whether the algorithm is this project's own, as in its [source](Self::source).
    /// Published algorithms run as published in the simulator, without the circuit breaker.
    pub fn is_ours(&self) -> bool {
        self.source.starts_with("ours")
    }
}
