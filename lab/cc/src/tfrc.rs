//! TFRC: the rate of a Reno flow with the same RTT and the same loss event rate.
//!
//! Source: [RFC5348]. Sender and receiver halves both run here, on ACKs and loss reports (DEV-090).
//! Model, once an RTT, R the average RTT, p the loss event rate, X the rate in packets a second:
//!     R          = 0.9 R + 0.1 sample                                    [RFC5348 §4.3]
//!     limit      = 2 × the largest rate of arrival of the last two RTTs
//!     slow start: X = min(2 X, limit), at least the initial rate
//!     after it:   X = min(rate(p, R), limit)
//!     sent:       X × mean of sqrt(sample) / sqrt(sample)                [RFC5348 §4.5]
//! The first loss sets p to the loss event rate at which the equation returns the arrival rate. [RFC5348 §6.3.1]
//! States:      slow-start --loss--> equation
//! Invariants:  1 packet in [`PAUSE_MAX`] <= X; a rate does not rise while the source or the receiver limits it.
//! Not here:    history discounting of [RFC5348 §5.5], which is optional.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tfrc::{LossIntervals, loss_event_rate, rate};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, PAUSE_MAX, ParamSpec, ParamValues, Phase,
    Reason, SendLimits, SentNumber,
};
use sabul_units::{Bytes, Gap, Instant, Span};

/// [RFC5348 §4.3] Weight of the old value in the average RTT, and in the average root of
/// [RFC5348 §4.5].
const RTT_KEEP: f64 = 0.9;
/// [RFC5348 §4.3] The rate is at most this multiple of the arrival rate.
const ARRIVED_TIMES_MAX: f64 = 2.0;
/// [RFC5348 §4.3] Arrival rates count for this many RTTs.
const ARRIVED_ROUNDS: u64 = 2;
/// [RFC5348 §4.3] Part of the arrival rate kept by a limited source after a loss; the limit is
/// half.
const LIMITED_KEEP: f64 = 0.85;
const LIMITED_LIMIT: f64 = 0.5;
/// [RFC5348 §4.2] Bytes of the first RTT: 4380, at least two packets and at most four.
const INITIAL_BYTES: f64 = 4380.0;
const INITIAL_PACKETS: (f64, f64) = (2.0, 4.0);
/// [RFC5348 §4.2] Packets a second until the RTT is known.
const RATE_START: f64 = 1.0;

pub(crate) const ENTRY: Entry = Entry::new("tfrc", Family::Rate, build)
    .summary("TFRC: computes the rate of a Reno flow from the RTT and the loss event rate")
    .source("[RFC5348] Floyd, Handley, Padhye, Widmer 2008")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[ParamSpec::word("damping", &["on", "off"], "on")
    .doc("Damping: 'on' lowers the rate at once while the RTT is above its average")
    .source("[RFC5348 §4.5], optional there")];

/// One RTT by packet numbers; its end replaces a feedback packet of the receiver.
#[derive(Clone, Copy, Debug)]
struct Round {
    end: SentNumber,
    arrived: u64,
    arrived_at: Span,
    /// True while the source or the receiver was the limit all the time.
    is_limited: bool,
    has_loss: bool,
}

/// The newest loss event.
#[derive(Clone, Copy, Debug)]
struct LossEvent {
    first_lost: SentNumber,
    /// Losses up to this number belong to the event: packets sent within an RTT of the first lost packet.
    end: SentNumber,
}

/// Newest sample and averages of the RTT, in seconds.
#[derive(Clone, Copy, Debug)]
struct Rtt {
    average: f64,
    root: f64,
    sample: f64,
}

impl Rtt {
    fn add(before: Option<Self>, sample: Span) -> Self {
        let sample = sample.as_secs_f64().max(1e-6);
        let Some(Self { average, root, .. }) = before else {
            return Self { average: sample, root: sample.sqrt(), sample };
        };
        let mean = |old: f64, new: f64| RTT_KEEP * old + (1.0 - RTT_KEEP) * new;
        Self { average: mean(average, sample), root: mean(root, sample.sqrt()), sample }
    }

