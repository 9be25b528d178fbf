//! Which losses are chance, and which are of this flow's own making.
//!
//! Source: ours. No level in per cent tells them apart: what is lost by chance goes on when less is sent,
//! what a full queue drops does not.
//! Model:       chance = average share lost over some thousand packets, while nothing is suspect
//!              an epoch is suspect if it lost more than chance and four deviations (those of losses in pairs)
//!              a test sends less: losses that stay become chance, losses that go away were ours
//! Invariants:  0 <= chance <= 1; the round trip of a full queue only falls by verdicts.

use sabul_units::{Instant, Span};

use super::path::Epoch;

/// Ours: packets over which chance is averaged, and the most weight that one epoch has.
const PACKETS: f64 = 2000.0;
const WEIGHT_MAX: f64 = 0.25;
/// Ours: deviations, and packets, beyond which losses are suspect.
const DEVIATIONS: f64 = 4.0;
const SUSPECT_MIN: f64 = 4.0;
/// Ours: losses that a test must have been able to see, and epochs after which it ends undecided.
const SEEN_MIN: f64 = 8.0;
const EPOCHS_MAX: u32 = 6;
/// Ours: chance from which on it is looked at again, and how often: losses that grow slowly are never suspect, and
/// what a policer drops would be made good for ever.
const AGAIN_MIN: f64 = 0.005;
const AGAIN_EACH: Span = Span::from_secs(10);
/// Ours: weight of the newest verdict in the round trip of a full queue.
const FULL_WEIGHT: f64 = 0.25;

/// What a test of losses says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Too few packets so far.
    Open,
    /// They stay: it is the path.
    Chance,
    /// They went away: the queue was full.
    Ours,
}

/// What a test has seen so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    packets: f64,
    lost: f64,
    epochs: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Losses {
    chance: f64,
    seen: Seen,
    /// Longest round trip of the epoch that was suspect, in seconds.
    longest: f64,
    /// The same where the queue was full; not its delay, for the base may turn out to be shorter.
    full: f64,
    /// When chance is looked at again.
    again_at: Instant,
}

impl Losses {
    pub(super) const fn new() -> Self {
        let seen = Seen { packets: 0.0, lost: 0.0, epochs: 0 };
        Self { chance: 0.0, seen, longest: 0.0, full: f64::INFINITY, again_at: Instant::ZERO }
    }

    /// Share lost by chance.
    pub(super) const fn chance(&self) -> f64 {
        self.chance
    }

    /// Queueing delay of a full queue over this base, in seconds; infinite before one was.
    pub(super) fn room(&self, base: f64) -> f64 {
        (self.full - base).max(0.0)
    }

    /// Takes in an epoch; whether more was lost than chance explains.
    pub(super) fn note(&mut self, epoch: &Epoch) -> bool {
        self.full = self.full.max(epoch.shortest);
        let excess = (epoch.lost - self.chance) * epoch.packets;
        if excess > (DEVIATIONS * deviation(self.chance, epoch.packets)).max(SUSPECT_MIN) {
            return true;
        }
        let weight = (epoch.packets / PACKETS).min(WEIGHT_MAX);
        self.chance += (epoch.lost - self.chance) * weight;
        false
    }

    /// Whether it is time to see whether chance is still what takes so much.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.chance > AGAIN_MIN && now >= self.again_at
    }

    /// A test of all losses begins; the share that is lost without it.
    pub(super) fn start_test_of_all(&mut self, epoch: &Epoch, now: Instant) -> f64 {
        self.start_test(epoch, now);
        std::mem::take(&mut self.chance).max(epoch.lost)
    }

    /// A test begins, because of this epoch.
    pub(super) fn start_test(&mut self, epoch: &Epoch, now: Instant) {
        self.again_at = now + AGAIN_EACH;
        self.longest = epoch.longest;
        self.seen = Seen::default();
    }

    /// Takes in an epoch of a test; `before` was the share lost without it.
    pub(super) fn judge(&mut self, before: f64, epoch: &Epoch) -> Verdict {
        let seen = &mut self.seen;
        seen.packets += epoch.packets;
        seen.lost += epoch.lost * epoch.packets;
        seen.epochs += 1;
        let expected = (before - self.chance) * seen.packets;
        let excess = seen.lost - self.chance * seen.packets;
        let is_sure = expected > (DEVIATIONS * deviation(before, seen.packets)).max(SEEN_MIN);
        if !is_sure && seen.epochs < EPOCHS_MAX && excess < expected / 2.0 {
            return Verdict::Open;
        }
        if !is_sure || excess > expected / 2.0 {
            self.chance = (seen.lost / seen.packets.max(1.0)).clamp(self.chance, 1.0);
            return Verdict::Chance;
        }
        self.full = if self.full.is_finite() {
            (1.0 - FULL_WEIGHT) * self.full + FULL_WEIGHT * self.longest
        } else {
            self.longest
        };
        Verdict::Ours
    }
}

