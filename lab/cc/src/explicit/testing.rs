//! A number that counts the additions and multiplications done with it.

use std::cell::Cell;
use std::ops::{Add, Mul, Sub};

use super::number::Number;

thread_local! {
    static DONE: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Computes as its value does. A subtraction counts as an addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(super) struct Counted(f64);

fn note(additions: u32, multiplications: u32) {
    DONE.with(|done| {
        let (a, m) = done.get();
        done.set((a + additions, m + multiplications));
    });
}

/// Returns the additions and multiplications of this thread during the call.
pub(super) fn cost(of: impl FnOnce()) -> (u32, u32) {
    DONE.with(|done| done.set((0, 0)));
    of();
    DONE.with(Cell::get)
}

impl Add for Counted {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        note(1, 0);
        Self(self.0 + other.0)
    }
}

impl Sub for Counted {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        note(1, 0);
        Self(self.0 - other.0)
    }
}

impl Mul for Counted {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        note(0, 1);
        Self(self.0 * other.0)
    }
}

impl Number for Counted {
    fn of(value: f64) -> Self {
        Self(value)
    }
    fn value(self) -> f64 {
        self.0
    }
}
