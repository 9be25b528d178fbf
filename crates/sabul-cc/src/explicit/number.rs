//! The numbers that router halves reckon with: `f64`, and in tests one that counts what is done with it.

use std::fmt;
use std::ops::{Add, Mul, Sub};

use sabul_units::{LOSS_ONE, Rate};

/// What the part of a router half that runs for each packet needs of a number.
pub(crate) trait Number:
    Copy
    + fmt::Debug
    + Default
    + PartialOrd
    + Send
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + 'static
{
    /// That number.
    fn of(value: f64) -> Self;
    /// Its value.
    fn value(self) -> f64;
}

impl Number for f64 {
    fn of(value: f64) -> Self {
        value
    }
    fn value(self) -> f64 {
        self
    }
}

/// Bits a second as a rate; what is no rate is none of it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
pub(crate) fn rate_of(bits_per_second: f64) -> Rate {
    Rate(bits_per_second as u64)
}

/// A loss in billionths.
#[expect(clippy::cast_possible_truncation, reason = "casts saturate")]
pub(crate) fn billionths(loss: f64) -> i64 {
    (loss * LOSS_ONE as f64) as i64
}
