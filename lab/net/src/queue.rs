//! Queue schedulers: disciplines that decide at departure.
//!
//! Drop-tail, RED and marking at a threshold decide when a packet arrives and are first in, first
//! out; the link serves them itself. CoDel and the round robins decide when a packet leaves. For
//! these the link passes packets to a [`QueueDiscipline`] and dequeues when the serialiser becomes
//! free. The link also dequeues once when the queue is empty, which ends a dropping state or a
//! turn.

pub(crate) mod codel;
pub(crate) mod drr;
pub(crate) mod fq_codel;
mod line;
pub(crate) mod red;

use sabul_units::{Instant, SeededRandom};

use crate::config::{LinkConfig, QueueLimit};
use crate::discipline::Discipline;
use crate::setting::FULL_FRAME;
use codel::CodelQueue;
use drr::DrrQueue;
use fq_codel::FqCodelQueue;
pub(crate) use line::{Admission, Departure, Judgement, QueueDiscipline, Queued};
pub(crate) use red::RedGate;

/// Scheduler of a link whose discipline decides at departure.
#[derive(Clone, Debug)]
pub(crate) enum Scheduler<T> {
    Codel(CodelQueue<T>),
    FqCodel(FqCodelQueue<T>),
    Drr(DrrQueue<T>),
}

impl<T> Scheduler<T> {
    /// Creates the scheduler of `config`; `None` for disciplines that the link serves itself.
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

/// Calls the same method of the present discipline.
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
