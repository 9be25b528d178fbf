//! Host machine model: late timers, batches and a busy processor at both ends of a flow.
//!
//! Source: ours, after the effects of offloading, wake-ups and a busy processor on real hosts.
//! Model:       a sending end sleeps until the last of `gso_packets` is due. A receiving end
//!              receives `gro_packets` at a time, and a sending end the reports of the last
//!              `ack_bunch`. The processor of each end is away for random times. Packets delivered
//!              together have one arrival time.
//! Invariants:  no packet is lost or reordered here.

use std::collections::VecDeque;

use sabul_net::Way;
use sabul_run::scenario::Machine;
use sabul_units::{Instant, Random, SeededRandom, Span};

use crate::net::Body;

/// A batch ends when the next packet is more than this time behind, as at the real receiving end.
/// (`PAUSE_MAX` there)
const GATHER: Span = Span::from_micros(300);
/// Intended lateness of the real sender's wake-ups, plus the lateness of a timer. (`BATCH_TIME` there)
const LATE_MAX: Span = Span::from_micros(500);

/// Random absences of a processor.
#[derive(Debug)]
struct Processor {
    longest: Span,
    random: SeededRandom,
    away: Instant,
    back: Instant,
}

impl Processor {
    fn new(now: Instant, longest: Span, random: SeededRandom) -> Self {
        Self { longest, random, away: now, back: now }
    }

    /// Returns the end of the present absence, if any.
    fn absence(&mut self, now: Instant) -> Option<Instant> {
        if self.longest == Span::ZERO {
            return None;
        }
        while self.back <= now {
            let mut draw = || Span(self.random.below(self.longest.0) + 1);
            self.away = self.back + draw();
            self.back = self.away + draw();
        }
        (self.away <= now).then_some(self.back)
    }
}

/// Packets that an end has not yet received.
#[derive(Debug)]
struct End {
    processor: Processor,
    waiting: VecDeque<(Body, bool)>,
    /// When the packets are delivered.
    due: Option<Instant>,
}

/// Machines of both ends; see the module.
#[derive(Debug)]
pub(crate) struct Machines {
    settings: Machine,
    sender: End,
    receiver: End,
}

impl Machines {
    /// Returns `None` where both machines are ideal.
    pub(crate) fn new(now: Instant, settings: Machine, random: &SeededRandom) -> Option<Box<Self>> {
        if settings == Machine::default() {
            return None;
        }
        let end = |name| End {
            processor: Processor::new(now, settings.busy, random.fork(name)),
            waiting: VecDeque::new(),
            due: None,
        };
        Some(Box::new(Self { settings, sender: end("sender"), receiver: end("receiver") }))
    }

    /// Queues a packet that has arrived at an end.
    pub(crate) fn arrived(&mut self, now: Instant, way: Way, body: &Body, is_marked: bool) {
        let Machine { gro_packets, ack_bunch, .. } = self.settings;
        let end = self.end(way);
        end.waiting.push_back((body.clone(), is_marked));
        let due = match way {
            Way::Forward if end.waiting.len() >= gro_packets as usize => now,
            Way::Forward => now + GATHER,
            Way::Back => end.due.unwrap_or_else(|| next_of(now, ack_bunch)),
        };
        end.due = Some(due);
    }

    /// Returns the next packet that is due for delivery to an end.
    pub(crate) fn hand_over(&mut self, now: Instant, way: Way) -> Option<(Body, bool)> {
        let end = self.end(way);
        if end.due.is_none_or(|due| due > now) {
            return None;
        }
        let packet = end.waiting.pop_front();
        if packet.is_none() {
            end.due = None;
        }
        packet
    }

    /// Returns the end of the processor's present absence at the end that `way` leads to, if any.
    pub(crate) fn absence(&mut self, now: Instant, way: Way) -> Option<Instant> {
        self.end(way).processor.absence(now)
    }

    /// When the packets waiting for an end are delivered.
    pub(crate) fn due(&mut self, way: Way) -> Option<Instant> {
        self.end(way).due
    }

    /// Lateness of a sending end that paces by this gap.
    pub(crate) fn lateness(&self, gap: Span) -> Span {
        (gap * u64::from(self.settings.gso_packets - 1)).min(LATE_MAX)
    }

    fn end(&mut self, way: Way) -> &mut End {
        match way {
            Way::Forward => &mut self.receiver,
            Way::Back => &mut self.sender,
        }
    }
}

/// Returns the end of the present interval of this length.
fn next_of(now: Instant, interval: Span) -> Instant {
    if interval == Span::ZERO {
        return now;
    }
    now + Span(interval.0 - now.elapsed().0 % interval.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_micros(us)
    }

    fn machines(settings: Machine) -> Machines {
        *Machines::new(at(0), settings, &SeededRandom::new(1)).unwrap()
    }

    fn handed(machines: &mut Machines, us: u64, way: Way) -> usize {
        std::iter::from_fn(|| machines.hand_over(at(us), way)).count()
    }

    #[test]
    fn a_batch_is_delivered_when_full_or_after_a_pause() {
        let mut machines = machines(Machine { gro_packets: 3, ..Machine::default() });
        for us in [10, 20] {
            machines.arrived(at(us), Way::Forward, &Body::Filler(1), false);
            assert_eq!(handed(&mut machines, us, Way::Forward), 0);
        }
        machines.arrived(at(30), Way::Forward, &Body::Filler(1), false);
        assert_eq!(handed(&mut machines, 30, Way::Forward), 3);
        assert_eq!(machines.due(Way::Forward), None);
        machines.arrived(at(40), Way::Forward, &Body::Filler(1), false);
        assert_eq!(machines.due(Way::Forward), Some(at(340)));
        assert_eq!(handed(&mut machines, 340, Way::Forward), 1);
    }

    #[test]
    fn reports_are_delivered_at_the_end_of_each_interval() {
        let bunch = Span::from_millis(2);
        let mut machines = machines(Machine { ack_bunch: bunch, ..Machine::default() });
        for us in [100, 1900] {
            machines.arrived(at(us), Way::Back, &Body::Filler(1), false);
            assert_eq!(machines.due(Way::Back), Some(at(2000)));
        }
        assert_eq!(handed(&mut machines, 2000, Way::Back), 2);
    }

    #[test]
    fn a_busy_processor_is_unavailable_half_of_the_time_in_bounded_periods() {
        let busy = Span::from_millis(4);
        let mut machines = machines(Machine { busy, ..Machine::default() });
        let mut away = 0;
        for us in 0..1_000_000 {
            if let Some(back) = machines.absence(at(us), Way::Back) {
                away += 1;
                assert!(back > at(us) && back.since(at(us)) <= busy);
            }
        }
        assert!((450_000..550_000).contains(&away), "{away}");
    }

    #[test]
    fn a_sending_end_wakes_late_by_a_batch_up_to_the_maximum_lateness() {
        let machines = machines(Machine { gso_packets: 5, ..Machine::default() });
        assert_eq!(machines.lateness(Span::from_micros(100)), Span::from_micros(400));
        assert_eq!(machines.lateness(Span::from_millis(1)), LATE_MAX);
    }
}
