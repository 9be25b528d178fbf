//! CoDel (controlled delay): drops departing packets once the queueing delay has exceeded a target
//! for an interval.
//!
//! Source: [RFC8289 §5].
//! Model: for each departing packet, with its time in the queue:
//!     good while the time is below the target, or at most one full packet stays behind;
//!     bad once it has not been good for an interval.
//! States:      Waiting --bad--> Dropping --good--> Waiting
//!     Entering drops one packet; inside, the nth drop is interval ÷ √n after the previous drop.
//!     Entering again within 16 intervals resumes the previous drop rate.
//! With marking, an ECN-capable packet is marked and sent where another would be dropped.
//! Invariants:  the last packet in a queue is never dropped.

use sabul_units::key::{Key, Range, Takes};
use sabul_units::{Instant, Span};

use super::line::{Admission, Departure, Fifo, QueueDiscipline, Queued};
use crate::setting::{LinkError, QueueLimit, ensure};

/// Time for which the drop rate is kept after a dropping state, in intervals. [RFC8289 §5]
const MEMORY_INTERVALS: u64 = 16;

/// Settings of controlled delay. [RFC8289 §3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Accepted standing delay.
    pub target: Span,
    /// Longest time for which the delay may exceed the target; about the longest RTT.
    pub interval: Span,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub is_marking: bool,
}

/// Longest time setting of a discipline; a larger number indicates a wrong unit.
pub(crate) const SPAN_MAX: Span = Span::from_secs(3_600);
const MS: Range = Range::of(0.001, SPAN_MAX.0 as f64 / 1e9);

/// Keys of the settings, in the order in which they take effect.
pub(crate) const KEYS: &[Key<Codel>] = &[
    interval(|codel, by| codel.interval = by),
    target(|codel, by| codel.target = by),
    ecn(|codel, is| codel.is_marking = is),
];

pub(super) const fn interval<T>(set: fn(&mut T, Span)) -> Key<T> {
    let doc = "time for which the delay may exceed the target; about the longest RTT";
    Key::new("codel_interval_ms", Takes::Millis(MS, set)).doc(doc).or(100.0).source("[RFC8289 §4]")
}

pub(super) const fn target<T>(set: fn(&mut T, Span)) -> Key<T> {
    let doc = "accepted standing delay; at most `codel_interval_ms`";
    Key::new("codel_target_ms", Takes::Millis(MS, set)).doc(doc).or(5.0).source("[RFC8289 §4]")
}

pub(super) const fn ecn<T>(set: fn(&mut T, bool)) -> Key<T> {
    let doc = "`true` marks ECN-capable packets instead of dropping these packets";
    Key::new("ecn", Takes::Flag(set)).doc(doc).or_flag(false).source("Linux")
}

impl Default for Codel {
    /// 5 ms and 100 ms, dropping. [RFC8289 §4]
    fn default() -> Self {
        Self { target: Span::from_millis(5), interval: Span::from_millis(100), is_marking: false }
    }
}

impl Codel {
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let Self { target, interval, .. } = *self;
        let is_allowed = interval > Span::ZERO && interval <= SPAN_MAX;
        let value = || format!("{} ms", interval.as_millis_f64());
        ensure(is_allowed, "codel_interval_ms", value, "more than 0 and at most 3600 s")?;
        let is_allowed = target > Span::ZERO && target <= interval;
        let value = || format!("{} ms", target.as_millis_f64());
        ensure(is_allowed, "codel_target_ms", value, "more than 0 and at most codel_interval_ms")
    }
}

/// CoDel control law of one queue, without the queue.
#[derive(Clone, Debug)]
pub(crate) struct CodelLaw {
    settings: Codel,
    /// Bytes that may stay behind without counting as a standing queue: one full packet.
    max_packet: u64,
    /// When the delay will have exceeded the target for an interval.
    bad_from: Option<Instant>,
    is_dropping: bool,
    drop_next: Instant,
    /// Drops in the present dropping state, and the count on entering it.
    count: u64,
    last_count: u64,
}

impl CodelLaw {
    pub(crate) fn new(settings: Codel, max_packet: u64) -> Self {
        Self {
            settings,
            max_packet,
            bad_from: None,
            is_dropping: false,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
        }
    }