    /// Returns the factor that lowers the rate at once while a queue grows. [RFC5348 §4.5]
    fn damping(&self) -> f64 {
        self.root / self.sample.sqrt()
    }
}

/// Arrival rates of the last RTTs, in packets a second. [RFC5348 §4.3]
#[derive(Debug, Default)]
struct Arrived(Vec<(Instant, f64)>);

impl Arrived {
    fn add(&mut self, now: Instant, rate: f64, rtt: f64) {
        let age = Span::from_secs_f64(rtt) * ARRIVED_ROUNDS;
        self.0.retain(|(at, _)| now.since(*at) <= age);
        self.0.push((now, rate));
    }

    /// Adds a rate and keeps only the largest.
    fn maximize(&mut self, now: Instant, rate: f64) {
        let most = self.largest().unwrap_or(0.0).max(rate);
        self.0 = vec![(now, most)];
    }

    fn scale(&mut self, factor: f64) {
        self.0.iter_mut().for_each(|(_, rate)| *rate *= factor);
    }

    fn largest(&self) -> Option<f64> {
        self.0.iter().map(|(_, rate)| *rate).max_by(f64::total_cmp)
    }
}

#[derive(Debug)]
struct Tfrc {
    /// Rate in packets a second.
    rate: f64,
    is_damped: bool,
    rtt: Option<Rtt>,
    /// Loss intervals; `None` before the first loss.
    intervals: Option<LossIntervals>,
    event: Option<LossEvent>,
    arrived: Arrived,
    /// Bound from the arrival rates, in packets a second; `None` in the first RTT.
    limit: Option<f64>,
    doubled_at: Instant,
    round: Option<Round>,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Tfrc::new(params.is_on("damping"))))
}

impl Tfrc {
    fn new(is_damped: bool) -> Self {
        Self {
            rate: RATE_START,
            is_damped,
            rtt: None,
            intervals: None,
            event: None,
            arrived: Arrived::default(),
            limit: None,
            doubled_at: Instant::ZERO,
            round: None,
        }
    }

    /// Returns the rate of the first RTT, in packets a second. [RFC5348 §4.2]
    fn initial(packet_bytes: Bytes, rtt: f64) -> f64 {
        let (least, most) = INITIAL_PACKETS;
        (INITIAL_BYTES / packet_bytes.0.max(1) as f64).clamp(least, most) / rtt
    }

    /// Returns the least rate, in packets a second. DEV-090: [RFC5348 §4.3] has one packet in 64 s;
    /// the guard allows no longer pause than `PAUSE_MAX`.
    fn least() -> f64 {
        1.0 / PAUSE_MAX.as_secs_f64()
    }

    /// Returns the rate of the equation; `None` before the first loss.
    fn equation(&self) -> Option<f64> {
        Some(rate(self.intervals?.loss_event_rate(), self.rtt?.average))
    }

    /// Sets the rate to the equation's, within the limit.
    fn obey_equation(&mut self) {
        let Some(equation) = self.equation() else { return };
        let rate = self.limit.map_or(equation, |limit| equation.min(limit));
        self.rate = rate.max(Self::least());
    }

    /// Processes the end of a round with this arrival rate. [RFC5348 §4.3]
    fn feed_back(&mut self, arrived: f64, round: Round, rtt: Rtt, cx: &mut Context<'_>) {
        let before = self.rate;
        let mut times = ARRIVED_TIMES_MAX;
        if !round.is_limited {
            self.arrived.add(cx.now, arrived, rtt.average);
        } else if round.has_loss {
            self.arrived.scale(LIMITED_LIMIT);
            self.arrived.maximize(cx.now, LIMITED_KEEP * arrived);
            times = 1.0;
        } else {
            self.arrived.maximize(cx.now, arrived);
        }
        self.limit = self.arrived.largest().map(|largest| times * largest);
        if self.intervals.is_some() {
            self.obey_equation();
        } else if cx.now.since(self.doubled_at).as_secs_f64() >= rtt.average {
            self.doubled_at = cx.now;
            let doubled = 2.0 * self.rate;
            let rate = self.limit.map_or(doubled, |limit| doubled.min(limit));
            self.rate = rate.max(Self::initial(cx.packet_bytes, rtt.average));
        }
        if round.is_limited {
            // DEV-090: no increase while limited, as in all controllers here.
            self.rate = self.rate.min(before);
        }
        if self.rate > before {
            cx.log_reason(Reason::Rise);
        }
    }

