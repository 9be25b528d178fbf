//! Packet train: full packets faster than the path, for measuring rate and queue.
//!
//! Model: packets offered faster than the slowest link fill its queue and then arrive at that
//!     link's rate. Upstream, losses reduce the offered load, a rate caps the load, and duplication
//!     increases the load. Downstream the same applies to the bottleneck's output. Packets behind a
//!     full queue are delayed by that queue's length.
//! Rate: the median over spans of arrivals of bytes ÷ time. A few pauses of the host then spoil a
//!     few spans, not the result.
//! Queue: (delay of the packets that met the full queue − least delay) × rate ÷ size. Lone packets
//!     ahead of the train measure the least delay.

use sabul_net::{Discipline, LinkConfig, LinkStats, QueueLimit};
use sabul_units::{Bytes, Instant, Rate, Span};

use super::check::{Check, HOST_TIME, RELATIVE};
use super::path::{Direction, Odds, damage, queue_packets, time_for, wire_loss};
use super::traffic::Arrival;

/// Offered load relative to the bottleneck's rate, and the limit for a long queue.
const LOAD: f64 = 1.4;
const LOAD_MAX: f64 = 8.0;
/// Time in which the queue should fill, in seconds; a longer queue gets a higher load.
const FILL_TIME: f64 = 0.75;
/// Measuring time after the queue is full, in seconds and in packets.
const STEADY_TIME: f64 = 0.4;
const STEADY_PACKETS: f64 = 50.0;
/// Duration of the longest train, in seconds.
const TRAIN_TIME: f64 = 1.5;
/// Bytes and packets of the longest train; all its arrivals are recorded.
const TRAIN_BYTES: f64 = 512e6;
const TRAIN_PACKETS: f64 = 1e6;
/// Fewer arrivals are too few for measuring a rate.
const ARRIVALS_MIN: usize = 10;
/// Smallest packet size. Packets are smaller than the path allows if fewer than [`STEADY_PACKETS`]
/// full packets would pass in the time of a train.
const PACKET_BYTES_MIN: u32 = 100;
/// A queue that drains faster than this runs empty whenever a host's timer is late.
const QUEUE_TIME_MIN: Span = Span::from_micros(500);
/// A longer queueing delay takes too long to measure.
const QUEUE_TIME_MAX: Span = Span::from_secs(1);
/// Bounds of the train's step, which is a quarter of the time in which the queue drains.
const STEP_MIN: Span = Span::from_micros(50);
const STEP_MAX: Span = Span::from_millis(1);
/// Lone packets ahead of the train, and the least time between them.
pub(super) const LONE: u32 = 6;
const LONE_GAP_MIN: Span = Span::from_millis(2);
/// Least load, counted by the router, that counts as overload. Half of the planned overload applies
/// if that is less.
const LOAD_MIN: f64 = 1.05;
/// Relative tolerance above which a check is meaningless.
const TOLERANCE_MAX: f64 = 0.2;
/// Relative tolerance of a queue measured by delay: the last packets that meet the full queue
/// arrive in the steps of the train.
const QUEUE_RELATIVE: f64 = 0.05;
/// Absolute tolerance in packets: a full queue holds the limit or one packet less, because the
/// packet in the serialiser has already started.
const QUEUE_PACKETS_OFF: f64 = 1.0;
/// Absolute tolerance of a queue limited in bytes: small packets in between take the place of a
/// packet or two.
const BYTES_LIMIT_OFF: f64 = 2.0;
/// Spans of arrivals for the rate: short spans, of which a pause spoils few. On a lossy path long
/// spans, because the loss of a few packets varies too much.
const SPANS: usize = 32;
const SPANS_LOSSY: usize = 8;
/// The median over long spans varies this much more than the mean of all arrivals: 1.25 × √(8 ÷ 7),
/// rounded up.
const MEDIAN_SIGMAS: f64 = 1.4;
/// Least share of the delivered packets that must have reached the measuring thread.
const RECEIVED_MIN: f64 = 0.98;

/// A planned train with its expected effect on the path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Train {
    /// Size of each packet, IP header included.
    pub(super) packet_bytes: u32,
    /// Sending rate.
    pub(super) offered: Rate,
    /// Duration.
    pub(super) lasts: Span,
    /// Interval of the sender's wake-ups.
    pub(super) step: Span,
    /// Time between two of the lone packets.
    pub(super) lone_gap: Span,
    /// Position on the path of the link whose rate the arrivals show.
    pub(super) bottleneck: usize,
    /// Rate of that link.
    pub(super) rate: Rate,
    /// Load of that link: offer ÷ rate.
    load: f64,
    /// Expected rate behind the path, in bit/s: less than the link's rate after losses, more after
    /// duplication.
    arriving: f64,
    /// Time in which the full queue drains; `None` without a limit.
    queue_time: Option<Span>,
    /// Whether no other queue fills.
    is_alone: bool,
    /// Largest delay of a packet besides queueing.
    spread: Span,
    /// Loss probability of the path.
    odds: Odds,
    /// Share of packets that no link damages.
    intact: f64,
}

