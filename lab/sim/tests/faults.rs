//! Controllers that violate their contract: the run fails and names the controller.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Once;

use sabul_cc::{Acked, Context, Controller, LossReport, SendLimits};
use sabul_lab_cc::registry::{self, Entry, Family};
use sabul_net::{LinkConfig, LinkPlan};
use sabul_run::scenario::{Arrivals, FlowPlan, FlowSize, Scenario, Transport};
use sabul_sim::{FlowFault, Outcome, World};
use sabul_units::{Gap, Instant, Packets, Rate, Span};

/// A window of ten packets, until the controller has been notified of 500.
#[derive(Debug)]
struct Broken {
    limits: SendLimits,
    then: fn(&mut SendLimits),
}

impl Controller for Broken {
    fn limits(&self) -> SendLimits {
        self.limits
    }
    fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        if acked.total > Packets(500) {
            (self.then)(&mut self.limits);
        }
    }
}

fn broken(then: fn(&mut SendLimits)) -> Box<dyn Controller> {
    let limits = SendLimits { gap: Gap::NONE, window: Some(Packets(10)), hold_until: None };
    Box::new(Broken { limits, then })
}

const FINE: Entry = Entry::new("wide-open", Family::Window, |_, _| {
    Ok(broken(|limits| limits.window = Some(Packets(u64::MAX))))
})
.without_loss_response();

const ADDED: &[Entry] = &[
    FINE,
    Entry { name: "wild", build: |_, _| Ok(broken(|_| panic!("no such {}", "cell"))), ..FINE },
    Entry {
        name: "shut",
        build: |_, _| Ok(broken(|limits| limits.window = Some(Packets(0)))),
        ..FINE
    },
    Entry {
        name: "asleep",
        build: |_, _| Ok(broken(|limits| limits.hold_until = Some(Instant::MAX))),
        ..FINE
    },
    Entry { name: "aimless", build: |_, _| Ok(broken(|limits| limits.window = None)), ..FINE },
    Entry { name: "stillborn", build: |_, _| panic!("not today"), ..FINE },
];

fn add() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| registry::add(ADDED).unwrap());
}

fn run(transport: Transport, cc: &str, change: fn(&mut FlowPlan)) -> Result<Outcome, FlowFault> {
    add();
    let link =
        LinkConfig::droptail(Rate::from_mbps(50), Span::from_millis(10), 50).build().unwrap();
    let mut flow = FlowPlan::new("bad", transport, cc, vec![0]);
    change(&mut flow);
    let good = FlowPlan::new("good", Transport::Tcp, "cubic", vec![0]);
    let scenario = Scenario {
        name: "faults".to_owned(),
        duration: Span::from_secs(5),
        links: vec![LinkPlan { id: "l".to_owned(), forward: link.clone(), back: link }],
        flows: vec![good, flow],
        ..Scenario::default()
    };
    World::new(scenario).unwrap().run()
}

#[track_caller]
fn assert_fault(transport: Transport, cc: &str, what: &str) {
    let text = run(transport, cc, |_| {}).unwrap_err().to_string();
    let start = format!("flow 'bad': controller '{cc}' is at fault: ");
    assert!(text.starts_with(&start) && text.contains(what), "{text}");
}

#[test]
fn a_controller_fault_fails_the_run_on_either_transport() {
    for transport in [Transport::Sabul, Transport::Tcp] {
        assert_fault(transport, "wild", "its on_ack panicked: no such cell");
        assert_fault(transport, "shut", "its on_ack left a window of 0 packets");
        assert_fault(transport, "asleep", "its on_ack left a hold");
        assert_fault(transport, "aimless", "its on_ack left no window");
        assert_fault(transport, "stillborn", "its build panicked: not today");
    }
}

#[test]
fn a_fault_just_before_a_flow_ends_is_detected() {
    // 80 packets per copy; the fault occurs at the 501st of a copy, so these complete.
    let short = |flow: &mut FlowPlan| {
        flow.size = FlowSize::Bytes(100_000);
        flow.arrivals = Arrivals::Chain { count: 10, parallel: 1 };
    };
    assert!(run(Transport::Tcp, "wild", short).is_ok());
    let long = |flow: &mut FlowPlan| flow.size = FlowSize::Bytes(800_000);
    assert!(run(Transport::Tcp, "wild", long).is_err());
}

/// TCP's largest window, 2^30 bytes, limits a sender without any other limit. Our own sender, at
/// the 100 Gb/s of its interface, waits when too many packets have no acknowledgement.
#[test]
fn an_unbounded_window_is_legal_and_the_run_still_ends() {
    for transport in [Transport::Tcp, Transport::Sabul] {
        let outcome = run(transport, "wide-open", |_| {}).unwrap();
        let bad = &outcome.results.flows[1];
        assert!(bad.packets_sent > 500_000, "{transport:?}: {}", bad.packets_sent);
        assert!(bad.goodput_bps > 0.0, "{transport:?}");
    }
}

#[test]
fn added_controllers_are_found_and_suggested_like_builtin_ones() {
    add();
    assert_eq!(registry::find("wide-open").unwrap().family, Family::Window);
    let text = registry::find("widopen").unwrap_err().to_string();
    assert!(text.contains("nearest: wide-open;"), "{text}");
    assert_eq!(
        registry::all().count(),
        sabul_cc::registry::ENTRIES.len() + registry::ENTRIES.len() + ADDED.len()
    );
    let text = registry::add(&[]).unwrap_err().to_string();
    assert!(text.contains("one call of add"), "{text}");
}
