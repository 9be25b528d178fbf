//! Event loop of the router: read, carry, write, wait.

use std::io::{self, IoSlice, Read as _};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, TryRecvError};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use sabul_net::{
    Arrival, Both, Damage, Entry, Headed, LinkPlan, Output, PacketMeta, RouteId, Topology, Verdict,
    Way,
};
use sabul_units::{CongestionHeader, Instant, SeededRandom, Span};

use super::accounts::{AccountId, Accounts};
use super::{PairPlan, Question, RouterPlan, RouterSnapshot, TICK};
use crate::capture::{Capture, Fate};
use crate::clock::{Clock, thread_cpu_seconds, timespec};
use crate::error::LabError;
use crate::events::EventSender;
use crate::lateness::LatenessMeter;
use sabul_tun::{Bundle, FRAME_MAX, headers};

/// Most frames read from each host before due packets are written.
const FRAMES_PER_TURN: usize = 64;
/// Time without packets after which the router is idle; an idle router wakes early for each packet.
const BUSY: Span = Span::from_millis(1);
/// Wake-up lateness of a processor after a long sleep: 0.1 ms on a virtual processor.
const NAP: Span = Span::from_micros(150);
/// Wake-up lateness of a busy processor.
const WAKE: Span = Span::from_micros(20);
/// Wake-up lateness after a short sleep; the router polls the clock for that time instead.
const SPIN: Span = Span::from_micros(60);
/// Longest wait for requests with no packet in flight and nothing to read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A segment in flight.
#[derive(Clone, Debug)]
struct Item {
    bundle: Rc<Bundle>,
    segment: u16,
    account: AccountId,
    /// Congestion header, if a router on the path may rewrite that header.
    header: Option<Box<CongestionHeader>>,
}

impl Headed for Item {
    fn congestion(&mut self) -> Option<&mut CongestionHeader> {
        self.header.as_deref_mut()
    }
}

type Network = Topology<Item>;

pub(super) struct Engine {
    pairs: Vec<PairPlan>,
    network: Network,
    /// Whether any link has a router.
    has_routers: bool,
    /// By pair.
    routes: Vec<RouteId>,
    /// Packets at the end of each pair's route, to be written now.
    out: Vec<Both<Vec<Arrival<Item>>>>,
    accounts: Accounts,
    clock: Clock,
    lateness: LatenessMeter,
    malformed: u64,
    refused: u64,
    /// Start of the last round; `None` after a sleep while idle.
    last_round: Option<Instant>,
    last_moved: Instant,
    longest_pause: Span,
    cpu_at_start: f64,
    capture: Option<Capture>,
    unrecorded: u64,
    /// Receiver of drop events.
    event_sender: Option<EventSender>,
    /// Readable devices, by position (near and far of each pair in turn), and the waker.
    epoll: OwnedFd,
    /// Devices that may have more to read in this round, and the first device of the round.
    ports: Vec<usize>,
    first_port: usize,
    wakened: UnixStream,
    frame: Box<[u8]>,
    head: Vec<u8>,
    /// Payload with headers that routers have rewritten.
    body: Vec<u8>,
}

