//! Detection of a competing flow of another kind that fills the queue.
//!
//! Source: ours; [COPA] detects buffer-filling flows by a queue that never empties, too. Flows of
//! this kind drain together, so a queue that stands after a drain belongs to another kind. The law
//! bounds the queue of any number of flows of this kind, so a longer queue belongs to another kind,
//! too.
//! Model:       a drain that leaves a queue adds three points of evidence, a drain that empties the
//!              queue takes one point away; an overflow of a standing queue is sufficient after any
//!              evidence, or after another overflow; three alike teeth of the queue (`sawtooth`) are
//!              sufficient; a queue longer than the bound for two seconds is sufficient, but keeps no
//!              competitor known: the flow itself then fills the queue
//! States:      Unknown --seven points--> Known
//!              Known --no points left, or a minute without new points--> Unknown
//! Invariants:  after Known, one further drain that leaves a queue is sufficient.
//! Not here:    the window that is kept beside a competitor (`cubic`).

use sabul_units::{Instant, Span};

use super::sawtooth::Sawtooth;

/// Ours: points per drain or overflow, points from which a competitor is known, most points, and their
/// lifetime without new evidence.
const EVIDENCE: u32 = 3;
const EVIDENCE_CONFIRMED: u32 = 7;
const EVIDENCE_MAX: u32 = 8;
const EVIDENCE_AGE: Span = Span::from_secs(60);
/// Ours: two overflows in this time are sufficient: three cycles of CUBIC on 300 Mb/s × 80 ms.
/// Loss-based flows let a shallow queue empty, so drains do not show them there.
const OVERFLOWS_WITHIN: Span = Span::from_secs(60);
/// Ours: time for which a queue must exceed the most that flows of this kind build. Six seconds
/// leave 0.4 instead of 0.7 of a share beside one CUBIC flow at 300 Mb/s × 37 ms, and change no run
/// with many flows.
const ABOVE_TIME: Span = Span::from_secs(2);
/// Ours: points that remain when a competitor is no longer known.
const EVIDENCE_RETAINED: u32 = 4;
/// Ours: alike teeth of the queue that are sufficient.
const TEETH: u32 = 3;
/// Ours: flows on the link from which a flow's own drains hardly change the queue.
const SHARED: f64 = 4.0;
/// Ours: time after which all flows that joined a drain have filled the path again.
const DRAINED: Span = Span::from_millis(1200);
/// Ours: a drain leaves a queue if the rest exceeds omega and two thetas, or omega and this part of
/// the thetas of all flows of this kind, and also this part of the queue before.
const LEFT_THETAS: f64 = 2.0;
const LEFT_OTHERS_PART: f64 = 0.6;
const LEFT_STOOD_PART: f64 = 1.0 / 3.0;
/// Ours: a drain empties the queue if the rest is below omega and a theta, or below this part of
/// the queue before.
const GONE_STOOD_PART: f64 = 1.0 / 8.0;

/// Queue after a drain; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueObservation {
    /// Shortest queue since a while before the drain ended.
    pub(super) least: f64,
    pub(super) omega: f64,
    pub(super) theta: f64,
    /// Thetas of queue of all flows of this kind together.
    pub(super) thetas: f64,
}

/// Evidence so far; see the module.
#[derive(Debug)]
pub(super) struct CompetitorDetector {
    evidence: u32,
    /// When the evidence last grew.
    noted_at: Instant,
    is_detected: bool,
    /// Queue in seconds when the newest drain began, and when that drain is judged.
    drain: Option<(f64, Instant)>,
    /// Time of the newest overflow.
    overflowed_at: Option<Instant>,
    /// Time since which the queue has been longer than flows of this kind build.
    above_since: Option<Instant>,
    sawtooth: Sawtooth,
}

impl CompetitorDetector {
    pub(super) const fn none() -> Self {
        Self {
            evidence: 0,
            noted_at: Instant::ZERO,
            is_detected: false,
            drain: None,
            overflowed_at: None,
            above_since: None,
            sawtooth: Sawtooth::new(),
        }
    }

    /// Returns whether a competitor is known.
    pub(super) const fn is_detected(&self) -> bool {
        self.is_detected
    }

