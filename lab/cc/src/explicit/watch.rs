//! Detector of paths whose routers do not control the flow: arrivals, losses and delays per round.
//!
//! Source: ours (ADR 23).
//! Model, for each round (an RTT, at least `ROUND_MIN`):
//!     elsewhere = least over its ACKs of (one-way delay - signalled queueing delay) - base
//!     no router   an ACK whose header counts no router: at once if none ever took part, else after a round
//!     queue       elsewhere > threshold, the larger of a quarter of the RTT and `QUEUE_MIN`
//!     loss        more than `LOSS_PART` lost, and no signalled queue above the threshold
//!     overload    more than `LOSS_PART` lost, whatever is signalled, in rounds that last longer by `LASTING`
//!                 than recent rounds without loss, since the law's rate last fell by `LOSS_PART`
//! A router with the correct link rate overflows its queue for some RTTs after a join or a pause,
//! and then no more; a router with too high a rate overflows its queue permanently. If flows keep
//! joining, losses continue, but the rate falls with each join. Losses within `START` of the first
//! ACK do not count as overload. The base is the least such delay of the last ten to twenty
//! seconds, because clocks drift.

use sabul_cc::{Acked, Context};
use sabul_units::{Bytes, Instant, Span};

/// Ours: shorter rounds would contain too few packets.
const ROUND_MIN: Span = Span::from_millis(10);
/// Ours: upper bound of the delay caused by a late machine, in seconds.
const QUEUE_MIN: f64 = 0.005;
const QUEUE_PART: f64 = 0.25;
/// Ours: explicit control has no loss of its own; a path with this much random loss does not suit
/// it.
const LOSS_PART: f64 = 0.02;
const LOST_MIN: u64 = 4;
/// Ours: losses of this length, in RTTs and in time, are not caused by a join.
const LASTING: u64 = 8;
const LASTING_MIN: Span = Span::from_millis(500);
/// Ours: bound of a law's rate relative to the arrival rate. A far higher rate falls for seconds
/// and stays too high.
const OVER: f64 = 4.0;
/// Ours: losses this soon after the start may belong to the start: two flows that start together
/// need this long where a price must rise first.
const START: Span = Span::from_secs(2);
/// Ours: least lifetime of a base delay.
const BASE_AGE: Span = Span::from_secs(10);

/// Evidence that participating routers do not control the flow alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// No router on the path participates.
    NoRouter,
    /// Packets queue at a place without a participating router.
    QueueElsewhere,
    /// Packets are lost at a place where no participating router has a queue.
    LossElsewhere,
    /// Losses persist: a router signals more than its link's rate, or is not in control.
    LastingLoss,
}

impl Evidence {
    /// Returns the word for events.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::NoRouter => "no-router",
            Self::QueueElsewhere => "queue-elsewhere",
            Self::LossElsewhere => "loss-elsewhere",
            Self::LastingLoss => "lasting-loss",
        }
    }
}

/// Measurements of the current round.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    /// Counts at the start of the round.
    delivered: u64,
    total: u64,
    lost: u64,
    /// Least unsignalled delay, and largest signalled delay, in seconds.
    unreported_min: f64,
    reported_max: f64,
    has_router: bool,
}

/// State of the detector for one flow.
#[derive(Debug, Default)]
pub(super) struct Watch {
    round: Option<Round>,
    has_had_router: bool,
    /// Time of the first ACK.
    started: Option<Instant>,
    /// Least unsignalled delays of the current and the previous period, and start of the current
    /// period.
    base: [f64; 2],
    base_since: Option<Instant>,
    /// Arrival rates of the last two rounds, in bits a second.
    delivered: [f64; 2],
    is_measured: bool,
    /// Total length of rounds with much loss, less that of rounds without, since `lowest` last
    /// fell.
    lossy: Span,
    /// Law's lowest rate since the first such round, or its previous rate, in bits a second.
    lowest: f64,
}

impl Watch {
    /// Returns the larger arrival rate of the last two rounds, in bits a second; `None` before the
    /// first round has ended.
    pub(super) fn delivered(&self) -> Option<f64> {
        self.is_measured.then(|| self.delivered[0].max(self.delivered[1]))
    }

    /// Processes an ACK while the law's rate is `rate` bits a second; returns evidence, if any.
    pub(super) fn note(&mut self, acked: &Acked, rate: f64, cx: &Context<'_>) -> Option<Evidence> {
        let header = acked.echo.map(|echo| echo.header).filter(|header| header.routers > 0);
        if header.is_none() && !self.has_had_router {
            return Some(Evidence::NoRouter);
        }
        self.has_had_router = true;
        self.started.get_or_insert(cx.now);
        let reported = header.map_or(0.0, |header| header.queued.as_secs_f64());
        let unreported = acked.sent_at.map(|sent_at| {
            acked.arrived_at.as_secs_f64() - sent_at.elapsed().as_secs_f64() - reported
        });
        let round = self.round.get_or_insert_with(|| Round::new(acked, cx.now));
        // Without departure times on the host, delays are unknown.
        let unreported = unreported.unwrap_or(f64::INFINITY);
        round.unreported_min = round.unreported_min.min(unreported);
        round.reported_max = round.reported_max.max(reported);
        round.has_router |= header.is_some();
        let round = *round;
        if unreported.is_finite() {
            self.note_base(unreported, cx.now);
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
        let unreported = round.unreported_min - self.base[0].min(self.base[1]);
        if unreported.is_finite() && unreported > threshold {
            return Some(Evidence::QueueElsewhere);
        }
        (round.lost_much(acked) && round.reported_max < threshold)
            .then_some(Evidence::LossElsewhere)
    }

    /// Returns evidence if losses persist although the flow's rate does not fall.
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

    fn note_base(&mut self, unreported: f64, now: Instant) {
        match self.base_since {
            None => (self.base, self.base_since) = ([unreported; 2], Some(now)),
            Some(since) if now.since(since) >= BASE_AGE => {
                (self.base, self.base_since) = ([unreported, self.base[0]], Some(now));
            }
            Some(_) => self.base[0] = self.base[0].min(unreported),
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
            unreported_min: f64::INFINITY,
            reported_max: 0.0,
            has_router: false,
        }
    }

    /// Returns whether more than random loss occurred between the start of the round and this ACK.
    fn lost_much(&self, acked: &Acked) -> bool {
        let lost = acked.lost.0.saturating_sub(self.lost);
        let sent = acked.total.0.saturating_sub(self.total) + lost;
        lost >= LOST_MIN && lost as f64 > LOSS_PART * sent as f64
    }
}
