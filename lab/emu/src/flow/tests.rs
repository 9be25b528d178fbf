//! Flows of every transport between two ends in the namespace of the tests.

#[cfg(feature = "namespaces")]
mod hosts;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use sabul_run::scenario::{Arrivals, Carrier, FlowSize, Profile, SabulEnds, TcpEnds};
use sabul_units::{Rate, Span};

use super::*;

/// Far more than any of these flows needs; a hanging flow fails here.
const TIMEOUT: Duration = Duration::from_secs(60);

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn prepare(plan: &FlowPlan) -> Result<Flow, LabError> {
    Flow::prepare_at(plan, FlowEnd::here(HERE), FlowEnd::here(HERE), 7, None)
}

fn tcp_plan(size: FlowSize) -> FlowPlan {
    FlowPlan { size, ..FlowPlan::new("t", Transport::Tcp, "newreno", vec![0]) }
}

fn command_plan(command: &[&str]) -> FlowPlan {
    commands_plan(command, &[])
}

fn commands_plan(near: &[&str], far: &[&str]) -> FlowPlan {
    let [near, far] =
        [near, far].map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    FlowPlan::new("c", Carrier::Command { near, far }, "", vec![0])
}

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

/// View of a flow's owner, summed as by a meter.
#[derive(Debug, Default)]
struct Seen {
    started: BTreeMap<u64, Instant>,
    completed: BTreeMap<u64, Instant>,
    retired: BTreeMap<u64, (Instant, Counters)>,
    most_at_once: usize,
    fresh_bytes: u64,
    gauges: Option<Gauges>,
}

impl Seen {
    fn take(&mut self, events: Vec<FlowEvent>) {
        for event in events {
            match event {
                FlowEvent::Started { copy, at } => {
                    assert_eq!(self.started.insert(copy, at), None, "a copy starts once");
                }
                FlowEvent::Completed { copy, at } => {
                    assert!(self.started[&copy] <= at && !self.retired.contains_key(&copy));
                    assert_eq!(self.completed.insert(copy, at), None, "a copy completes once");
                }
                FlowEvent::Retired { copy, at, counters, gauges } => {
                    self.gauges = Some(gauges);
                    assert!(self.started[&copy] <= at);
                    assert!(self.completed.get(&copy).is_none_or(|completed| *completed <= at));
                    assert!(self.retired.insert(copy, (at, counters)).is_none());
                }
            }
            self.most_at_once = self.most_at_once.max(self.started.len() - self.retired.len());
        }
    }

    fn total(&self) -> Counters {
        let mut total = Counters::default();
        for (_, counters) in self.retired.values() {
            total.add(*counters);
        }
        total
    }

    /// Looks at a flow in one of the two orders: the number of bytes never decreases.
    fn snapshot(&mut self, flow: &Flow, events_first: bool) {
        let (live, gauges) = if events_first {
            self.take(flow.events());
            flow.snapshot()
        } else {
            let snapshot = flow.snapshot();
            let fresh = self.total().fresh_bytes + snapshot.0.fresh_bytes;
            assert!(fresh >= self.fresh_bytes, "{fresh} after {}", self.fresh_bytes);
            self.take(flow.events());
            flow.snapshot()
        };
        let fresh = self.total().fresh_bytes + live.fresh_bytes;
        assert!(fresh >= self.fresh_bytes, "{fresh} after {}", self.fresh_bytes);
        self.fresh_bytes = fresh;
        self.gauges = gauges.or(self.gauges);
    }
}

/// Runs a flow until `is_enough`, or until the flow's own end.
fn run_until(
    plan: &FlowPlan,
    end: Instant,
    is_enough: impl Fn(&Seen) -> bool,
) -> Result<Seen, LabError> {
    let flow = prepare(plan)?;
    assert_eq!(flow.events(), [], "nothing happens before it is told to go");
    let started = std::time::Instant::now();
    flow.go(Clock::start(), end);
    let mut seen = Seen::default();
    let mut events_first = false;
    while !is_enough(&seen) && flow.check().is_ok() {
        assert!(started.elapsed() < TIMEOUT, "{seen:?}");
        seen.snapshot(&flow, events_first);
        events_first = !events_first;
        std::thread::sleep(Duration::from_millis(5));
    }
    let events = flow.finish()?;
    seen.take(events);
    assert_eq!(seen.started.len(), seen.retired.len(), "what starts is retired");
    Ok(seen)
}

