//! Loss classification: random loss of the path, or loss from a queue that overflows.
//!
//! Source: ours. No loss percentage separates the two. Random loss remains while the queue is
//! empty; beside a standing queue, every loss beyond the random loss counts as congestion. An error
//! among many flows is safe: all flows reduce, the queue empties, and then the random loss can be
//! measured.
//! Model:       random_loss  = average share lost in epochs with an empty queue
//!              excess       = losses above random loss and four standard deviations; losses count in pairs
//!              queue stands, longest recent queue    -> excess is congestion; any loss, if losses depend on the queue
//!              losses independent of the queue       -> random loss is at least the loss at short queues
//!              losses bound the window               -> random loss does not rise with slowly growing losses
//!              queue stands, longer queue recently   -> up to a twentieth is random loss, more is congestion
//!              queue empty, path shows queues        -> up to a twentieth is random loss
//!              otherwise                             -> a test at a lower rate decides; among many flows, congestion
//! Invariants:  0 <= random_loss <= [`RANDOM_LOSS_MAX`]; `queue_limit` changes by congestion only.

use sabul_units::{Instant, Span};

use super::loss_record::{LossRecord, Relation};
use super::path::Epoch;

/// Ours: packets over which random loss is averaged, and the largest weight of one epoch.
const PACKETS: f64 = 2000.0;
const WEIGHT_MAX: f64 = 0.25;
/// Ours: largest random loss that is assumed; more is always congestion.
pub(super) const RANDOM_LOSS_MAX: f64 = 0.5;
/// Ours: packets over which recent loss is averaged.
const RECENT_PACKETS: f64 = 500.0;
/// Ours: packets of an epoch whose losses alone can exceed the largest random loss.
const FEW_PACKETS: f64 = 8.0;
/// Ours: deviations and packets beyond which losses are excess.
const DEVIATIONS: f64 = 4.0;
const EXCESS_MIN: f64 = 3.0;
const QUEUED_EXCESS_MIN: f64 = 0.5;
/// Ours: more loss counts as random loss only after a test, and never among many flows or beside a
/// queue: active queue management drops before a queue is full, and a flow that joins late takes a
/// full queue for the base RTT.
const LIGHT_MAX: f64 = 0.05;
/// Ours: largest random loss among many flows.
const CROWD_MAX: f64 = 0.02;
/// Ours: random loss above which random loss is tested again, and the interval of such tests.
const RETEST_MIN: f64 = 0.005;
const RETEST_INTERVAL: Span = Span::from_secs(10);
/// Ours: losses that a test must be able to detect, and epochs after which a test ends undecided.
const OBSERVED_MIN: f64 = 8.0;
const EPOCHS_MAX: u32 = 6;
/// Ours: losses without a queue are random, among many flows too, if this part of the losses stays while the rate falls
/// to this part. CUBIC flows on a queue of one packet fall to a half.
const PROOF_RATE: f64 = 0.25;
const PROOF_LOST: f64 = 0.5;
/// Ours: weight of the newest overflow in the delay of a full queue.
const FULL_WEIGHT: f64 = 0.25;

/// Meaning of an epoch's losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Random loss explains the losses, or now includes them.
    Random,
    /// A queue overflowed, or a policer without a queue dropped the excess.
    Congestion,
    /// Only a test at a lower rate can decide.
    Unclear,
}

/// Result of a loss test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Too few packets so far.
    Open,
    /// Losses stay: random.
    Random,
    /// Losses fall at the lower rate: congestion.
    Ours,
}

/// Circumstances of an epoch that decide the meaning of its losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossContext {
    /// RTT in seconds below which the queue is short; `None` if the path shows no queue with room for the law.
    pub(super) short_s: Option<f64>,
    /// A queue stood in the epoch.
    pub(super) is_queued: bool,
    /// This flow has a share of the link that only few flows can have; otherwise all loss counts as
    /// congestion.
    pub(super) may_be_few: bool,
    /// The queue was about as long as the longest queue of the last seconds.
    pub(super) is_full: bool,
    /// Losses alone bound the window, so a rise of the loss is the flow's own effect.
    pub(super) is_bound: bool,
    /// The path has shown queues that are long enough to detect, so an overflow would not look like
    /// an empty queue.
    pub(super) shows_queues: bool,
}

