//! Parameter set of the model: the paper's constants, the path, and the start.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// A parameter, with one name in files, reports and grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `capacity_mbps`: C, the rate of the sender's interface.
    CapacityMbps,
    /// `service_mbps`: µ, the service rate of the bottleneck for this flow (or for all flows
    /// together).
    ServiceMbps,
    /// `service_share`: µ as a share of C, instead of `service_mbps`.
    ServiceShare,
    /// `packet_bits`: L, the packet size.
    PacketBits,
    /// `queue_packets`: K, the queue size.
    QueuePackets,
    /// `round_ms`: T, the length of a round.
    RoundMs,
    /// `k1`: gain while the loss is above the target.
    K1,
    /// `k2`: gain while the loss is below the target.
    K2,
    /// `alpha`: the target loss rate.
    Alpha,
    /// `c_us`: c, the addition of Equation 1 to the gap.
    CUs,
    /// `d_us`: d, the addition of Equation 3 to the gap.
    DUs,
    /// `rate_mbps_initial`: λ(0), the initial rate.
    RateMbpsInitial,
    /// `rate_share_initial`: λ(0) as a share of µ, instead of `rate_mbps_initial`.
    RateShareInitial,
    /// `rate_mbps_initial_second`: λ(0) of the second flow, for Lemma 8.
    RateMbpsInitialSecond,
    /// `rate_share_initial_second`: λ(0) of the second flow as a share of µ.
    RateShareInitialSecond,
    /// `feedback_lag_rounds`: 0 if the loss of the same round determines the next gap, 1 if the
    /// loss of the previous round does.
    FeedbackLagRounds,
}

impl Key {
    /// All keys, in the order of files and reports.
    pub const ALL: [Self; 16] = [
        Self::CapacityMbps,
        Self::ServiceMbps,
        Self::ServiceShare,
        Self::PacketBits,
        Self::QueuePackets,
        Self::RoundMs,
        Self::K1,
        Self::K2,
        Self::Alpha,
        Self::CUs,
        Self::DUs,
        Self::RateMbpsInitial,
        Self::RateShareInitial,
        Self::RateMbpsInitialSecond,
        Self::RateShareInitialSecond,
        Self::FeedbackLagRounds,
    ];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CapacityMbps => "capacity_mbps",
            Self::ServiceMbps => "service_mbps",
            Self::ServiceShare => "service_share",
            Self::PacketBits => "packet_bits",
            Self::QueuePackets => "queue_packets",
            Self::RoundMs => "round_ms",
            Self::K1 => "k1",
            Self::K2 => "k2",
            Self::Alpha => "alpha",
            Self::CUs => "c_us",
            Self::DUs => "d_us",
            Self::RateMbpsInitial => "rate_mbps_initial",
            Self::RateShareInitial => "rate_share_initial",
            Self::RateMbpsInitialSecond => "rate_mbps_initial_second",
            Self::RateShareInitialSecond => "rate_share_initial_second",
            Self::FeedbackLagRounds => "feedback_lag_rounds",
        }
    }

    /// Returns the key with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// Returns the smallest and the largest allowed value.
    pub const fn range(self) -> (f64, f64) {
        match self {
            Self::CapacityMbps => (1e-3, 1e8),
            Self::ServiceMbps | Self::RateMbpsInitial | Self::RateMbpsInitialSecond => (1e-6, 1e8),
            Self::ServiceShare => (1e-6, 0.999_999),
            Self::RateShareInitial | Self::RateShareInitialSecond => (1e-6, 1e6),
            Self::PacketBits => (8.0, 1e6),
            Self::QueuePackets => (0.0, 1e9),
            Self::RoundMs => (1e-3, 1e6),
            Self::K1 | Self::K2 => (1e-9, 1e6),
            Self::Alpha => (1e-6, 0.999),
            Self::CUs | Self::DUs => (0.0, 1e6),
            Self::FeedbackLagRounds => (0.0, 1.0),
        }
    }

    /// Returns the other key for the same quantity, if any.
    pub(crate) const fn twin(self) -> Option<Self> {
        match self {
            Self::ServiceMbps => Some(Self::ServiceShare),
            Self::ServiceShare => Some(Self::ServiceMbps),
            Self::RateMbpsInitial => Some(Self::RateShareInitial),
            Self::RateShareInitial => Some(Self::RateMbpsInitial),
            Self::RateMbpsInitialSecond => Some(Self::RateShareInitialSecond),
            Self::RateShareInitialSecond => Some(Self::RateMbpsInitialSecond),
            _ => None,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// A published set of constants on the checker's default path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// The defaults of SABUL [OVV-T §IV], [OVV04 §3]; α from the authors' code,
    /// [SABUL2 `sabul.h`].
    Pr0,
    /// The set that meets the conditions of Lemma 7 [OVV-T §IV].
    Pr1,
}

impl Set {
    /// Both sets.
    pub const ALL: [Self; 2] = [Self::Pr0, Self::Pr1];

    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pr0 => "pr0",
            Self::Pr1 => "pr1",
        }
    }

    /// Returns the set with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Returns every value of the set. The constants are the paper's. Ours: the path (1 Gb/s, half
    /// of it served, 1000 packets of queue, 200 ms) and the start.
    const fn values(self) -> [(Key, f64); 13] {
        let (k1, k2, c_us) = match self {
            Self::Pr0 => (0.1, 10.0, 0.5),
            Self::Pr1 => (0.001_01, 100.0, 0.002),
        };
        [
            (Key::CapacityMbps, 1000.0),
            (Key::ServiceMbps, 500.0),
            (Key::PacketBits, 12_000.0),
            (Key::QueuePackets, 1000.0),
            (Key::RoundMs, 200.0),
            (Key::K1, k1),
            (Key::K2, k2),
            (Key::Alpha, 0.001),
            (Key::CUs, c_us),
            (Key::DUs, 0.1),
            (Key::RateMbpsInitial, 300.0),
            (Key::RateMbpsInitialSecond, 100.0),
            (Key::FeedbackLagRounds, 0.0),
        ]
    }
}