    /// Processes a loss or a mark; `first_lost` is its first number.
    fn lose(&mut self, first_lost: SentNumber, largest_sent: SentNumber, cx: &mut Context<'_>) {
        if self.event.is_some_and(|event| first_lost <= event.end) {
            return;
        }
        if self.rtt.is_none() {
            let Some(rtt) = cx.rtt else { return };
            self.rtt = Some(Rtt::add(None, rtt.latest));
        }
        let Some(rtt) = self.rtt else { return };
        cx.log_reason(Reason::LossEpoch);
        match (&mut self.intervals, self.event) {
            (Some(intervals), Some(event)) => {
                intervals.close(first_lost.0.saturating_sub(event.first_lost.0) as f64);
            }
            _ => {
                // Slow start sends at about twice the arrival rate, so half the rate is used if it
                // is unknown.
                let target = self.arrived.largest().unwrap_or(self.rate / ARRIVED_TIMES_MAX);
                let p = loss_event_rate(target, rtt.average);
                self.intervals = Some(LossIntervals::first(p));
            }
        }
        self.event = Some(LossEvent { first_lost, end: largest_sent });
        if let Some(round) = &mut self.round {
            round.has_loss = true;
        }
        self.obey_equation();
    }

    /// Updates the open interval.
    fn count_open(&mut self, largest: SentNumber) {
        if let (Some(intervals), Some(event)) = (&mut self.intervals, self.event) {
            intervals.open = largest.0.saturating_sub(event.first_lost.0) as f64 + 1.0;
        }
    }
}

impl Controller for Tfrc {
    fn limits(&self) -> SendLimits {
        let damping = self.rtt.filter(|_| self.is_damped).map_or(1.0, |rtt| rtt.damping());
        let rate = (self.rate * damping).max(Self::least());
        SendLimits { gap: Gap(Span::from_secs_f64(1.0 / rate)), window: None, hold_until: None }
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let Some(sample) = cx.rtt.map(|rtt| rtt.latest) else { return };
        if acked.marked.0 > 0 {
            self.lose(acked.largest, acked.next.before(), cx);
        }
        self.count_open(acked.largest);
        let is_limited = acked.is_app_limited || acked.is_room_limited;
        let next = Round {
            end: acked.next,
            arrived: acked.total.0,
            arrived_at: acked.arrived_at,
            is_limited: true,
            has_loss: false,
        };
        let Some(round) = &mut self.round else {
            let rtt = Rtt::add(self.rtt, sample);
            if self.intervals.is_none() {
                self.rate = Self::initial(cx.packet_bytes, rtt.average);
                self.doubled_at = cx.now;
                cx.log_reason(Reason::Rise);
            }
            (self.rtt, self.round) = (Some(rtt), Some(next));
            return;
        };
        round.is_limited &= is_limited;
        let elapsed = acked.arrived_at.saturating_sub(round.arrived_at);
        if acked.largest < round.end || elapsed == Span::ZERO {
            return;
        }
        let (round, rtt) = (*round, Rtt::add(self.rtt, sample));
        (self.rtt, self.round) = (Some(rtt), Some(next));
        let arrived = acked.total.0.saturating_sub(round.arrived) as f64 / elapsed.as_secs_f64();
        self.feed_back(arrived, round, rtt, cx);
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        if loss.first_time.0 > 0 {
            self.lose(loss.first_lost, loss.largest_sent, cx);
        }
    }

