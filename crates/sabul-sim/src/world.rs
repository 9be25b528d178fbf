//! A world: links, flows and the time in which they act on each other.
//!
//! It owns everything it touches, so worlds run side by side without knowing of each other, and the
//! same scenario gives the same bits wherever it runs. Every actor (a link's direction, either end of
//! a flow, an access delay, the arrivals of a plan, the meter) has at most one time on the agenda;
//! the earliest acts, then says when it wants to act next.

use std::collections::VecDeque;
use std::fmt;

use sabul_cc::registry::{self, Family};
use sabul_cc::{ConfigError, Guarded};
use sabul_units::{Bytes, Instant, SeededRandom, Span};

use crate::agenda::Actor;
use crate::host::{Host, Port};
use crate::net::{COPY_SHIFT, FlowKey, Net, Packet, Way};
use sabul_run::meter::{Counters, Gauges, Life, Meter};
use sabul_run::results::{Results, Series};
use sabul_run::scenario::{FlowPlan, Scenario, Transport};
use sabul_run::traffic::Traffic;

/// Actors of each flow's place, in this order.
const SENDER: u32 = 0;
const RECEIVER: u32 = 1;
const PIPE_FORWARD: u32 = 2;
const ACTORS_PER_PLACE: u32 = 4;

/// What a run has shown, and how much work it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Averages.
    pub results: Results,
    /// Everything over time.
    pub series: Series,
    /// Events that happened.
    pub events: u64,
    /// DATA packets and segments sent in the whole run, constant-rate traffic included.
    pub data_packets: u64,
}

/// Why a run has no outcome: the controller of a flow did what none may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFault {
    /// The flow's name.
    pub flow: String,
    /// What its controller did, in words that name it.
    pub what: String,
}

impl fmt::Display for FlowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow '{}': {}", self.flow, self.what)
    }
}

impl std::error::Error for FlowFault {}

/// What is on the flow's own access delay, in one direction.
type Pipe = VecDeque<(Instant, Packet)>;

#[derive(Debug)]
struct Flow {
    key: FlowKey,
    /// What queues tell flows apart by: the plan, and above it the copy.
    number: u32,
    plan: usize,
    host: Host,
    pipes: [Pipe; 2],
    bytes: Option<u64>,
    is_complete: bool,
    life: Life,
}

/// Where a flow lives; used again when it is over.
#[derive(Debug, Default)]
struct Place {
    reuse: u32,
    flow: Option<Box<Flow>>,
}

/// A simulated network and its clock.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    now: Instant,
    end: Instant,
    net: Net,
    /// One entry a plan, as the actors from `first_plan_actor` on.
    traffic: Vec<Traffic>,
    copies: Vec<u32>,
    first_plan_actor: u32,
    meter: Meter,
    meter_actor: Actor,
    first_place_actor: u32,
    places: Vec<Place>,
    free: Vec<u32>,
    is_audited: bool,
    events: u64,
    data_packets: u64,
    /// The first that was seen; nothing happens after it. Looked for at each sample and when a flow
    /// ends: until then a faulty controller's last good limits stand.
    fault: Option<FlowFault>,
}

impl World {
    /// A world at time zero.
    ///
    /// # Errors
    /// If a flow's controller or its parameters do not exist, or if it is a command's.
    ///
    /// # Panics
    /// If a flow's path is empty or names a link that is not there.
    pub fn new(scenario: Scenario) -> Result<Self, ConfigError> {
        let random = SeededRandom::new(scenario.seed);
        let end = Instant::ZERO + scenario.duration;
        let mut net = Net::new(&scenario.links, &random);
        let meter_actor = net.agenda.add_actor();
        let mut traffic = Vec::new();
        for plan in &scenario.flows {
            assert!(!plan.path.is_empty(), "flow {} has a path", plan.id);
            assert!(plan.path.iter().all(|link| *link < scenario.links.len()), "links exist");
            build_controller(plan)?;
            let random = random.fork(&format!("flow/{}", plan.id));
            traffic.push(Traffic::new(plan, end, &random));
            net.agenda.add_actor();
        }
        let first_plan_actor = meter_actor.0 + 1;
        let plans = u32::try_from(traffic.len()).expect("fewer than 2^32 flows");
        let mut world = Self {
            now: Instant::ZERO,
            end,
            net,
            copies: vec![0; traffic.len()],
            traffic,
            first_plan_actor,
            meter: Meter::new(scenario.clone()),
            meter_actor,
            first_place_actor: first_plan_actor + plans,
            places: Vec::new(),
            free: Vec::new(),
            is_audited: false,
            events: 0,
            data_packets: 0,
            fault: None,
            scenario,
        };
        world.net.agenda.set(meter_actor, world.meter.next_tick());
        for plan in 0..world.scenario.flows.len() {
            world.schedule_plan(plan);
        }
        Ok(world)
    }

