//! Simulated world: links, flows and the event loop.
//!
//! A world owns all its state, so worlds run in parallel independently, and the same scenario
//! always gives the same bits. Links, routes and the event queue are those of `sabul-net`. Each
//! end of a flow, the arrivals of a plan and the meter are timers on that queue. Each event handler
//! returns the time of its next event.
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sabul_cc::{ConfigError, Guarded, SharedController};
use sabul_channel::rules;
use sabul_lab_cc::registry::{self, Family};
use sabul_net::{Arrival, Damage, Output, RouteId, Timer, Way};
use sabul_run::events;
use sabul_run::meter::{Counters, Gauges, Life, Meter};
use sabul_run::results::{Results, Series};
use sabul_run::scenario::{Carrier, FlowPlan, Scenario};
use sabul_run::traffic::Traffic;
use sabul_units::{Bytes, Instant, Polled, SeededRandom};

use crate::host::{Host, Port, sabul_sizes};
use crate::net::{Body, COPY_SHIFT, Due, Net};

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Averages and totals.
    pub results: Results,
    /// Time series.
    pub series: Series,
    /// Number of events processed.
    pub events: u64,
    /// DATA packets and segments sent in the whole run, constant-rate traffic included.
    pub data_packets: u64,
}

/// Error of a run: the controller of a flow violated its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFault {
    /// Name of the flow.
    pub flow: String,
    /// The controller's violation, with the controller's name.
    pub what: String,
}

impl fmt::Display for FlowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow '{}': {}", self.flow, self.what)
    }
}

impl std::error::Error for FlowFault {}

#[derive(Debug)]
struct Flow {
    route: RouteId,
    /// Flow number for queues: the plan in the low bits, the copy above.
    number: u32,
    plan: usize,
    host: Host,
    bytes: Option<u64>,
    is_complete: bool,
    life: Life,
}

/// Slot of a flow, with the index of its route; reused after the flow ends.
#[derive(Debug)]
struct FlowSlot {
    sender: Timer,
    receiver: Timer,
    flow: Option<Box<Flow>>,
}

/// State of a plan of the scenario.
#[derive(Debug)]
struct Plan {
    traffic: Traffic,
    copies: u32,
    path: Arc<[usize]>,
    timer: Timer,
}

/// A simulated network and its clock.
#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    now: Instant,
    end: Instant,
    net: Net,
    plans: Vec<Plan>,
    meter: Meter,
    meter_timer: Timer,
    slots: Vec<FlowSlot>,
    /// Controllers of the groups.
    shared: BTreeMap<u32, SharedController>,
    is_audited: bool,
    /// Recorded event lines; `None` while recording is off.
    event_lines: Option<Vec<String>>,
    data_packets: u64,
    /// The first fault found; the run stops at it. Checked at each sample and at the end of a flow.
    /// Until then, the faulty controller's last valid limits apply.
    fault: Option<FlowFault>,
}

impl World {
    /// Creates a world at time zero.
    ///
    /// # Errors
    /// If a flow's controller or its parameters do not exist, or if the flow is a command's.
    ///
    /// # Panics
    /// If a flow's path is empty or contains a link that does not exist.
    pub fn new(scenario: Scenario) -> Result<Self, ConfigError> {
        let random = SeededRandom::new(scenario.seed);
        let end = Instant::ZERO + scenario.duration;
        let mut net = Net::of_links(&scenario.links, &random, Damage::Ends);
        net.find_headers();
        let meter_timer = net.add_timer(Due::Meter);
        let mut plans = Vec::new();
        for (index, plan) in (0..).zip(&scenario.flows) {
            assert!(!plan.path.is_empty(), "flow {} has a path", plan.id);
            assert!(plan.path.iter().all(|link| *link < scenario.links.len()), "links exist");
            let controller = build_controller(plan)?;
            if plan.sabul().is_some_and(|ends| ends.group.is_some())
                && let Some(controller) = controller
            {
                SharedController::default().member(Instant::ZERO, || Ok(controller))?;
            }
            let random = random.fork(&format!("flow/{}", plan.id));
            plans.push(Plan {
                traffic: Traffic::new(plan, end, &random),
                copies: 0,
                path: Arc::from(plan.path.as_slice()),
                timer: net.add_timer(Due::Plan(index)),
            });
        }
        let mut world = Self {
            now: Instant::ZERO,
            end,
            net,
            plans,
            meter: Meter::new(scenario.clone()),
            meter_timer,
            slots: Vec::new(),
            shared: BTreeMap::new(),
            is_audited: false,
            event_lines: None,
            data_packets: 0,
            fault: None,
            scenario,
        };
        world.net.set_timer(meter_timer, world.meter.next_tick());
        for plan in 0..world.scenario.flows.len() {
            world.schedule_plan(plan);
        }
        Ok(world)
    }

