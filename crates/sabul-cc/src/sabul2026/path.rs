//! What ACKs tell of the path, an epoch at a time: base round trip, queue, jitter, what arrived and was lost.
//!
//! Source: ours; the smallest round trip of a while stands for the queue [COPA], so that neither a late ACK
//! nor a late machine looks like one.
//! Model:       epoch  = a round trip by packet numbers, at least a SYN interval
//!              queue  = mean of the smallest round trips of each few SYN intervals of the epoch - base
//!              jitter = average change from one sample to the next
//!              base   = smallest round trip; a larger one only after drains that saw it; at least `RESOLUTION`, unless
//!                       losses bound the window
//! Invariants:  base is positive; queue >= 0.

use sabul_units::{Instant, Span};

use crate::controller::{ACK_INTERVAL_MIN, Acked, Context, SentNumber, ack_interval};

/// Ours: the base round trip where none is known, in seconds, and the least that is believed.
const BASE_UNKNOWN: f64 = 0.1;
const BASE_MIN: f64 = 1e-6;
/// Ours: shorter round trips count as this one, in seconds: the least interval between two ACKs. Ends handle packets in
/// batches, so above the round trip of an idle loopback, 16 us, each batch would look like a standing queue.
const RESOLUTION: f64 = ACK_INTERVAL_MIN.as_nanos() as f64 / 1e9;
/// Ours: what the smallest round trip is taken of, so that flows of long and of short round trips see the
/// same queue.
const SPELL: Span = Span::from_millis(30);
/// Ours: the shortest queue is of the last one to two of these.
const LOWS: Span = Span::from_millis(1500);
/// Ours: the longest queue is of the last one to two of these.
const PEAKS: Span = Span::from_secs(5);
/// Ours: weight of a sample in the jitter.
const JITTER_WEIGHT: f64 = 1.0 / 64.0;
/// Ours: part of the base by which a drain must have missed it to count as higher.
const HIGHER_PART: f64 = 1.0 / 64.0;
/// Ours: drains in a row after which the base is higher: where this flow had the link to itself, and elsewhere.
const HIGHER_ALONE: u32 = 2;
const HIGHER_SHARED: u32 = 10;
/// Ours: the queue has fallen by another's doing if this part of it is left, and it was no noise: so many
/// jitters, at least so many seconds.
const FALLEN_PART: f64 = 2.0 / 3.0;
const FALLEN_JITTERS: f64 = 4.0;
const FALLEN_MIN: f64 = 0.0012;

/// What one round trip brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// Packets that arrived a second.
    pub(super) rate: f64,
    /// The same over the time in which they left, where that was longer: what a machine holds back and hands
    /// over at once arrives faster than any link.
    pub(super) carried: f64,
    /// Packets that arrived or were found lost.
    pub(super) packets: f64,
    /// Share of them that was lost.
    pub(super) lost: f64,
    /// Shortest and longest round trip in seconds.
    pub(super) shortest: f64,
    pub(super) longest: f64,
    /// By the application, or by room at either end.
    pub(super) is_limited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Began {
    total: u64,
    lost: u64,
    arrived_at: Span,
    sent_at: Option<Instant>,
    now: Instant,
    /// It ends when this number has arrived.
    end: SentNumber,
}

/// A drain that is going on.
#[derive(Clone, Copy, Debug)]
struct Drain {
    least: f64,
    is_alone: bool,
}

/// When the queue was last seen empty, and when the newest drain began.
#[derive(Debug)]
pub(super) struct Drains {
    pub(super) emptied_at: Instant,
    pub(super) began_at: Instant,
}

/// A value of the present spell, and of the spell before.
#[derive(Debug)]
struct Recent {
    spells: [f64; 2],
    end: Instant,
}

impl Recent {
    const fn of(value: f64) -> Self {
        Self { spells: [value; 2], end: Instant::ZERO }
    }

    /// The value of the present spell, which begins with `first`.
    fn present(&mut self, now: Instant, spell: Span, first: f64) -> &mut f64 {
        if now >= self.end {
            self.spells = [first, self.spells[0]];
            self.end = now + spell;
        }
        &mut self.spells[0]
    }
}