/// Counts of a test.
#[derive(Clone, Copy, Debug, Default)]
struct TestCounts {
    packets: f64,
    lost: f64,
    epochs: u32,
}

/// Loss statistics; see the module.
#[derive(Debug)]
pub(super) struct Losses {
    random_loss: f64,
    /// Packets averaged into random loss so far.
    learnt: f64,
    recent: f64,
    counts: TestCounts,
    /// When random loss is tested again.
    again_at: Instant,
    /// Longest RTT with a full queue, in seconds; not the queueing delay, because the base RTT may
    /// fall later.
    full: f64,
    /// Sending rate in packets a second and share of packets lost when losses without a queue began.
    began: Option<(f64, f64)>,
    /// Losses stayed while the rate fell, and no queue overflowed since.
    is_proven: bool,
    record: LossRecord,
    /// The newest relation of losses to the queue.
    relation: Relation,
}

impl Losses {
    pub(super) const fn new() -> Self {
        let counts = TestCounts { packets: 0.0, lost: 0.0, epochs: 0 };
        Self {
            random_loss: 0.0,
            learnt: 0.0,
            recent: 0.0,
            counts,
            again_at: Instant::ZERO,
            full: f64::INFINITY,
            began: None,
            is_proven: false,
            record: LossRecord::new(),
            relation: Relation::Unknown,
        }
    }

    /// Returns true if losses without a queue stayed while the rate fell to a quarter.
    pub(super) const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Returns true if losses are as frequent at short as at long queues.
    pub(super) const fn are_independent(&self) -> bool {
        matches!(self.relation, Relation::Independent(_))
    }

    /// Returns the share of packets that the path loses at random.
    pub(super) const fn random_loss(&self) -> f64 {
        self.random_loss
    }

    /// Returns the queueing delay of a full queue above this base RTT, in seconds; infinite before
    /// an overflow.
    pub(super) fn queue_limit_s(&self, base: f64) -> f64 {
        (self.full - base).max(0.0)
    }

    /// Returns the recent share of lost packets beyond random loss.
    pub(super) fn recent(&self) -> f64 {
        (self.recent - self.random_loss).max(0.0)
    }

    /// Processes an epoch; returns the meaning of its losses.
    pub(super) fn note(&mut self, epoch: &Epoch, context: &LossContext) -> Meaning {
        self.full = self.full.max(epoch.shortest_s);
        let weight = (epoch.packets / RECENT_PACKETS).min(WEIGHT_MAX);
        self.recent += (epoch.lost - self.recent) * weight;
        self.record.note(epoch, context.short_s);
        self.relation = self.record.relation();
        if let Relation::Independent(share) = self.relation {
            self.random_loss = self.random_loss.max(share).min(RANDOM_LOSS_MAX);
        }
        let may_be_few = context.may_be_few || self.is_proven || self.are_independent();
        if !may_be_few {
            self.random_loss = self.random_loss.min(CROWD_MAX);
        }
        let is_excess = self.is_excess(epoch, context);
        // Most of very few packets are lost at random, too.
        if epoch.lost > RANDOM_LOSS_MAX
            && (epoch.packets >= FEW_PACKETS || self.recent > RANDOM_LOSS_MAX)
        {
            return Meaning::Congestion;
        }
        if !is_excess {
            // Losses ended, so later losses have a beginning of their own.
            self.began = self.began.filter(|(_, lost)| self.recent > PROOF_LOST * lost);
            let is_kept = context.is_bound || (context.is_queued && context.is_full);
            if !is_kept || epoch.lost < self.random_loss {
                self.learn(epoch);
            }
            return Meaning::Random;
        }
        let is_light = epoch.lost < LIGHT_MAX;
        if context.is_queued && (context.is_full || !is_light) {
            (self.began, self.is_proven) = (None, false);
            return Meaning::Congestion;
        }
        if is_light && (context.is_queued || context.shows_queues) {
            self.learn(epoch);
            return Meaning::Random;
        }
        if may_be_few {
            return Meaning::Unclear;
        }
        self.prove(epoch);
        Meaning::Congestion
    }

