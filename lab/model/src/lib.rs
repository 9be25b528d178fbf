//! Deterministic model of SABUL 2002, and its lemmas.
//!
//! Source: [OVV-T §III], Equations 1, 2, 3 and 5 with a D/D/1/K queue. The model has neither
//! packets nor time inside a round. One round is one step of a map, so thousands of rounds take
//! microseconds.
//!
//! - [`Params`]: one validated parameter set, from a builder or a TOML file ([`mod@file`]).
//! - [`map`]: one round, for any number of flows; [`orbit`]: long-run behaviour of a flow.
//! - [`lemmas`]: the eight lemmas, as printed and as corrected, checked by iteration.
//! - [`grid`]: the same checks over many parameter sets.
//! - [`series`]: plain data for plots; [`report`]: text and JSON.
//!
//! ```
//! use sabul_model::{Params, Set, lemmas};
//!
//! let report = lemmas::check(&Params::preset(Set::Pr1));
//! assert!(report.orbit.gamma > 0.001, "Pr_1 loses more than it aims at: Lemma 7");
//! ```

pub mod file;
pub mod formulas;
pub mod grid;
pub mod lemmas;
pub mod map;
pub mod orbit;
pub mod params;
pub mod report;
pub mod schema;
pub mod series;
pub mod suspects;

pub use params::{Builder, Key, Params, ParamsError, Set, Variant};
