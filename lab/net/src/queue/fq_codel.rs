//! FQ-CoDel: flows are hashed to queues that take turns, each under CoDel; new flows go first.
//!
//! Source: [RFC8290 §4].
//! Model: a queue that receives its first packet joins the end of the new list with credits of one
//! quantum. The first queue of the new list, or else of the old list, is served. A queue without
//! credits gets a quantum and goes to the end of the old list. An empty queue of the new list also
//! goes to the end of the old list (so that new queues cannot starve old ones). An empty queue of
//! the old list becomes inactive.
//! At the limit: the queue with most bytes loses packets from its front, half of them but at most
//! 64 at once.
//! Invariants:  a queue is in one list exactly if it is active; all queues with packets are active.
//! Not here:    a memory limit; the standing queue is measured by each queue's own bytes.

use std::collections::VecDeque;

use sabul_units::key::{Key, Takes};
use sabul_units::{Instant, Random, SeededRandom};

use super::codel::{self, Codel, CodelLaw};
use super::line::{Admission, Departure, Fifo, QueueDiscipline, Queued};
use crate::setting::{FULL_FRAME, LinkError, QueueLimit, check_quantum, ensure, quantum};

/// Most packets dropped at once at the limit. [RFC8290 §5.2]
const BATCH_MAX: usize = 64;

/// Settings of FQ-CoDel. [RFC8290 §3]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// CoDel settings of each queue.
    pub codel: Codel,
    /// Bytes a flow may send in its turn.
    pub quantum_bytes: u32,
    /// Number of hash buckets, one queue each.
    pub queues: u32,
}

/// Most queues, as in Linux.
pub(crate) const QUEUES_MAX: u32 = 65_536;

/// Keys of the settings, in the order in which they take effect.
pub(crate) const KEYS: &[Key<FqCodel>] = &[
    codel::interval(|fq, by| fq.codel.interval = by),
    codel::target(|fq, by| fq.codel.target = by),
    codel::ecn(|fq: &mut FqCodel, is| fq.codel.is_marking = is).or_flag(true),
    quantum(|fq, bytes| fq.quantum_bytes = bytes, "[RFC8290 §5.2]; bounds: Linux"),
    Key::<FqCodel>::new(
        "fq_queues",
        Takes::Whole32(1, QUEUES_MAX, |fq, queues| fq.queues = queues),
    )
    .doc("number of queues; a hash assigns flows to queues")
    .or(1_024.0)
    .source("[RFC8290 §5.2]; bounds: Linux"),
];

impl FqCodel {
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        check_quantum(self.quantum_bytes)?;
        let queues = || format!("{} queues", self.queues);
        let is_allowed = (1..=QUEUES_MAX).contains(&self.queues);
        ensure(is_allowed, "fq_queues", queues, "1 to 65536 queues")?;
        self.codel.check()
    }
}

impl Default for FqCodel {
    /// 1024 queues, a quantum of a full frame (1514 bytes), 5 ms and 100 ms [RFC8290 §5.2];
    /// marking, as Linux does.
    fn default() -> Self {
        Self {
            codel: Codel { is_marking: true, ..Codel::default() },
            quantum_bytes: FULL_FRAME,
            queues: 1_024,
        }
    }
}

#[derive(Clone, Debug)]
struct FlowQueue<T> {
    law: CodelLaw,
    packets: Fifo<T>,
    /// Bytes that the queue may still send in its turn.
    credits: i64,
    is_active: bool,
}

/// The queues and their service order.
#[derive(Clone, Debug)]
pub(crate) struct FqCodelQueue<T> {
    quantum: i64,
    /// Changes the hash in each run, so that the same two flows do not always collide.
    perturbation: u64,
    queues: Vec<FlowQueue<T>>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    len: usize,
    bytes: u64,
}