/// Computation of the loss of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    /// By the D/D/1/K queue, which fills and drains from round to round.
    #[default]
    Recursion,
    /// The shortcut of the proofs, `max(0, 1 − µ/λ)`: a queue that is always full.
    Full,
}

impl Variant {
    /// Returns the name used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recursion => "recursion",
            Self::Full => "full",
        }
    }
}

/// An invalid value, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamsError {
    /// Line of the file, from 1; `None` outside files.
    pub line: Option<usize>,
    /// Message with key, value and the allowed values.
    pub message: String,
}

impl ParamsError {
    /// Returns an error without a line.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into() }
    }
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ParamsError {}

/// Builder of a parameter set; checks values against each other.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    values: [Option<f64>; Key::ALL.len()],
    variant: Variant,
    equation3: bool,
}

impl Builder {
    /// Sets every value of a published set. Values set before or after override those of the set.
    #[must_use]
    pub fn with_set(mut self, set: Set) -> Self {
        for (key, value) in set.values() {
            if self.of(key).is_none() && key.twin().is_none_or(|twin| self.of(twin).is_none()) {
                self.values[key.index()] = Some(value);
            }
        }
        self
    }

    /// Sets one value, in the unit of its key. Removes the same quantity under another key.
    #[must_use]
    pub fn with(mut self, key: Key, value: f64) -> Self {
        if let Some(twin) = key.twin() {
            self.values[twin.index()] = None;
        }
        self.values[key.index()] = Some(value);
        self
    }

    /// Sets the computation of loss. Default: the recursion.
    #[must_use]
    pub const fn with_variant(mut self, variant: Variant) -> Self {
        self.variant = variant;
        self
    }

    /// Sets whether a loss equal to the target adds `d` to the gap. Off by default: the paper omits
    /// Equation 3 from its analysis [OVV-T §II, footnote 1].
    #[must_use]
    pub const fn with_equation3(mut self, is_applied: bool) -> Self {
        self.equation3 = is_applied;
        self
    }