/// Smallest round trips of the spells of an epoch.
#[derive(Debug)]
struct Spells {
    sum: f64,
    over: u32,
    /// Of the present one, and when it ends.
    least: f64,
    ends: Instant,
    /// Of the one before.
    before: f64,
}

impl Spells {
    const fn new() -> Self {
        Self { sum: 0.0, over: 0, least: f64::INFINITY, ends: Instant::ZERO, before: f64::INFINITY }
    }

    fn note(&mut self, rtt: f64, now: Instant) {
        if now >= self.ends {
            self.end();
            self.ends = now + SPELL;
        }
        self.least = self.least.min(rtt);
    }

    fn end(&mut self) {
        if self.least.is_finite() {
            self.sum += self.least;
            self.over += 1;
            self.before = self.least;
        }
        self.least = f64::INFINITY;
    }

    /// Their mean, and the next epoch begins; the last spell of an epoch may be shorter.
    fn take(&mut self) -> Option<f64> {
        if self.over == 0 {
            self.end();
        }
        let mean = (self.over > 0).then(|| self.sum / f64::from(self.over));
        (self.sum, self.over) = (0.0, 0);
        mean
    }
}

/// Average change from one RTT sample to the next, in seconds.
#[derive(Debug)]
struct Jitter {
    average: f64,
    last: Option<f64>,
}

impl Jitter {
    fn note(&mut self, rtt: f64) {
        if let Some(last) = self.last.replace(rtt) {
            self.average += ((rtt - last).abs() - self.average) * JITTER_WEIGHT;
        }
    }
}

/// Times between ACKs.
#[derive(Debug)]
struct Acks {
    /// Time of the newest ACK, and ACKs lost before it since the start.
    newest: Option<(Instant, u64)>,
    /// Longest time between two ACKs of the last [`LOWS`] with a lost ACK between them, in seconds.
    spacings: Recent,
}

impl Acks {
    const fn new() -> Self {
        Self { newest: None, spacings: Recent::of(0.0) }
    }

    /// Zero without lost ACKs.
    const fn spacing(&self) -> f64 {
        self.spacings.spells[0].max(self.spacings.spells[1])
    }

    fn note(&mut self, lost: u64, now: Instant) {
        let longest = self.spacings.present(now, LOWS, 0.0);
        if let Some((at, lost_before)) = self.newest.replace((now, lost))
            && lost > lost_before
        {
            *longest = longest.max(now.since(at).as_secs_f64());
        }
    }
}

/// The round trip of an empty path, in seconds.
#[derive(Debug)]
struct Base {
    /// Smallest round trip, once one was seen.
    least: Option<f64>,
    /// Shorter round trips count as this one.
    resolution: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Path {
    began: Option<Began>,
    /// Smallest and largest round trip of the epoch.
    rtts: (f64, f64),
    spells: Spells,
    /// The newest round trips.
    newest: [f64; 3],
    is_limited: bool,
    base: Base,
    /// Of the newest epoch, and of the one before.
    queues: [f64; 2],
    longest: f64,
    /// Longest round trips of the last [`PEAKS`].
    peaks: Recent,
    jitter: Jitter,
    spread: f64,
    /// Smallest round trips of the last [`LOWS`].
    lows: Recent,
    acks: Acks,
    drain: Option<Drain>,
    /// Drains in a row that saw a higher base, and the least that they saw.
    higher: (u32, f64),
}

const NO_RTTS: (f64, f64) = (f64::INFINITY, 0.0);
const NONE_HIGHER: (u32, f64) = (0, f64::INFINITY);

impl Path {
    pub(super) const fn new() -> Self {
        Self {
            began: None,
            rtts: NO_RTTS,
            spells: Spells::new(),
            newest: [f64::INFINITY; 3],
            is_limited: false,
            base: Base { least: None, resolution: BASE_MIN },
            queues: [0.0; 2],
            longest: 0.0,
            peaks: Recent::of(0.0),
            jitter: Jitter { average: 0.0, last: None },
            spread: 0.0,
            lows: Recent::of(f64::INFINITY),
            acks: Acks::new(),
            drain: None,
            higher: NONE_HIGHER,
        }
    }