fn why(result: Result<Seen, LabError>) -> String {
    match result {
        Err(LabError::Flow { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

// ---- TCP ----------------------------------------------------------------------------------------

#[test]
fn tcp_delivers_exactly_its_bytes() {
    let plan = FlowPlan { start: ms(30), ..tcp_plan(FlowSize::Bytes(3_000_001)) };
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 1).unwrap();
    assert!(seen.started[&0] >= ms(30), "{seen:?}");
    assert_eq!(seen.completed.len(), 1);
    let counters = seen.total();
    assert_eq!(counters.fresh_bytes, 3_000_001);
    // Loopback has no loss; every segment carries at most the payload of the plan's packets.
    let segments = 3_000_001 / 1448;
    assert!(counters.sent >= segments && counters.resent <= counters.sent, "{counters:?}");
    assert!(counters.sent_bytes >= 3_000_001 + counters.sent * 40, "{counters:?}");
    assert!(counters.arrived_bytes > 3_000_001, "{counters:?}");
}

#[test]
fn tcp_copies_together_and_in_a_chain_all_complete() {
    let count = 5;
    for (arrivals, most) in [
        (Arrivals::Together { count, spread: Span::from_millis(20) }, 5),
        (Arrivals::Chain { count, parallel: 2 }, 2),
    ] {
        let plan = FlowPlan { arrivals, ..tcp_plan(FlowSize::Bytes(400_000)) };
        let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 5).unwrap();
        assert_eq!(seen.completed.len(), 5);
        assert!(seen.retired.values().all(|(_, counters)| counters.fresh_bytes == 400_000));
        assert!(seen.most_at_once <= most, "{seen:?}");
    }
}

#[test]
fn tcp_runs_hundreds_of_copies_at_the_same_time() {
    let mut plan = tcp_plan(FlowSize::Bytes(20_000));
    plan.arrivals = Arrivals::Together { count: 600, spread: Span::ZERO };
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 600).unwrap();
    assert_eq!(seen.completed.len(), 600);
    assert_eq!(seen.total().fresh_bytes, 600 * 20_000);
}

/// Same arrivals as the simulator.
#[test]
fn tcp_poisson_arrivals_are_those_of_the_simulator() {
    let mut plan = tcp_plan(FlowSize::Pareto { shape: 1.5, mean_packets: 10.0 });
    plan.arrivals = Arrivals::Poisson { mean_interval: Span::from_millis(3) };
    let random = SeededRandom::new(7).fork("flow/t");
    let mut traffic = sabul_run::traffic::Traffic::new(&plan, ms(60_000), &random);
    let seen = run_until(&plan, ms(60_000), |seen| seen.completed.len() >= 200).unwrap();
    for (copy, started) in seen.started {
        let (at, bytes) = (traffic.next_at().unwrap(), traffic.take().unwrap());
        assert!(started >= at, "copy {copy} is early");
        if seen.completed.contains_key(&copy) {
            assert_eq!(seen.retired[&copy].1.fresh_bytes, bytes, "copy {copy}");
        }
    }
}

#[test]
fn tcp_stops_at_the_planned_time() {
    let plan = FlowPlan { stop: Some(ms(300)), ..tcp_plan(FlowSize::Endless) };
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 1).unwrap();
    assert_eq!(seen.completed.len(), 0);
    assert!(seen.retired[&0].0 >= ms(300), "{seen:?}");
}

#[test]
fn tcp_reports_current_counters_and_can_be_stopped_any_time() {
    let has_begun = |seen: &Seen| {
        seen.fresh_bytes > 0 && seen.gauges.is_some_and(|gauges| gauges.rtt.is_some())
    };
    let seen = run_until(&tcp_plan(FlowSize::Endless), ms(60_000), has_begun).unwrap();
    assert!(seen.retired[&0].1.fresh_bytes >= seen.fresh_bytes, "{seen:?}");
    let gauges = seen.gauges.unwrap();
    assert!(gauges.rtt.is_some_and(|rtt| rtt.min <= rtt.smoothed), "{gauges:?}");
    assert_eq!(gauges.gap, Span::ZERO, "reno is not paced");
}

#[test]
fn tcp_flows_end_when_the_run_ends() {
    let plan = tcp_plan(FlowSize::Endless);
    let seen = run_until(&plan, ms(200), |seen| seen.retired.len() == 1).unwrap();
    assert!(seen.retired[&0].0 >= ms(200));
}

#[test]
fn tcp_reports_the_pacing_gap_of_a_paced_algorithm() {
    let mut plan = FlowPlan { cc: "bbr1".to_owned(), ..tcp_plan(FlowSize::Endless) };
    plan.window_packets = Some(100);
    let result = run_until(&plan, ms(60_000), |seen| {
        seen.gauges.is_some_and(|gauges| gauges.gap > Span::ZERO)
    });
    // Not every kernel has BBR.
    let offered = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    if std::fs::read_to_string(offered).is_ok_and(|names| names.contains("bbr")) {
        result.unwrap();
    }
}

