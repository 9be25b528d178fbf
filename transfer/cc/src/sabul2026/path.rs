//! Path estimates from ACKs, once an epoch: base RTT, queues, jitter, arrival rate and loss.
//!
//! Source: ours; the queue is derived from the smallest RTTs of short periods [COPA], so that
//! neither a late ACK nor a late machine looks like a queue.
//! Model:       epoch  = one RTT by packet numbers, at least a SYN interval
//!              queue  = mean of the smallest RTT of each 30 ms of the epoch - base, less the queue of the way back
//!              jitter = average change from one RTT sample to the next
//!              base   = smallest RTT; rises only after drains that measured a larger RTT; at least
//!                       `RESOLUTION`, unless losses bound the window
//! Invariants:  base is positive; queue >= 0.

use sabul_units::{Instant, Span};

use super::ways::Ways;
use crate::controller::{ACK_INTERVAL_MIN, Acked, Context, SentNumber, ack_interval};

/// Ours: base RTT before the first sample, and the least RTT sample, in seconds.
const BASE_UNKNOWN: f64 = 0.1;
const BASE_MIN: f64 = 1e-6;
/// Ours: shorter RTTs count as this RTT, in seconds: the least ACK interval. Hosts process packets
/// in batches, so above the 16 us RTT of an idle loopback each batch would look like a standing
/// queue.
const RESOLUTION: f64 = ACK_INTERVAL_MIN.as_nanos() as f64 / 1e9;
/// Ours: period for a smallest RTT, so that flows with long and with short RTTs measure the same
/// queue.
const MIN_PERIOD: Span = Span::from_millis(30);
/// Ours: the shortest queue covers the last one to two of these periods.
const LOWS: Span = Span::from_millis(1500);
/// Ours: the longest queue covers the last one to two of these periods.
const PEAKS: Span = Span::from_secs(5);
/// Ours: weight of a sample in the jitter.
const JITTER_WEIGHT: f64 = 1.0 / 64.0;
/// Ours: part of the base RTT by which a drain's smallest RTT must exceed the base RTT to count as
/// higher.
const HIGHER_PART: f64 = 1.0 / 64.0;
/// Ours: drains in a row after which the base RTT rises: where this flow was alone on the link, and
/// elsewhere.
const HIGHER_ALONE: u32 = 2;
const HIGHER_SHARED: u32 = 10;
/// Ours: another flow has reduced the queue if less than this part of the queue is left, and the
/// queue before was longer than this many jitters and this many seconds.
const FALLEN_PART: f64 = 2.0 / 3.0;
const FALLEN_JITTERS: f64 = 4.0;
const FALLEN_MIN: f64 = 0.0012;

/// Measurements of one epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// Arrival rate in packets a second.
    pub(super) rate_pps: f64,
    /// The same packets over the time in which they left, if that was longer: packets that a
    /// machine delays and delivers at once arrive faster than any link.
    pub(super) carried_pps: f64,
    /// Packets that arrived or were found lost.
    pub(super) packets: f64,
    /// Share of these packets that was lost.
    pub(super) lost: f64,
    /// Shortest and longest RTT in seconds.
    pub(super) shortest_s: f64,
    pub(super) longest_s: f64,
    /// True if the application or room at either end limited the flow.
    pub(super) is_limited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Began {
    total: u64,
    lost: u64,
    arrived_at: Span,
    sent_at: Option<Instant>,
    now: Instant,
    /// The epoch ends when this number has arrived.
    end: SentNumber,
}

/// Drain in progress, and the smallest RTT that it measured.
#[derive(Clone, Copy, Debug)]
struct Drain {
    least: f64,
    is_alone: bool,
}

/// Times of the last empty queue and of the newest drain's start.
#[derive(Debug)]
pub(super) struct Drains {
    pub(super) emptied_at: Instant,
    pub(super) began_at: Instant,
}

/// A value of the current period and of the period before.
#[derive(Debug)]
pub(super) struct Recent {
    spells: [f64; 2],
    end: Instant,
}

impl Recent {
    pub(super) const fn of(value: f64) -> Self {
        Self { spells: [value; 2], end: Instant::ZERO }
    }

    /// Returns the value of the current period; a new period begins with `first`.
    fn present(&mut self, now: Instant, spell: Span, first: f64) -> &mut f64 {
        if now >= self.end {
            self.spells = [first, self.spells[0]];
            self.end = now + spell;
        }
        &mut self.spells[0]
    }

    /// Returns the smaller of both values with this sample.
    pub(super) fn least(&mut self, now: Instant, spell: Span, sample: f64) -> f64 {
        let present = self.present(now, spell, f64::INFINITY);
        *present = present.min(sample);
        self.recent_least()
    }

    /// Returns the smaller of both values.
    pub(super) const fn recent_least(&self) -> f64 {
        self.spells[0].min(self.spells[1])
    }
}