impl<T> FqCodelQueue<T> {
    pub(crate) fn new(settings: FqCodel, max_packet: u64, mut random: SeededRandom) -> Self {
        let queue = || FlowQueue {
            law: CodelLaw::new(settings.codel, max_packet),
            packets: Fifo::default(),
            credits: 0,
            is_active: false,
        };
        Self {
            quantum: i64::from(settings.quantum_bytes),
            perturbation: random.next_u64(),
            queues: (0..settings.queues).map(|_| queue()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            len: 0,
            bytes: 0,
        }
    }

    /// Returns the queue index of a flow.
    #[expect(clippy::cast_possible_truncation, reason = "below a usize")]
    fn slot(&self, flow: u32) -> usize {
        let mut hash = SeededRandom::new(self.perturbation ^ u64::from(flow));
        hash.below(self.queues.len() as u64) as usize
    }

    fn drop_from_fattest(&mut self, newcomer: u64, admission: &mut Admission) {
        let weight = |queue: &&mut FlowQueue<T>| (queue.packets.bytes(), queue.packets.len());
        let Some(fattest) = self.queues.iter_mut().max_by_key(weight) else { return };
        for _ in 0..fattest.packets.len().div_ceil(2).min(BATCH_MAX) {
            if let Some(packet) = fattest.packets.pop() {
                self.len -= 1;
                self.bytes -= u64::from(packet.meta.size);
                admission.dropped += 1;
                admission.is_accepted &= packet.number != newcomer;
            }
        }
    }
}

impl<T> QueueDiscipline<T> for FqCodelQueue<T> {
    fn enqueue(&mut self, packet: Queued<T>, limit: QueueLimit) -> Admission {
        let (size, number) = (u64::from(packet.meta.size), packet.number);
        if !limit.allows(1, size) {
            return Admission { is_accepted: false, dropped: 1 };
        }
        let slot = self.slot(packet.meta.flow);
        let queue = &mut self.queues[slot];
        if !queue.is_active {
            queue.is_active = true;
            queue.credits = self.quantum;
            self.new.push_back(slot);
        }
        queue.packets.push(packet);
        self.len += 1;
        self.bytes += size;
        let mut admission = Admission { is_accepted: true, dropped: 0 };
        while !limit.allows(self.len as u64, self.bytes) {
            self.drop_from_fattest(number, &mut admission);
        }
        admission
    }

