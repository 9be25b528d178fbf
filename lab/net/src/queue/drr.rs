//! Weighted deficit round robin (DRR): each flow has its own queue and its share of the rate.
//!
//! Source: [DRR §3]; weights as in the generalised round robin of [OVV-T §III].
//! Model: flows with packets take turns. A turn adds quantum × weight to the flow's deficit and
//! sends packets as long as the deficit covers them. Then the next flow's turn begins, and the flow
//! keeps its remaining deficit. A flow without packets leaves the round and loses its deficit.
//! At the limit: with dedicated room, the limit holds for each flow and the arriving packet is
//! dropped. Otherwise the limit holds for all flows together, and the longest queue (in the limit's
//! unit; the lowest flow number among equals) loses its front packet, as in ns-2.
//! Invariants:  a flow is in the round exactly if it has packets.
//! Not here:    a cap on a flow's share while other flows are idle: the round is work-conserving.

use std::collections::{BTreeMap, VecDeque};

use sabul_units::Instant;
use sabul_units::key::{Key, Takes};

use super::line::{Admission, Departure, Fifo, QueueDiscipline, Queued};
use crate::setting::{
    FULL_FRAME, LinkError, QueueLimit, WEIGHT_MAX, check_quantum, ensure, quantum,
};

/// Settings of weighted deficit round robin. [DRR §3]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drr {
    /// Bytes that a flow of weight one may send in its turn.
    pub quantum_bytes: u32,
    /// Weight by flow number; other flows have weight one.
    pub weights: BTreeMap<u32, u32>,
    /// Whether the queue limit holds for each flow alone, as in the model of [OVV-T §III-A].
    /// Otherwise the limit is shared, and the longest queue loses a packet.
    pub is_dedicated: bool,
}

/// Keys of the settings, in the order in which they take effect.
pub(crate) const KEYS: &[Key<Drr>] = &[
    quantum(
        |drr, bytes| drr.quantum_bytes = bytes,
        "one full frame: [DRR §3] requires a packet in every turn",
    ),
    Key::<Drr>::new(
        "drr_weights",
        Takes::ByFlow(1, WEIGHT_MAX, |drr, flow, weight| {
            drr.weights.insert(flow, weight);
        }),
    )
    .doc("weights of the flows' shares while all flows have packets")
    .or_else("1 for each flow")
    .source("ours"),
    Key::<Drr>::new("drr_dedicated", Takes::Flag(|drr, is| drr.is_dedicated = is))
        .doc("`true` gives each flow the whole queue limit")
        .or_flag(false)
        .source("[OVV-T §III] for true"),
];

impl Drr {
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        check_quantum(self.quantum_bytes)?;
        for (flow, weight) in &self.weights {
            let value = || format!("{weight} for flow {flow}");
            let is_allowed = (1..=WEIGHT_MAX).contains(weight);
            ensure(is_allowed, "drr_weights", value, "1 to 65535 for each flow")?;
        }
        Ok(())
    }
}

impl Default for Drr {
    /// A quantum of a full frame (1514 bytes), so that every turn sends a packet, as [DRR §3]
    /// requires; equal weights; a shared limit.
    fn default() -> Self {
        Self { quantum_bytes: FULL_FRAME, weights: BTreeMap::new(), is_dedicated: false }
    }
}

impl Drr {
    /// Returns the weight of a flow; one by default.
    pub fn weight(&self, flow: u32) -> u32 {
        self.weights.get(&flow).copied().unwrap_or(1)
    }
}

#[derive(Clone, Debug)]
struct Flow<T> {
    packets: Fifo<T>,
    deficit: u64,
    /// Whether the flow's turn has begun, so that it has its quantum.
    is_served: bool,
}

/// The flows with packets, and their order.
#[derive(Clone, Debug)]
pub(crate) struct DrrQueue<T> {
    settings: Drr,
    flows: BTreeMap<u32, Flow<T>>,
    round: VecDeque<u32>,
    len: usize,
    bytes: u64,
}