/// Smallest RTTs of the periods of an epoch.
#[derive(Debug)]
struct Spells {
    sum: f64,
    over: u32,
    /// Smallest RTT of the current period, and the end of the period.
    least: f64,
    ends: Instant,
    /// Smallest RTT of the previous period.
    before: f64,
}

impl Spells {
    const fn new() -> Self {
        Self { sum: 0.0, over: 0, least: f64::INFINITY, ends: Instant::ZERO, before: f64::INFINITY }
    }

    fn note(&mut self, rtt: f64, now: Instant) {
        if now >= self.ends {
            self.end();
            self.ends = now + MIN_PERIOD;
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

    /// Returns the mean and begins the next epoch; the only period of a short epoch may be
    /// incomplete.
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

    /// Returns the longest such time in seconds; zero without lost ACKs.
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

/// RTT of the empty path, in seconds.
#[derive(Debug)]
struct Base {
    /// Smallest RTT; `None` before the first sample.
    least: Option<f64>,
    /// Shorter RTTs count as this RTT.
    resolution: f64,
}

/// Standing queues in seconds.
#[derive(Debug)]
struct Queues {
    /// The newest epoch, and the epoch before.
    newest: f64,
    before: f64,
    /// The longest of all epochs.
    longest: f64,
}

impl Queues {
    const fn note(&mut self, queue: f64) {
        *self = Self { newest: queue, before: self.newest, longest: self.longest.max(queue) };
    }
}

/// Path estimates; see the module.
#[derive(Debug)]
pub(super) struct Path {
    began: Option<Began>,
    /// Smallest and largest RTT of the epoch.
    rtts: (f64, f64),
    spells: Spells,
    /// The three newest RTTs.
    newest: [f64; 3],
    is_limited: bool,
    base: Base,
    queues: Queues,
    /// Longest RTTs of the last [`PEAKS`].
    peaks: Recent,
    jitter: Jitter,
    spread: f64,
    /// Smallest RTTs of the last [`LOWS`].
    lows: Recent,
    acks: Acks,
    ways: Ways,
    drain: Option<Drain>,
    /// Number of drains in a row with a higher base RTT, and their smallest RTT.
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
            queues: Queues { newest: 0.0, before: 0.0, longest: 0.0 },
            peaks: Recent::of(0.0),
            jitter: Jitter { average: 0.0, last: None },
            spread: 0.0,
            lows: Recent::of(f64::INFINITY),
            acks: Acks::new(),
            ways: Ways::new(),
            drain: None,
            higher: NONE_HIGHER,
        }
    }

    /// Returns the RTT of the empty path, in seconds; at least the resolution.
    pub(super) fn base_s(&self) -> f64 {
        self.base.least.unwrap_or(BASE_UNKNOWN).max(self.base.resolution)
    }

    /// Sets the resolution of RTTs: the least ACK interval, or none while losses bound the window.
    pub(super) const fn resolve(&mut self, is_bound: bool) {
        self.base.resolution = if is_bound { BASE_MIN } else { RESOLUTION };
    }

    /// Returns the smallest RTT in seconds without the resolution; `None` before the first sample.
    pub(super) const fn known_base_s(&self) -> Option<f64> {
        self.base.least
    }

    /// Returns the standing queueing delay, in seconds.
    pub(super) const fn queue_s(&self) -> f64 {
        self.queues.newest
    }

    /// Returns the current queueing delay, in seconds.
    pub(super) fn queue_now_s(&self) -> f64 {
        let base = self.base_s();
        // A period's smallest RTT is stale where the RTT is much shorter than the period.
        let before =
            if MIN_PERIOD.as_secs_f64() <= 2.0 * base { self.spells.before } else { f64::INFINITY };
        let least = self.newest.iter().copied().fold(before, f64::min);
        if least.is_finite() { (least - base).max(0.0) } else { 0.0 }
    }

    /// Returns the spread of the newest epoch's RTTs, in seconds.
    pub(super) const fn lateness_s(&self) -> f64 {
        self.spread
    }

    /// Returns the longest time between two ACKs, in seconds: the ACK interval, or a recent longer
    /// time caused by a lost ACK, at most the base RTT.
    pub(super) fn ack_interval_s(&self) -> f64 {
        let base = self.base_s();
        let interval = ack_interval(Span::from_secs_f64(base)).as_secs_f64();
        interval.max(self.acks.spacing().min(base))
    }

    /// Returns the longest delay of ACKs in a queue of the way back in the last epoch, in seconds.
    pub(super) const fn longest_back_s(&self) -> f64 {
        self.ways.longest()
    }

    /// Returns the RTT with the queue of the way back, as a multiple of the RTT without; at least 1.
    pub(super) fn stretch(&self) -> f64 {
        1.0 + self.ways.standing() / (self.base_s() + self.queue_s())
    }

    /// Returns the jitter in seconds.
    pub(super) const fn jitter_s(&self) -> f64 {
        self.jitter.average
    }

    /// Returns whether another flow has reduced the queue.
    pub(super) fn has_fallen(&self) -> bool {
        let Queues { newest, before, .. } = self.queues;
        before > FALLEN_MIN.max(FALLEN_JITTERS * self.jitter.average)
            && newest < before * FALLEN_PART
    }

    /// Returns the longest RTT of the last five to ten seconds.
    pub(super) const fn peak_s(&self) -> f64 {
        self.peaks.spells[0].max(self.peaks.spells[1])
    }

    /// Returns the longest queue in seconds that counts as empty for a probe; `packet` is the time
    /// of a packet on the link. A policer drops without a queue: if no recent RTT exceeds the base
    /// RTT by a quarter of a packet's time, delays below a packet's time do not count.
    pub(super) fn empty_queue_s(&self, omega: f64, packet: f64) -> f64 {
        let has_queue = self.peak_s() - self.base_s() > packet / 4.0;
        1.5 * omega + if has_queue { 0.0 } else { packet }
    }

    /// Returns the longest queue of any epoch so far, in seconds.
    pub(super) const fn longest_queue_s(&self) -> f64 {
        self.queues.longest
    }

    /// Returns the shortest queue of the last seconds, in seconds.
    pub(super) fn least_queue_s(&self) -> f64 {
        (self.lows.spells[0].min(self.lows.spells[1]) - self.base_s()).max(0.0)
    }

    /// Starts to record the smallest RTT of a drain.
    pub(super) const fn start_drain(&mut self, is_alone: bool) {
        self.drain = Some(Drain { least: f64::INFINITY, is_alone });
    }

    /// Ends a drain. The base RTT rises after several drains that measured a higher RTT; two
    /// suffice if this flow was alone.
    pub(super) fn end_drain(&mut self) {
        let Some(Drain { least, is_alone }) = self.drain.take() else { return };
        if is_alone {
            self.ways.note_empty_forth();
        }
        let base = self.base_s();
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

    /// Processes an ACK; returns the epoch if it has ended.
    pub(super) fn on_ack(&mut self, acked: &Acked, cx: &Context<'_>, syn: Span) -> Option<Epoch> {
        let rtt = cx.rtt?.latest.as_secs_f64().max(BASE_MIN);
        self.acks.note(acked.acks_lost, cx.now);
        self.base.least = Some(self.base.least.map_or(rtt, |least| least.min(rtt)));
        let forth = self.ways.without_back((rtt, self.base.least.unwrap_or(rtt)), acked, cx.now);
        self.note_rtt(forth.max(self.base.resolution), cx.now);
        self.is_limited |= acked.is_app_limited || acked.is_room_limited;
        let here = Began {
            total: acked.total.0,
            lost: acked.lost.0,
            arrived_at: acked.arrived_at,
            sent_at: acked.sent_at,
            now: cx.now,
            end: acked.next,
        };
        // The sender has no more data, so the next epoch begins after a pause.
        let is_emptied = acked.in_flight.0 == 0 && acked.is_app_limited;
        let next = (!is_emptied).then_some(here);
        let Some(began) = self.began else {
            self.began = next;
            return None;
        };
        let elapsed = match here.arrived_at.saturating_sub(began.arrived_at) {
            // The receiver's clock stands still or went back.
            Span::ZERO => cx.now.since(began.now),
            elapsed => elapsed,
        };
        let is_over = acked.largest >= began.end && cx.now.since(began.now) >= syn;
        if !(is_over || is_emptied) || elapsed == Span::ZERO {
            if is_emptied {
                self.began = None;
            }
            return None;
        }
        let leaving = match (here.sent_at, began.sent_at) {
            (Some(last), Some(first)) => last.since(first),
            _ => Span::ZERO,
        };
        let base = self.base_s();
        self.ways.end_epoch();
        let (least, most) = std::mem::replace(&mut self.rtts, NO_RTTS);
        self.queues.note((self.spells.take().unwrap_or(least) - base).max(0.0));
        self.began = next;
        self.spread = most - least;
        let arrived = here.total.saturating_sub(began.total) as f64;
        let lost = here.lost.saturating_sub(began.lost) as f64;
        Some(Epoch {
            rate_pps: arrived / elapsed.as_secs_f64(),
            carried_pps: arrived / elapsed.max(leaving).as_secs_f64(),
            packets: arrived + lost,
            lost: lost / (arrived + lost).max(1.0),
            shortest_s: least,
            longest_s: most,
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
    fn the_ack_interval_counts_only_after_a_lost_ack_and_for_three_seconds() {
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
    fn an_rtt_below_the_resolution_is_rounded_up_unless_losses_bind() {
        let mut path = Path::new();
        path.base.least = Some(16e-6);
        assert!((path.base_s() - 16e-6).abs() < 1e-12);
        path.resolve(false);
        assert!((path.base_s() - 250e-6).abs() < 1e-12);
        assert_eq!(path.known_base_s(), Some(16e-6), "later flows compare the round trip itself");
        path.resolve(true);
        assert!((path.base_s() - 16e-6).abs() < 1e-12);
    }
}
