//! The bottleneck: packets of two classes come, wait, and leave at the link's rate, some with a new word in them.
//!
//! Source:      ours (ADR 25); turns after [DRR].
//! Model:       a packet whose header has the router's form is of the explicit class, every other of the plain one.
//!     Each class has a queue of its own, and the two take turns by deficit round robin, so that none gets less
//!     than its share while it has packets, and what one leaves the other takes. The router half sees the explicit
//!     class only: its queue, and as capacity what the plain class does not ask for (`plain`).
//! Time:        inputs come in order of time; a packet leaves when its last bit does. The router half sees it then.
//! Invariants:  nothing of a packet changes but its congestion header; order within a class stays.
//! Not here:    devices, clocks and threads.

use std::collections::VecDeque;
use std::rc::Rc;

use sabul_cc::Router;
use sabul_path::{Link, PacketMeta, Verdict};
use sabul_tun::{Bundle, headers};
use sabul_units::{
    Bytes, CongestionFields, CongestionForm, CongestionHeader, Instant, JetMaxFields, Polled, Rate,
    SeededRandom, Span,
};
use sabul_wire::CongestionFound;

use crate::error::RouterError;
use crate::look::{ClassCounts, Look};
use crate::plain::{PlainDemand, left_of};
use crate::settings::Settings;

/// The classes, as the round robin numbers them.
pub(crate) const EXPLICIT: u32 = 0;
pub(crate) const PLAIN: u32 = 1;

/// What a bottleneck waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BottleneckWait {
    /// A packet; none waits.
    Arrival,
    /// That the link has sent the packet that it sends now.
    Link,
}

/// A packet that leaves.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// What it is a segment of.
    pub bundle: Rc<Bundle>,
    /// Which one.
    pub segment: u16,
    /// Its congestion header as it is to be written, where it has one that the router has seen.
    pub header: Option<Box<CongestionHeader>>,
    /// When its last bit left.
    pub at: Instant,
}

#[derive(Clone)]
struct Waiting {
    bundle: Rc<Bundle>,
    segment: u16,
    size: u32,
    header: Option<Box<CongestionHeader>>,
}

/// A bottleneck with its router half.
pub struct Bottleneck {
    link: Link<Waiting>,
    router: Router,
    form: CongestionForm,
    rate: Rate,
    share: Rate,
    framing: u32,
    demand: PlainDemand,
    out: VecDeque<Leaving>,
    classes: [ClassCounts; 2],
    /// Headers of later versions and of other algorithms, and what the first of each was.
    later: (u64, Option<(u8, u8)>),
    foreign: (u64, Option<&'static str>),
}

impl std::fmt::Debug for Bottleneck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bottleneck").field("classes", &self.classes).finish_non_exhaustive()
    }
}

impl Bottleneck {
    /// The bottleneck that these settings describe, empty, at the start of its clock.
    ///
    /// # Errors
    /// If a setting is outside its range; the error names it.
    pub fn new(settings: &Settings) -> Result<Self, RouterError> {
        let link = Link::new(settings.link()?, &SeededRandom::new(1));
        let router = settings.router()?;
        Ok(Self {
            link,
            form: router.form(),
            router,
            rate: settings.rate,
            share: settings.share(),
            framing: settings.framing_bytes,
            demand: PlainDemand::new(),
            out: VecDeque::new(),
            classes: [ClassCounts::default(); 2],
            later: (0, None),
            foreign: (0, None),
        })
    }

