//! Whether somebody fills the queue and does not hear it, and the share of the link that is kept beside them.
//!
//! Source: ours; [COPA] has a mode for it too, and there as here what tells is that a queue never empties. Flows of
//! this kind all drain together, so a drain that leaves a queue has met one of another kind.
//! Model:       evidence: a drain after which the queue never emptied, and an overflow, are three each; a drain that
//!                  emptied it takes one away
//!              share    grows by a fiftieth of the link a second after such a drain, up to `SHARE_MAX`; an overflow
//!                  leaves 0.7 of it: [RFC5681]'s rise and fall, but by the clock and in parts of the link, so that the
//!                  round trip has no say in them
//! States:      Unknown --evidence of four--> Known --none left, or half a minute without more--> Unknown
//! Invariants:  the share that is kept is zero while nobody is known.

use sabul_units::{Instant, Span};

/// Ours: what one drain or overflow adds to the evidence, from when on somebody is known, and the most that counts.
const EVIDENCE: u32 = 3;
const EVIDENCE_KNOWN: u32 = 4;
const EVIDENCE_MAX: u32 = 6;
const EVIDENCE_AGE: Span = Span::from_secs(30);
/// Ours: after so long all that joined in a drain have filled the path again.
const DRAINED: Span = Span::from_millis(1200);
/// Ours: what is left is a queue if it is longer than omega and so many thetas, than this part of the queue of
/// all other flows that the law believes in, and than this part of what stood.
const LEFT_THETAS: f64 = 2.0;
const LEFT_OTHERS_PART: f64 = 0.6;
const LEFT_STOOD_PART: f64 = 1.0 / 3.0;
/// Ours: it is none if it is shorter than omega and theta, or than this part of what stood.
const GONE_STOOD_PART: f64 = 1.0 / 8.0;
/// Ours: the share never grows beyond this, which leaves four others five sixths of what each would have beside a fifth
/// of their kind; and it begins with no more than this.
const SHARE_MAX: f64 = 1.0 / 3.0;
const SHARE_FIRST: f64 = 1.0 / 4.0;
/// Ours: where no train has shown the link it is a part of the largest rate of late, so that this may grow.
const SHARE_MAX_BLIND: f64 = 1.05;
/// Ours: parts of the link a second.
const GROWTH: f64 = 0.02;
/// [RFC9438 §4.6] What an overflow leaves.
const BETA: f64 = 0.7;

/// Ours: the same overflow is no second one.
const FALL_SPACING: Span = Span::from_secs(1);

/// A queue around a drain; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Shortest since a while before the drain.
    pub(super) least: f64,
    pub(super) omega: f64,
    pub(super) theta: f64,
    /// Flows of this kind that the law believes in.
    pub(super) count: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rival {
    evidence: u32,
    /// When it last grew.
    noted_at: Instant,
    is_known: bool,
    share: f64,
    is_growing: bool,
    grown_at: Instant,
    fallen_at: Instant,
    /// What stood when the newest drain began, in seconds, and when it is judged.
    drain: Option<(f64, Instant)>,
}

impl Rival {
    pub(super) const fn none() -> Self {
        Self {
            evidence: 0,
            noted_at: Instant::ZERO,
            is_known: false,
            share: 0.0,
            is_growing: false,
            grown_at: Instant::ZERO,
            fallen_at: Instant::ZERO,
            drain: None,
        }
    }

    /// Whether there is one.
    pub(super) const fn is_known(&self) -> bool {
        self.is_known
    }

    /// A drain begins while this queue stands, in seconds.
    pub(super) fn note_drain(&mut self, queue: f64, now: Instant) {
        self.drain = Some((queue, now + DRAINED));
    }

    /// Judges the newest drain, if its time has come; whether it left a doubt that another one would end.
    pub(super) fn judge(&mut self, seen: &Seen, now: Instant) -> bool {
        let Some((stood, _)) = self.drain.take_if(|(_, at)| now >= *at) else { return false };
        let others = LEFT_OTHERS_PART * (seen.count - 1.0);
        let left = seen.omega + seen.theta * others.max(LEFT_THETAS);
        if seen.least > left.max(stood * LEFT_STOOD_PART) {
            self.note(1.0 / seen.count, now);
            return !self.is_known;
        }
        if seen.least < (seen.omega + seen.theta).max(stood * GONE_STOOD_PART) {
            self.evidence = self.evidence.saturating_sub(1);
            self.is_known &= self.evidence > 0;
            self.is_growing = false;
        }
        false
    }

