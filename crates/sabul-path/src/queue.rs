//! Queues that choose, when the serialiser is free, what leaves next.
//!
//! Drop-tail, RED and marking at a threshold decide when a packet arrives and are first in, first
//! out; the link serves those by itself. CoDel and the round robins decide when one leaves, so the
//! link hands packets to a [`QueueDiscipline`] and asks it for one at the instant the serialiser
//! becomes free, once more in vain when there is none: that ends a state of dropping, or a turn.

mod codel;
mod drr;
mod fq_codel;
mod red;

use std::collections::VecDeque;

use sabul_units::{Instant, SeededRandom};

use crate::discipline::FULL_FRAME;
use crate::{Discipline, LinkConfig, PacketMeta, QueueLimit};

use codel::CodelQueue;
use drr::DrrQueue;
use fq_codel::FqCodelQueue;
pub(crate) use red::RedGate;

/// What happens to a packet that arrives at a first-in-first-out queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Pass,
    Mark,
    Drop,
}

/// A packet in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Queued<T> {
    pub(crate) meta: PacketMeta,
    /// When it entered the queue.
    pub(crate) since: Instant,
    /// Counts packets, so that a queue can say whether it dropped the one that just came.
    pub(crate) number: u64,
    pub(crate) is_marked: bool,
    pub(crate) payload: T,
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Whether the packet itself is in the queue now.
    pub(crate) is_accepted: bool,
    /// Packets dropped for want of room, itself included.
    pub(crate) dropped: u64,
}

/// What leaves.
#[derive(Debug)]
pub(crate) struct Departure<T> {
    /// Never absent while the queue holds anything.
    pub(crate) packet: Option<Queued<T>>,
    /// Packets that were dropped before it.
    pub(crate) dropped: u64,
}

/// Decides what leaves a queue, and when what is in it is marked or dropped.
pub(crate) trait QueueDiscipline<T> {
    /// Takes a packet in; afterwards no more is queued than `limit` allows.
    fn enqueue(&mut self, packet: Queued<T>, limit: QueueLimit) -> Admission;
    /// The serialiser is free at `now`, not before any earlier call's.
    fn dequeue(&mut self, now: Instant) -> Departure<T>;
    /// Packets queued.
    fn len(&self) -> usize;
    /// Bytes queued.
    fn bytes(&self) -> u64;
}

/// The discipline of a link that has one.
#[derive(Clone, Debug)]
pub(crate) enum Scheduler<T> {
    Codel(CodelQueue<T>),
    FqCodel(FqCodelQueue<T>),
    Drr(DrrQueue<T>),
}

impl<T> Scheduler<T> {
    /// The queue that `config` asks for, unless the link serves it by itself.
    pub(crate) fn new(config: &LinkConfig, random: SeededRandom) -> Option<Self> {
        let max_packet = u64::from(config.mtu().unwrap_or(FULL_FRAME));
        Some(match config.discipline() {
            Discipline::DropTail | Discipline::Red(_) | Discipline::EcnThreshold(_) => return None,
            Discipline::Codel(codel) => Self::Codel(CodelQueue::new(*codel, max_packet)),
            Discipline::FqCodel(fq) => Self::FqCodel(FqCodelQueue::new(*fq, max_packet, random)),
            Discipline::Drr(drr) => Self::Drr(DrrQueue::new(drr.clone())),
        })
    }
}

/// Calls the same method of whichever discipline it is.
macro_rules! forward {
    ($scheduler:expr, $queue:ident => $call:expr) => {
        match $scheduler {
            Scheduler::Codel($queue) => $call,
            Scheduler::FqCodel($queue) => $call,
            Scheduler::Drr($queue) => $call,
        }
    };
}

impl<T> QueueDiscipline<T> for Scheduler<T> {
    fn enqueue(&mut self, packet: Queued<T>, limit: QueueLimit) -> Admission {
        forward!(self, queue => queue.enqueue(packet, limit))
    }
    fn dequeue(&mut self, now: Instant) -> Departure<T> {
        forward!(self, queue => queue.dequeue(now))
    }
    fn len(&self) -> usize {
        forward!(self, queue => queue.len())
    }
    fn bytes(&self) -> u64 {
        forward!(self, queue => queue.bytes())
    }
}

/// Packets in order of arrival, and their bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<T> {
    packets: VecDeque<Queued<T>>,
    bytes: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Fifo<T> {
    fn push(&mut self, packet: Queued<T>) {
        self.bytes += u64::from(packet.meta.size);
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<Queued<T>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.meta.size);
        Some(packet)
    }

    fn front(&self) -> Option<&Queued<T>> {
        self.packets.front()
    }

    fn len(&self) -> usize {
        self.packets.len()
    }

    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether one more packet of `size` bytes stays within `limit`.
    fn has_room(&self, size: u32, limit: QueueLimit) -> bool {
        limit.allows(self.len() as u64 + 1, self.bytes + u64::from(size))
    }
}

#[cfg(test)]
mod testing {
    use super::*;

    /// A packet that entered at `since`; its payload is its number.
    pub(super) fn packet(flow: u32, size: u32, since: Instant, number: u64) -> Queued<u64> {
        let meta = PacketMeta { size, flow, is_ecn_capable: false };
        Queued { meta, since, number, is_marked: false, payload: number }
    }

    /// (flow, number) of the next packet out.
    pub(super) fn next(queue: &mut impl QueueDiscipline<u64>, now: Instant) -> Option<(u32, u64)> {
        queue.dequeue(now).packet.map(|packet| (packet.meta.flow, packet.payload))
    }
}
