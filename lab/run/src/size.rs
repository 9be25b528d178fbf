//! Amount of data of a flow and start times of its copies, with the keys of a flow's `size` and
//! `arrivals`.

use sabul_units::Span;
use sabul_units::key::{Key, Range, Takes};

/// The longest run in seconds: eleven days, far below the 213 days that time can count.
pub(crate) const SECONDS_MAX: f64 = 1e6;
/// Most packets of an object.
const PACKETS_MAX: u64 = 1_000_000_000;
/// Most copies of a flow that start together.
pub(crate) const COUNT_MAX: u32 = 100_000;
pub(crate) const SECONDS: Range = Range::of(0.0, SECONDS_MAX);

/// Amount of data that a flow sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowSize {
    /// Unlimited, until the flow stops.
    Endless,
    /// This many payload bytes.
    Bytes(u64),
    /// Drawn for each arrival: Pareto with this shape and mean, in packets. \[ECC\]
    Pareto {
        /// Tail index, over 1.
        shape: f64,
        /// Mean, in packets.
        mean_packets: f64,
    },
}

/// Start times of a flow's copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// `count` copies, each at a random time within `spread` of the start.
    Together {
        /// Number of copies.
        count: u32,
        /// Length of the start interval; zero for a simultaneous start.
        spread: Span,
    },
    /// Poisson arrivals from start to stop, with exponential times between them.
    Poisson {
        /// Mean time between two arrivals.
        mean_interval: Span,
    },
    /// `parallel` copies at a time: the next copy starts when an earlier copy has all its bytes
    /// acknowledged.
    Chain {
        /// Number of copies in all.
        count: u32,
        /// Number of copies at a time.
        parallel: u32,
    },
}

/// Keys of a flow's `size`.
pub const SIZE: &[Key<FlowSize>] = &[
    Key::<FlowSize>::new(
        "distribution",
        Takes::Word(&["pareto", "fixed"], |size, word| {
            *size = match word {
                "pareto" => FlowSize::Pareto { shape: 2.0, mean_packets: 1.0 },
                _ => FlowSize::Bytes(1),
            }
        }),
    )
    .doc("`pareto`: each copy has a random size; `fixed`: all copies have the same size")
    .required(SIZE_EXAMPLE),
    Key::<FlowSize>::new(
        "shape",
        Takes::Number(Range::over(1.0, 100.0), |size, number| {
            if let FlowSize::Pareto { shape, .. } = size {
                *shape = number;
            }
        }),
    )
    .doc("tail index of the distribution")
    .required(SIZE_EXAMPLE)
    .of(&["pareto"])
    .elsewhere(SIZE_EXAMPLE),
    Key::<FlowSize>::new(
        "mean_packets",
        Takes::Number(Range::of(1.0, PACKETS_MAX as f64), |size, number| {
            if let FlowSize::Pareto { mean_packets, .. } = size {
                *mean_packets = number;
            }
        }),
    )
    .doc("mean size, in packets")
    .required(SIZE_EXAMPLE)
    .of(&["pareto"])
    .elsewhere(SIZE_EXAMPLE),
    Key::<FlowSize>::new(
        "packets",
        Takes::Whole(1, PACKETS_MAX, |size, packets| *size = FlowSize::Bytes(packets)),
    )
    .doc("size in packets of `packet_bytes`, each without 40 bytes of headers")
    .required(SIZE_EXAMPLE)
    .of(&["fixed"])
    .elsewhere(SIZE_EXAMPLE),
];

pub(crate) const SIZE_EXAMPLE: &str = "{ distribution = \"pareto\", shape = 1.4, mean_packets = 100 } or \
                            { distribution = \"fixed\", packets = 100 }";

/// Keys of a flow's `arrivals`.
pub const ARRIVALS: &[Key<Arrivals>] = &[
    Key::<Arrivals>::new("process", Takes::Word(&["poisson", "together", "chain"], |arrivals, word| {
            *arrivals = match word {
                "poisson" => Arrivals::Poisson { mean_interval: Span::from_secs(1) },
                "chain" => Arrivals::Chain { count: 1, parallel: 1 },
                _ => Arrivals::Together { count: 1, spread: Span::ZERO },
            }
        })).doc("`poisson`: copies start at random times between start and stop; `chain`: each completed copy starts \
         the next; `together`: as `count` and `spread_s` of the flow")
    .required(ARRIVALS_EXAMPLE),
    Key::<Arrivals>::new("mean_interval_s", Takes::Seconds(Range::of(1e-9, SECONDS_MAX), |arrivals, s| {
            if let Arrivals::Poisson { mean_interval } = arrivals {
                *mean_interval = s;
            }
        }))
        .doc("mean time between two starts; the expected number of copies is at most 10^6")
    .required("the mean time between two arrivals, in seconds")
    .of(&["poisson"]),
    Key::<Arrivals>::new("count", Takes::Whole32(1, COUNT_MAX, |arrivals, n| {
            if let Arrivals::Together { count, .. } | Arrivals::Chain { count, .. } = arrivals {
                *count = n;
            }
        }))
        .doc("total number of copies")
    .required(ARRIVALS_EXAMPLE)
    .of(&["together", "chain"]),
    Key::<Arrivals>::new("spread_s", Takes::Seconds(SECONDS, |arrivals, s| {
            if let Arrivals::Together { spread, .. } = arrivals {
                *spread = s;
            }
        }))
        .doc("the copies start at random times within this time")
    .or(0.0)
    .of(&["together"]),
    Key::<Arrivals>::new("parallel", Takes::Whole32(1, COUNT_MAX, |arrivals, n| {
            if let Arrivals::Chain { parallel, .. } = arrivals {
                *parallel = n;
            }
        }))
        .doc("number of simultaneous copies")
    .or(1.0)
    .of(&["chain"]),
];

pub(crate) const ARRIVALS_EXAMPLE: &str = "{ process = \"poisson\", mean_interval_s = 0.2 } or \
                                { process = \"together\", count = 10, spread_s = 1 } or \
                                { process = \"chain\", count = 100, parallel = 5 }";