    fn of(&self, key: Key) -> Option<f64> {
        self.values[key.index()]
    }

    fn need(&self, key: Key, default: Option<f64>) -> Result<f64, ParamsError> {
        let value = self.of(key).or(default).ok_or_else(|| {
            let sets = "or start from `set = \"pr0\"` or `set = \"pr1\"`";
            ParamsError::new(format!("'{}' is missing: give it, {sets}", key.name()))
        })?;
        check_range(key, value)?;
        Ok(value)
    }

    /// Returns a quantity given as a value, or as a share of `whole`.
    fn plain_or_share(&self, plain: Key, share: Key, whole: f64) -> Result<f64, ParamsError> {
        if self.of(share).is_some() {
            return Ok(self.need(share, None)? * whole);
        }
        self.need(plain, None)
    }

    /// Builds the parameter set.
    ///
    /// # Errors
    /// If a value is missing, out of range, or inconsistent with other values.
    pub fn build(&self) -> Result<Params, ParamsError> {
        let capacity_mbps = self.need(Key::CapacityMbps, None)?;
        let service_mbps =
            self.plain_or_share(Key::ServiceMbps, Key::ServiceShare, capacity_mbps)?;
        below(Key::ServiceMbps, service_mbps, capacity_mbps)?;
        let start = |plain, share| {
            let rate = self.plain_or_share(plain, share, service_mbps)?;
            below(plain, rate, capacity_mbps)?;
            Ok(rate)
        };
        let rate_mbps_initial = start(Key::RateMbpsInitial, Key::RateShareInitial)?;
        let second = [Key::RateMbpsInitialSecond, Key::RateShareInitialSecond];
        let rate_mbps_initial_second = if second.iter().any(|&key| self.of(key).is_some()) {
            start(second[0], second[1])?
        } else {
            // Ours: different enough from the first rate to test fairness.
            rate_mbps_initial / 3.0
        };
        let feedback_lag_rounds = self.need(Key::FeedbackLagRounds, Some(0.0))?;
        if feedback_lag_rounds > 0.0 && feedback_lag_rounds < 1.0 {
            return Err(out_of_range(Key::FeedbackLagRounds, feedback_lag_rounds, "is 0 or 1"));
        }
        Ok(Params {
            capacity_mbps,
            service_mbps,
            packet_bits: self.need(Key::PacketBits, Some(12_000.0))?,
            queue_packets: self.need(Key::QueuePackets, None)?,
            round_ms: self.need(Key::RoundMs, Some(200.0))?,
            k1: self.need(Key::K1, None)?,
            k2: self.need(Key::K2, None)?,
            alpha: self.need(Key::Alpha, None)?,
            c_us: self.need(Key::CUs, None)?,
            d_us: self.need(Key::DUs, Some(0.0))?,
            rate_mbps_initial,
            rate_mbps_initial_second,
            feedback_lag_rounds: u8::from(feedback_lag_rounds > 0.0),
            variant: self.variant,
            equation3: self.equation3,
        })
    }
}

/// Checks one value against the range of its key.
pub(crate) fn check_range(key: Key, value: f64) -> Result<(), ParamsError> {
    let (least, largest) = key.range();
    // This form also rejects NaN.
    if (least..=largest).contains(&value) {
        Ok(())
    } else {
        Err(out_of_range(key, value, &format!("goes from {least} to {largest}")))
    }
}

fn out_of_range(key: Key, value: f64, allowed: &str) -> ParamsError {
    ParamsError::new(format!("{} = {value} is not allowed: it {allowed}", key.name()))
}

fn below(key: Key, value: f64, capacity_mbps: f64) -> Result<(), ParamsError> {
    if value < capacity_mbps {
        return Ok(());
    }
    let allowed = format!("has to be below capacity_mbps = {capacity_mbps}");
    Err(out_of_range(key, value, &allowed))
}

