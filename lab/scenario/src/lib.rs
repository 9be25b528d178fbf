//! Reader for scenario files, with sweeps, and writer for results.
//!
//! [`read`] turns the text of a scenario file into one or more [`Run`]s. There is one run per
//! combination of the values of a `[sweep]` table and of the [`Override`]s of a command line. All
//! runs are checked before any run is returned. Each [`Problem`] names the line, the key and the
//! allowed values. [`read_for`] reads for a given [`Arm`]: the lab accepts some settings that the
//! simulator does not. [`run_all`] executes runs on several threads. [`RunDocument`],
//! [`write_series`], [`write_links`] and [`Manifest`] write the results.
//!
//! Keys, units, ranges and defaults: [`keys`], and as text in `docs/manual/scenarios.md`.
//!
//! ```
//! let text = r#"
//!     duration_s = 10
//!     link = [{ id = "bottleneck", rate_mbps = 100, delay_ms = 5 }]
//!     flow = [{ id = "a", path = ["bottleneck"], rtt_ms = 20 }]
//! "#;
//! let rates = sabul_scenario::parse_override("link.bottleneck.rate_mbps=10,100").unwrap();
//! let runs = sabul_scenario::read(text, "small.toml", &[rates]).unwrap();
//! assert_eq!(runs.len(), 2);
//! assert_eq!(runs[0].label, "link.bottleneck.rate_mbps=10");
//! ```

mod arm;
mod csv;
mod document;
mod error;
mod flow;
pub mod keys;
mod link;
mod plan;
mod read;
mod runs;
mod set;
mod sweep;
mod table;
mod traces;
mod tree;

pub use arm::Arm;
pub use csv::{write_links, write_series};
pub use document::{DocumentError, LabNotes, Manifest, RunDocument};
pub use error::{Error, Problem};
pub use read::{FILE_BYTES_MAX, Run, read, read_file, read_file_for, read_for};
pub use runs::{run_all, run_all_with_progress};
pub use set::{Override, parse_override};
pub use sweep::RUNS_MAX;