impl<T> DrrQueue<T> {
    pub(crate) fn new(settings: Drr) -> Self {
        Self { settings, flows: BTreeMap::new(), round: VecDeque::new(), len: 0, bytes: 0 }
    }

    fn drop_from_longest(&mut self, limit: QueueLimit, newcomer: u64, admission: &mut Admission) {
        let length = |flow: &Flow<T>| match limit {
            QueueLimit::Bytes(_) => flow.packets.bytes(),
            QueueLimit::Packets(_) | QueueLimit::Unlimited => flow.packets.len() as u64,
        };
        let longest = self.flows.iter_mut().rev().max_by_key(|(_, flow)| length(flow));
        let Some((&id, flow)) = longest else { return };
        if let Some(packet) = flow.packets.pop() {
            self.len -= 1;
            self.bytes -= u64::from(packet.meta.size);
            admission.dropped += 1;
            admission.is_accepted &= packet.number != newcomer;
        }
        if flow.packets.is_empty() {
            self.flows.remove(&id);
            self.round.retain(|&other| other != id);
        }
    }
}

impl<T> QueueDiscipline<T> for DrrQueue<T> {
    fn enqueue(&mut self, packet: Queued<T>, limit: QueueLimit) -> Admission {
        let (id, size, number) = (packet.meta.flow, packet.meta.size, packet.number);
        let is_dedicated = self.settings.is_dedicated;
        let has_room = match self.flows.get(&id) {
            Some(flow) if is_dedicated => flow.packets.has_room(size, limit),
            _ => limit.allows(1, u64::from(size)),
        };
        if !has_room {
            return Admission { is_accepted: false, dropped: 1 };
        }
        let flow = self.flows.entry(id).or_insert_with(|| {
            self.round.push_back(id);
            Flow { packets: Fifo::default(), deficit: 0, is_served: false }
        });
        flow.packets.push(packet);
        self.len += 1;
        self.bytes += u64::from(size);
        let mut admission = Admission { is_accepted: true, dropped: 0 };
        while !is_dedicated && !limit.allows(self.len as u64, self.bytes) {
            self.drop_from_longest(limit, number, &mut admission);
        }
        admission
    }