    /// The queue overflowed while this flow had this share of the link.
    pub(super) fn note_overflow(&mut self, share: f64, now: Instant) {
        self.note_fall(now);
        self.note(share, now);
    }

    /// Others gave way, so the queue was full, whether this flow lost of it or not.
    pub(super) fn note_fall(&mut self, now: Instant) {
        if now.since(self.fallen_at) > FALL_SPACING {
            (self.share, self.fallen_at) = (self.share * BETA, now);
        }
    }

    fn note(&mut self, share: f64, now: Instant) {
        self.evidence = (self.evidence + EVIDENCE).min(EVIDENCE_MAX);
        self.noted_at = now;
        self.is_growing = true;
        if !self.is_known && self.evidence >= EVIDENCE_KNOWN {
            self.is_known = true;
            (self.share, self.grown_at) = (share.min(SHARE_FIRST), now);
        }
    }

    /// The part of the link that is kept.
    pub(super) fn share(&mut self, is_link_trained: bool, now: Instant) -> f64 {
        if now.since(self.noted_at) > EVIDENCE_AGE {
            (self.evidence, self.is_known) = (0, false);
        }
        if !self.is_known {
            return 0.0;
        }
        if self.is_growing {
            let most = if is_link_trained { SHARE_MAX } else { SHARE_MAX_BLIND };
            let grown = GROWTH * now.since(self.grown_at).as_secs_f64();
            self.share = (self.share + grown).min(most);
        }
        self.grown_at = now;
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOOD: f64 = 0.03;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Span::from_secs(secs)
    }

    /// A drain at this time that left so much of the queue, by a flow with a tenth of the link.
    fn drain(rival: &mut Rival, secs: u64, least: f64) {
        rival.note_drain(STOOD, at(secs));
        let seen = Seen { least, omega: 0.0005, theta: 0.002, count: 10.0 };
        rival.judge(&seen, at(secs + 1));
        assert!(rival.drain.is_some(), "too early");
        rival.judge(&seen, at(secs + 2));
    }

    #[test]
    fn two_drains_that_leave_a_queue_make_a_rival_known_and_six_that_empty_it_unknown() {
        let mut rival = Rival::none();
        drain(&mut rival, 0, 0.02);
        assert!(rival.share(true, at(3)) < 1e-9);
        drain(&mut rival, 5, 0.02);
        assert!((rival.share(true, at(7)) - 0.1).abs() < 1e-9, "what it had");
        assert!((rival.share(true, at(9)) - 0.14).abs() < 1e-9, "a fiftieth a second");
        for n in 0..5 {
            drain(&mut rival, 10 + 3 * n, 0.001);
            assert!(rival.is_known());
        }
        assert!((rival.share(true, at(25)) - 0.14).abs() < 1e-9, "no growth on an empty queue");
        drain(&mut rival, 26, 0.001);
        assert!(!rival.is_known() && rival.share(true, at(29)) < 1e-9);
    }

    #[test]
    fn what_flows_of_this_kind_leave_when_they_do_not_all_join_is_no_evidence() {
        let mut rival = Rival::none();
        for n in 0..20 {
            drain(&mut rival, 5 * n, 0.0105);
            assert_eq!(rival.evidence, 0, "half of what nine others fill");
        }
    }

    #[test]
    fn the_share_has_an_end_and_an_overflow_leaves_seven_tenths() {
        let mut rival = Rival::none();
        drain(&mut rival, 0, 0.02);
        drain(&mut rival, 5, 0.02);
        assert!((rival.share(true, at(30)) - SHARE_MAX).abs() < 1e-9);
        rival.note_overflow(SHARE_MAX, at(30));
        assert!((rival.share(true, at(30)) - SHARE_MAX * BETA).abs() < 1e-9);
        assert!(rival.share(true, at(61)) < 1e-9, "half a minute without evidence");
    }
}