/// The router's counters at the bottleneck and at the end of the path during a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Packets that reached the bottleneck, lone packets excluded.
    pub(super) offered: u64,
    /// Duration of the count.
    pub(super) in_time: Span,
    /// Packets dropped by the full queue of the bottleneck.
    pub(super) refused: u64,
    /// Largest number of packets in that queue.
    pub(super) queue_max_packets: u64,
    /// Packets that left the last link, damaged packets included.
    pub(super) delivered: u64,
}

impl Counted {
    /// Difference of the counters of both links before and after a train that took `in_time`.
    pub(super) fn between(before: [LinkStats; 2], after: [LinkStats; 2], in_time: Span) -> Self {
        let [was, last_was] = before;
        let [is, last_is] = after;
        Self {
            offered: is.arrived.saturating_sub(was.arrived).saturating_sub(LONE.into()),
            in_time,
            refused: is.dropped_full.saturating_sub(was.dropped_full),
            queue_max_packets: is.queue_max_packets,
            delivered: last_is.delivered.saturating_sub(last_was.delivered),
        }
    }
}

impl Train {
    /// Plans the train for this path, of packets of at most `packet_max` bytes.
    ///
    /// # Errors
    /// The reason why no train can measure this path.
    pub(super) fn plan(way: &Direction, packet_max: u32) -> Result<Self, String> {
        let slowest = way.slowest_rate().ok_or("no link has a rate")?;
        let packet_bytes = packet_bytes(slowest, packet_max);
        let way = &way.without_framing(packet_bytes);
        let slowest = way.slowest_rate().unwrap_or(slowest);
        let slowest_at = way.links.iter().position(|link| link.rate() == Some(slowest));
        let upstream = &way.links[..slowest_at.unwrap_or(0)];

        // Share of sent packets that reach the slowest link, if only random loss reduces the
        // number.
        let unlimited = |link: &LinkConfig| 1.0 - wire_loss(link);
        let thinned: f64 = upstream.iter().map(unlimited).product();
        if thinned < 0.05 {
            return Err("too few packets get as far as its slowest link".to_owned());
        }
        let drains = |link: &LinkConfig, rate| {
            let packets = queue_packets(link.queue(), packet_bytes)?;
            Some(time_for(rate, packet_bytes) * packets)
        };
        let fullest = way.links.get(slowest_at.unwrap_or(0)).and_then(|link| drains(link, slowest));
        let longest = fullest.unwrap_or(Span::ZERO).as_secs_f64();
        let wanted_load = (1.0 + longest / FILL_TIME).clamp(LOAD, LOAD_MAX);
        let offered = slowest.0 as f64 * wanted_load / thinned;

        let (loads, arriving) = pass(&way.links, offered);
        let intact: f64 = way.links.iter().map(|link| 1.0 - damage(link)).product();
        let filling = || loads.iter().enumerate().filter(|&(_, &load)| load > 1.0 + 1e-6);
        let (bottleneck, &load) = filling().next_back().ok_or("no queue of it can be filled")?;
        let link = &way.links[bottleneck];
        let rate = link.rate().unwrap_or(slowest);
        let queue_time = drains(link, rate);

        let fill = queue_time.unwrap_or(Span::ZERO).as_secs_f64() / (load - 1.0);
        let steady = STEADY_TIME.max(STEADY_PACKETS * time_for(rate, packet_bytes).as_secs_f64());
        let packet_time = f64::from(packet_bytes) * 8.0 / offered;
        let lasts = (fill + steady)
            .min(TRAIN_TIME)
            .min(TRAIN_BYTES * 8.0 / offered)
            .min(TRAIN_PACKETS * packet_time);
        let passing = f64::min(arriving * intact, slowest.0 as f64);
        let expected = passing * lasts / (f64::from(packet_bytes) * 8.0);
        if expected < 2.0 * ARRIVALS_MIN as f64 {
            return Err(format!("only about {expected:.0} packets would arrive in {lasts:.1} s"));
        }
        Ok(Self {
            packet_bytes,
            offered: to_rate(offered),
            lasts: Span::from_secs_f64(lasts),
            step: queue_time.map_or(STEP_MAX, |time| (time / 4).clamp(STEP_MIN, STEP_MAX)),
            lone_gap: LONE_GAP_MIN.max(way.slowest(packet_bytes) * 2),
            bottleneck,
            rate,
            load,
            arriving,
            queue_time,
            is_alone: filling().count() == 1,
            spread: way.spread(),
            odds: way.odds(),
            intact,
        })
    }

