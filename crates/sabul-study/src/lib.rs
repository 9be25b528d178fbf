//! Experiments: what becomes of scenarios that are run, on either arm, and of many runs together.
//!
//! | Module | Is |
//! |---|---|
//! | [`runs`] | a finished run: its document, its page, its folder of files |
//! | [`card`](mod@card) | a congestion controller measured by every test |
//! | [`reproduce`] | tables and figures of papers, run again and judged |
//! | [`compare`] | the same scenario on both arms |
//! | [`demo`] | one real file over a named path, with the program's own processes |
//! | [`report`], [`conversations`] | charts and tables of them |
//! | [`path`](mod@path), [`presets`] | a path from a few wishes, and named ones, in words |
//! | [`qlog`] | events for viewers of QUIC connections |
//! | [`shell`] | what a person is told who runs programs of his own on a path |
//!
//! Nothing here reads a command line, prints, or knows an exit code: functions take values and give values,
//! tell an [`Observer`] how far they are, and fail with an [`Error`] that says whose fault it is.
//!
//! The report card of a controller, without the program:
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

pub use arms::{Measuring, measure, simulate, simulate_telling};
pub use built::COMMIT;
pub use error::{Cause, Error};
pub use observer::Observer;
pub use why::Why;

/// Version of the JSON documents.
pub const SCHEMA: u32 = 1;