    fn dequeue(&mut self, _now: Instant) -> Departure<T> {
        let packet = loop {
            let Some(&id) = self.round.front() else { break None };
            let weight = u64::from(self.settings.weight(id));
            let Some(flow) = self.flows.get_mut(&id) else { break None };
            if !flow.is_served {
                flow.is_served = true;
                flow.deficit += u64::from(self.settings.quantum_bytes) * weight;
            }
            let size = flow.packets.front().map_or(0, |packet| u64::from(packet.meta.size));
            if size > flow.deficit {
                flow.is_served = false;
                self.round.rotate_left(1);
                continue;
            }
            flow.deficit -= size;
            let packet = flow.packets.pop();
            if flow.packets.is_empty() {
                self.flows.remove(&id);
                self.round.pop_front();
            }
            self.len -= 1;
            self.bytes -= size;
            break packet;
        };
        Departure { packet, dropped: 0 }
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
    const NONE: QueueLimit = QueueLimit::Unlimited;

    fn queue(weights: &[(u32, u32)], is_dedicated: bool) -> DrrQueue<u64> {
        let weights = weights.iter().copied().collect();
        DrrQueue::new(Drr { weights, is_dedicated, ..Drr::default() })
    }

    #[test]
    fn shares_follow_the_weights_with_any_packet_sizes() {
        let mut queue = queue(&[(2, 2), (5, 5)], false);
        let sizes = BTreeMap::from([(1, 1_500), (2, 64), (5, 900)]);
        for number in 0..40_000 {
            for (&flow, &size) in &sizes {
                queue.enqueue(packet(flow, size, NOW, number), NONE);
            }
        }
        let mut sent = BTreeMap::from([(1, 0), (2, 0), (5, 0)]);
        while sent.values().sum::<u64>() < 8_000_000 {
            let (flow, _) = next(&mut queue, NOW).unwrap();
            *sent.get_mut(&flow).unwrap() += u64::from(sizes[&flow]);
        }
        // One, two and five eighths of 8 MB, to within a turn: 5 × 1514 bytes are 0.15 % of 5 MB.
        for (flow, bytes) in sent {
            let share = bytes as f64 / 1e6 / f64::from(flow);
            assert!((share - 1.0).abs() < 0.01, "flow {flow}: {bytes}");
        }
    }

    #[test]
    fn a_packet_larger_than_a_quantum_waits_for_enough_credit() {
        // 9000 bytes take six turns of 1514 (9084); the other flow sends one packet in each.
        let mut queue = queue(&[], false);
        queue.enqueue(packet(1, 9_000, NOW, 0), NONE);
        for number in 1..=10 {
            queue.enqueue(packet(2, 1_500, NOW, number), NONE);
        }
        let order: Vec<_> = std::iter::from_fn(|| next(&mut queue, NOW)).collect();
        assert_eq!(order.iter().position(|&(flow, _)| flow == 1), Some(5));
        assert_eq!(order.len(), 11);
    }

    #[test]
    fn an_idle_flow_accumulates_no_credit() {
        let mut queue = queue(&[], false);
        queue.enqueue(packet(1, 100, NOW, 0), NONE);
        assert_eq!(next(&mut queue, NOW), Some((1, 0)));
        for number in 1..=4 {
            queue.enqueue(packet(1, 1_000, NOW, number), NONE);
            queue.enqueue(packet(2, 1_000, NOW, number), NONE);
        }
        // 1514 each: one packet, then two when the rest of the deficit suffices, then one.
        let flows: Vec<_> =
            std::iter::from_fn(|| next(&mut queue, NOW)).map(|(flow, _)| flow).collect();
        assert_eq!(flows, [1, 2, 1, 1, 2, 2, 1, 2]);
    }

    #[test]
    fn dedicated_queue_space_isolates_flows() {
        let mut queue = queue(&[], true);
        let limit = QueueLimit::Packets(3);
        for number in 0..100 {
            let admission = queue.enqueue(packet(1, 1_500, NOW, number), limit);
            let is_accepted = number < 3;
            assert_eq!(admission, Admission { is_accepted, dropped: u64::from(!is_accepted) });
        }
        for number in 0..3 {
            assert!(queue.enqueue(packet(2, 1_500, NOW, number), limit).is_accepted);
        }
        assert_eq!(queue.len(), 6);
        assert_eq!(next(&mut queue, NOW), Some((1, 0)), "the newcomers were dropped");
    }

    #[test]
    fn a_full_shared_queue_drops_from_the_front_of_the_longest_queue() {
        let mut queue = queue(&[], false);
        let limit = QueueLimit::Packets(4);
        for number in 0..4 {
            queue.enqueue(packet(1, 100, NOW, number), limit);
        }
        let admission = queue.enqueue(packet(2, 1_500, NOW, 4), limit);
        assert_eq!(admission, Admission { is_accepted: true, dropped: 1 });
        assert_eq!((queue.len(), queue.bytes()), (4, 300 + 1_500));
        assert_eq!(next(&mut queue, NOW), Some((1, 1)));
    }

    #[test]
    fn a_limit_in_bytes_drops_from_the_queue_with_most_bytes() {
        let mut queue = queue(&[], false);
        let limit = QueueLimit::Bytes(2_000);
        queue.enqueue(packet(1, 1_500, NOW, 0), limit);
        for number in 1..=5 {
            queue.enqueue(packet(2, 100, NOW, number), limit);
        }
        assert_eq!(queue.len(), 6);
        queue.enqueue(packet(2, 100, NOW, 6), limit);
        assert_eq!((queue.len(), queue.bytes()), (6, 600));
        // Flow 1 has left the round.
        assert_eq!(next(&mut queue, NOW), Some((2, 1)));
    }
}