    /// Checks each component after every event that touches it from now on, and that each byte of a
    /// flow of our own protocol is delivered once. Slow.
    pub fn audit(&mut self) {
        self.is_audited = true;
    }

    /// The time of the latest event.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Lets everything happen, to the end of the scenario.
    ///
    /// # Errors
    /// If a controller did what none may do; the run stops there.
    ///
    /// # Panics
    /// After [`World::audit`], if something does not hold that must.
    pub fn run(mut self) -> Result<Outcome, FlowFault> {
        while self.step() {}
        self.finish()
    }

    /// Lets the next event happen. False once the scenario's time is over, or a controller at fault.
    pub fn step(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let Some((at, actor)) = self.net.agenda.pop().filter(|(at, _)| *at <= self.end) else {
            return false;
        };
        debug_assert!(at >= self.now, "time never goes back");
        self.now = at;
        self.events += 1;
        if let Some((link, way)) = self.net.link_of(actor) {
            while let Some(packet) = self.net.poll(at, link, way) {
                self.route(packet, way);
            }
            if self.is_audited {
                self.net.check_link(link, way);
            }
        } else if actor.0 >= self.first_place_actor {
            let index = actor.0 - self.first_place_actor;
            let place = index / ACTORS_PER_PLACE;
            match index % ACTORS_PER_PLACE {
                SENDER => self.wake(place, Way::Forward),
                RECEIVER => self.wake(place, Way::Back),
                PIPE_FORWARD => self.drain_pipe(place, Way::Forward),
                _ => self.drain_pipe(place, Way::Back),
            }
        } else if actor == self.meter_actor {
            self.tick();
        } else {
            self.run_plan((actor.0 - self.first_plan_actor) as usize);
        }
        true
    }