    /// Round trip of an empty path, in seconds; at least the resolution.
    pub(super) fn base(&self) -> f64 {
        self.base.least.unwrap_or(BASE_UNKNOWN).max(self.base.resolution)
    }

    /// Sets the resolution of round trips: the least interval between two ACKs, or none while losses bound the window.
    pub(super) const fn resolve(&mut self, is_bound: bool) {
        self.base.resolution = if is_bound { BASE_MIN } else { RESOLUTION };
    }

    /// Smallest round trip in seconds, once one was seen, without the resolution.
    pub(super) const fn known_base(&self) -> Option<f64> {
        self.base.least
    }

    /// Queueing delay that stands, in seconds.
    pub(super) const fn queue(&self) -> f64 {
        self.queues[0]
    }

    /// Queueing delay of this moment, in seconds.
    pub(super) fn queue_now(&self) -> f64 {
        let base = self.base();
        // A spell is no news where the round trip is much shorter.
        let before =
            if SPELL.as_secs_f64() <= 2.0 * base { self.spells.before } else { f64::INFINITY };
        let least = self.newest.iter().copied().fold(before, f64::min);
        if least.is_finite() { (least - base).max(0.0) } else { 0.0 }
    }

    /// By how much round trips of the newest epoch differed, in seconds.
    pub(super) const fn lateness(&self) -> f64 {
        self.spread
    }

    /// Longest time between two ACKs, in seconds: the ACK interval, or the time that a lost ACK left in the last seconds,
    /// at most the base RTT.
    pub(super) fn ack_interval(&self) -> f64 {
        let base = self.base();
        let interval = ack_interval(Span::from_secs_f64(base)).as_secs_f64();
        interval.max(self.acks.spacing().min(base))
    }

    /// Seconds.
    pub(super) const fn jitter(&self) -> f64 {
        self.jitter.average
    }

    /// Whether the queue fell, by no doing of this flow.
    pub(super) fn has_fallen(&self) -> bool {
        let [queue, before] = self.queues;
        before > FALLEN_MIN.max(FALLEN_JITTERS * self.jitter.average)
            && queue < before * FALLEN_PART
    }

    /// Longest round trip of the last five to ten seconds.
    pub(super) const fn peak(&self) -> f64 {
        self.peaks.spells[0].max(self.peaks.spells[1])
    }

    /// Longest queue in seconds that counts as empty for a probe; `packet` is the time of a packet on the link. A policer
    /// drops without a queue: where no RTT of the last seconds is a quarter of a packet's time longer than the base,
    /// delays below a packet's time are no queue.
    pub(super) fn empty_queue(&self, omega: f64, packet: f64) -> f64 {
        let has_queue = self.peak() - self.base() > packet / 4.0;
        1.5 * omega + if has_queue { 0.0 } else { packet }
    }

    /// Longest queue that stood for an epoch so far, in seconds.
    pub(super) const fn longest_queue(&self) -> f64 {
        self.longest
    }

    /// Shortest queue of the last seconds, in seconds.
    pub(super) fn least_queue(&self) -> f64 {
        (self.lows.spells[0].min(self.lows.spells[1]) - self.base()).max(0.0)
    }

    /// From now on the queue may empty.
    pub(super) const fn start_drain(&mut self, is_alone: bool) {
        self.drain = Some(Drain { least: f64::INFINITY, is_alone });
    }

    /// A drain is over: what several of them saw is the base, sooner where nobody else can have filled it.
    pub(super) fn end_drain(&mut self) {
        let Some(Drain { least, is_alone }) = self.drain.take() else { return };
        let base = self.base();
        if least <= base + self.jitter.average.max(base * HIGHER_PART) {
            self.higher = NONE_HIGHER;
        } else if least.is_finite() {
            self.higher = (self.higher.0 + 1, self.higher.1.min(least));
            if self.higher.0 >= if is_alone { HIGHER_ALONE } else { HIGHER_SHARED } {
                self.base.least = Some(self.higher.1);
                self.higher = NONE_HIGHER;
            }
        }
    }

