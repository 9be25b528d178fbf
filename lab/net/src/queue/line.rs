//! Parts shared by all queues: FIFO queue, queued packets and the results of disciplines.

use std::collections::VecDeque;

use sabul_units::Instant;

use crate::packet::PacketMeta;
use crate::setting::QueueLimit;

/// Decision about a packet that arrives at a first-in-first-out queue.
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
    /// Packet counter, which shows whether the queue dropped the packet that just arrived.
    pub(crate) number: u64,
    pub(crate) is_marked: bool,
    pub(crate) payload: T,
}

/// Result of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Whether the arriving packet is in the queue now.
    pub(crate) is_accepted: bool,
    /// Packets dropped for lack of room, the arriving packet included.
    pub(crate) dropped: u64,
}

/// Result of a departure.
#[derive(Debug)]
pub(crate) struct Departure<T> {
    /// Always present if the queue holds any packet.
    pub(crate) packet: Option<Queued<T>>,
    /// Packets dropped before the departing packet.
    pub(crate) dropped: u64,
}

/// A queue discipline: selects the next packet, and marks or drops packets.
pub(crate) trait QueueDiscipline<T> {
    /// Adds a packet; afterwards the queue is within `limit`.
    fn enqueue(&mut self, packet: Queued<T>, limit: QueueLimit) -> Admission;
    /// Removes the next packet at `now`, when the serialiser is free; calls must be in order of
    /// time.
    fn dequeue(&mut self, now: Instant) -> Departure<T>;
    /// Packets queued.
    fn len(&self) -> usize;
    /// Bytes queued.
    fn bytes(&self) -> u64;
}

/// First-in-first-out queue with a byte count.
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
    pub(super) fn push(&mut self, packet: Queued<T>) {
        self.bytes += u64::from(packet.meta.size);
        self.packets.push_back(packet);
    }

    pub(super) fn pop(&mut self) -> Option<Queued<T>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.meta.size);
        Some(packet)
    }

    pub(super) fn front(&self) -> Option<&Queued<T>> {
        self.packets.front()
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether one more packet of `size` bytes stays within `limit`.
    pub(super) fn has_room(&self, size: u32, limit: QueueLimit) -> bool {
        limit.allows(self.len() as u64 + 1, self.bytes + u64::from(size))
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Returns a packet that entered at `since`; its payload is its number.
    pub(in crate::queue) fn packet(
        flow: u32,
        size: u32,
        since: Instant,
        number: u64,
    ) -> Queued<u64> {
        let meta = PacketMeta { size, flow, is_ecn_capable: false };
        Queued { meta, since, number, is_marked: false, payload: number }
    }

    /// Returns (flow, number) of the next packet.
    pub(in crate::queue) fn next(
        queue: &mut impl QueueDiscipline<u64>,
        now: Instant,
    ) -> Option<(u32, u64)> {
        queue.dequeue(now).packet.map(|packet| (packet.meta.flow, packet.payload))
    }
}