    /// Time beyond a transit after which all packets have arrived. Longer queues are not waited
    /// for.
    pub(super) fn drains_for(&self) -> Span {
        let backlog = self.lasts.as_secs_f64() * (self.load - 1.0);
        let backlog = Span::from_secs_f64(backlog);
        self.queue_time.map_or(backlog, |time| time.min(backlog)).min(QUEUE_TIME_MAX)
    }

    /// Compares the rate of `arrivals` with the expected rate.
    ///
    /// # Errors
    /// The reason why the arrivals do not show the rate.
    pub(super) fn rate_check(
        &self,
        link: &LinkConfig,
        arrivals: &[Arrival],
        counted: Counted,
    ) -> Result<Check, String> {
        if let Discipline::Red(_) = link.discipline() {
            return Err("random early detection may drop so much that the link falls idle".into());
        }
        self.stays_full(counted)?;
        let mut times: Vec<Instant> = arrivals.iter().map(|arrival| arrival.at).collect();
        times.sort_unstable();
        let steady = &times[times.len() / 2..];
        let by_chance = MEDIAN_SIGMAS * self.odds.relative_tolerance(steady.len());
        let delivered = counted.delivered as f64 * self.intact;
        if (times.len() as f64) < (RECEIVED_MIN - by_chance) * delivered {
            return Err(format!(
                "the receiving host took in only {} of {delivered:.0} packets that came out",
                times.len()
            ));
        }
        let window = match steady {
            [first, .., last] => last.since(*first).as_secs_f64(),
            _ => 0.0,
        };
        let by_spread = self.spread.as_secs_f64() / window.max(1e-9);
        let share = RELATIVE + by_chance + by_spread;
        if !times.is_empty() && share > TOLERANCE_MAX {
            return Err(format!(
                "losses, jitter and reordering would hide differences below {:.0} %",
                share * 100.0
            ));
        }
        let wanted = self.rate.as_mbps_f64();
        let arrived = typical_rate(steady, self.bits(), self.spans()).unwrap_or(0.0);
        let measured = wanted * arrived / (self.arriving * self.intact);
        Ok(Check::new("rate_mbps", wanted, measured, wanted * share))
    }

    /// Compares the length of the full queue, measured by delay, with its limit.
    ///
    /// # Errors
    /// The reason why the delays do not show the length.
    pub(super) fn queue_check(
        &self,
        link: &LinkConfig,
        arrivals: &[Arrival],
        counted: Counted,
    ) -> Result<Check, String> {
        let limit = self.countable_queue(link, counted)?;
        self.stays_full(counted)?;
        if !self.is_alone {
            return Err("more than one queue of the path fills up".to_owned());
        }
        if self.queue_time.is_some_and(|time| time > QUEUE_TIME_MAX) {
            return Err("a full queue takes more than a second to drain".to_owned());
        }
        let wanted = limit as f64;
        let off = self.packets_in(HOST_TIME + self.spread) + QUEUE_PACKETS_OFF;
        if off > wanted {
            return Err("the queue is no longer than what jitter and hosts add".to_owned());
        }
        let waited = full_queue_wait(arrivals).unwrap_or(Span::ZERO);
        let tolerance = wanted * QUEUE_RELATIVE + off;
        Ok(Check::new("queue_packets", wanted, self.packets_in(waited), tolerance))
    }

    /// Compares the queue length counted by the router with the limit; exact for a limit in
    /// packets.
    ///
    /// # Errors
    /// The reason why the count does not show the length.
    pub(super) fn counted_check(
        &self,
        link: &LinkConfig,
        counted: Counted,
    ) -> Result<Check, String> {
        let limit = self.countable_queue(link, counted)?;
        let tolerance = match link.queue() {
            QueueLimit::Bytes(_) => (limit as f64 * RELATIVE).max(BYTES_LIMIT_OFF),
            _ => 0.0,
        };
        let measured = counted.queue_max_packets as f64;
        Ok(Check::new("queue_packets_counted", limit as f64, measured, tolerance))
    }

