//! The deterministic model of SABUL 2002 and its lemmas.
//!
//! Source: [OVV-T §III], Equations 1, 2, 3 and 5 with a D/D/1/K queue. The model knows neither
//! packets nor time inside a round: one round is one step of a map, so a parameter set is
//! followed for thousands of rounds in microseconds.
//!
//! - [`Params`]: one parameter set, checked, from a builder or a TOML file ([`mod@file`]).
//! - [`map`]: one round, for any number of flows; [`orbit`]: what a flow does in the long run.
//! - [`lemmas`]: the eight lemmas, as printed and as corrected, held against the iteration.
//! - [`grid`]: the same over many parameter sets at once.
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