    /// Nofeedback timer. [RFC5348 §4.4]
    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        let Some(equation) = self.equation() else {
            self.rate = (self.rate / 2.0).max(Self::least());
            return;
        };
        let half = equation / 2.0;
        let limit = self.arrived.largest().map_or(half, |largest| largest.min(half));
        self.arrived.0 = vec![(cx.now, limit / ARRIVED_TIMES_MAX)];
        self.limit = Some(limit);
        self.obey_equation();
    }

    fn phase(&self) -> Phase {
        if self.intervals.is_some() { Phase::Named("equation") } else { Phase::Named("slow-start") }
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::{Moment, RttEstimate};
    use sabul_units::Packets;

    use super::*;

    const PACKET: Bytes = Bytes(1500);

    /// Path of 100 ms whose packets are acknowledged once an RTT.
    struct Path {
        tfrc: Tfrc,
        now: Instant,
        rtt: Span,
        sent: u64,
        lost: u64,
        is_limited: bool,
    }

    impl Path {
        fn new() -> Self {
            let rtt = Span::from_millis(100);
            let now = Instant::ZERO + rtt;
            let mut path =
                Self { tfrc: Tfrc::new(true), now, rtt, sent: 1, lost: 0, is_limited: false };
            path.ack();
            path
        }

        fn cx(&self) -> Context<'static> {
            let Self { now, rtt, .. } = *self;
            let estimate =
                RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
            Context::without_chance(&Moment::new(now, Some(estimate), PACKET))
        }

        /// Acknowledges all packets that are not lost.
        fn ack(&mut self) {
            let mut cx = self.cx();
            let acked = Acked {
                total: Packets(self.sent - self.lost),
                largest: SentNumber(self.sent),
                next: SentNumber(self.sent + 1),
                arrived_at: self.now.elapsed(),
                is_app_limited: self.is_limited,
                ..Acked::default()
            };
            self.tfrc.on_ack(&acked, &mut cx);
        }

        /// Advances by one RTT in which `packets` were sent.
        fn round(&mut self, packets: u64) {
            self.now = self.now + self.rtt;
            self.sent += packets;
            self.ack();
        }

        /// Reports the loss of the packet `back` before the newest.
        fn lose(&mut self, back: u64) {
            self.lost += 1;
            let (first, sent) = (SentNumber(self.sent - back), SentNumber(self.sent));
            let report = LossReport::new(Packets(1), Packets(0), first, sent);
            let mut cx = self.cx();
            self.tfrc.on_loss(&report, &mut cx);
        }
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 1e-6
    }

    #[test]
    fn slow_start_doubles_each_rtt_up_to_twice_the_arrival_rate() {
        let mut path = Path::new();
        // 4380 bytes are 2.92 packets of 1500 in 0.1 s.
        assert!(near(path.tfrc.rate, 29.2), "{}", path.tfrc.rate);
        path.round(3);
        // 3 in 0.1 s: at most 60.
        assert!(near(path.tfrc.rate, 58.4), "{}", path.tfrc.rate);
        path.round(5);
        assert!(near(path.tfrc.rate, 100.0), "{}", path.tfrc.rate);
        path.round(5);
        assert!(near(path.tfrc.rate, 100.0), "{}", path.tfrc.rate);
        path.round(5);
        path.round(4);
        assert_eq!(path.tfrc.limits().gap, Gap(Span::from_millis(10)), "two RTTs are remembered");
    }

    #[test]
    fn the_first_loss_sets_the_arrival_rate_and_one_loss_interval() {
        let mut path = Path::new();
        [3, 6, 12].into_iter().for_each(|packets| path.round(packets));
        path.lose(4);
        assert!(near(path.tfrc.rate, 120.0), "{}", path.tfrc.rate);
        // Losses up to the newest packet sent then are one event; the next interval has 20 - 4 + 4
        // packets.
        path.lose(0);
        assert!(near(path.tfrc.rate, 120.0));
        path.round(20);
        path.lose(4);
        let first = 1.0 / loss_event_rate(120.0, 0.1);
        let mean = (20.0 + first) / 2.0;
        assert!(near(path.tfrc.equation().unwrap(), rate(1.0 / mean, 0.1)), "{:?}", path.tfrc);
    }

    #[test]
    fn one_percent_loss_leads_to_the_rate_of_the_equation() {
        let mut path = Path::new();
        for _ in 0..400 {
            path.round(10);
            if path.sent % 100 < 10 {
                path.lose(0);
            }
        }
        // 112.33 packets/s, [RFC5348 §3.1]; 10 in 0.1 s arrive, so the limit does not bind.
        assert!((path.tfrc.rate / 112.33 - 1.0).abs() < 0.01, "{}", path.tfrc.rate);
    }

    #[test]
    fn a_loss_event_each_round_trip_halves_the_rate_within_eight() {
        let mut path = Path::new();
        [3, 6, 12].into_iter().for_each(|packets| path.round(packets));
        // One in a hundred for eight intervals and more.
        for _ in 0..20 {
            path.lose(0);
            (0..10).for_each(|_| path.round(10));
        }
        let before = path.tfrc.rate;
        let rates: Vec<_> = (0..8)
            .map(|_| {
                path.lose(0);
                path.round(10);
                path.tfrc.rate
            })
            .collect();
        assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
        let halved = rates.iter().position(|rate| *rate < before / 2.0).unwrap();
        // Four intervals of 10 and four of 100 in place of eight of 100: a mean of 40 after four.
        assert!((3..8).contains(&halved), "{halved}: {before}, {rates:?}");
    }

    #[test]
    fn a_growing_queue_lowers_the_rate_at_once() {
        let mut path = Path::new();
        path.round(3);
        let before = path.tfrc.limits().gap.0.as_secs_f64();
        path.tfrc.rtt = Some(Rtt::add(path.tfrc.rtt, path.rtt * 4));
        // sqrt is twice as large; the mean of the roots 0.9 + 0.1 × 2 = 1.1 of the old: 2 / 1.1.
        let after = path.tfrc.limits().gap.0.as_secs_f64();
        assert!((after / before - 2.0 / 1.1).abs() < 1e-6, "{before} {after}");
        let average = path.tfrc.rtt.unwrap().average;
        assert!(near(average, 0.13), "0.9 × 0.1 + 0.1 × 0.4 = {average}");
    }

    #[test]
    fn an_app_limited_sender_does_not_raise_its_rate() {
        let mut path = Path::new();
        [3, 6, 12].into_iter().for_each(|packets| path.round(packets));
        let before = path.tfrc.rate;
        path.is_limited = true;
        [12, 12, 12].into_iter().for_each(|packets| path.round(packets));
        assert!(path.tfrc.rate <= before, "{before} {}", path.tfrc.rate);
        // [RFC5348 §4.3] With a loss: 11 of 12 packets arrive in 0.1 s, and 0.85 of that rate is
        // the limit.
        path.now = path.now + path.rtt;
        path.sent += 12;
        path.lose(0);
        path.ack();
        assert!(near(path.tfrc.rate, 93.5), "{}", path.tfrc.rate);
    }

    #[test]
    fn each_timeout_halves_the_rate_down_to_one_packet_in_a_minute() {
        let mut path = Path::new();
        [3, 6, 12].into_iter().for_each(|packets| path.round(packets));
        let mut rates = Vec::new();
        path.lose(0);
        for _ in 0..40 {
            rates.push(path.tfrc.rate);
            let mut cx = path.cx();
            path.tfrc.on_timeout(&mut cx);
        }
        assert!(near(rates[1], rates[0] / 2.0) && near(rates[2], rates[0] / 4.0), "{rates:?}");
        assert!(near(path.tfrc.rate, 1.0 / 60.0), "{}", path.tfrc.rate);
    }
}