#[test]
fn an_algorithm_missing_from_the_kernel_is_refused_before_the_run() {
    let plan = FlowPlan { cc: "nonesuch".to_owned(), ..tcp_plan(FlowSize::Endless) };
    let why = why(prepare(&plan).map(|_| Seen::default()));
    assert!(why.contains("'nonesuch'") && why.contains("reno"), "{why}");
    assert!(why.contains("modprobe tcp_nonesuch"), "{why}");
}

#[test]
fn a_flow_that_never_starts_ends_without_an_error() {
    for transport in [Transport::Tcp, Transport::Sabul, Transport::UdpCbr] {
        let cc = if transport == Transport::Tcp { "newreno" } else { "sabul2003" };
        let plan = FlowPlan::new("q", transport, cc, vec![0]);
        drop(prepare(&plan).unwrap());
        assert_eq!(prepare(&plan).unwrap().finish().unwrap(), []);
    }
}

// ---- constant rate ------------------------------------------------------------------------------

#[test]
fn cbr_sends_at_its_rate_and_counts_arrivals() {
    let mut plan = FlowPlan::new("u", Carrier::UdpCbr { rate: Rate::from_mbps(12) }, "", vec![0]);
    plan.stop = Some(ms(500));
    plan.arrivals = Arrivals::Together { count: 2, spread: Span::ZERO };
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 2).unwrap();
    for (_, counters) in seen.retired.values() {
        // One packet per millisecond: never more than scheduled; loopback has no loss.
        assert!((1..=505).contains(&counters.sent), "{counters:?}");
        assert_eq!(counters.sent_bytes, counters.sent * 1500);
        assert_eq!(counters.arrived_bytes / 1500 * 1472, counters.fresh_bytes);
        assert!(counters.arrived_bytes <= counters.sent_bytes, "{counters:?}");
    }
    assert_eq!(seen.gauges.unwrap().gap, Span::from_millis(1));
}

#[test]
fn cbr_with_an_end_completes() {
    let mut plan = FlowPlan::new("u", Carrier::UdpCbr { rate: Rate::from_mbps(1000) }, "", vec![0]);
    plan.size = FlowSize::Bytes(1_000_000);
    let seen = run_until(&plan, ms(60_000), |seen| seen.completed.len() == 1).unwrap();
    let counters = seen.total();
    // 679 full packets and one of 512 bytes.
    assert_eq!((counters.fresh_bytes, counters.sent), (1_000_000, 680));
    assert_eq!(counters.sent_bytes, 1_000_000 + 680 * 28);
}

// ---- sabul --------------------------------------------------------------------------------------

fn sabul_plan(size: FlowSize) -> FlowPlan {
    FlowPlan { size, ..FlowPlan::new("s", Transport::Sabul, "sabul2003", vec![0]) }
}

#[test]
fn sabul_copies_complete_with_their_bytes() {
    let mut plan = sabul_plan(FlowSize::Bytes(3_000_000));
    plan.arrivals = Arrivals::Chain { count: 3, parallel: 2 };
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 3).unwrap();
    assert_eq!(seen.completed.len(), 3);
    for (_, counters) in seen.retired.values() {
        assert_eq!(counters.fresh_bytes, 3_000_000);
        assert!(counters.sent >= 3_000_000 / u64::from(plan.payload_bytes()), "{counters:?}");
        assert!(counters.arrived_bytes > 3_000_000, "{counters:?}");
        assert!(counters.sent_bytes > 3_000_000, "{counters:?}");
    }
}

#[test]
fn sabul_reports_current_counters_and_can_be_stopped_any_time() {
    for profile in [Profile::Current, Profile::Sabul2003] {
        let ends = SabulEnds { profile, ..SabulEnds::default() };
        let mut plan = FlowPlan::new("s", ends, "sabul2003", vec![0]);
        plan.params = [("start", "published"), ("rate_mbps_initial", "20")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let has_begun = |seen: &Seen| {
            seen.fresh_bytes > 0 && seen.gauges.is_some_and(|gauges| gauges.rtt.is_some())
        };
        let seen = run_until(&plan, ms(60_000), has_begun).unwrap();
        assert_eq!(seen.completed.len(), 0);
        assert!(seen.total().fresh_bytes >= seen.fresh_bytes && seen.total().sent > 0, "{seen:?}");
        assert!(seen.gauges.unwrap().gap > Span::ZERO, "{seen:?}");
    }
}

#[test]
fn sabul_stops_at_the_planned_time() {
    let plan = FlowPlan { stop: Some(ms(300)), ..sabul_plan(FlowSize::Endless) };
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 1).unwrap();
    assert!(seen.retired[&0].0 >= ms(300), "{seen:?}");
}

#[test]
fn an_unknown_parameter_is_refused_before_the_run() {
    let mut plan = sabul_plan(FlowSize::Endless);
    plan.params = vec![("nonesuch".to_owned(), "1".to_owned())];
    let why = why(prepare(&plan).map(|_| Seen::default()));
    assert!(why.contains("nonesuch"), "{why}");
}