    /// Enables checks, which are slow: of each component after every event that touches the
    /// component, and that each byte of a flow of our own protocol is delivered once.
    pub fn audit(&mut self) {
        self.is_audited = true;
        self.net.audit();
    }

    /// Starts to record events of controllers and drops of links, for [`World::take_events`].
    pub fn listen(&mut self) {
        self.event_lines.get_or_insert_default();
        self.net.note_drops();
    }

    /// Returns the events since the last call, each as a line of JSON ([`sabul_run::events`]). Call
    /// after each [`World::step`].
    pub fn take_events(&mut self) -> Vec<String> {
        for drop in self.net.take_drops() {
            // The low bits of a flow number are the number of its plan.
            let plan = drop.flow.map(|flow| (flow & ((1 << COPY_SHIFT) - 1)) as usize);
            let flow = plan.and_then(|plan| Some(self.scenario.flows.get(plan)?.id.as_str()));
            let line = events::drop_line(&drop, &self.scenario.links[drop.link].id, flow);
            self.event_lines.get_or_insert_default().push(line);
        }
        self.event_lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Time of the latest event.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Runs to the end of the scenario.
    ///
    /// # Errors
    /// If a controller violated its contract; the run stops there.
    ///
    /// # Panics
    /// After [`World::audit`], if an invariant does not hold.
    pub fn run(mut self) -> Result<Outcome, FlowFault> {
        while self.step() {}
        self.finish()
    }

    /// Processes the next event. Returns false once the scenario's time is over, or after a
    /// controller's fault.
    pub fn step(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let Polled::Ready(output) = self.net.poll(self.end) else { return false };
        debug_assert!(self.net.now() >= self.now, "time never goes back");
        self.now = self.net.now();
        match output {
            Output::Arrived(packet) => self.arrive(&packet),
            Output::Due(Due::Sender(slot)) => self.wake(slot as usize, Way::Forward),
            Output::Due(Due::Receiver(slot)) => self.wake(slot as usize, Way::Back),
            Output::Due(Due::Plan(plan)) => self.run_plan(plan as usize),
            Output::Due(Due::Meter) => self.tick(),
        }
        true
    }

    /// Returns the results after the last event.
    ///
    /// # Errors
    /// If a controller violated its contract.
    pub fn finish(mut self) -> Result<Outcome, FlowFault> {
        self.now = self.end;
        for slot in 0..self.slots.len() {
            self.retire(slot);
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let results = self.meter.finish(self.end, &mut self.net);
        let (events, data_packets) = (self.net.turns(), self.data_packets);
        Ok(Outcome { results: results.0, series: results.1, events, data_packets })
    }

    // ---- packets --------------------------------------------------------------------------------

    /// Delivers a packet to the host at the end of its route, which may respond.
    fn arrive(&mut self, packet: &Arrival<Body>) {
        let slot = packet.route.slot();
        let Some(flow) = self.slots[slot].flow.as_mut() else { return };
        match self.scenario.flows[flow.plan].way(packet.way) {
            Way::Forward => {
                flow.host.at_receiver(self.now, &packet.payload, packet.is_marked);
                self.wake(slot, Way::Back);
            }
            Way::Back => {
                flow.host.at_sender(self.now, &packet.payload);
                self.wake(slot, Way::Forward);
            }
        }
    }

    fn note_completion(&mut self, slot: usize) {
        let Some(flow) = self.slots[slot].flow.as_mut() else { return };
        let delivered = flow.host.counters().fresh_bytes;
        if !flow.is_complete && flow.bytes.is_some_and(|bytes| delivered >= bytes) {
            flow.is_complete = true;
            self.meter.flow_completed(self.now, flow.plan, flow.life);
        }
    }

    /// Lets one end of a flow send everything due.
    fn wake(&mut self, slot: usize, way: Way) {
        let FlowSlot { sender, receiver, flow } = &mut self.slots[slot];
        let Some(flow) = flow else { return };
        let plan = &self.scenario.flows[flow.plan];
        let mut port = Port { net: &mut self.net, route: flow.route, plan, number: flow.number };
        let (timer, until) = match way {
            Way::Forward => (*sender, flow.host.wake_sender(self.now, &mut port)),
            Way::Back => (*receiver, flow.host.wake_receiver(self.now, &mut port)),
        };
        if let Some(event_lines) = &mut self.event_lines {
            let of = format!("flow:{}", plan.id);
            flow.host.drain_events(&of, event_lines);
        }
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
            self.retire(slot);
            self.plans[plan].traffic.note_end(self.now);
            self.schedule_plan(plan);
        } else {
            self.net.set_timer(timer, until);
            if way == Way::Back {
                self.note_completion(slot);
            }
        }
    }

    // ---- flows ----------------------------------------------------------------------------------

    fn schedule_plan(&mut self, plan: usize) {
        let stop = self.scenario.flows[plan].stop.filter(|stop| *stop > self.now);
        let next = Instant::earliest([self.plans[plan].traffic.next_at(), stop]);
        self.net.set_timer(self.plans[plan].timer, next);
    }

    /// Starts the flows of a plan that are due, or stops all of them.
    fn run_plan(&mut self, plan: usize) {
        if self.scenario.flows[plan].stop.is_some_and(|stop| stop <= self.now) {
            for slot in 0..self.slots.len() {
                if self.slots[slot].flow.as_ref().is_some_and(|flow| flow.plan == plan) {
                    self.retire(slot);
                }
            }
            return;
        }
        while self.plans[plan].traffic.next_at().is_some_and(|at| at <= self.now) {
            let bytes = self.plans[plan].traffic.take();
            self.start(plan, bytes);
        }
        self.schedule_plan(plan);
    }

    fn start(&mut self, plan: usize, bytes: Option<u64>) {
        let settings = &self.scenario.flows[plan];
        let state = &mut self.plans[plan];
        let route = self.net.add_route(Arc::clone(&state.path), settings.access_delay);
        let slot = route.slot();
        if slot == self.slots.len() {
            let index = u32::try_from(slot).expect("routes have a place below 2^32");
            let sender = self.net.add_timer(Due::Sender(index));
            let receiver = self.net.add_timer(Due::Receiver(index));
            self.slots.push(FlowSlot { sender, receiver, flow: None });
        }
        let seeded = SeededRandom::new(self.scenario.seed);
        let random = seeded.fork(&format!("controller/{}", settings.id));
        let (first, now) = (state.copies, self.now);
        let mut build = |stream: u32| {
            let controller = build_controller(settings).expect("it was built before")?;
            let controller =
                controller.seeded(random.fork(&first.wrapping_add(stream).to_string()));
            let Some(group) = settings.sabul().and_then(|ends| ends.group) else {
                return Some(controller);
            };
            let shared = self.shared.entry(group).or_default();
            Some(
                shared.member(now, || Ok(controller)).expect("the controllers were checked before"),
            )
        };
        let machine = seeded.fork(&format!("machine/{}/{first}", settings.id));
        let streams = settings.tcp().map_or(1, |ends| ends.streams);
        let controllers = (0..streams).filter_map(&mut build).collect();
        let mut host = Host::new(self.now, settings, bytes, controllers, &machine);
        if self.is_audited {
            host.audit();
        }
        if self.event_lines.is_some() {
            host.listen();
        }
        let index = u32::try_from(plan).unwrap_or(u32::MAX);
        let number = index.wrapping_add(state.copies << COPY_SHIFT);
        state.copies += streams;
        self.meter.flow_started(plan);
        let life = Life { started: self.now, bytes_at_warmup: 0 };
        let flow = Flow { route, number, plan, host, bytes, is_complete: false, life };
        self.slots[slot].flow = Some(Box::new(flow));
        self.wake(slot, Way::Forward);
        self.wake(slot, Way::Back);
    }

    /// Removes a flow; its packets in flight are lost.
    fn retire(&mut self, slot: usize) {
        let FlowSlot { sender, receiver, flow } = &mut self.slots[slot];
        let Some(flow) = flow.take() else { return };
        self.net.set_timer(*sender, None);
        self.net.set_timer(*receiver, None);
        self.net.remove_route(flow.route);
        if self.fault.is_none() {
            self.fault = fault_of(&self.scenario, &flow);
        }
        let (counters, gauges) = (flow.host.counters(), flow.host.gauges());
        self.data_packets += counters.sent;
        self.meter.flow_retired(self.now, flow.plan, flow.life, counters, gauges);
    }

    // ---- measuring ------------------------------------------------------------------------------

    fn tick(&mut self) {
        let mut plans = vec![(Counters::default(), None::<Gauges>); self.scenario.flows.len()];
        for flow in self.slots.iter().filter_map(|slot| slot.flow.as_ref()) {
            if self.fault.is_none() {
                self.fault = fault_of(&self.scenario, flow);
            }
            let (counters, gauges) = &mut plans[flow.plan];
            counters.add(flow.host.counters());
            // For many copies, the gauges are those of the copy in the first slot.
            gauges.get_or_insert_with(|| flow.host.gauges());
        }
        let was_warm = self.meter.is_warm();
        self.meter.tick(self.now, &plans, &mut self.net);
        if self.meter.is_warm() && !was_warm {
            for flow in self.slots.iter_mut().filter_map(|slot| slot.flow.as_mut()) {
                flow.life.bytes_at_warmup = flow.host.counters().fresh_bytes;
            }
        }
        self.net.set_timer(self.meter_timer, self.meter.next_tick());
    }
}

fn fault_of(scenario: &Scenario, flow: &Flow) -> Option<FlowFault> {
    let plan = &scenario.flows[flow.plan];
    flow.host.fault(&plan.cc).map(|what| FlowFault { flow: plan.id.clone(), what })
}

fn build_controller(plan: &FlowPlan) -> Result<Option<Guarded>, ConfigError> {
    match &plan.carrier {
        Carrier::UdpCbr { .. } => return Ok(None),
        Carrier::Command { .. } => {
            return Err(ConfigError {
                setting: format!("transport of flow {}", plan.id),
                value: plan.transport().name().to_owned(),
                allowed: "sabul, tcp or udp-cbr: programs run only in the lab".to_owned(),
            });
        }
        Carrier::Sabul(_) | Carrier::Tcp(_) => {}
    }
    let entry = registry::find(&plan.cc)?;
    plan.sabul().map_or(Ok(()), |ends| registry::check_policy(entry, ends.policy))?;
    let mut params = plan.params.clone();
    let key = "initial_window";
    let has_key = |name: &str| name == key;
    if let Some(ends) = plan.tcp()
        && entry.params.iter().any(|spec| has_key(spec.name))
        && !params.iter().any(|(name, _)| has_key(name))
    {
        params.push((key.to_owned(), ends.initial_window.to_string()));
    }
    if plan.tcp().is_some() && entry.family == Family::Rate {
        return Err(ConfigError {
            setting: format!("controller of tcp flow {}", plan.id),
            value: plan.cc.clone(),
            allowed: "a controller with a window, such as newreno or cubic".to_owned(),
        });
    }
    let controller = entry.build(&params, Bytes(plan.packet_bytes.into()))?;
    if plan.sabul().is_some() {
        rules::find(controller.constants().rules)?;
        sabul_sizes(plan, &controller)?;
    }
    let has_breaker = plan.sabul().is_some_and(|ends| ends.has_breaker(&plan.cc));
    Ok(Some(if has_breaker { controller.with_breaker() } else { controller }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_net::{LinkConfig, LinkPlan};
    use sabul_run::scenario::{DATA_HEADERS, Transport};
    use sabul_units::Span;

    fn world_of(flow: FlowPlan) -> Result<World, ConfigError> {
        let link = LinkConfig::default();
        World::new(Scenario {
            duration: Span::from_secs(1),
            sample: Span::from_secs(1),
            links: vec![LinkPlan { id: "l".to_owned(), forward: link.clone(), back: link }],
            flows: vec![flow],
            ..Scenario::default()
        })
    }

    #[test]
    fn the_simulator_refuses_command_flows() {
        let flow = FlowPlan::new("a", Transport::Command, "", vec![0]);
        let error = world_of(flow).unwrap_err().to_string();
        for part in ["flow a", "command", "the lab"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_packet_without_data_or_a_window_below_two_packets_is_refused() {
        let flow = |packet_bytes, window_packets| FlowPlan {
            packet_bytes,
            window_packets: Some(window_packets),
            ..FlowPlan::new("a", Transport::Sabul, "fixed", vec![0])
        };
        let least = DATA_HEADERS + 1;
        assert!(world_of(flow(least, 2)).is_ok());
        for packet_bytes in [least - 1, 0] {
            let error = world_of(flow(packet_bytes, 2)).unwrap_err();
            let (setting, allowed) = ("packet_bytes of flow a", format!("{least} or more"));
            assert_eq!((error.setting.as_str(), error.allowed), (setting, allowed));
        }
        for packets in [1, 0] {
            let error = world_of(flow(1500, packets)).unwrap_err();
            let (setting, allowed) = ("window_packets of flow a", "2 or more");
            assert_eq!((error.setting.as_str(), error.allowed.as_str()), (setting, allowed));
        }
    }
}