    /// Returns whether random loss does not explain the losses of this epoch.
    fn is_excess(&self, epoch: &Epoch, context: &LossContext) -> bool {
        if self.relation == Relation::Dependent && context.is_queued && context.is_full {
            return epoch.lost > 0.0;
        }
        let excess = (epoch.lost - self.random_loss) * epoch.packets;
        // Beside a queue a single loss counts, as for a TCP flow.
        let least = if context.is_queued { QUEUED_EXCESS_MIN } else { EXCESS_MIN };
        excess > (DEVIATIONS * deviation(self.random_loss, epoch.packets)).max(least)
    }

    /// Compares losses without a queue with the losses at the rate where they began.
    fn prove(&mut self, epoch: &Epoch) {
        let sent = epoch.rate_pps / (1.0 - epoch.lost);
        let (rate, lost) = *self.began.get_or_insert((sent, epoch.lost));
        if sent > rate {
            self.began = Some((sent, epoch.lost));
        }
        self.is_proven = sent < PROOF_RATE * rate && self.recent > PROOF_LOST * lost;
    }

    fn learn(&mut self, epoch: &Epoch) {
        self.learnt = (self.learnt + epoch.packets).min(PACKETS);
        let weight = (epoch.packets / self.learnt).min(WEIGHT_MAX);
        self.random_loss =
            (self.random_loss + (epoch.lost - self.random_loss) * weight).min(RANDOM_LOSS_MAX);
    }

    /// Records that a queue overflowed in this epoch.
    pub(super) fn note_overflow(&mut self, epoch: &Epoch) {
        self.full = if self.full.is_finite() {
            (1.0 - FULL_WEIGHT) * self.full + FULL_WEIGHT * epoch.longest_s
        } else {
            epoch.longest_s
        };
    }

    /// Returns whether all of random loss must be tested again, because slowly growing losses are never
    /// excess.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.random_loss > RETEST_MIN && now >= self.again_at
    }

    /// Starts a test of all losses; returns the share lost before the test.
    pub(super) fn start_test_of_all(&mut self, epoch: &Epoch, now: Instant) -> f64 {
        self.start_test(now);
        std::mem::take(&mut self.random_loss).max(epoch.lost)
    }

    /// Starts a test.
    pub(super) fn start_test(&mut self, now: Instant) {
        self.again_at = now + RETEST_INTERVAL;
        self.counts = TestCounts::default();
    }

    /// Processes an epoch of a test; `before` is the share lost before the test.
    pub(super) fn judge(&mut self, before: f64, epoch: &Epoch) -> Verdict {
        let counts = &mut self.counts;
        counts.packets += epoch.packets;
        counts.lost += epoch.lost * epoch.packets;
        counts.epochs += 1;
        let expected = (before - self.random_loss) * counts.packets;
        let excess = counts.lost - self.random_loss * counts.packets;
        let is_sure = expected > (DEVIATIONS * deviation(before, counts.packets)).max(OBSERVED_MIN);
        if !is_sure && counts.epochs < EPOCHS_MAX && excess < expected / 2.0 {
            return Verdict::Open;
        }
        // Too few losses for a test; counting them as random loss costs little.
        let is_small = !is_sure && before < LIGHT_MAX;
        if is_small || excess > expected / 2.0 {
            self.random_loss =
                (counts.lost / counts.packets.max(1.0)).clamp(self.random_loss, RANDOM_LOSS_MAX);
            return Verdict::Random;
        }
        (self.began, self.is_proven, self.record) = (None, false, LossRecord::new());
        Verdict::Ours
    }
}