/// A parameter set that is valid everywhere. The fields are in the units of their names.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Params {
    /// C, the rate of the sender's interface, in Mb/s.
    capacity_mbps: f64,
    /// µ, the service rate of the bottleneck for this flow, or for all flows together, in Mb/s.
    service_mbps: f64,
    /// L, the size of a packet in bits.
    packet_bits: f64,
    /// K, the queue size in packets.
    queue_packets: f64,
    /// T, the length of a round in milliseconds.
    round_ms: f64,
    /// The gain while the loss is above the target.
    k1: f64,
    /// The gain while the loss is below the target.
    k2: f64,
    /// The target loss rate, 0 to 1.
    alpha: f64,
    /// Increase of the gap by Equation 1, in microseconds.
    c_us: f64,
    /// Increase of the gap by Equation 3, in microseconds.
    d_us: f64,
    /// λ(0), the rate of the first round, in Mb/s.
    rate_mbps_initial: f64,
    /// λ(0) of the second flow, for Lemma 8, in Mb/s.
    rate_mbps_initial_second: f64,
    /// 0 if the loss of the same round determines the next gap, 1 if the loss of the previous round does.
    feedback_lag_rounds: u8,
    /// Computation of the loss of a round.
    variant: Variant,
    /// Whether Equation 3 is applied.
    equation3: bool,
}

impl Params {
    /// Returns an empty builder.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a published set on the default path: 1 Gb/s interface, 500 Mb/s served, 1000 packets
    /// of queue, rounds of 200 ms, start at 300 (and 100) Mb/s.
    ///
    /// # Panics
    /// Never: the sets are valid.
    pub fn preset(set: Set) -> Self {
        Self::builder().with_set(set).build().expect("the published sets are in range")
    }

    /// Returns a builder with these values.
    #[must_use]
    pub fn to_builder(&self) -> Builder {
        let shares = [Key::ServiceShare, Key::RateShareInitial, Key::RateShareInitialSecond];
        Key::ALL
            .into_iter()
            .filter(|key| !shares.contains(key))
            .fold(Builder::default(), |builder, key| builder.with(key, self.value(key)))
            .with_variant(self.variant)
            .with_equation3(self.equation3)
    }

    /// Returns the value of a key, in its unit.
    pub fn value(&self, key: Key) -> f64 {
        match key {
            Key::CapacityMbps => self.capacity_mbps,
            Key::ServiceMbps => self.service_mbps,
            Key::ServiceShare => self.service_mbps / self.capacity_mbps,
            Key::PacketBits => self.packet_bits,
            Key::QueuePackets => self.queue_packets,
            Key::RoundMs => self.round_ms,
            Key::K1 => self.k1,
            Key::K2 => self.k2,
            Key::Alpha => self.alpha,
            Key::CUs => self.c_us,
            Key::DUs => self.d_us,
            Key::RateMbpsInitial => self.rate_mbps_initial,
            Key::RateShareInitial => self.rate_mbps_initial / self.service_mbps,
            Key::RateMbpsInitialSecond => self.rate_mbps_initial_second,
            Key::RateShareInitialSecond => self.rate_mbps_initial_second / self.service_mbps,
            Key::FeedbackLagRounds => f64::from(self.feedback_lag_rounds),
        }
    }

    /// Returns C in bit/s.
    pub fn capacity(&self) -> f64 {
        self.capacity_mbps * 1e6
    }

    /// Returns µ in bit/s.
    pub fn service(&self) -> f64 {
        self.service_mbps * 1e6
    }

    /// Returns L in bits.
    pub const fn packet(&self) -> f64 {
        self.packet_bits
    }

    /// Returns K·L, the queue size in bits; zero if the queue counts as always full.
    pub fn room(&self) -> f64 {
        match self.variant {
            Variant::Recursion => self.queue_packets * self.packet_bits,
            Variant::Full => 0.0,
        }
    }

    /// Returns T in seconds.
    pub fn round(&self) -> f64 {
        self.round_ms / 1e3
    }

    /// Returns k1.
    pub const fn k1(&self) -> f64 {
        self.k1
    }

    /// Returns k2.
    pub const fn k2(&self) -> f64 {
        self.k2
    }