    /// Removes the next packet to send from `queue`, after any drops.
    pub(crate) fn dequeue<T>(&mut self, now: Instant, queue: &mut Fifo<T>) -> Departure<T> {
        let mut dropped = 0;
        let (mut packet, mut is_bad) = self.next(now, queue);
        if !is_bad {
            self.is_dropping = false;
        } else if self.is_dropping {
            while self.is_dropping && now >= self.drop_next {
                self.count += 1;
                if self.mark(&mut packet) {
                    self.drop_next = self.after(self.drop_next);
                    break;
                }
                dropped += 1;
                (packet, is_bad) = self.next(now, queue);
                if is_bad {
                    self.drop_next = self.after(self.drop_next);
                } else {
                    self.is_dropping = false;
                }
            }
        } else {
            if !self.mark(&mut packet) {
                dropped += 1;
                (packet, _) = self.next(now, queue);
            }
            self.enter(now);
        }
        Departure { packet, dropped }
    }

    /// Removes the first packet; returns it and whether to drop it.
    fn next<T>(&mut self, now: Instant, queue: &mut Fifo<T>) -> (Option<Queued<T>>, bool) {
        let packet = queue.pop();
        let is_good = packet.as_ref().is_none_or(|packet| {
            now.since(packet.since) < self.settings.target || queue.bytes() <= self.max_packet
        });
        if is_good {
            self.bad_from = None;
            return (packet, false);
        }
        let bad_from = *self.bad_from.get_or_insert(now + self.settings.interval);
        (packet, now >= bad_from)
    }

    /// Enters the dropping state. Soon after the last one, dropping resumes at the rate that
    /// controlled the queue.
    fn enter(&mut self, now: Instant) {
        self.is_dropping = true;
        let gained = self.count.saturating_sub(self.last_count);
        let is_recent = now.since(self.drop_next) < self.settings.interval * MEMORY_INTERVALS;
        self.count = if gained > 1 && is_recent { gained } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.after(now);
    }

    /// Returns the time of the next drop. [RFC8289 §5]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most interval")]
    fn after(&self, at: Instant) -> Instant {
        at + Span((self.settings.interval.0 as f64 / (self.count as f64).sqrt()) as u64)
    }

    fn mark<T>(&self, packet: &mut Option<Queued<T>>) -> bool {
        match packet {
            Some(packet) if self.settings.is_marking && packet.meta.is_ecn_capable => {
                packet.is_marked = true;
                true
            }
            _ => false,
        }
    }
}

/// One queue under CoDel; a packet that arrives at a full queue is dropped.
#[derive(Clone, Debug)]
pub(crate) struct CodelQueue<T> {
    law: CodelLaw,
    queue: Fifo<T>,
}

impl<T> CodelQueue<T> {
    pub(crate) fn new(settings: Codel, max_packet: u64) -> Self {
        Self { law: CodelLaw::new(settings, max_packet), queue: Fifo::default() }
    }
}

impl<T> QueueDiscipline<T> for CodelQueue<T> {
    fn enqueue(&mut self, packet: Queued<T>, limit: QueueLimit) -> Admission {
        if !self.queue.has_room(packet.meta.size, limit) {
            return Admission { is_accepted: false, dropped: 1 };
        }
        self.queue.push(packet);
        Admission { is_accepted: true, dropped: 0 }
    }

