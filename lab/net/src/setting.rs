//! Shared parts of link and discipline settings: the error type, bounds and common keys.

use std::fmt;

use sabul_units::key::{Key, Range, Takes};
use sabul_units::{Rate, Span};

/// Slowest rate: its packet times are far below the 213 days that time can represent.
pub(crate) const RATE_MIN: Rate = Rate(1_000);
/// The fastest rate at which one byte still takes a whole number of picoseconds (8).
pub(crate) const RATE_MAX: Rate = Rate(1_000_000_000_000);
/// Range of link rates in Mb/s.
pub const RATE_MBPS: Range = Range::of(RATE_MIN.0 as f64 / 1e6, RATE_MAX.0 as f64 / 1e6);

/// Longer than any path on Earth or to the Moon; a larger number indicates a wrong unit.
pub(crate) const DELAY_MAX: Span = Span::from_secs(3_600);
/// Range of link delays in ms.
pub const DELAY_MS: Range = Range::of(0.0, DELAY_MAX.0 as f64 / 1e9);
/// Latest time in a file, in seconds: eleven days, the longest run.
pub(crate) const SECONDS_MAX: f64 = 1e6;

/// Largest queue in packets that a file may set.
pub(crate) const PACKETS_MAX: u64 = 1_000_000_000;
/// Packet size for time averages and for rates in packets, in bytes.
pub(crate) const FULL_PACKET: u64 = 1_500;

/// A full Ethernet frame without its checksum: the largest packet where the link has no MTU, and
/// the quantum of both round robins, in bytes. [RFC8290 §5.2]
pub(crate) const FULL_FRAME: u32 = 1_514;

/// Largest weight of a flow; its turn then has 99 MB at the default quantum.
pub(crate) const WEIGHT_MAX: u32 = 65_535;

/// Limit of the queue in front of the serialiser, without the packet being serialised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most this many packets wait.
    Packets(u64),
    /// At most this many bytes wait.
    Bytes(u64),
    /// No packet is dropped for lack of room.
    #[default]
    Unlimited,
}

impl QueueLimit {
    /// Whether this many packets and bytes may wait at once.
    pub(crate) fn allows(self, packets: u64, bytes: u64) -> bool {
        match self {
            Self::Packets(limit) => packets <= limit,
            Self::Bytes(limit) => bytes <= limit,
            Self::Unlimited => true,
        }
    }
}

/// A setting is outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// The name of the setting.
    pub setting: &'static str,
    /// The rejected value.
    pub value: String,
    /// Description of the allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, value, allowed } = self;
        write!(f, "link setting '{setting}' is {value}, which is not allowed; use {allowed}")
    }
}

impl std::error::Error for LinkError {}

pub(crate) fn ensure(
    is_allowed: bool,
    setting: &'static str,
    value: impl Fn() -> String,
    allowed: &'static str,
) -> Result<(), LinkError> {
    if is_allowed { Ok(()) } else { Err(LinkError { setting, value: value(), allowed }) }
}

/// Key for the bytes that a flow may send in its turn. The bounds keep a turn from needing too many
/// rounds of credit, and from starving other flows. As in the Linux `fq_codel`.
pub(crate) const fn quantum<T>(set: fn(&mut T, u32), source: &'static str) -> Key<T> {
    Key::new("quantum_bytes", Takes::Whole32(QUANTUM_MIN, QUANTUM_MAX, set))
        .doc("bytes that a flow may send per round")
        .or(FULL_FRAME as f64)
        .source(source)
}
const QUANTUM_MIN: u32 = 256;
pub(crate) const QUANTUM_MAX: u32 = 1 << 20;

pub(crate) fn check_quantum(quantum: u32) -> Result<(), LinkError> {
    let is_allowed = (QUANTUM_MIN..=QUANTUM_MAX).contains(&quantum);
    let allowed = "256 to 1048576 bytes";
    ensure(is_allowed, "quantum_bytes", || format!("{quantum} bytes"), allowed)
}