    /// A frame of the device has come: all its segments reach the queue now.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    pub fn push(&mut self, now: Instant, bundle: &Rc<Bundle>) {
        self.advance(now);
        for segment in 0..bundle.segments() {
            self.push_segment(now, bundle, segment);
        }
        self.advance(now);
    }

    /// The next packet that has left by `now`, or until when there is none.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    pub fn poll(&mut self, now: Instant) -> Polled<Leaving, BottleneckWait> {
        if self.out.is_empty() {
            self.advance(now);
        }
        match self.out.pop_front() {
            Some(leaving) => Polled::Ready(leaving),
            None => {
                let until = self.deadline();
                let because =
                    if until.is_some() { BottleneckWait::Link } else { BottleneckWait::Arrival };
                Polled::Wait { until, because }
            }
        }
    }

    /// When the next packet leaves, if one waits.
    pub fn deadline(&self) -> Option<Instant> {
        self.out.front().map(|leaving| leaving.at).or_else(|| self.link.deadline())
    }

    /// How it stands; what only its owner can count is zero.
    pub fn look(&self, now: Instant) -> Look {
        let [explicit, plain] = self.classes;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let plain_demand_bps = self.demand.bps() as u64;
        Look {
            at_s: Look::at(now),
            rate_bps: self.rate.0,
            explicit_capacity_bps: self.router.capacity().0,
            plain_demand_bps,
            told_bps: self.router.told().map(|rate| rate.0),
            explicit,
            plain,
            headers_written: self.router.stats().written,
            headers_later: self.later.0,
            headers_foreign: self.foreign.0,
            first_later: self.later.1,
            first_foreign: self.foreign.1,
            ..Look::default()
        }
    }

    fn push_segment(&mut self, now: Instant, bundle: &Rc<Bundle>, segment: u16) {
        let size = bundle.carried(segment).ip_bytes;
        let mut header = self.header_of(bundle, segment);
        let flow = if header.is_some() { EXPLICIT } else { PLAIN };
        if let Some(demand) = self.demand.turn(now) {
            self.router.set_capacity(left_of(self.rate, self.share, demand));
        }
        let taken = size + self.framing;
        let class = &mut self.classes[flow as usize];
        class.arrived_packets += 1;
        if let Some(header) = &mut header {
            let queue = Bytes(class.queue_bytes);
            self.router.arrived(now, Bytes(taken.into()), queue, Some(header));
        } else {
            self.demand.add(taken);
        }
        let meta = PacketMeta { size, flow, is_ecn_capable: false };
        let waiting = Waiting { bundle: Rc::clone(bundle), segment, size, header };
        match self.link.push_packet(now, meta, waiting) {
            Verdict::Queued => {
                class.queue_packets += 1;
                class.queue_bytes += u64::from(size);
                class.queue_max_bytes = class.queue_max_bytes.max(class.queue_bytes);
            }
            _ => class.dropped_packets += 1,
        }
    }

    /// The header of a segment, if the router has a say in it.
    fn header_of(&mut self, bundle: &Bundle, segment: u16) -> Option<Box<CongestionHeader>> {
        match headers::look(bundle, segment) {
            CongestionFound::Nothing => None,
            CongestionFound::Header(header) if header.fields.form() == self.form => {
                (!is_passive(&header.fields)).then(|| Box::new(header))
            }
            CongestionFound::Header(header) => {
                self.foreign.0 += 1;
                self.foreign.1.get_or_insert_with(|| name_of(header.fields.form()));
                None
            }
            CongestionFound::Later { version, form } => {
                self.later.0 += 1;
                self.later.1.get_or_insert((version, form));
                None
            }
        }
    }

    /// Lets everything leave that does by `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(delivery) = self.link.poll(now).ready() {
            let Waiting { bundle, segment, size, mut header } = delivery.payload;
            let at = delivery.at;
            let class = &mut self.classes[if header.is_some() { 0 } else { 1 }];
            class.queue_packets -= 1;
            class.queue_bytes -= u64::from(size);
            class.sent_packets += 1;
            class.sent_bytes += u64::from(size);
            if let Some(header) = &mut header {
                let (taken, queue) = (Bytes((size + self.framing).into()), class.queue_bytes);
                self.router.departs(at, taken, Bytes(queue), Some(header));
            }
            self.out.push_back(Leaving { bundle, segment, header, at });
        }
    }
}

/// Whether a flow says that it does not follow routers: it has given up on them, and is plain traffic since. Where
/// the algorithm's header says nothing of that, it stays with the others.
fn is_passive(fields: &CongestionFields) -> bool {
    match fields {
        CongestionFields::JetMax(JetMaxFields { interval, .. })
        | CongestionFields::Emkc { interval, .. } => *interval == Span::ZERO,
        _ => false,
    }
}

/// What users call the algorithm of a form.
fn name_of(form: CongestionForm) -> &'static str {
    let entry = sabul_cc::routers::ROUTERS.iter().find(|entry| entry.form == form);
    entry.map_or("an own algorithm", |entry| entry.name)
}

#[cfg(test)]
#[path = "bottleneck/frames.rs"]
pub(crate) mod frames;
#[cfg(test)]
#[path = "bottleneck/testing.rs"]
pub(crate) mod testing;
#[cfg(test)]
#[path = "bottleneck/tests.rs"]
mod tests;
