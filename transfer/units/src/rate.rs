//! Rates, gaps and sizes.

use std::fmt;
use std::str::FromStr;

use crate::time::Span;

/// A count of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A count of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Packets(pub u64);

/// The inter-packet gap: start of one DATA packet to start of the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gap(pub Span);

impl Gap {
    /// No pacing: packets leave as fast as the machine allows.
    pub const NONE: Self = Self(Span::ZERO);

    /// Returns the rate of packets of `size` with this gap; `None` without pacing.
    pub fn rate(self, size: Bytes) -> Option<Rate> {
        (self.0.0 > 0).then(|| Rate::from_size_over(size, self.0))
    }
}

impl fmt::Debug for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gap {:?}", self.0)
    }
}

/// A rate in bit/s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(pub u64);

const PS_PER_S: u128 = 1_000_000_000_000;

impl Rate {
    /// Creates a rate of whole megabits per second.
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(1_000_000))
    }

    /// Returns the rate of `size` per `time`; a zero time counts as one picosecond.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by `min`")]
    pub fn from_size_over(size: Bytes, time: Span) -> Self {
        let bits = size.0 as u128 * 8 * PS_PER_S;
        Self((bits / (time.0.max(1) as u128)).min(u64::MAX as u128) as u64)
    }

    /// Returns the time that `size` takes at this rate; the longest span for a zero rate.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by `min`")]
    pub fn time_for(self, size: Bytes) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let ps = size.0 as u128 * 8 * PS_PER_S / self.0 as u128;
        Span(ps.min(u64::MAX as u128) as u64)
    }

    /// Returns the number of bytes that pass in `time` at this rate.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by `min`")]
    pub fn bytes_in(self, time: Span) -> Bytes {
        let bytes = self.0 as u128 * time.0 as u128 / (8 * PS_PER_S);
        Bytes(bytes.min(u64::MAX as u128) as u64)
    }

    /// Returns the gap between packets of `size` at this rate.
    pub fn gap(self, size: Bytes) -> Gap {
        Gap(self.time_for(size))
    }

    /// `self × num ÷ den`, saturating.
    ///
    /// # Panics
    /// If `den` is zero.
    #[expect(clippy::cast_possible_truncation, reason = "bounded by `min`")]
    pub fn mul_ratio(self, num: u64, den: u64) -> Self {
        let wide = self.0 as u128 * num as u128 / den as u128;
        Self(wide.min(u64::MAX as u128) as u64)
    }

    /// Megabits per second, for reports.
    pub fn as_mbps_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{bps:.0} bit/s"),
            1_000..1_000_000 => write!(f, "{:.1} kbit/s", bps / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} Mbit/s", bps / 1e6),
            _ => write!(f, "{:.2} Gbit/s", bps / 1e9),
        }
    }
}

/// The text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRateError {
    text: String,
}

impl fmt::Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a rate: write bits per second as a positive number with k, M, G or T \
             (powers of 1000), such as 500M or 2.5G, or bytes per second, such as 60MB/s",
            self.text
        )
    }
}

impl std::error::Error for ParseRateError {}

impl FromStr for Rate {
    type Err = ParseRateError;

    /// Parses a rate in bits per second with powers of 1000: `800M`, `2.5G`, `64000`, `10Gbit/s`,
    /// `10Gbps`. With `B/s` at the end the number counts bytes: `10MB/s`, and `10MiB/s` with powers
    /// of 1024. Ambiguous text is rejected.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let fail = || ParseRateError { text: text.to_owned() };
        let t = text.trim();
        let (t, bits, base) = if let Some(t) = t.strip_suffix("iB/s") {
            (t, 8.0, 1024.0_f64)
        } else if let Some(t) = t.strip_suffix("B/s") {
            (t, 8.0, 1000.0)
        } else {
            let bits = ["bit/s", "bps"].iter().find_map(|unit| t.strip_suffix(unit));
            (bits.unwrap_or(t), 1.0, 1000.0)
        };
        let t = t.trim();
        let (number, power) = match t.chars().last().ok_or_else(fail)? {
            'k' | 'K' => (&t[..t.len() - 1], 1),
            'M' | 'm' => (&t[..t.len() - 1], 2),
            'G' | 'g' => (&t[..t.len() - 1], 3),
            'T' | 't' => (&t[..t.len() - 1], 4),
            // `iB/s` without a prefix is no unit.
            _ if base > 1000.0 => return Err(fail()),
            _ => (t, 0),
        };
        let factor = bits * base.powi(power);
        if !number.trim().chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(fail());
        }
        let bps = number.trim().parse::<f64>().map_err(|_| fail())? * factor;
        if !(1.0..=1e15).contains(&bps) {
            return Err(fail());
        }
        Ok(Self(bps as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_1500_byte_packet_at_one_gigabit_takes_12_us() {
        // 1500 × 8 = 12 000 bit; ÷ 10^9 bit/s = 12 µs.
        assert_eq!(Rate::from_mbps(1000).gap(Bytes(1500)), Gap(Span::from_micros(12)));
        assert_eq!(Gap(Span::from_micros(12)).rate(Bytes(1500)), Some(Rate::from_mbps(1000)));
        assert_eq!(Gap::NONE.rate(Bytes(1500)), None);
    }

    #[test]
    fn rates_parse_as_bits_with_powers_of_1000() {
        assert_eq!("500M".parse(), Ok(Rate(500_000_000)));
        assert_eq!("2.5G".parse(), Ok(Rate(2_500_000_000)));
        assert_eq!("10 Gbit/s".parse(), Ok(Rate(10_000_000_000)));
        for bad in ["", "fast", "-5M", "0", "1MB", "inf", "nan", "1e99", "5MiB", "5iB/s", "B/s"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_in_bytes_per_second_counts_eight_bits_for_each() {
        assert_eq!("10MB/s".parse(), Ok(Rate(80_000_000)));
        assert_eq!("1.5 kB/s".parse(), Ok(Rate(12_000)));
        assert_eq!("10MiB/s".parse(), Ok(Rate(83_886_080)));
        assert_eq!("125 B/s".parse(), Ok(Rate(1_000)));
    }
}
