//! Whether the routers of a path are what holds a flow up: what arrived, was lost and waited in each round trip.
//!
//! Source: ours (ADR 23).
//! Model, for each round (a round trip, at least `ROUND_MIN`):
//!     elsewhere = least over its ACKs of (one-way delay - told queueing delay) - base
//!     no router   an ACK whose header counts none: at once where none ever took part, else after a round
//!     queue       elsewhere > threshold, the larger of a quarter of the round trip and `QUEUE_MIN`
//!     loss        more than `LOSS_PART` lost, and no told queue above the threshold
//!     overload    more than `LOSS_PART` lost, whatever is told, in rounds that last longer by `LASTING` than the
//!                 others of late, since the law's rate has last fallen by `LOSS_PART`
//! A router that has its link's rate right overflows its queue for some round trips after a join or an end of
//! silence, and then no more; one whose link is slower than it believes does so for good. Where flows join one after
//! another the losses go on, but the rate falls with each join. What is lost within `START` of the first ACK is no overload.
//! The base is the least such delay of the last ten to twenty seconds, since clocks drift.

use sabul_units::{Bytes, Instant, Span};

use crate::controller::{Acked, Context};

/// Ours: a shorter round would hold too few packets to tell anything.
const ROUND_MIN: Span = Span::from_millis(10);
/// Ours: a late machine makes less delay than this, in seconds.
const QUEUE_MIN: f64 = 0.005;
const QUEUE_PART: f64 = 0.25;
/// Ours: explicit control promises no loss at all; a path that loses this much by chance is none for it.
const LOSS_PART: f64 = 0.02;
const LOST_MIN: u64 = 4;
/// Ours: losses that last so long, in round trips and at least in time, are no join's.
const LASTING: u64 = 8;
const LASTING_MIN: Span = Span::from_millis(500);
/// Ours: a law's rate counts up to so many times what arrives. A rate far above that falls for seconds and stays too high.
const OVER: f64 = 4.0;
/// Ours: what a flow loses so soon after its start may be of its start, which two that begin at once take this long to
/// hear of where a price has to rise first.
const START: Span = Span::from_secs(2);
/// Ours: how long a base stands at least.
const BASE_AGE: Span = Span::from_secs(10);

/// What shows that routers that take part do not decide alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// No router on the path takes part.
    NoRouter,
    /// Packets wait where no router that takes part has a queue.
    QueueElsewhere,
    /// Packets are lost where no router that takes part has a queue.
    LossElsewhere,
    /// Packets are lost for long: a router gives away more than its link has, or has no say.
    LastingLoss,
}

impl Evidence {
    /// One word for events.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::NoRouter => "no-router",
            Self::QueueElsewhere => "queue-elsewhere",
            Self::LossElsewhere => "loss-elsewhere",
            Self::LastingLoss => "lasting-loss",
        }
    }
}

/// What a round has shown so far.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    /// Counts at its beginning.
    delivered: u64,
    total: u64,
    lost: u64,
    /// Least delay that is not told, and the most that is, in seconds.
    untold_min: f64,
    told_max: f64,
    has_router: bool,
}

/// The round trips of one flow.
#[derive(Debug, Default)]
pub(super) struct Watch {
    round: Option<Round>,
    has_had_router: bool,
    /// When the first ACK came.
    started: Option<Instant>,
    /// Least untold delays, of now and of before, and since when.
    base: [f64; 2],
    base_since: Option<Instant>,
    /// Bits a second that arrived in the rounds before.
    delivered: [f64; 2],
    is_measured: bool,
    /// How long rounds with much loss have lasted, less those without, since `lowest` has last fallen.
    lossy: Span,
    /// Bits a second: the law's least rate since rounds began to lose much, or its rate before that.
    lowest: f64,
}

impl Watch {
    /// Bits a second that arrived in the better of the last two rounds, once one has ended.
    pub(super) fn delivered(&self) -> Option<f64> {
        self.is_measured.then(|| self.delivered[0].max(self.delivered[1]))
    }

