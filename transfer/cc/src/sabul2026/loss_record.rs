//! Record of losses against the length of the queue: random loss does not depend on the queue.
//!
//! Source: ours. A queue that overflows is long, so its losses are in epochs with a long queue. Losses are recorded late,
//! so an epoch counts as short only if the queue of the epoch before was short, too.
//! Model:       short = share lost in epochs with at most half of the longest queue of the last seconds
//!              long  = share lost in all other epochs
//!              short >= half of long, over enough packets and epochs with losses -> losses are independent of the queue
//!              short <  half of long, likewise                                  -> losses depend on the queue
//! Not here:    the meaning of an epoch's losses (`losses`).

use super::path::Epoch;

/// Ours: packets of short queues, and epochs with losses, from which the record decides. With six epochs, some of eight
/// flows at 2 % loss stay at half of their share.
const PACKETS_MIN: f64 = 100.0;
const LOSSY_EPOCHS_MIN: f64 = 4.0;
/// Ours: least share lost at short queues, as a part of the share lost at long queues, of losses that are independent.
const INDEPENDENT_PART: f64 = 0.5;
/// Ours: packets of short and of long queues above which all counts are halved, so that the record follows the path.
const SHORT_MAX: f64 = 1000.0;
const LONG_MAX: f64 = 4000.0;

/// Relation of losses to the length of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Relation {
    /// Too few packets or losses.
    Unknown,
    /// Losses are as frequent at short queues: this share of packets.
    Independent(f64),
    /// Losses are rare at short queues.
    Dependent,
}

#[derive(Clone, Copy, Debug)]
struct Tally {
    packets: f64,
    lost: f64,
    lossy_epochs: f64,
}

impl Tally {
    const ZERO: Self = Self { packets: 0.0, lost: 0.0, lossy_epochs: 0.0 };

    fn note(&mut self, epoch: &Epoch) {
        self.packets += epoch.packets;
        self.lost += epoch.lost * epoch.packets;
        self.lossy_epochs += if epoch.lost > 0.0 { 1.0 } else { 0.0 };
    }

    const fn halve(&mut self) {
        self.packets /= 2.0;
        self.lost /= 2.0;
        self.lossy_epochs /= 2.0;
    }

    fn share(&self) -> f64 {
        self.lost / self.packets.max(1.0)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct LossRecord {
    short: Tally,
    long: Tally,
    /// Longest RTT of the epoch before, in seconds.
    longest_before_s: f64,
}

impl LossRecord {
    pub(super) const fn new() -> Self {
        Self { short: Tally::ZERO, long: Tally::ZERO, longest_before_s: 0.0 }
    }

    /// Processes an epoch; the queue was short if all RTTs are below `short_s`. Without that value nothing is recorded.
    pub(super) fn note(&mut self, epoch: &Epoch, short_s: Option<f64>) {
        let before = std::mem::replace(&mut self.longest_before_s, epoch.longest_s);
        let Some(short_s) = short_s else { return };
        let is_short = epoch.longest_s.max(before) < short_s;
        if is_short { &mut self.short } else { &mut self.long }.note(epoch);
        if self.short.packets > SHORT_MAX || self.long.packets > LONG_MAX {
            self.short.halve();
            self.long.halve();
        }
    }

    /// Returns what the record shows.
    pub(super) fn relation(&self) -> Relation {
        let Self { short, long, .. } = self;
        let is_less = short.share() < INDEPENDENT_PART * long.share();
        let losses = if is_less { long } else { short };
        if short.packets < PACKETS_MIN || losses.lossy_epochs < LOSSY_EPOCHS_MIN {
            Relation::Unknown
        } else if is_less {
            Relation::Dependent
        } else {
            Relation::Independent(short.share())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: f64 = 0.045;

    fn note(record: &mut LossRecord, lost: f64, longest_s: f64) {
        let epoch = Epoch {
            rate_pps: 200.0,
            carried_pps: 200.0,
            packets: 10.0,
            lost,
            shortest_s: 0.04,
            longest_s,
            is_limited: false,
        };
        record.note(&epoch, Some(SHORT));
    }

    /// Records epochs of ten packets, half of them with a short queue; each fifth epoch has these shares of loss.
    fn recorded(short: f64, long: f64, epochs: u32) -> LossRecord {
        let mut record = LossRecord::new();
        for n in 0..epochs {
            // The first of ten epochs with a short queue follows a long queue.
            let is_short = n % 20 < 10;
            let lost = if n % 5 == 3 { if is_short { short } else { long } } else { 0.0 };
            note(&mut record, lost, if is_short { 0.042 } else { 0.05 });
        }
        record
    }

    #[test]
    fn losses_that_are_as_frequent_at_short_queues_are_independent() {
        assert_eq!(recorded(0.1, 0.1, 20).relation(), Relation::Unknown, "two lossy epochs");
        let Relation::Independent(share) = recorded(0.1, 0.1, 60).relation() else {
            panic!("independent");
        };
        assert!((share - 0.02).abs() < 0.003, "{share}");
    }

    #[test]
    fn losses_at_long_queues_only_depend_on_the_queue() {
        assert_eq!(recorded(0.0, 0.1, 60).relation(), Relation::Dependent);
        assert_eq!(recorded(0.0, 0.0, 60).relation(), Relation::Unknown, "nothing is lost");
    }

    #[test]
    fn an_epoch_after_a_long_queue_counts_as_long_because_losses_are_recorded_late() {
        let mut record = LossRecord::new();
        for n in 0..100 {
            // An overflow, its losses an epoch later, and eight short queues.
            note(
                &mut record,
                if n % 10 == 1 { 0.2 } else { 0.0 },
                if n % 10 == 0 { 0.05 } else { 0.042 },
            );
        }
        assert_eq!(record.relation(), Relation::Dependent);
    }

    #[test]
    fn the_record_follows_a_path_that_changes() {
        let mut record = recorded(0.1, 0.1, 400);
        (0..800).for_each(|n| note(&mut record, if n % 5 == 3 { 0.1 } else { 0.0 }, 0.05));
        (0..200).for_each(|_| note(&mut record, 0.0, 0.042));
        assert_eq!(record.relation(), Relation::Dependent);
    }
}