    fn dequeue(&mut self, now: Instant) -> Departure<T> {
        self.law.dequeue(now, &mut self.queue)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::testing::packet;
    use super::*;

    const START: Instant = Instant(60_000_000_000_000);
    const TICK: Span = Span::from_micros(100);

    /// A control law with a queue: a packet leaves every 100 µs, after the waiting time of the
    /// test.
    struct Bench {
        law: CodelLaw,
        queue: Fifo<u64>,
        now: Instant,
        is_capable: bool,
        marks: Vec<f64>,
    }

    impl Bench {
        fn new(settings: Codel) -> Self {
            let law = CodelLaw::new(settings, 1_514);
            let queue = Fifo::default();
            Self { law, queue, now: START, is_capable: false, marks: Vec::new() }
        }

        /// Sends packets that waited `wait`, with `behind` more in the queue, for `time`; returns
        /// the time of each drop in milliseconds.
        fn run(&mut self, wait: Span, behind: usize, time: Span) -> Vec<f64> {
            let mut drops = Vec::new();
            let end = self.now + time;
            while self.now < end {
                self.now = self.now + TICK;
                while self.queue.pop().is_some() {}
                for _ in 0..=behind {
                    let mut packet = packet(0, 1_500, self.now - wait, 0);
                    packet.meta.is_ecn_capable = self.is_capable;
                    self.queue.push(packet);
                }
                let departure = self.law.dequeue(self.now, &mut self.queue);
                let at = self.now.since(START).as_millis_f64();
                drops.extend((0..departure.dropped).map(|_| at));
                if departure.packet.unwrap().is_marked {
                    self.marks.push(at);
                }
            }
            drops
        }
    }

    /// Compares times in ms to within a tick; `law` counts from `first`, the time of the first
    /// drop.
    fn follows_the_law(times: &[f64], first: f64, mut count: f64) -> bool {
        let mut expected = first;
        times.iter().all(|&at| {
            let is_right = at >= expected - 1e-6 && at < expected + 0.100_001;
            expected += 100.0 / count.sqrt();
            count += 1.0;
            is_right
        })
    }

    const SECOND: Span = Span::from_secs(1);
    const STANDING: Span = Span::from_millis(20);
    const GOOD: Span = Span::from_millis(4);

    #[test]
    fn a_standing_queue_gets_drops_an_interval_over_root_count_apart() {
        // Bad from 0.1 ms on; the first drop follows an interval later, then after 100, 70.7,
        // 57.7, 50 … ms.
        let mut bench = Bench::new(Codel::default());
        let drops = bench.run(STANDING, 20, SECOND);
        assert!(follows_the_law(&drops, 100.1, 1.0), "{drops:?}");
        // 100 ÷ √n for n up to 26 add up to 883.5 ms, up to 27 to 902.8 ms: that is too late.
        assert_eq!(drops.len(), 27);
    }

    #[test]
    fn codel_drops_nothing_from_a_short_queue() {
        let mut bench = Bench::new(Codel::default());
        assert_eq!(bench.run(Span::from_micros(4_999), 50, SECOND), []);
        // Far too slow, but only one full packet is behind the departing packet.
        assert_eq!(bench.run(Span::from_secs(1), 1, SECOND), []);
    }

    #[test]
    fn a_burst_shorter_than_an_interval_passes() {
        let mut bench = Bench::new(Codel::default());
        for _ in 0..20 {
            assert_eq!(bench.run(STANDING, 20, Span::from_micros(99_900)), []);
            assert_eq!(bench.run(GOOD, 20, TICK), []);
        }
    }

    #[test]
    fn one_packet_with_a_short_delay_ends_the_dropping_state() {
        let mut bench = Bench::new(Codel::default());
        assert!(!bench.run(STANDING, 20, SECOND).is_empty());
        assert_eq!(bench.run(GOOD, 20, TICK), []);
        assert_eq!(bench.run(STANDING, 20, Span::from_millis(100)), []);
    }

    #[test]
    fn dropping_again_soon_resumes_the_previous_drop_rate() {
        // 27 drops, entered with 1: 26 were gained. The next dropping state starts at that rate.
        let mut bench = Bench::new(Codel::default());
        bench.run(STANDING, 20, SECOND);
        bench.run(GOOD, 20, SECOND);
        let again = bench.run(STANDING, 20, Span::from_millis(200));
        assert_eq!(bench.law.last_count, 26);
        assert!(again.len() > 4 && follows_the_law(&again, 2_100.1, 26.0), "{again:?}");
    }

    #[test]
    fn dropping_again_much_later_restarts_the_drop_rate() {
        let mut bench = Bench::new(Codel::default());
        bench.run(STANDING, 20, SECOND);
        bench.run(GOOD, 20, Span::from_millis(1_700));
        let again = bench.run(STANDING, 20, Span::from_millis(500));
        assert!(again.len() > 4 && follows_the_law(&again, 2_800.1, 1.0), "{again:?}");
    }

    #[test]
    fn ecn_capable_packets_are_marked_by_the_same_law_and_not_dropped() {
        let mut bench = Bench::new(Codel { is_marking: true, ..Codel::default() });
        bench.is_capable = true;
        assert_eq!(bench.run(STANDING, 20, SECOND), []);
        assert_eq!(bench.marks.len(), 27);
        assert!(follows_the_law(&bench.marks, 100.1, 1.0), "{:?}", bench.marks);

        let mut bench = Bench::new(Codel { is_marking: true, ..Codel::default() });
        assert_eq!(bench.run(STANDING, 20, SECOND).len(), 27);
        assert_eq!(bench.marks, []);
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        // Everything has waited for a minute; rare departures leave many drops overdue at once.
        let mut law = CodelLaw::new(Codel::default(), 0);
        let mut queue = Fifo::default();
        let (mut now, mut dropped) = (START, 0);
        for _ in 0..100 {
            for number in 0..50 {
                queue.push(packet(0, 100, Instant::ZERO, number));
            }
            while !queue.is_empty() {
                now = now + Span::from_millis(200);
                let departure = law.dequeue(now, &mut queue);
                assert!(departure.packet.is_some());
                dropped += departure.dropped;
            }
        }
        assert!(dropped > 100, "{dropped}");
    }
}