    /// Returns α.
    pub const fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Returns c in seconds.
    pub fn c(&self) -> f64 {
        self.c_us / 1e6
    }

    /// Returns d in seconds.
    pub fn d(&self) -> f64 {
        self.d_us / 1e6
    }

    /// Returns the computation of loss.
    pub const fn variant(&self) -> Variant {
        self.variant
    }

    /// Whether Equation 3 is applied.
    pub const fn equation3(&self) -> bool {
        self.equation3
    }

    /// Returns the delay of feedback in rounds, 0 or 1.
    pub const fn feedback_lag_rounds(&self) -> u8 {
        self.feedback_lag_rounds
    }

    /// Returns the initial gaps of the first and the second flow, in seconds.
    pub fn gaps_initial(&self) -> [f64; 2] {
        [self.rate_mbps_initial, self.rate_mbps_initial_second].map(|mbps| self.gap_of(mbps * 1e6))
    }

    /// Returns the gap at which a sender reaches `rate` bit/s, in seconds. [OVV-T §II] Equation 5.
    pub fn gap_of(&self, rate: f64) -> f64 {
        self.packet_bits / rate - self.packet_bits / self.capacity()
    }

    /// Returns the rate of a sender with this gap, in bit/s. [OVV-T §II] Equation 5.
    pub fn rate_of(&self, gap: f64) -> f64 {
        self.packet_bits / (self.packet_bits / self.capacity() + gap)
    }
}

impl fmt::Display for Params {
    /// Writes the keys of a parameter file on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = [Key::ServiceShare, Key::RateShareInitial, Key::RateShareInitialSecond];
        for key in Key::ALL.into_iter().filter(|key| !shares.contains(key)) {
            write!(f, "{} = {}, ", key.name(), self.value(key))?;
        }
        write!(f, "variant = \"{}\", equation3 = {}", self.variant.name(), self.equation3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_is_refused_with_key_value_and_range() {
        let built = Params::builder().with_set(Set::Pr0).with(Key::Alpha, 1.5).build();
        let message = built.unwrap_err().to_string();
        assert_eq!(message, "alpha = 1.5 is not allowed: it goes from 0.000001 to 0.999");
        let built = Params::builder().with_set(Set::Pr0).with(Key::K2, f64::NAN).build();
        assert!(built.unwrap_err().message.starts_with("k2 = NaN"));
    }

    #[test]
    fn service_and_start_stay_below_the_interface() {
        for key in [Key::ServiceMbps, Key::RateMbpsInitial, Key::RateMbpsInitialSecond] {
            let built = Params::builder().with_set(Set::Pr0).with(key, 1000.0).build();
            let message = built.unwrap_err().message;
            assert!(message.contains(key.name()) && message.contains("below"), "{message}");
        }
    }

    #[test]
    fn a_missing_value_names_its_key() {
        let message = Params::builder().with(Key::CapacityMbps, 10.0).build().unwrap_err().message;
        assert!(message.starts_with("'service_mbps' is missing"), "{message}");
    }

    #[test]
    fn a_share_replaces_the_absolute_value_and_a_set_keeps_the_share() {
        let first = Params::builder().with(Key::ServiceShare, 0.25).with_set(Set::Pr0).build();
        let last = Params::builder().with_set(Set::Pr0).with(Key::ServiceShare, 0.25).build();
        for params in [first.unwrap(), last.unwrap()] {
            assert!((params.value(Key::ServiceMbps) - 250.0).abs() < 1e-9);
        }
    }

    #[test]
    fn rate_and_gap_are_inverse() {
        let params = Params::preset(Set::Pr0);
        // 12000/300e6 − 12000/1e9 = 40 µs − 12 µs.
        assert!((params.gap_of(300e6) - 28e-6).abs() < 1e-15);
        assert!((params.rate_of(28e-6) - 300e6).abs() < 1e-3);
    }

    #[test]
    fn a_builder_made_from_a_set_rebuilds_the_set() {
        for set in Set::ALL {
            let params = Params::preset(set);
            assert_eq!(params.to_builder().build().unwrap(), params);
        }
    }
}
