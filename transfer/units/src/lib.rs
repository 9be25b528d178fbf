//! Shared basic types: time, gap, rate, sizes, sequence numbers, seeded randomness, keys of
//! configuration files, congestion header values and the result of `poll`.
//!
//! Time is an integer count of picoseconds since the start of a run. Runs are therefore
//! bit-identical, and the serialisation time of a packet is exact. No code here reads a clock or
//! the system's randomness: both are inputs.

mod congestion;
pub mod key;
pub mod math;
mod poll;
mod random;
mod rate;
mod seq;
mod size;
mod spelling;
mod time;
mod words;

pub use congestion::{
    CongestionFields, CongestionForm, CongestionHeader, JetMaxFields, LOSS_ONE, NO_RATE,
    PROBE_INTERVAL,
};
pub use poll::Polled;
pub use random::{Probability, ProbabilityError, Random, SeededRandom};
pub use rate::{Bytes, Gap, Packets, ParseRateError, Rate};
pub use seq::{PacketNumber, SeqNo, expand_u32};
pub use size::{parse_bytes, show_bytes};
pub use spelling::{near, nearest};
pub use time::{Instant, Span};
pub use words::{count, show_rate};