/// Returns the standard deviation of the number of lost packets, where packets are lost in pairs.
fn deviation(share: f64, packets: f64) -> f64 {
    (2.0 * packets * share * (1.0 - share)).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;
    const EMPTY: LossContext = LossContext {
        short_s: None,
        is_queued: false,
        is_full: false,
        may_be_few: true,
        is_bound: false,
        shows_queues: true,
    };

    fn epoch(packets: f64, lost: f64) -> Epoch {
        Epoch {
            rate_pps: packets * 10.0,
            carried_pps: packets * 10.0,
            packets,
            lost,
            shortest_s: 0.1,
            longest_s: 0.12,
            is_limited: false,
        }
    }

    #[test]
    fn loss_with_an_empty_queue_is_random_and_loss_with_a_queue_is_congestion() {
        let mut losses = Losses::new();
        assert_eq!(losses.note(&epoch(1000.0, 0.01), &EMPTY), Meaning::Random);
        assert!((losses.random_loss() - 0.0025).abs() < 1e-9, "at most a quarter of the way");
        (0..40)
            .for_each(|_| assert_eq!(losses.note(&epoch(1000.0, 0.01), &EMPTY), Meaning::Random));
        assert!((losses.random_loss() - 0.01).abs() < 1e-4);
        let full = LossContext { is_queued: true, is_full: true, ..EMPTY };
        // 10 + 4 × sqrt(2 × 10) = 28.
        assert_eq!(losses.note(&epoch(1000.0, 0.027), &full), Meaning::Random);
        assert_eq!(losses.note(&epoch(1000.0, 0.03), &full), Meaning::Congestion);
        assert!((losses.random_loss() - 0.01).abs() < 1e-4, "a full queue teaches nothing");
    }

    #[test]
    fn slowly_growing_loss_is_random_unless_losses_bound_the_window() {
        // A tenth of a per cent more in each epoch, up to 4 %; each step is far below four
        // deviations.
        let rise = |context: &LossContext| {
            let mut losses = Losses::new();
            (1..=40).map(|n| losses.note(&epoch(1000.0, f64::from(n) / 1000.0), context)).last()
        };
        assert_eq!(rise(&EMPTY), Some(Meaning::Random));
        let bound = LossContext { is_bound: true, shows_queues: false, ..EMPTY };
        assert_eq!(rise(&bound), Some(Meaning::Unclear), "a test decides");
        let crowd = LossContext { may_be_few: false, ..bound };
        assert_eq!(rise(&crowd), Some(Meaning::Congestion));
    }

    #[test]
    fn losses_at_short_queues_are_random_and_without_them_each_loss_of_a_full_queue_is_congestion()
    {
        let full = LossContext {
            short_s: Some(0.11),
            is_queued: true,
            is_full: true,
            may_be_few: false,
            ..EMPTY
        };
        let short = LossContext { short_s: Some(0.13), is_bound: true, may_be_few: false, ..EMPTY };
        // Epochs of ten packets; the path loses each fiftieth, or none.
        let after = |lost: f64| {
            let mut losses = Losses::new();
            for n in 0..60 {
                losses.note(&epoch(10.0, if n % 5 == 0 { lost } else { 0.0 }), &short);
            }
            for n in 0..30 {
                losses.note(&epoch(10.0, if n % 5 == 0 { 0.1 } else { 0.0 }), &full);
            }
            (losses.note(&epoch(10.0, 0.1), &full), losses)
        };
        let (meaning, losses) = after(0.1);
        assert!(meaning == Meaning::Random && losses.are_independent());
        assert!((losses.random_loss() - 0.02).abs() < 1e-3, "{}", losses.random_loss());
        let (meaning, mut losses) = after(0.0);
        assert!(meaning == Meaning::Congestion && losses.relation == Relation::Dependent);
        losses.random_loss = 0.02;
        assert_eq!(losses.note(&epoch(1000.0, 0.001), &full), Meaning::Congestion);
    }

    #[test]
    fn a_single_loss_of_a_full_queue_is_congestion() {
        let full = LossContext { is_queued: true, is_full: true, ..EMPTY };
        assert_eq!(Losses::new().note(&epoch(20.0, 0.05), &full), Meaning::Congestion);
    }

    #[test]
    fn heavy_loss_needs_a_test_and_among_many_flows_is_congestion() {
        let mut losses = Losses::new();
        assert_eq!(losses.note(&epoch(1000.0, 0.1), &EMPTY), Meaning::Unclear);
        let crowd = LossContext { may_be_few: false, ..EMPTY };
        assert_eq!(losses.note(&epoch(1000.0, 0.1), &crowd), Meaning::Congestion);
        assert_eq!(losses.note(&epoch(1000.0, 0.6), &EMPTY), Meaning::Congestion, "over a half");
    }

    #[test]
    fn two_lost_packets_of_two_are_random_unless_most_packets_were_lost_before() {
        let mut losses = Losses::new();
        assert_eq!(losses.note(&epoch(2.0, 1.0), &EMPTY), Meaning::Random);
        let mut heavy = || losses.note(&epoch(200.0, 0.9), &EMPTY);
        (0..20).for_each(|_| assert_eq!(heavy(), Meaning::Congestion));
        assert_eq!(losses.note(&epoch(2.0, 1.0), &EMPTY), Meaning::Congestion);
    }

    #[test]
    fn losses_that_persist_at_a_quarter_of_the_rate_are_tested_with_many_flows() {
        let crowd = LossContext { may_be_few: false, is_bound: true, shows_queues: false, ..EMPTY };
        let meanings = |rest: f64| {
            let mut losses = Losses::new();
            let shares = [(1000.0, 0.2), (700.0, 0.2), (490.0, rest), (343.0, rest), (240.0, rest)];
            let mut note = |(packets, lost)| losses.note(&epoch(packets, lost), &crowd);
            let _ = shares.map(&mut note);
            (note((160.0, 0.2)), losses)
        };
        let (meaning, mut losses) = meanings(0.2);
        assert!(meaning == Meaning::Unclear && losses.is_proven());
        let full = LossContext { is_queued: true, is_full: true, ..crowd };
        assert_eq!(losses.note(&epoch(160.0, 0.2), &full), Meaning::Congestion);
        assert!(!losses.is_proven(), "a queue overflowed");
        let (_, mut losses) = meanings(0.2);
        losses.start_test(NOW);
        assert_eq!(losses.judge(0.2, &epoch(850.0, 0.0)), Verdict::Ours);
        assert!(!losses.is_proven(), "a test ends the proof");
        let (meaning, losses) = meanings(0.02);
        assert!(meaning == Meaning::Congestion && !losses.is_proven(), "losses fell with the rate");
    }

    #[test]
    fn a_test_with_unchanged_loss_means_random_and_with_less_loss_congestion() {
        for (rest, verdict, random_loss) in [(0.1, Verdict::Random, 0.1), (0.0, Verdict::Ours, 0.0)]
        {
            let mut losses = Losses::new();
            losses.start_test(NOW);
            assert_eq!(losses.judge(0.1, &epoch(850.0, rest)), verdict);
            assert!((losses.random_loss() - random_loss).abs() < 1e-9);
        }
    }

    #[test]
    fn random_loss_is_tested_again_after_ten_seconds() {
        let mut losses = Losses::new();
        losses.start_test(NOW);
        losses.judge(0.1, &epoch(850.0, 0.1));
        assert!(!losses.is_due(NOW + Span::from_secs(9)));
        let later = NOW + Span::from_secs(10);
        assert!(losses.is_due(later));
        assert!((losses.start_test_of_all(&epoch(1000.0, 0.08), later) - 0.1).abs() < 1e-9);
        assert!(losses.random_loss() < 1e-9 && !losses.is_due(later));
    }
}