    /// Takes an ACK in; an epoch if one is over.
    pub(super) fn on_ack(&mut self, acked: &Acked, cx: &Context<'_>, syn: Span) -> Option<Epoch> {
        let rtt = cx.rtt?.latest.as_secs_f64().max(BASE_MIN);
        self.acks.note(acked.acks_lost, cx.now);
        self.base.least = Some(self.base.least.map_or(rtt, |least| least.min(rtt)));
        self.note_rtt(rtt.max(self.base.resolution), cx.now);
        self.is_limited |= acked.is_app_limited || acked.is_room_limited;
        let here = Began {
            total: acked.total.0,
            lost: acked.lost.0,
            arrived_at: acked.arrived_at,
            sent_at: acked.sent_at,
            now: cx.now,
            end: acked.next,
        };
        let Some(began) = self.began else {
            self.began = Some(here);
            return None;
        };
        let elapsed = here.arrived_at.saturating_sub(began.arrived_at);
        let is_over = acked.largest >= began.end && cx.now.since(began.now) >= syn;
        if !is_over || elapsed == Span::ZERO {
            return None;
        }
        let leaving = match (here.sent_at, began.sent_at) {
            (Some(last), Some(first)) => last.since(first),
            _ => Span::ZERO,
        };
        let base = self.base();
        let (least, most) = std::mem::replace(&mut self.rtts, NO_RTTS);
        self.queues = [(self.spells.take().unwrap_or(least) - base).max(0.0), self.queues[0]];
        self.longest = self.longest.max(self.queues[0]);
        self.began = Some(here);
        self.spread = most - least;
        let arrived = here.total.saturating_sub(began.total) as f64;
        let lost = here.lost.saturating_sub(began.lost) as f64;
        Some(Epoch {
            rate: arrived / elapsed.as_secs_f64(),
            carried: arrived / elapsed.max(leaving).as_secs_f64(),
            packets: arrived + lost,
            lost: lost / (arrived + lost).max(1.0),
            shortest: least,
            longest: most,
            is_limited: std::mem::take(&mut self.is_limited),
        })
    }

    fn note_rtt(&mut self, rtt: f64, now: Instant) {
        self.spells.note(rtt, now);
        let low = self.lows.present(now, LOWS, f64::INFINITY);
        *low = low.min(rtt);
        let peak = self.peaks.present(now, PEAKS, 0.0);
        *peak = peak.max(rtt);
        self.newest.rotate_left(1);
        self.newest[2] = rtt;
        self.rtts = (self.rtts.0.min(rtt), self.rtts.1.max(rtt));
        self.jitter.note(rtt);
        if let Some(drain) = &mut self.drain {
            drain.least = drain.least.min(rtt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_acks_counts_where_an_ack_was_lost_and_for_three_seconds() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut path = Path::new();
        path.acks.note(5, at(0));
        path.acks.note(5, at(30));
        assert!(path.acks.spacing() < 1e-9, "late, and none lost");
        path.acks.note(6, at(50));
        assert!((path.acks.spacing() - 0.02).abs() < 1e-9);
        path.acks.note(6, at(1600));
        assert!((path.acks.spacing() - 0.02).abs() < 1e-9);
        path.acks.note(6, at(3200));
        assert!(path.acks.spacing() < 1e-9);
    }

    #[test]
    fn a_round_trip_below_the_resolution_counts_as_the_resolution_unless_losses_bind() {
        let mut path = Path::new();
        path.base.least = Some(16e-6);
        assert!((path.base() - 16e-6).abs() < 1e-12);
        path.resolve(false);
        assert!((path.base() - 250e-6).abs() < 1e-12);
        assert_eq!(path.known_base(), Some(16e-6), "later flows compare the round trip itself");
        path.resolve(true);
        assert!((path.base() - 16e-6).abs() < 1e-12);
    }
}