    /// What has been measured, after the last event.
    ///
    /// # Errors
    /// If a controller did what none may do.
    pub fn finish(mut self) -> Result<Outcome, FlowFault> {
        self.now = self.end;
        for place in 0..self.places.len() {
            self.retire(u32::try_from(place).unwrap_or(u32::MAX));
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let results = self.meter.finish(self.end, &mut self.net);
        let (events, data_packets) = (self.events, self.data_packets);
        Ok(Outcome { results: results.0, series: results.1, events, data_packets })
    }

    // ---- packets --------------------------------------------------------------------------------

    /// A packet has come to the end of a link.
    fn route(&mut self, mut packet: Packet, way: Way) {
        let place = packet.flow.place;
        let Some(flow) = self.places[place as usize].flow.as_mut() else { return };
        if flow.key != packet.flow {
            return;
        }
        let plan = &self.scenario.flows[flow.plan];
        let next = match way {
            Way::Forward => Some(packet.hop + 1).filter(|hop| usize::from(*hop) < plan.path.len()),
            Way::Back => packet.hop.checked_sub(1),
        };
        if let Some(hop) = next {
            packet.hop = hop;
            let link = plan.path[usize::from(hop)];
            self.net.push(self.now, link, way, flow.number, packet);
        } else if plan.access_delay == Span::ZERO {
            self.arrive(place, way, &packet);
        } else {
            let pipe = &mut flow.pipes[way as usize];
            let due = self.now + plan.access_delay;
            if pipe.is_empty() {
                self.net
                    .agenda
                    .set(actor(self.first_place_actor, place, way, PIPE_FORWARD), Some(due));
            }
            pipe.push_back((due, packet));
        }
    }

    fn drain_pipe(&mut self, place: u32, way: Way) {
        loop {
            // What arrives may end the flow.
            let Some(flow) = self.places[place as usize].flow.as_mut() else { return };
            let pipe = &mut flow.pipes[way as usize];
            match pipe.front() {
                Some((due, _)) if *due <= self.now => {
                    let Some((_, packet)) = pipe.pop_front() else { return };
                    self.arrive(place, way, &packet);
                }
                next => {
                    let due = next.map(|(due, _)| *due);
                    self.net
                        .agenda
                        .set(actor(self.first_place_actor, place, way, PIPE_FORWARD), due);
                    return;
                }
            }
        }
    }

    /// A packet reaches the host at the end of its way, which may answer.
    fn arrive(&mut self, place: u32, way: Way, packet: &Packet) {
        let Some(flow) = self.places[place as usize].flow.as_mut() else { return };
        match way {
            Way::Forward => {
                flow.host.at_receiver(self.now, &packet.body, packet.is_marked);
                if flow.bytes.is_some() {
                    self.note_completion(place);
                }
                self.wake(place, Way::Back);
            }
            Way::Back => {
                flow.host.at_sender(self.now, &packet.body);
                self.wake(place, Way::Forward);
            }
        }
    }

    fn note_completion(&mut self, place: u32) {
        let Some(flow) = self.places[place as usize].flow.as_mut() else { return };
        let delivered = flow.host.counters().fresh_bytes;
        if !flow.is_complete && flow.bytes.is_some_and(|bytes| delivered >= bytes) {
            flow.is_complete = true;
            self.meter.flow_completed(self.now, flow.plan, flow.life);
        }
    }

    /// Lets one end of a flow send what it has due.
    fn wake(&mut self, place: u32, way: Way) {
        let Some(flow) = self.places[place as usize].flow.as_mut() else { return };
        let plan = &self.scenario.flows[flow.plan];
        let mut port = Port { net: &mut self.net, key: flow.key, plan, number: flow.number };
        let until = match way {
            Way::Forward => flow.host.wake_sender(self.now, &mut port),
            Way::Back => flow.host.wake_receiver(self.now, &mut port),
        };
        if self.is_audited {
            flow.host.check_invariants();
            let delivered = flow.host.counters().fresh_bytes;
            assert!(
                flow.bytes.is_none_or(|bytes| delivered <= bytes),
                "no byte comes from nowhere"
            );
        }
        if way == Way::Forward && flow.bytes.is_some() && flow.host.is_over() {
            let plan = flow.plan;
            self.retire(place);
            self.traffic[plan].note_end(self.now);
            self.schedule_plan(plan);
        } else {
            self.net.agenda.set(actor(self.first_place_actor, place, way, SENDER), until);
        }
    }

    // ---- flows ----------------------------------------------------------------------------------

    fn schedule_plan(&mut self, plan: usize) {
        let stop = self.scenario.flows[plan].stop.filter(|stop| *stop > self.now);
        let next = Instant::earliest([self.traffic[plan].next_at(), stop]);
        let index = u32::try_from(plan).unwrap_or(u32::MAX);
        self.net.agenda.set(Actor(self.first_plan_actor + index), next);
    }

    /// Starts the flows of a plan that are due, or stops all of them.
    fn run_plan(&mut self, plan: usize) {
        if self.scenario.flows[plan].stop.is_some_and(|stop| stop <= self.now) {
            for place in 0..self.places.len() {
                if self.places[place].flow.as_ref().is_some_and(|flow| flow.plan == plan) {
                    self.retire(u32::try_from(place).unwrap_or(u32::MAX));
                }
            }
            return;
        }
        while self.traffic[plan].next_at().is_some_and(|at| at <= self.now) {
            let bytes = self.traffic[plan].take();
            self.start(plan, bytes);
        }
        self.schedule_plan(plan);
    }

    fn start(&mut self, plan: usize, bytes: Option<u64>) {
        let place = self.free.pop().unwrap_or_else(|| {
            for _ in 0..ACTORS_PER_PLACE {
                self.net.agenda.add_actor();
            }
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).expect("fewer than 2^32 flows at a time")
        });
        let settings = &self.scenario.flows[plan];
        let random = SeededRandom::new(self.scenario.seed);
        let random = random.fork(&format!("controller/{}", settings.id));
        let first = self.copies[plan];
        let build = |stream: u32| {
            let controller = build_controller(settings).expect("it was built before")?;
            Some(controller.seeded(random.fork(&first.wrapping_add(stream).to_string())))
        };
        let controllers = (0..settings.streams).filter_map(build).collect();
        let mut host = Host::new(self.now, settings, bytes, controllers);
        if self.is_audited {
            host.audit();
        }
        let key = FlowKey { place, reuse: self.places[place as usize].reuse };
        let index = u32::try_from(plan).unwrap_or(u32::MAX);
        let number = index.wrapping_add(self.copies[plan] << COPY_SHIFT);
        self.copies[plan] += settings.streams;
        self.meter.flow_started(plan);
        let life = Life { started: self.now, bytes_at_warmup: 0 };
        let pipes = [Pipe::new(), Pipe::new()];
        let flow = Flow { key, number, plan, host, pipes, bytes, is_complete: false, life };
        self.places[place as usize].flow = Some(Box::new(flow));
        self.wake(place, Way::Forward);
        self.wake(place, Way::Back);
    }

