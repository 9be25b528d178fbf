//! What a machine of the core answers when it is asked what to do: the one word of all of them.
//!
//! A machine takes inputs, each at its time, and then `poll(now)` until it says wait. Until the time it
//! names then, asking again is in vain, unless an input comes before. The whole contract, and why there
//! is one, is in ADR 21.

use crate::Instant;

/// What `poll` of a machine answers: an output, or until when there is none, and why.
#[must_use = "an output that is not carried out is lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled<O, R> {
    /// Carry this out, then ask again.
    Ready(O),
    /// Nothing, unless an input comes before.
    Wait {
        /// When to ask again; none where only an input helps.
        until: Option<Instant>,
        /// What is waited for.
        because: R,
    },
}

impl<O, R> Polled<O, R> {
    /// The output, if there is one: for owners that learn in another way when to ask again.
    #[inline]
    pub fn ready(self) -> Option<O> {
        match self {
            Self::Ready(output) => Some(output),
            Self::Wait { .. } => None,
        }
    }

    /// When to ask again: none where only an input helps, or where there is an output.
    #[inline]
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Ready(_) => None,
            Self::Wait { until, .. } => *until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_either_an_output_or_a_time() {
        let output: Polled<u8, ()> = Polled::Ready(3);
        assert_eq!((output.until(), output.ready()), (None, Some(3)));
        let until = Some(Instant(5));
        let wait: Polled<u8, _> = Polled::Wait { until, because: "nothing came" };
        assert_eq!((wait.until(), wait.ready()), (until, None));
    }
}
