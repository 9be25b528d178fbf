//! Experiments: scenarios run on either arm, alone or many together, and their evaluation.
//!
//! | Module | Is |
//! |---|---|
//! | [`runs`] | a finished run: its document, page and folder of files |
//! | [`card`](mod@card) | a congestion controller measured by every test |
//! | [`reproduce`] | reproduction of tables and figures of papers, with verdicts |
//! | [`compare`] | the same scenario on both arms |
//! | [`demo`] | one real file over a named path, with the program's own processes |
//! | [`report`], [`conversations`] | charts and tables of runs |
//! | [`path`](mod@path), [`presets`] | paths built from options, named paths, and their descriptions |
//! | [`qlog`] | events in qlog format, for viewers of QUIC connections |
//! | [`shell`] | messages for users who run their own programs on a path |
//!
//! This crate does not read a command line, print, or use exit codes. Functions take and return
//! values, report progress to an [`Observer`], and fail with an [`Error`] that names its cause.
//!
//! Example: the report card of a controller, without the program.
//!
//! ```
//! use sabul_study::{Observer, card::{Request, card}};
//!
//! let request = Request { only: vec!["cross".to_owned()], ..Request::new("newreno") };
//! let card = card(request, &Observer::silent())?;
//! assert_eq!(card.to_value()?["cc"], "newreno");
//! println!("{}", card.text());
//! # Ok::<(), sabul_study::Error>(())
//! ```

mod arms;
mod built;
pub mod card;
pub mod compare;
pub mod conversations;
pub mod demo;
mod error;
mod folder;
mod observer;
pub mod path;
pub mod presets;
pub mod processor;
pub mod qlog;
pub mod report;
pub mod reproduce;
pub mod runs;
pub mod schema;
pub mod shell;
mod why;

pub use arms::{Measuring, measure, simulate, simulate_with_events};
pub use built::COMMIT;
pub use error::{Cause, Error};
pub use observer::Observer;
pub use why::Why;

/// Version of the JSON documents.
pub const SCHEMA: u32 = 1;
