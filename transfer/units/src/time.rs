//! Picosecond time: a point in time ([`Instant`]) and a length of time ([`Span`]).

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::time::Duration;

const PS_PER_NS: u64 = 1_000;
const PS_PER_US: u64 = 1_000_000;
const PS_PER_MS: u64 = 1_000_000_000;
const PS_PER_S: u64 = 1_000_000_000_000;

/// A length of time in picoseconds; at most 213 days. Arithmetic saturates at that bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub u64);

impl Span {
    /// Zero time.
    pub const ZERO: Self = Self(0);
    /// The longest representable time.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(PS_PER_S))
    }
    /// A span of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(PS_PER_MS))
    }
    /// A span of whole microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(PS_PER_US))
    }
    /// A span of whole nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns.saturating_mul(PS_PER_NS))
    }
    /// A span of (fractional) seconds. Negative values and NaN give zero; values that are too large
    /// give [`Self::MAX`].
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * PS_PER_S as f64) as u64)
    }
    /// Seconds, for reports and averages.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }
    /// Milliseconds, for reports.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / PS_PER_MS as f64
    }
    /// Whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / PS_PER_US
    }
    /// Whole nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / PS_PER_NS
    }
    /// This span less `other`, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// `self × num ÷ den`, exact up to rounding down.
    ///
    /// # Panics
    /// If `den` is zero.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the line before")]
    pub const fn mul_ratio(self, num: u64, den: u64) -> Self {
        let wide = self.0 as u128 * num as u128 / den as u128;
        if wide > u64::MAX as u128 { Self::MAX } else { Self(wide as u64) }
    }
}

impl From<Duration> for Span {
    #[expect(clippy::cast_possible_truncation, reason = "213 days of nanoseconds fit in 64 bits")]
    fn from(d: Duration) -> Self {
        Self::from_nanos(d.as_nanos().min(u64::MAX as u128) as u64)
    }
}

impl From<Span> for Duration {
    fn from(s: Span) -> Self {
        Self::from_nanos(s.as_nanos())
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, n: u64) -> Self {
        Self(self.0 / n)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ps if ps >= PS_PER_S => write!(f, "{:.6}s", self.as_secs_f64()),
            ps if ps >= PS_PER_MS => write!(f, "{:.6}ms", self.as_millis_f64()),
            ps if ps >= PS_PER_US => write!(f, "{:.6}us", ps as f64 / PS_PER_US as f64),
            ps => write!(f, "{ps}ps"),
        }
    }
}

/// A point in time: picoseconds since the start of the run, whichever clock drives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than every event.
    pub const MAX: Self = Self(u64::MAX);

    /// Time since `earlier`; zero if `earlier` is later than this time.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
    /// Returns the earliest of the given times. Called for each packet, so without an iterator.
    #[inline]
    pub fn earliest<const N: usize>(times: [Option<Self>; N]) -> Option<Self> {
        let mut earliest = None;
        for time in times {
            earliest = match (earliest, time) {
                (Some(a), Some(b)) if a <= b => Some(a),
                (a, None) => a,
                (_, b) => b,
            };
        }
        earliest
    }
    /// Time since the start of the run.
    pub const fn elapsed(self) -> Span {
        Span(self.0)
    }
}

impl Add<Span> for Instant {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Instant {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={:.9}s", self.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_ignores_missing_instants() {
        let at = |ps| Some(Instant(ps));
        assert_eq!(Instant::earliest([None, at(7), at(3), None, at(5)]), at(3));
        assert_eq!(Instant::earliest([at(3), None]), at(3));
        assert_eq!(Instant::earliest([None, None]), None);
    }

    #[test]
    fn spans_convert_and_saturate() {
        assert_eq!(Span::from_millis(10), Span(10_000_000_000));
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
        assert_eq!(Span::from_secs_f64(f64::NAN), Span::ZERO);
        assert_eq!(Span::MAX + Span(1), Span::MAX);
        assert_eq!(Span(10).mul_ratio(9, 8), Span(11));
        assert_eq!(Span::MAX.mul_ratio(9, 8), Span::MAX);
        assert_eq!(Duration::from(Span::from_micros(3)), Duration::from_micros(3));
    }

    #[test]
    fn instants_never_go_negative() {
        assert_eq!(Instant(5).since(Instant(9)), Span::ZERO);
        assert_eq!(Instant(5) - Span(9), Instant::ZERO);
    }
}