// ---- programs -----------------------------------------------------------------------------------

#[test]
fn a_program_that_exits_with_zero_is_complete() {
    let mut plan = command_plan(&["true"]);
    plan.arrivals = Arrivals::Chain { count: 2, parallel: 1 };
    assert!(prepare(&plan).unwrap().counts_by_router());
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 2).unwrap();
    assert_eq!(seen.completed.len(), 2);
    assert_eq!(seen.total(), Counters::default());
}

#[test]
fn a_failed_programs_last_output_is_quoted() {
    let plan = command_plan(&["sh", "-c", "echo to {far}; echo no route to {near} >&2; exit 3"]);
    let why = why(run_until(&plan, ms(60_000), |_| false));
    assert_eq!(why, "'sh' ended with code 3; it said: no route to 127.0.0.1");
    let plan = command_plan(&["false"]);
    let why = self::why(run_until(&plan, ms(60_000), |_| false));
    assert_eq!(why, "'false' ended with code 1; it said nothing");
}

#[test]
fn a_missing_program_fails() {
    assert!(run_until(&command_plan(&["/nonesuch"]), ms(60_000), |_| false).is_err());
    assert!(prepare(&command_plan(&[])).is_err());
}

#[test]
fn programs_get_sigterm_and_then_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let (ready, told) = (dir.path().join("ready"), dir.path().join("told"));
    let trap = format!("trap 'echo > {}; exit 9' TERM", told.display());
    for trap in [trap.as_str(), "trap '' TERM"] {
        let script = format!("{trap}; echo > {}; sleep 600 & wait; sleep 600", ready.display());
        let plan = command_plan(&["sh", "-c", &script]);
        let seen = run_until(&plan, ms(60_000), |_| ready.exists()).unwrap();
        assert_eq!((seen.completed.len(), seen.retired.len()), (0, 1));
        std::fs::remove_file(&ready).unwrap();
    }
    assert!(told.exists(), "it had time for its last words");
}

#[test]
fn a_program_is_stopped_at_the_planned_time() {
    let plan = FlowPlan { stop: Some(ms(100)), ..command_plan(&["sleep", "600"]) };
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 1).unwrap();
    assert!(seen.retired[&0].0 >= ms(100) && seen.completed.is_empty(), "{seen:?}");
}

#[test]
fn the_far_program_starts_first_and_its_failure_fails_the_flow() {
    let dir = tempfile::tempdir().unwrap();
    let there = dir.path().join("there").display().to_string();
    let near = ["sh", "-c", &format!("test -e {there}")];
    let plan = commands_plan(&near, &["sh", "-c", &format!("echo > {there}; sleep 600")]);
    let seen = run_until(&plan, ms(60_000), |seen| seen.retired.len() == 1).unwrap();
    assert_eq!(seen.completed.len(), 1);
    let plan = commands_plan(&["sleep", "600"], &["sh", "-c", "echo in use >&2; exit 4"]);
    // Usually before the start, unless another process in this namespace has begun to listen just
    // then.
    let why = why(run_until(&plan, ms(60_000), |_| false));
    assert_eq!(why, "'sh' ended with code 4; it said: in use");
}

/// A program with a TCP connection shows that connection's gauges.
#[test]
fn a_programs_gauges_are_those_of_its_largest_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut near = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (far, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut near, &[0; 1000]).unwrap();
    let plan = command_plan(&["sleep", "600"]);
    let seen = run_until(&plan, ms(60_000), |seen| seen.gauges.is_some()).unwrap();
    assert!(seen.gauges.unwrap().rtt.is_some());
    drop((near, far));
}

// ---- notes about a plan
// --------------------------------------------------------------------------

#[test]
fn ignored_plan_settings_are_listed_in_the_notes() {
    assert_eq!(notes(&sabul_plan(FlowSize::Endless)), [""; 0]);
    let mut plan = tcp_plan(FlowSize::Endless);
    assert_eq!(notes(&plan), [""; 0]);
    plan.window_packets = Some(7);
    let found = notes(&plan);
    assert!(found.len() == 1 && found[0].contains("window_packets"), "{found:?}");
}

#[test]
fn ecn_is_a_setting_of_the_hosts() {
    let plan = tcp_plan(FlowSize::Endless);
    let ecn = |plan: &FlowPlan| {
        let mut settings = host_settings(plan).into_iter();
        settings.find(|(name, _)| name.ends_with("ecn")).map(|(_, value)| value)
    };
    assert_eq!(ecn(&plan).as_deref(), Some("0"));
    let ends = TcpEnds { is_ecn_capable: true, ..TcpEnds::default() };
    let plan = FlowPlan::new("t", ends, "newreno", vec![0]);
    assert_eq!(ecn(&plan).as_deref(), Some("1"));
}
