//! Bottleneck of the router: packets of two classes are queued and leave at the link's rate, some
//! with a rewritten congestion header.
//!
//! Source: ours (ADR 25); scheduling after [DRR].
//! Model: a packet with a congestion header of the router's form belongs to the explicit class,
//!     every other packet to the plain class. Each class has its own queue. Deficit round robin
//!     gives each backlogged class at least its share, and the other class the unused rest. The
//!     router half receives only the explicit class: its queue, and as capacity the rest after the
//!     plain class's demand (`plain`).
//! Time: inputs are in order of time; a packet leaves with its last bit. At that time the router
//!     half processes the packet.
//! Invariants: a packet changes only in its congestion header; the order within a class stays.
//! Not here: devices, clocks and threads.

use std::collections::VecDeque;
use std::rc::Rc;

use sabul_cc::router::Router;
use sabul_net::{Link, PacketMeta, Verdict};
use sabul_tun::{Bundle, headers};
use sabul_units::{
    Bytes, CongestionFields, CongestionForm, CongestionHeader, Instant, JetMaxFields, Polled, Rate,
    SeededRandom, Span,
};
use sabul_wire::CongestionFound;

use crate::error::RouterError;
use crate::plain::{PlainDemand, left_of};
use crate::settings::Settings;
use crate::snapshot::{ClassCounts, RouterSnapshot};

/// Class numbers for the round robin.
pub(crate) const EXPLICIT: u32 = 0;
pub(crate) const PLAIN: u32 = 1;

/// Reason why a bottleneck waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BottleneckWait {
    /// For a packet; the queues are empty.
    Arrival,
    /// For the end of the packet that the link is sending.
    Link,
}

/// A packet that leaves.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// The bundle of the packet.
    pub bundle: Rc<Bundle>,
    /// Number of the segment in the bundle.
    pub segment: u16,
    /// Congestion header to write, if the router half has processed that header.
    pub header: Option<Box<CongestionHeader>>,
    /// Time when the last bit left.
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
    /// Number of headers of later versions and of other algorithms, with the first of each.
    later: (u64, Option<(u8, u8)>),
    foreign: (u64, Option<&'static str>),
}

impl std::fmt::Debug for Bottleneck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bottleneck").field("classes", &self.classes).finish_non_exhaustive()
    }
}

impl Bottleneck {
    /// An empty bottleneck with these settings, at time zero.
    ///
    /// # Errors
    /// If a setting is outside its range; the error names that setting.
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

    /// Processes a frame of the device: all its segments reach the queue now.
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

    /// Returns the next packet that has left by `now`, or the time to wait until.
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

    /// Returns the departure time of the next packet; `None` if the queues are empty.
    pub fn deadline(&self) -> Option<Instant> {
        self.out.front().map(|leaving| leaving.at).or_else(|| self.link.deadline())
    }

    /// Returns a snapshot. Fields that only the owner can count are zero.
    pub fn snapshot(&self, now: Instant) -> RouterSnapshot {
        let [explicit, plain] = self.classes;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let plain_demand_bps = self.demand.bps() as u64;
        RouterSnapshot {
            at_s: RouterSnapshot::at(now),
            rate_bps: self.rate.0,
            explicit_capacity_bps: self.router.capacity().0,
            plain_demand_bps,
            signalled_bps: self.router.signalled_rate().map(|rate| rate.0),
            explicit,
            plain,
            headers_written: self.router.stats().written,
            headers_later: self.later.0,
            headers_foreign: self.foreign.0,
            first_later: self.later.1,
            first_foreign: self.foreign.1,
            ..RouterSnapshot::default()
        }
    }

    fn push_segment(&mut self, now: Instant, bundle: &Rc<Bundle>, segment: u16) {
        let size = bundle.carried(segment).ip_bytes;
        let mut header = self.header_of(bundle, segment);
        let flow = if header.is_some() { EXPLICIT } else { PLAIN };
        if let Some(demand) = self.demand.advance(now) {
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

    /// Returns the congestion header of a segment if the router half should process that header.
    fn header_of(&mut self, bundle: &Bundle, segment: u16) -> Option<Box<CongestionHeader>> {
        match headers::find(bundle, segment) {
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

    /// Sends all packets that leave by `now`.
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

/// Whether a flow declares that it ignores routers and is plain traffic from then on. Flows whose
/// header has no such field stay in the explicit class.
fn is_passive(fields: &CongestionFields) -> bool {
    match fields {
        CongestionFields::JetMax(JetMaxFields { interval, .. })
        | CongestionFields::Emkc { interval, .. } => *interval == Span::ZERO,
        _ => false,
    }
}

/// Returns the public name of the algorithm of a form.
fn name_of(form: CongestionForm) -> &'static str {
    let entry = sabul_lab_cc::routers::all().find(|entry| entry.form == form);
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