    /// Checks that the queue, once full, did not run empty again. The queue must be long enough for
    /// a host's timers, and the offered load must exceed the rate.
    fn stays_full(&self, counted: Counted) -> Result<(), String> {
        if let Some(time) = self.queue_time.filter(|&time| time < QUEUE_TIME_MIN) {
            let ms = time.as_millis_f64();
            return Err(format!("a full queue drains in {ms:.3} ms, which is too fast for a host"));
        }
        let time = counted.in_time.as_secs_f64().max(1e-9);
        let offered = counted.offered as f64 * self.bits() / time / 1e6;
        let rate = self.rate.as_mbps_f64();
        if offered < LOAD_MIN.min(f64::midpoint(1.0, self.load)) * rate {
            return Err(format!(
                "only {offered:.3} Mbit/s reached a link of {rate:.3} Mbit/s, too little to fill it"
            ));
        }
        Ok(())
    }

    /// Returns the queue's limit in packets of this train. An error if anything but the limit
    /// decides about drops, or if the queue did not fill.
    fn countable_queue(&self, link: &LinkConfig, counted: Counted) -> Result<u64, String> {
        match link.discipline() {
            // Probes are not ECN-capable, so an ECN threshold has no effect on probes.
            Discipline::DropTail | Discipline::EcnThreshold(_) => {}
            _ => return Err("not the length alone decides who waits in the bottleneck".to_owned()),
        }
        let limit = queue_packets(link.queue(), self.packet_bytes)
            .ok_or("the bottleneck's queue has no limit")?;
        if counted.refused == 0 {
            return Err(format!(
                "{:.1} s of packets did not fill the queue: {} at most waited in it",
                self.lasts.as_secs_f64(),
                counted.queue_max_packets
            ));
        }
        Ok(limit)
    }

    /// Number of spans for the median rate.
    fn spans(&self) -> usize {
        if self.odds.lost > 0.0 { SPANS_LOSSY } else { SPANS }
    }

    /// Bits of a packet.
    fn bits(&self) -> f64 {
        f64::from(self.packet_bytes) * 8.0
    }

    /// Packets that the bottleneck sends in `time`.
    fn packets_in(&self, time: Span) -> f64 {
        time.as_secs_f64() * self.rate.0 as f64 / self.bits()
    }
}

/// Returns the load of each link and the output of the last link, for an input of `offered` bit/s.
/// A load is offer ÷ rate, or 0 without a rate. The output is in bit/s, damaged packets included.
fn pass(links: &[LinkConfig], offered: f64) -> (Vec<f64>, f64) {
    let mut flow = offered;
    let through = |link: &LinkConfig| {
        let rate = link.rate().map_or(f64::INFINITY, |rate| rate.0 as f64);
        let load = flow / rate;
        flow = flow.min(rate) * (1.0 - wire_loss(link)) * (1.0 + link.duplicate().as_f64());
        load
    };
    let loads = links.iter().map(through).collect();
    (loads, flow)
}

/// Returns the largest packet size for which enough packets pass in the time of a train.
fn packet_bytes(slowest: Rate, packet_max: u32) -> u32 {
    let Bytes(passes) = slowest.bytes_in(Span::from_secs_f64(TRAIN_TIME / 2.0));
    let enough = u32::try_from(passes / 50).unwrap_or(u32::MAX);
    enough.max(PACKET_BYTES_MIN).min(packet_max)
}

/// Returns the median rate over `spans` parts of these arrivals, in bit/s.
fn typical_rate(times: &[Instant], bits: f64, spans: usize) -> Option<f64> {
    let span = (times.len() / spans).max(1);
    let rate =
        |(first, last): (&Instant, &Instant)| span as f64 * bits / last.since(*first).as_secs_f64();
    let mut rates: Vec<f64> = times.iter().zip(times.get(span..)?).map(rate).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().filter(|rate| rate.is_finite())
}

/// Returns the additional delay of the last fifth of the packets over the fastest packet: the 90th
/// percentile, which a single pause of a host does not change.
fn full_queue_wait(arrivals: &[Arrival]) -> Option<Span> {
    let delay = |arrival: &Arrival| arrival.at.since(arrival.sent);
    let least = arrivals.iter().map(delay).min()?;
    let mut in_order: Vec<(u32, Span)> = arrivals.iter().map(|a| (a.seq, delay(a))).collect();
    in_order.sort_unstable();
    let last_fifth = &in_order[in_order.len() - in_order.len().div_ceil(5)..];
    let mut delays: Vec<Span> = last_fifth.iter().map(|&(_, delay)| delay).collect();
    delays.sort_unstable();
    Some(*delays.get(delays.len() * 9 / 10)? - least)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn to_rate(bits_per_second: f64) -> Rate {
    Rate(bits_per_second as u64)
}

#[cfg(test)]
mod tests;