    fn dequeue(&mut self, now: Instant) -> Departure<T> {
        let mut dropped = 0;
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let Some(&slot) = list.front() else { return Departure { packet: None, dropped } };
            let queue = &mut self.queues[slot];
            if queue.credits <= 0 {
                queue.credits += self.quantum;
                list.pop_front();
                self.old.push_back(slot);
                continue;
            }
            let (len, bytes) = (queue.packets.len(), queue.packets.bytes());
            let departure = queue.law.dequeue(now, &mut queue.packets);
            self.len -= len - queue.packets.len();
            self.bytes -= bytes - queue.packets.bytes();
            dropped += departure.dropped;
            if let Some(packet) = departure.packet {
                queue.credits -= i64::from(packet.meta.size);
                return Departure { packet: Some(packet), dropped };
            }
            list.pop_front();
            if is_new {
                self.old.push_back(slot);
            } else {
                queue.is_active = false;
            }
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::testing::{next, packet};
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn queue() -> FqCodelQueue<u64> {
        FqCodelQueue::new(FqCodel::default(), 1_514, SeededRandom::new(3))
    }

    fn put(queue: &mut FqCodelQueue<u64>, flow: u32, size: u32, number: u64) -> Admission {
        queue.enqueue(packet(flow, size, NOW, number), QueueLimit::Unlimited)
    }

    #[test]
    fn a_sparse_flow_goes_before_a_bulk_flow() {
        let mut queue = queue();
        for number in 0..100 {
            put(&mut queue, 1, 1_500, number);
        }
        // Two packets take more than the first quantum: from then on the bulk flow is an old one.
        assert_eq!([next(&mut queue, NOW), next(&mut queue, NOW)], [Some((1, 0)), Some((1, 1))]);
        // Every 20th packet belongs to flow 2, and waits at most for the packet before it.
        for turn in 0..4 {
            put(&mut queue, 2, 200, 1_000 + turn);
            assert_eq!(next(&mut queue, NOW), Some((2, 1_000 + turn)));
            for _ in 0..19 {
                assert_eq!(next(&mut queue, NOW).map(|(flow, _)| flow), Some(1));
            }
        }
    }

    #[test]
    fn flows_with_packets_of_any_size_get_equal_shares() {
        let mut queue = queue();
        let sizes = [1_500, 700, 64];
        for number in 0..20_000 {
            for (flow, size) in (0..).zip(sizes) {
                put(&mut queue, flow, size, number);
            }
        }
        let mut sent = [0_u64; 3];
        while sent.iter().sum::<u64>() < 3_000_000 {
            let (flow, _) = next(&mut queue, NOW).unwrap();
            sent[flow as usize] += u64::from(sizes[flow as usize]);
        }
        // A turn ends with at most one packet too many.
        let spread = sent.iter().max().unwrap() - sent.iter().min().unwrap();
        assert!(spread <= 2 * 1_514, "{sent:?}");
    }

    #[test]
    fn new_flows_cannot_starve_an_old_one() {
        let mut queue = queue();
        for number in 0..10 {
            put(&mut queue, 1, 1_500, number);
        }
        while queue.new.front().is_some() {
            next(&mut queue, NOW).unwrap();
        }
        // Flow 2 has a packet again after each service, but never two; each takes a quantum.
        let mut old = 0;
        for number in 0..10 {
            put(&mut queue, 2, 1_514, number);
            old += u32::from(next(&mut queue, NOW).unwrap().0 == 1);
        }
        assert!(old >= 4, "{old} of 10");
    }

    #[test]
    fn a_new_flow_that_became_empty_is_queued_as_an_old_flow() {
        let mut queue = queue();
        for number in 0..100 {
            put(&mut queue, 1, 100, number);
        }
        // After 16 packets of 100 bytes flow 1 is an old one, with credits for most of a quantum.
        for number in 0..17 {
            assert_eq!(next(&mut queue, NOW), Some((1, number)));
        }
        put(&mut queue, 2, 100, 200);
        assert_eq!(next(&mut queue, NOW), Some((2, 200)), "new ones go first");
        assert_eq!(next(&mut queue, NOW), Some((1, 17)), "flow 2 was found empty");
        put(&mut queue, 2, 100, 201);
        assert_eq!(next(&mut queue, NOW), Some((1, 18)), "flow 1 is still in its turn");
    }

    #[test]
    fn at_the_limit_the_fattest_queue_loses_half_from_its_front() {
        let mut queue = queue();
        let limit = QueueLimit::Packets(100);
        for number in 0..90 {
            assert!(queue.enqueue(packet(1, 1_500, NOW, number), limit).is_accepted);
        }
        for number in 90..100 {
            assert!(queue.enqueue(packet(2, 1_500, NOW, number), limit).is_accepted);
        }
        let admission = queue.enqueue(packet(2, 1_500, NOW, 100), limit);
        assert_eq!(admission, Admission { is_accepted: true, dropped: 45 });
        assert_eq!((queue.len(), queue.bytes()), (56, 56 * 1_500));
        assert_eq!(next(&mut queue, NOW), Some((1, 45)));
    }

    #[test]
    fn fq_codel_drops_at_most_64_packets_at_once() {
        let mut queue = queue();
        let limit = QueueLimit::Packets(500);
        for number in 0..500 {
            queue.enqueue(packet(1, 1_500, NOW, number), limit);
        }
        assert_eq!(queue.enqueue(packet(2, 1_500, NOW, 500), limit).dropped, 64);
    }

    #[test]
    fn a_packet_larger_than_the_limit_displaces_no_other_packet() {
        let mut queue = queue();
        let limit = QueueLimit::Bytes(1_000);
        assert!(queue.enqueue(packet(1, 1_000, NOW, 0), limit).is_accepted);
        let admission = queue.enqueue(packet(2, 1_001, NOW, 1), limit);
        assert_eq!(admission, Admission { is_accepted: false, dropped: 1 });
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn the_flow_hash_depends_on_the_seed() {
        let slots = |seed| {
            let settings = FqCodel::default();
            let queue = FqCodelQueue::<u64>::new(settings, 1_514, SeededRandom::new(seed));
            (0..100).map(|flow| queue.slot(flow)).collect::<Vec<_>>()
        };
        assert_eq!(slots(1), slots(1));
        let same = slots(1).iter().zip(slots(2)).filter(|&(&a, b)| a == b).count();
        assert!(same < 5, "{same} of 100 flows at the same place");
    }
}