/// Standard deviation of the number of packets lost, where they are lost in pairs.
fn deviation(share: f64, packets: f64) -> f64 {
    (2.0 * packets * share * (1.0 - share)).max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(packets: f64, lost: f64) -> Epoch {
        Epoch {
            rate: packets * 10.0,
            carried: packets * 10.0,
            packets,
            lost,
            shortest: 0.1,
            longest: 0.12,
            is_limited: false,
        }
    }

    #[test]
    fn chance_is_learnt_and_is_not_suspect() {
        let mut losses = Losses::new();
        assert!(losses.note(&epoch(1000.0, 0.01)), "ten of a thousand, where none was known");
        losses.start_test(&epoch(1000.0, 0.01), Instant::ZERO);
        assert_eq!(losses.judge(0.01, &epoch(850.0, 0.01)), Verdict::Chance);
        assert!(!losses.note(&epoch(1000.0, 0.01)));
        // 10 and four times sqrt(2 × 10) are 28.
        assert!(!losses.note(&epoch(1000.0, 0.027)));
        // A quarter of the way to it: 14 and four times sqrt(2 × 14) are 36.
        assert!(losses.note(&epoch(1000.0, 0.038)));
        assert!(losses.room(0.1).is_infinite());
    }

    #[test]
    fn what_goes_away_with_less_sent_was_ours_and_shows_the_room() {
        let mut losses = Losses::new();
        assert!(losses.note(&epoch(1000.0, 0.05)));
        losses.start_test(&epoch(1000.0, 0.05), Instant::ZERO);
        assert_eq!(losses.judge(0.05, &epoch(850.0, 0.0)), Verdict::Ours);
        assert!((losses.room(0.1) - 0.02).abs() < 1e-9);
        // The queue was longer since, and nothing was lost.
        let late = Epoch { shortest: 0.13, ..epoch(1000.0, 0.0) };
        assert!(!losses.note(&late));
        assert!((losses.room(0.1) - 0.03).abs() < 1e-9);
        // The base was less than was thought; the full queue is where it was.
        assert!((losses.room(0.08) - 0.05).abs() < 1e-9);
    }

    #[test]
    fn what_came_slowly_is_looked_at_again_and_was_ours_where_it_goes_away() {
        for (rest, verdict, chance) in [(0.0, Verdict::Ours, 0.0), (0.06, Verdict::Chance, 0.06)] {
            let mut losses = Losses::new();
            (0..60u32).for_each(|time| {
                assert!(!losses.note(&epoch(1000.0, f64::from(time) / 1000.0)), "{time}");
            });
            let now = Instant::ZERO + Span::from_secs(10);
            assert!(losses.is_due(now));
            let before = losses.start_test_of_all(&epoch(1000.0, 0.06), now);
            assert!(!losses.is_due(now) && before >= 0.06);
            assert_eq!(losses.judge(before, &epoch(850.0, rest)), verdict);
            assert!((losses.chance() - chance).abs() < 1e-9);
        }
    }

    #[test]
    fn few_packets_decide_nothing_and_a_test_ends() {
        let mut losses = Losses::new();
        assert!(losses.note(&epoch(50.0, 0.1)));
        losses.start_test(&epoch(50.0, 0.1), Instant::ZERO);
        for _ in 0..EPOCHS_MAX - 1 {
            assert_eq!(losses.judge(0.1, &epoch(20.0, 0.0)), Verdict::Open);
        }
        assert_eq!(losses.judge(0.1, &epoch(20.0, 0.0)), Verdict::Chance);
        assert!(losses.room(0.1).is_infinite());
    }
}
