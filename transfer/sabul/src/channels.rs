//! Automatic number of UDP channels on one path: more channels where a processor core limits a transfer.
//!
//! Model:       a transfer that a core limits is followed by a transfer with twice as many channels. The larger number
//!              stays if its goodput is [`GAIN`] times as high. Every number is measured once in [`AGE_MAX`].
//! Bounds:      [`CHANNELS_MAX`] channels, and [`CORES_OF_A_CHANNEL`] processors for each channel: a machine with two
//!              processors always uses one channel.
//! Not here:    the results of transfers (`transfer/channels.rs`).

use std::time::{Duration, SystemTime};

use sabul_units::Rate;

/// Ours: the pacing of eight channels was simulated.
const CHANNELS_MAX: u8 = 8;
/// A channel has a thread of its own. Reading, hashing and the asynchronous tasks need about as much time.
const CORES_OF_A_CHANNEL: usize = 2;
/// Least ratio of goodputs for which twice as many channels stay. Ours: goodputs of equal transfers differ by some
/// percent.
const GAIN: f64 = 1.1;
/// Ours: a busy machine today may be idle tomorrow.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Result of the last transfer with a number of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeasuredChannels {
    /// Number of channels: 1, 2, 4 or 8.
    pub channels: u8,
    /// Goodput of the transfer.
    pub goodput: Rate,
    /// A processor core of either end limited the transfer.
    pub is_cpu_limited: bool,
    /// End of the transfer.
    pub seen: SystemTime,
}

impl MeasuredChannels {
    /// Makes the result of a transfer that ended at `seen`.
    pub const fn new(channels: u8, goodput: Rate, is_cpu_limited: bool, seen: SystemTime) -> Self {
        Self { channels, goodput, is_cpu_limited, seen }
    }
}

/// Results of the last transfers on one path, at most one for each number of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChannelRates([Option<MeasuredChannels>; CHANNELS_MAX.ilog2() as usize + 1]);

impl ChannelRates {
    /// No results.
    pub(crate) const NONE: Self = Self([None; CHANNELS_MAX.ilog2() as usize + 1]);

    /// Stores a result. Ignores numbers of channels that are never chosen. A transfer that no core limits makes the
    /// results of more channels void.
    pub(crate) fn note(&mut self, measured: MeasuredChannels) {
        if !measured.channels.is_power_of_two() || measured.channels > CHANNELS_MAX {
            return;
        }
        let index = measured.channels.ilog2() as usize;
        if !measured.is_cpu_limited {
            self.0[index..].fill(None);
        }
        self.0[index] = Some(measured);
    }

    /// Returns the stored results.
    pub(crate) fn all(&self) -> impl Iterator<Item = MeasuredChannels> {
        self.0.into_iter().flatten()
    }

    /// Returns the number of channels of the next transfer, on a machine with so many processors.
    pub(crate) fn next(&self, processors: usize, now: SystemTime) -> u8 {
        let of = |channels: u8| {
            let measured = self.0.get(channels.ilog2() as usize).copied().flatten()?;
            let age = now.duration_since(measured.seen).ok()?;
            (age <= AGE_MAX).then_some(measured)
        };
        let mut channels = 1;
        while let Some(measured) = of(channels)
            && measured.is_cpu_limited
            && channels < CHANNELS_MAX
            && usize::from(channels) * 2 * CORES_OF_A_CHANNEL <= processors
        {
            let is_faster =
                |more: MeasuredChannels| more.goodput.0 as f64 >= GAIN * measured.goodput.0 as f64;
            if of(channels * 2).is_some_and(|more| !is_faster(more)) {
                break;
            }
            channels *= 2;
        }
        channels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(results: &[(u8, u64, bool)]) -> ChannelRates {
        let mut rates = ChannelRates::default();
        for &(channels, gbps, is_cpu_limited) in results {
            let goodput = Rate(gbps * 1_000_000_000);
            rates.note(MeasuredChannels::new(channels, goodput, is_cpu_limited, SystemTime::now()));
        }
        rates
    }

    fn next(results: &[(u8, u64, bool)], processors: usize) -> u8 {
        with(results).next(processors, SystemTime::now())
    }

    #[test]
    fn channels_double_while_a_core_limits_and_twice_as_many_are_faster() {
        for (results, expected) in [
            (&[][..], 1),
            (&[(1, 10, false)], 1),
            (&[(1, 10, true)], 2),
            (&[(1, 10, true), (2, 10, true)], 1),
            (&[(1, 10, true), (2, 18, false)], 2),
            (&[(1, 10, true), (2, 18, true)], 4),
            (&[(1, 10, true), (2, 18, true), (4, 19, true)], 2),
            (&[(1, 10, true), (2, 18, true), (4, 30, true)], 8),
            (&[(1, 10, true), (2, 18, true), (4, 30, true), (8, 50, true)], 8),
            (&[(1, 10, true), (2, 18, true), (1, 5, false)], 1),
            (&[(3, 10, true), (16, 20, true)], 1),
        ] {
            assert_eq!(next(results, 64), expected, "{results:?}");
        }
    }

    #[test]
    fn each_channel_needs_two_processors() {
        let results = [(1, 10, true), (2, 18, true), (4, 30, true)];
        for (processors, expected) in [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (15, 4), (16, 8)] {
            assert_eq!(next(&results, processors), expected, "{processors}");
        }
    }

    #[test]
    fn a_result_is_measured_again_after_a_day() {
        let rates = with(&[(1, 10, true), (2, 10, true)]);
        let tomorrow = SystemTime::now() + AGE_MAX + Duration::from_secs(60);
        assert_eq!(rates.next(64, tomorrow), 1, "one channel has no result, too");
        let mut renewed = rates;
        renewed.note(MeasuredChannels::new(1, Rate(10), true, tomorrow));
        assert_eq!(renewed.next(64, tomorrow), 2);
    }
}
