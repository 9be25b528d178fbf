//! Seeded random number generator of our own, so that a seed gives the same run in every version.
//!
//! xoshiro256** (Blackman and Vigna, 2018), seeded by splitmix64. Not for secrets.

use std::fmt;
use std::str::FromStr;

/// A source of reproducible randomness.
pub trait Random {
    /// Returns the next 64 uniform bits.
    fn next_u64(&mut self) -> u64;

    /// Returns a uniform number in `0..bound`; zero for a zero bound.
    fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift: the bias is below 2^-64 × bound, far below what any test here can detect.
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns whether an event of this probability happens now.
    fn chance(&mut self, p: Probability) -> bool {
        p.0 > 0 && self.below(Probability::ONE.0) < p.0
    }
}

/// A probability in parts per billion; an integer, so that results do not depend on a library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Probability(u64);

/// The number is not a probability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbabilityError(String);

impl fmt::Display for ProbabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a probability: write a fraction from 0 to 1, such as 0.05", self.0)
    }
}

impl std::error::Error for ProbabilityError {}

impl Probability {
    /// Probability zero.
    pub const ZERO: Self = Self(0);
    /// Probability one.
    pub const ONE: Self = Self(1_000_000_000);

    /// Creates a probability from a fraction in `0..=1`.
    ///
    /// # Errors
    /// If `p` is outside that range or not a number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range checked")]
    pub fn new(p: f64) -> Result<Self, ProbabilityError> {
        if (0.0..=1.0).contains(&p) {
            Ok(Self((p * 1e9 + 0.5) as u64))
        } else {
            Err(ProbabilityError(p.to_string()))
        }
    }

    /// Creates a probability of `per` in a thousand.
    ///
    /// # Panics
    /// If `per` is over 1000.
    pub const fn per_mille(per: u64) -> Self {
        assert!(per <= 1000, "a probability is at most one");
        Self(per * 1_000_000)
    }

    /// Returns the fraction, for reports.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl FromStr for Probability {
    type Err = ProbabilityError;
    fn from_str(text: &str) -> Result<Self, ProbabilityError> {
        let p = text.trim().parse::<f64>().map_err(|_| ProbabilityError(text.to_owned()))?;
        Self::new(p)
    }
}

impl fmt::Debug for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_f64())
    }
}

/// The generator behind every simulated run.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    state: [u64; 4],
    seed: u64,
}

impl SeededRandom {
    /// Creates a generator; the same seed gives the same numbers on every machine.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let mut splitmix = || {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Self { state: [splitmix(), splitmix(), splitmix(), splitmix()], seed }
    }

    /// Returns an independent named stream; adding a stream does not change the others.
    #[must_use]
    pub fn fork(&self, name: &str) -> Self {
        // FNV-1a over the name, mixed with the seed this generator was made from.
        let hash = name
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |h: u64, b| (h ^ b as u64).wrapping_mul(0x0100_0000_01B3));
        Self::new(self.seed.rotate_left(17) ^ hash)
    }
}

impl Random for SeededRandom {
    fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_random_numbers() {
        let draw = |seed| {
            let mut rng = SeededRandom::new(seed);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn random_streams_depend_on_names_and_not_on_order() {
        let root = SeededRandom::new(1);
        let first = root.fork("link/a").next_u64();
        let _other = root.fork("link/b");
        assert_eq!(root.fork("link/a").next_u64(), first);
        assert_ne!(root.fork("link/b").next_u64(), first);
    }

    #[test]
    fn chance_is_true_with_the_given_probability() {
        let mut rng = SeededRandom::new(3);
        let p = Probability::new(0.05).unwrap();
        let hits = (0..100_000).filter(|_| rng.chance(p)).count();
        assert!((4_700..5_300).contains(&hits), "{hits} of 100000 at 5 %");
        assert!(!(0..1000).any(|_| rng.chance(Probability::ZERO)));
        assert!((0..1000).all(|_| rng.chance(Probability::ONE)));
    }

    #[test]
    fn only_fractions_are_probabilities() {
        for bad in ["-0.1", "1.1", "nan", "x", ""] {
            assert!(bad.parse::<Probability>().is_err(), "{bad}");
        }
    }
}
