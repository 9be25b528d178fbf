//! Number type of router halves: `f64`, and in tests a type that counts operations.

use std::fmt;
use std::ops::{Add, Mul, Sub};

use sabul_units::{LOSS_ONE, Rate};

/// Operations that a router half needs per packet.
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
    /// Converts from `f64`.
    fn of(value: f64) -> Self;
    /// Converts to `f64`.
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

/// Converts bits a second to a rate; values that are no rate become zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts saturate")]
pub(crate) fn rate_of(bits_per_second: f64) -> Rate {
    Rate(bits_per_second as u64)
}

/// Converts a loss share to billionths.
#[expect(clippy::cast_possible_truncation, reason = "casts saturate")]
pub(crate) fn billionths(loss: f64) -> i64 {
    (loss * LOSS_ONE as f64) as i64
}