    /// Records the start of a drain with this queue, in seconds.
    pub(super) fn note_drain(&mut self, queue: f64, now: Instant) {
        self.drain = Some((queue, now + DRAINED));
    }

    /// Discards the newest drain: it followed an overflow, after which loss-based flows send less,
    /// too.
    pub(super) const fn clear_drain(&mut self) {
        self.drain = None;
    }

    /// Evaluates the newest drain once it is due; returns whether another drain would decide.
    pub(super) fn judge(&mut self, observation: &QueueObservation, now: Instant) -> bool {
        if self.is_detected && now.since(self.noted_at) > EVIDENCE_AGE {
            (self.evidence, self.is_detected) = (EVIDENCE_RETAINED, false);
        }
        let Some((stood, _)) = self.drain.take_if(|(_, at)| now >= *at) else { return false };
        let left = observation.omega
            + observation.theta * (LEFT_OTHERS_PART * observation.thetas).max(LEFT_THETAS);
        if observation.least > left.max(stood * LEFT_STOOD_PART) {
            self.note(now);
            return !self.is_detected;
        }
        if observation.least < (observation.omega + observation.theta).max(stood * GONE_STOOD_PART)
        {
            self.evidence = self.evidence.saturating_sub(1);
            if self.is_detected && self.evidence == 0 {
                (self.evidence, self.is_detected) = (EVIDENCE_RETAINED, false);
            }
        }
        false
    }

    /// Records an overflow at which the law's target queue was small.
    pub(super) fn note_overflow(&mut self, now: Instant) {
        let is_second = self.overflowed_at.is_some_and(|at| now.since(at) < OVERFLOWS_WITHIN);
        self.overflowed_at = Some(now);
        if is_second || self.evidence > 0 {
            self.note(now);
            self.is_detected = true;
        }
    }

    /// Records whether the queue is longer than any number of flows of this kind builds.
    pub(super) fn note_level(&mut self, is_above: bool, now: Instant) {
        if !is_above {
            self.above_since = None;
        } else if now > *self.above_since.get_or_insert(now) + ABOVE_TIME && !self.is_detected {
            (self.evidence, self.noted_at, self.is_detected) = (EVIDENCE_MAX, now, true);
        }
    }

    /// Records the queue of an epoch in seconds, and whether another flow has reduced the queue. The sawtooth of the
    /// queue is evidence for a flow with a small share of the link, and while the number of flows is unknown; a flow that
    /// keeps CUBIC's window or a large share may make the sawtooth itself.
    pub(super) fn note_queue(
        &mut self,
        queue: f64,
        has_fallen: bool,
        count: Option<f64>,
        now: Instant,
    ) {
        if self.is_detected || count.is_some_and(|count| count < SHARED) {
            self.sawtooth = Sawtooth::new();
        } else if self.sawtooth.note(queue, has_fallen, now).is_some_and(|teeth| teeth >= TEETH) {
            (self.evidence, self.noted_at, self.is_detected) = (EVIDENCE_MAX, now, true);
        }
    }

    fn note(&mut self, now: Instant) {
        self.evidence = (self.evidence + EVIDENCE).min(EVIDENCE_MAX);
        self.noted_at = now;
        self.is_detected |= self.evidence >= EVIDENCE_CONFIRMED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOOD: f64 = 0.03;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Span::from_secs(secs)
    }

    /// Runs a drain at this time that leaves a queue of `least` seconds, for a flow with a tenth of
    /// the link.
    fn drain(competitor: &mut CompetitorDetector, secs: u64, least: f64) {
        competitor.note_drain(STOOD, at(secs));
        let observation = QueueObservation { least, omega: 0.0005, theta: 0.002, thetas: 9.0 };
        competitor.judge(&observation, at(secs + 1));
        assert!(competitor.drain.is_some(), "too early");
        competitor.judge(&observation, at(secs + 2));
    }

    #[test]
    fn a_rival_is_detected_after_three_failed_drains_and_gone_after_eight() {
        let mut competitor = CompetitorDetector::none();
        for n in 0..2 {
            drain(&mut competitor, 3 * n, 0.02);
            assert!(!competitor.is_detected());
        }
        drain(&mut competitor, 6, 0.02);
        assert!(competitor.is_detected());
        for n in 0..7 {
            drain(&mut competitor, 10 + 3 * n, 0.001);
            assert!(competitor.is_detected());
        }
        drain(&mut competitor, 31, 0.001);
        assert!(!competitor.is_detected());
        competitor.note_overflow(at(40));
        assert!(competitor.is_detected(), "a rival that was known comes back at once");
    }