impl Engine {
    pub(super) fn new(plan: &RouterPlan, wakened: UnixStream) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let devices = plan.pairs.iter().flat_map(|pair| [&pair.near, &pair.far]);
        for (index, device) in (0..).zip(devices) {
            epoll::add(&epoll, device, epoll::EventData::new_u64(index), epoll::EventFlags::IN)?;
        }
        let waker = epoll::EventData::new_u64(u64::MAX);
        epoll::add(&epoll, &wakened, waker, epoll::EventFlags::IN)?;
        let (network, routes) = network(&plan.links, &plan.pairs, plan.seed);
        Ok(Self {
            network,
            has_routers: has_routers(&plan.links),
            routes,
            out: plan.pairs.iter().map(|_| Both::default()).collect(),
            accounts: Accounts::new(plan.pairs.len()),
            pairs: plan.pairs.clone(),
            clock: Clock::start(),
            lateness: LatenessMeter::new(),
            malformed: 0,
            refused: 0,
            last_round: None,
            last_moved: Instant::ZERO,
            longest_pause: Span::ZERO,
            cpu_at_start: thread_cpu_seconds(),
            capture: None,
            unrecorded: 0,
            event_sender: None,
            epoll,
            ports: Vec::new(),
            first_port: 0,
            wakened,
            frame: vec![0; FRAME_MAX].into_boxed_slice(),
            head: Vec::with_capacity(256),
            body: Vec::new(),
        })
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// Routes until stopped, or until the requesting side is gone.
    pub(super) fn run(&mut self, incoming: &Receiver<Question>) {
        loop {
            let has_moved = self.round();
            loop {
                match incoming.try_recv() {
                    Ok(question) => {
                        if self.answer(question).is_break() {
                            return;
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.wait(has_moved);
        }
    }

    // ---- one round ------------------------------------------------------------------------------

    /// Writes due packets and reads arrived packets; returns false if there were none.
    fn round(&mut self) -> bool {
        let now = self.clock.now();
        if let Some(last) = self.last_round.replace(now) {
            self.longest_pause = self.longest_pause.max(now.since(last));
        }
        self.carry(now);
        let has_written = self.write_all();
        let has_read = self.read_all();
        if has_read {
            // Packets that pass an idle link without delay are due already.
            let now = self.clock.now();
            self.carry(now);
            self.write_all();
        }
        has_written || has_read
    }

    /// Advances everything that is due by `now`, in order of time.
    fn carry(&mut self, now: Instant) {
        while let Some(output) = self.network.poll(now).ready() {
            match output {
                Output::Arrived(packet) => {
                    self.out[packet.route.slot()][packet.way].push(packet);
                }
                Output::Due(()) => {}
            }
        }
        self.record_entries();
        if let Some(event_sender) = &self.event_sender {
            self.network.take_drops().into_iter().for_each(|drop| event_sender.dropped(drop));
        }
    }

    /// Passes the packets that entered links to the capture, if enabled.
    fn record_entries(&mut self) {
        let Some(capture) = &mut self.capture else { return };
        for Entry { link, way, at, verdict, payload } in self.network.take_entries() {
            let (at, fate) = (Duration::from(at.elapsed()), fate(verdict));
            capture.record(link, way, at, &payload.bundle, payload.segment, fate);
        }
    }

    /// Reads the hosts' packets, one frame from each in turn; returns false if there were none.
    ///
    /// The first host changes from round to round. Otherwise a queue with too little room would
    /// always take the same host's packets.
    fn read_all(&mut self) -> bool {
        let ports = self.pairs.len() * 2;
        self.first_port = (self.first_port + 1) % ports.max(1);
        self.ports.clear();
        self.ports.extend((0..ports).map(|port| (self.first_port + port) % ports));
        let mut has_read = false;
        for _ in 0..FRAMES_PER_TURN {
            let mut open = std::mem::take(&mut self.ports);
            open.retain(|port| {
                let way = if port.is_multiple_of(2) { Way::Forward } else { Way::Back };
                self.read(port / 2, way)
            });
            self.ports = open;
            if self.ports.is_empty() {
                break;
            }
            has_read = true;
        }
        has_read
    }

    /// Reads one frame of a host; returns false if there is none.
    fn read(&mut self, pair: usize, way: Way) -> bool {
        let plan = &self.pairs[pair];
        let device = if way == Way::Forward { &plan.near } else { &plan.far };
        let Ok(bytes) = device.read(&mut self.frame) else {
            // No more frames, or a device that is removed with its host.
            return false;
        };
        let Ok(bundle) = Bundle::parse(&self.frame[..bytes]) else {
            self.malformed += 1;
            return true;
        };
        let bundle = Rc::new(bundle);
        let now = self.clock.now();
        let account = self.accounts.find(pair, way, now, &bundle);
        for segment in 0..bundle.segments() {
            let carried = bundle.carried(segment);
            self.accounts.sent(account, now, &carried);
            let meta = PacketMeta {
                size: carried.ip_bytes,
                flow: self.accounts.flow_number(account),
                is_ecn_capable: bundle.is_ecn_capable(),
            };
            let header =
                if self.has_routers { headers::of_segment(&bundle, segment) } else { None };
            let item = Item { bundle: Rc::clone(&bundle), segment, account, header };
            // The capture records the verdict.
            let _: Verdict = self.network.push(now, self.routes[pair], way, meta, item);
        }
        true
    }

    /// Writes due packets; returns false if there were none.
    fn write_all(&mut self) -> bool {
        let mut has_written = false;
        for pair in 0..self.pairs.len() {
            for way in Way::BOTH {
                let mut out = std::mem::take(&mut self.out[pair][way]);
                if !out.is_empty() {
                    has_written = true;
                    self.write(pair, way, &out);
                    out.clear();
                    self.out[pair][way] = out;
                }
            }
        }
        has_written
    }

    fn write(&mut self, pair: usize, way: Way, out: &[Arrival<Item>]) {
        let mut rest = out;
        while let Some(first) = rest.first() {
            let count = if first.is_damaged {
                1
            } else {
                let neighbours = rest.windows(2).take_while(|pair| {
                    let [one, next] = [&pair[0], &pair[1]];
                    Rc::ptr_eq(&one.payload.bundle, &next.payload.bundle)
                        && next.payload.segment == one.payload.segment + 1
                        && next.is_marked == one.is_marked
                        && !next.is_damaged
                });
                1 + neighbours.count()
            };
            let (now, after) = rest.split_at(count);
            rest = after;
            let sent = self.clock.now();
            if self.write_frame(pair, way, now) {
                for due in now {
                    self.lateness.record(due.at, sent);
                    if !due.is_damaged {
                        let Item { bundle, segment, account, .. } = &due.payload;
                        self.accounts.arrived(*account, &bundle.carried(*segment));
                    }
                }
            } else {
                self.refused += 1;
            }
        }
    }

    /// Writes neighbouring segments as one frame; returns false if the device refuses the frame.
    fn write_frame(&mut self, pair: usize, way: Way, dues: &[Arrival<Item>]) -> bool {
        let Some(due) = dues.first() else { return true };
        let item = &due.payload;
        let plan = &self.pairs[pair];
        let device = if way == Way::Forward { &plan.far } else { &plan.near };
        if due.is_damaged {
            item.bundle.write_damaged(item.segment, damage_seed(due), &mut self.head);
            return device.write(&[IoSlice::new(&self.head)]).is_ok();
        }
        let count = u16::try_from(dues.len()).unwrap_or(u16::MAX);
        let segments = item.segment..item.segment.saturating_add(count);
        item.bundle.write_head(segments.clone(), due.is_marked, &mut self.head);
        if dues.iter().any(|due| due.payload.header.is_some()) {
            let headers = dues.iter().map(|due| due.payload.header.as_deref());
            headers::write(&item.bundle, segments, headers, &mut self.body);
            return device.write(&[IoSlice::new(&self.head), IoSlice::new(&self.body)]).is_ok();
        }
        let parts = [IoSlice::new(&self.head), IoSlice::new(item.bundle.payload(segments))];
        device.write(&parts).is_ok()
    }

    // ---- waiting --------------------------------------------------------------------------------

    /// Sleeps until the next due time or arrival; a busy router sleeps one tick.
    fn wait(&mut self, has_moved: bool) {
        let now = self.clock.now();
        if has_moved {
            self.last_moved = now;
        }
        let next = self.network.deadline();
        let until = next.map_or_else(|| Span::from(POLL_INTERVAL), |at| at.since(now));
        let is_busy = now.since(self.last_moved) < BUSY;
        if is_busy && (has_moved || until <= Span::from(TICK)) {
            std::thread::sleep(TICK);
            return;
        }
        if !is_busy && until <= SPIN {
            while next.is_some_and(|at| self.clock.now() < at) {
                std::hint::spin_loop();
            }
            return;
        }
        // Idle processors wake late: one short sleep after the long sleep, then no more.
        let early = match is_busy {
            true => WAKE,
            false if until > NAP + SPIN => NAP,
            false => SPIN,
        };
        let until = until.saturating_sub(early);
        self.last_round = None;
        let timeout: Timespec = timespec(until);
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 8];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(count) => {
                let is_waker = |event: &epoll::Event| event.data.u64() == u64::MAX;
                if events[..count].iter().any(is_waker) {
                    let mut scrap = [0; 64];
                    while self.wakened.read(&mut scrap).is_ok_and(|bytes| bytes == scrap.len()) {}
                }
            }
            // A signal; after any error, sleeping is safe.
            Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(TICK),
        }
    }

    // ---- requests -------------------------------------------------------------------------------

    /// Handles a request; breaks after a request to stop.
    fn answer(&mut self, question: Question) -> ControlFlow<()> {
        // The requesting thread may have timed out; then the answer is dropped.
        match question {
            Question::Restart { links, seed, capture, answer } => {
                let _ = answer.send(self.restart(&links, seed, capture.as_deref()));
            }
            Question::ReportDrops(event_sender) => self.event_sender = Some(event_sender),
            Question::Snapshot(answer) => {
                let _ = answer.send(self.snapshot());
            }
            Question::Tuples(answer) => {
                let _ = answer.send(self.accounts.tuples());
            }
            Question::RestartQueueMax => {
                for link in 0..self.network.links() {
                    for way in Way::BOTH {
                        self.network.restart_queue_max(link, way);
                    }
                }
            }
            Question::Stop(answer) => {
                let _ = answer.send(self.stop_capture());
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn restart(
        &mut self,
        plans: &[LinkPlan],
        seed: u64,
        capture: Option<&std::path::Path>,
    ) -> Result<Clock, LabError> {
        // Packets sent before the restart belong to the time before.
        while self.read_all() {}
        if let Some(fault) = self.stop_capture() {
            return Err(fault);
        }
        let names: Vec<String> = plans.iter().map(|plan| plan.id.clone()).collect();
        self.capture =
            capture.map(|dir| Capture::start(dir, &names, SystemTime::now())).transpose()?;
        (self.network, self.routes) = network(plans, &self.pairs, seed);
        self.has_routers = has_routers(plans);
        if self.capture.is_some() {
            self.network.record();
        }
        if self.event_sender.is_some() {
            self.network.note_drops();
        }
        self.out = self.pairs.iter().map(|_| Both::default()).collect();
        self.accounts = Accounts::new(self.pairs.len());
        self.lateness = LatenessMeter::new();
        (self.malformed, self.refused, self.unrecorded) = (0, 0, 0);
        (self.last_round, self.longest_pause) = (None, Span::ZERO);
        self.last_moved = Instant::ZERO;
        self.cpu_at_start = thread_cpu_seconds();
        self.clock = Clock::start();
        Ok(self.clock)
    }

    fn stop_capture(&mut self) -> Option<LabError> {
        self.record_entries();
        let (unrecorded, fault) = self.capture.take()?.finish();
        self.unrecorded = unrecorded;
        fault
    }

    fn snapshot(&mut self) -> RouterSnapshot {
        let now = self.clock.now();
        self.carry(now);
        self.write_all();
        let count = self.network.links();
        let mut snapshot = |link| Way::BOTH.map(|way| self.network.snapshot(link, way, now));
        let links = (0..count).map(&mut snapshot).collect();
        RouterSnapshot {
            at: now,
            links,
            pairs: self.accounts.pairs(),
            lateness: self.lateness.summary(),
            malformed: self.malformed,
            refused: self.refused,
            longest_pause: self.longest_pause,
            cpu_seconds: thread_cpu_seconds() - self.cpu_at_start,
            unrecorded: self.unrecorded,
        }
    }
}

/// Returns a number that selects the damaged position in a packet. It depends on the packet's due
/// time, which hardly two packets share, and on its place in its frame.
fn damage_seed(packet: &Arrival<Item>) -> u64 {
    let pair = packet.route.slot() as u64;
    let place = u64::from(packet.payload.segment) << 48 | pair << 32;
    let mixed = (packet.at.0 ^ place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Returns the links, with the same random streams as in the simulator, and the route of each pair.
/// A route's place is the pair's position.
fn network(links: &[LinkPlan], pairs: &[PairPlan], seed: u64) -> (Network, Vec<RouteId>) {
    let mut network = Network::of_links(links, &SeededRandom::new(seed), Damage::Arrives);
    network.find_headers();
    let route = |pair: &PairPlan| network.add_route(pair.path.as_slice().into(), pair.access_delay);
    let routes = pairs.iter().map(route).collect();
    (network, routes)
}

fn has_routers(links: &[LinkPlan]) -> bool {
    links.iter().any(|link| link.forward.router().is_some() || link.back.router().is_some())
}

fn fate(verdict: Verdict) -> Fate {
    match verdict {
        Verdict::Queued => Fate::Carried,
        Verdict::DroppedFull => Fate::Dropped("queue full"),
        Verdict::DroppedEarly => Fate::Dropped("by the queue discipline"),
        Verdict::DroppedLoss => Fate::Dropped("lost on the link"),
        Verdict::DroppedOutage => Fate::Dropped("lost to an outage"),
        Verdict::DroppedTooLarge => Fate::Dropped("larger than the MTU"),
    }
}
