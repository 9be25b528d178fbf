//! Return type of `poll`, shared by all state machines of the core.
//!
//! The caller passes inputs, each with its time, then calls `poll(now)` until the result is `Wait`.
//! Before the returned time another call is useless, unless an input arrives first. ADR 21 holds
//! the complete contract and its reasons.

use crate::Instant;

/// Result of `poll`: an output, or the next deadline and the reason for the wait.
#[must_use = "an output that is not carried out is lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled<O, R> {
    /// An output to carry out; then call `poll` again.
    Ready(O),
    /// No output before this time, unless an input arrives first.
    Wait {
        /// When to call `poll` again; `None` if only an input helps.
        until: Option<Instant>,
        /// Reason for the wait.
        because: R,
    },
}

impl<O, R> Polled<O, R> {
    /// Returns the output, if any; for callers that have other deadlines.
    #[inline]
    pub fn ready(self) -> Option<O> {
        match self {
            Self::Ready(output) => Some(output),
            Self::Wait { .. } => None,
        }
    }

    /// Returns when to call `poll` again; `None` if only an input helps, or for an output.
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
    fn a_poll_result_is_either_an_output_or_a_wait_time() {
        let output: Polled<u8, ()> = Polled::Ready(3);
        assert_eq!((output.until(), output.ready()), (None, Some(3)));
        let until = Some(Instant(5));
        let wait: Polled<u8, _> = Polled::Wait { until, because: "nothing came" };
        assert_eq!((wait.until(), wait.ready()), (until, None));
    }
}