    #[test]
    fn a_queue_of_flows_that_skip_a_drain_is_not_evidence_of_a_rival() {
        let mut competitor = CompetitorDetector::none();
        for n in 0..20 {
            drain(&mut competitor, 5 * n, 0.0105);
            assert_eq!(competitor.evidence, 0, "half of what nine others fill");
        }
    }

    #[test]
    fn a_rival_is_removed_after_a_minute_without_evidence() {
        let mut competitor = CompetitorDetector::none();
        (0..3).for_each(|n| drain(&mut competitor, 3 * n, 0.02));
        drain(&mut competitor, 60, 0.006);
        assert!(competitor.is_detected(), "a fifth of the queue is left: undecided");
        drain(&mut competitor, 70, 0.006);
        assert!(!competitor.is_detected());
    }

    #[test]
    fn a_long_queue_indicates_a_rival_after_two_uninterrupted_seconds() {
        let mut competitor = CompetitorDetector::none();
        competitor.note_level(true, at(0));
        competitor.note_level(true, at(2));
        competitor.note_level(false, at(3));
        competitor.note_level(true, at(4));
        competitor.note_level(true, at(6));
        assert!(!competitor.is_detected(), "two seconds are not over");
        competitor.note_level(true, at(7));
        assert!(competitor.is_detected());
    }

    #[test]
    fn a_long_queue_does_not_keep_a_known_rival() {
        // Beside a competitor the flow keeps CUBIC's window, and fills the queue itself.
        let mut competitor = CompetitorDetector::none();
        (0..70).for_each(|secs| competitor.note_level(true, at(secs)));
        assert!(competitor.is_detected());
        drain(&mut competitor, 70, 0.006);
        assert!(!competitor.is_detected(), "no drain left a queue for a minute");
    }

    /// Records this many cycles of a queue that grows to 16 ms in three seconds, in epochs of 30 ms, from this time on, for
    /// a flow that counts this many flows.
    fn cycles(competitor: &mut CompetitorDetector, number: u32, secs: u64, count: Option<f64>) {
        let mut now = at(secs);
        for epoch in 0..number * 100 {
            now = now + Span::from_millis(30);
            let queue = 0.003 + 0.013 * f64::from(epoch % 100) / 100.0;
            competitor.note_queue(queue, epoch > 0 && epoch % 100 == 0, count, now);
        }
    }

    #[test]
    fn three_teeth_indicate_a_rival_unless_the_flow_has_a_large_share() {
        for (count, is_detected) in [(Some(40.0), true), (None, true), (Some(2.0), false)] {
            let mut competitor = CompetitorDetector::none();
            cycles(&mut competitor, 3, 0, count);
            assert!(!competitor.is_detected(), "two teeth");
            cycles(&mut competitor, 2, 9, count);
            assert_eq!(competitor.is_detected(), is_detected, "{count:?}");
        }
    }

    #[test]
    fn teeth_while_a_rival_is_known_do_not_count_later() {
        let mut competitor = CompetitorDetector::none();
        cycles(&mut competitor, 5, 0, None);
        assert!(competitor.is_detected());
        cycles(&mut competitor, 10, 15, None);
        (0..8).for_each(|n| drain(&mut competitor, 45 + 3 * n, 0.001));
        assert!(!competitor.is_detected(), "eight drains emptied the queue");
        cycles(&mut competitor, 3, 70, None);
        assert!(!competitor.is_detected(), "two teeth since");
        cycles(&mut competitor, 2, 79, None);
        assert!(competitor.is_detected());
    }

    #[test]
    fn two_overflows_within_a_minute_indicate_a_rival() {
        let mut competitor = CompetitorDetector::none();
        competitor.note_overflow(at(0));
        assert!(!competitor.is_detected());
        competitor.note_overflow(at(61));
        assert!(!competitor.is_detected(), "too late");
        competitor.note_overflow(at(90));
        assert!(competitor.is_detected());
    }
}
