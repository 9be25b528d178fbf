//! Plan of a simulated or emulated run: links, flows and duration.
//!
//! Plain values, already checked; `sabul-scenario` reads the text form. Flows and links are
//! identified by position here.

use sabul_net::LinkPlan;
use sabul_units::Span;
use sabul_units::key::{Key, Range, Takes};

pub use crate::flow::{
    Carrier, DATA_HEADERS, Defects, FLOW, FlowDraft, FlowPlan, Machine, PACED_BLOCK_BYTES, Profile,
    SINK_BLOCKS, SabulEnds, Striping, TRANSPORTS, TcpEnds, Transport,
};
pub use crate::size::{ARRIVALS, Arrivals, FlowSize, SIZE};

use crate::size::SECONDS_MAX;

/// TOML integers are signed 64-bit, and seeds are not negative.
const SEED_MAX: u64 = i64::MAX as u64;

/// Keys at the top level of a scenario file.
pub const RUN: &[Key<Scenario>] = &[
    Key::<Scenario>::new("name", Takes::Own("1 to 100 printable characters"))
        .or_else("file name without extension"),
    Key::<Scenario>::new(
        "duration_s",
        Takes::Seconds(Range::of(0.001, SECONDS_MAX), |run, s| run.duration = s),
    )
    .required("the duration of the run in seconds"),
    Key::<Scenario>::new(
        "warmup_s",
        Takes::Seconds(Range::of(0.0, SECONDS_MAX), |run, s| run.warmup = s),
    )
    .doc("initial time without averages; below `duration_s`")
    .or(0.0),
    Key::<Scenario>::new(
        "sample_ms",
        Takes::Millis(Range::of(0.001, SECONDS_MAX * 1e3), |run, ms| run.sample = ms),
    )
    .doc("time between two rows of the series; at most 10^6 rows")
    .or(100.0),
    Key::<Scenario>::new("seed", Takes::Whole(0, SEED_MAX, |run, seed| run.seed = seed))
        .doc("seed of all random numbers")
        .or(1.0),
];

/// Keys of a scenario file that are lists and tables.
pub const PARTS: &[&str] = &["link", "flow", "sweep"];

/// Plan of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: String,
    /// Duration.
    pub duration: Span,
    /// Time at the start that averages exclude.
    pub warmup: Span,
    /// Time between two rows of the series.
    pub sample: Span,
    /// Seed of all random streams.
    pub seed: u64,
    /// Links, with both directions each.
    pub links: Vec<LinkPlan>,
    /// Flows.
    pub flows: Vec<FlowPlan>,
}

impl Default for Scenario {
    /// An empty scenario of zero duration, with the defaults of [`RUN`].
    fn default() -> Self {
        let mut run = Self {
            name: String::new(),
            duration: Span::ZERO,
            warmup: Span::ZERO,
            sample: Span::ZERO,
            seed: 0,
            links: Vec::new(),
            flows: Vec::new(),
        };
        for key in RUN {
            key.put_default(&mut run).expect("the default of a key is a value of it, and tested");
        }
        run
    }
}