    /// Takes a flow out of the world; what it has on the way is lost.
    fn retire(&mut self, place: u32) {
        let Some(flow) = self.places[place as usize].flow.take() else { return };
        if self.fault.is_none() {
            self.fault = fault_of(&self.scenario, &flow);
        }
        for role in 0..ACTORS_PER_PLACE {
            let actor = Actor(self.first_place_actor + place * ACTORS_PER_PLACE + role);
            self.net.agenda.set(actor, None);
        }
        self.places[place as usize].reuse += 1;
        self.free.push(place);
        let (counters, gauges) = (flow.host.counters(), flow.host.gauges());
        self.data_packets += counters.sent;
        self.meter.flow_retired(self.now, flow.plan, flow.life, counters, gauges);
    }

    // ---- measuring ------------------------------------------------------------------------------

    fn tick(&mut self) {
        let mut plans = vec![(Counters::default(), None::<Gauges>); self.scenario.flows.len()];
        for flow in self.places.iter().filter_map(|place| place.flow.as_ref()) {
            if self.fault.is_none() {
                self.fault = fault_of(&self.scenario, flow);
            }
            let (counters, gauges) = &mut plans[flow.plan];
            counters.add(flow.host.counters());
            // Of many copies the oldest place speaks for all.
            gauges.get_or_insert_with(|| flow.host.gauges());
        }
        let was_warm = self.meter.is_warm();
        self.meter.tick(self.now, &plans, &mut self.net);
        if self.meter.is_warm() && !was_warm {
            for flow in self.places.iter_mut().filter_map(|place| place.flow.as_mut()) {
                flow.life.bytes_at_warmup = flow.host.counters().fresh_bytes;
            }
        }
        self.net.agenda.set(self.meter_actor, self.meter.next_tick());
    }
}

fn fault_of(scenario: &Scenario, flow: &Flow) -> Option<FlowFault> {
    let plan = &scenario.flows[flow.plan];
    flow.host.fault(&plan.cc).map(|what| FlowFault { flow: plan.id.clone(), what })
}

/// The actor of one end, or of one access delay, of the flow at a place.
fn actor(first_place_actor: u32, place: u32, way: Way, role: u32) -> Actor {
    Actor(first_place_actor + place * ACTORS_PER_PLACE + role + way as u32)
}

fn build_controller(plan: &FlowPlan) -> Result<Option<Guarded>, ConfigError> {
    match plan.transport {
        Transport::UdpCbr => return Ok(None),
        Transport::Command => {
            return Err(ConfigError {
                setting: format!("transport of flow {}", plan.id),
                value: plan.transport.name().to_owned(),
                allowed: "sabul, tcp or udp-cbr: programs run only in the lab".to_owned(),
            });
        }
        Transport::Sabul | Transport::Tcp => {}
    }
    let entry = registry::find(&plan.cc)?;
    let mut params = plan.params.clone();
    let key = "initial_window";
    let has_key = |name: &str| name == key;
    if plan.transport == Transport::Tcp
        && entry.params.iter().any(|spec| has_key(spec.name))
        && !params.iter().any(|(name, _)| has_key(name))
    {
        params.push((key.to_owned(), plan.initial_window.to_string()));
    }
    if plan.transport == Transport::Tcp && entry.family == Family::Rate {
        return Err(ConfigError {
            setting: format!("controller of tcp flow {}", plan.id),
            value: plan.cc.clone(),
            allowed: "a controller with a window, such as newreno or cubic".to_owned(),
        });
    }
    entry.build(&params, Bytes(plan.packet_bytes.into())).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_path::LinkConfig;
    use sabul_run::scenario::LinkPlan;

    #[test]
    fn a_program_does_not_run_here() {
        let link = LinkConfig::default();
        let scenario = Scenario {
            name: String::new(),
            duration: Span::from_secs(1),
            warmup: Span::ZERO,
            sample: Span::from_secs(1),
            seed: 1,
            links: vec![LinkPlan { id: "l".to_owned(), forward: link.clone(), back: link }],
            flows: vec![FlowPlan::new("a", Transport::Command, "", vec![0])],
        };
        let error = World::new(scenario).unwrap_err().to_string();
        for part in ["flow a", "command", "the lab"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