    /// Takes note of an ACK that comes while the law has that rate in bits a second; says what it shows, if it shows
    /// something.
    pub(super) fn note(&mut self, acked: &Acked, rate: f64, cx: &Context<'_>) -> Option<Evidence> {
        let header = acked.echo.map(|echo| echo.header).filter(|header| header.routers > 0);
        if header.is_none() && !self.has_had_router {
            return Some(Evidence::NoRouter);
        }
        self.has_had_router = true;
        self.started.get_or_insert(cx.now);
        let told = header.map_or(0.0, |header| header.queued.as_secs_f64());
        let untold = acked
            .sent_at
            .map(|sent_at| acked.arrived_at.as_secs_f64() - sent_at.elapsed().as_secs_f64() - told);
        let round = self.round.get_or_insert_with(|| Round::new(acked, cx.now));
        // Of a host that knows nothing of departures the guard knows nothing of delays.
        let untold = untold.unwrap_or(f64::INFINITY);
        round.untold_min = round.untold_min.min(untold);
        round.told_max = round.told_max.max(told);
        round.has_router |= header.is_some();
        let round = *round;
        if untold.is_finite() {
            self.note_base(untold, cx.now);
        }
        let (length, base) = cx.rtt.map_or((ROUND_MIN, ROUND_MIN), |rtt| (rtt.smoothed, rtt.min));
        if cx.now.since(round.began) < length.max(ROUND_MIN) {
            return None;
        }
        self.round = Some(Round::new(acked, cx.now));
        let evidence = self.end_round(&round, acked, cx.now, base.as_secs_f64());
        let rate = rate.min(self.delivered[0].max(self.delivered[1]) * OVER);
        evidence.or_else(|| self.overload(&round, acked, rate, cx.now))
    }

    fn end_round(
        &mut self,
        round: &Round,
        acked: &Acked,
        now: Instant,
        rtt_min: f64,
    ) -> Option<Evidence> {
        let seconds = now.since(round.began).as_secs_f64();
        let bits = acked.delivered.0.saturating_sub(round.delivered) as f64 * 8.0;
        self.delivered = [bits / seconds, self.delivered[0]];
        self.is_measured = true;
        if !round.has_router {
            return Some(Evidence::NoRouter);
        }
        let threshold = (rtt_min * QUEUE_PART).max(QUEUE_MIN);
        let untold = round.untold_min - self.base[0].min(self.base[1]);
        if untold.is_finite() && untold > threshold {
            return Some(Evidence::QueueElsewhere);
        }
        (round.lost_much(acked) && round.told_max < threshold).then_some(Evidence::LossElsewhere)
    }

    /// Whether losses last in a flow whose rate does not fall.
    fn overload(
        &mut self,
        round: &Round,
        acked: &Acked,
        rate: f64,
        now: Instant,
    ) -> Option<Evidence> {
        if self.started.is_none_or(|started| now < started + START) {
            self.lowest = rate;
            return None;
        }
        let length = now.since(round.began);
        if !round.lost_much(acked) {
            self.lossy = self.lossy.saturating_sub(length);
        } else if rate < self.lowest * (1.0 - LOSS_PART) {
            self.lossy = Span::ZERO;
        } else {
            self.lossy += length;
        }
        if self.lossy == Span::ZERO {
            self.lowest = rate;
        }
        (self.lossy >= (length * LASTING).max(LASTING_MIN)).then_some(Evidence::LastingLoss)
    }

    fn note_base(&mut self, untold: f64, now: Instant) {
        match self.base_since {
            None => (self.base, self.base_since) = ([untold; 2], Some(now)),
            Some(since) if now.since(since) >= BASE_AGE => {
                (self.base, self.base_since) = ([untold, self.base[0]], Some(now));
            }
            Some(_) => self.base[0] = self.base[0].min(untold),
        }
    }
}

impl Round {
    fn new(acked: &Acked, now: Instant) -> Self {
        let Bytes(delivered) = acked.delivered;
        Self {
            began: now,
            delivered,
            total: acked.total.0,
            lost: acked.lost.0,
            untold_min: f64::INFINITY,
            told_max: 0.0,
            has_router: false,
        }
    }

    /// Whether more than chance was lost from its beginning to that ACK.
    fn lost_much(&self, acked: &Acked) -> bool {
        let lost = acked.lost.0.saturating_sub(self.lost);
        let sent = acked.total.0.saturating_sub(self.total) + lost;
        lost >= LOST_MIN && lost as f64 > LOSS_PART * sent as f64
    }
}
