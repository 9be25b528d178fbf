//! Golden table: next state of `sabul2026` for each state and each kind of RTT, and the events of longer runs.
//!
//! The path is a fluid model: packets arrive at the rate of the window, at most at the capacity, and the excess queues.
//! While the excess is above 100 ms, a tenth of the packets is lost.
//! After an intended change, `SABUL_GOLDEN=write cargo test -p sabul-cc states` rewrites the text; explain the change in
//! the commit.

use std::fmt::Write;

use super::*;

const SOURCE: &str = include_str!("../../sabul2026.rs");
const PHASES: [&str; 6] = ["cruise", "probe", "settle", "test", "drain", "refill"];

/// One or more equal RTTs of a path.
#[derive(Clone, Copy)]
struct Rtts {
    count: u64,
    /// Rate that the path carries for this flow, in packets a second.
    capacity: f64,
    /// Queue of other flows in milliseconds.
    queue_ms: f64,
    /// Share of packets that is lost.
    lost: f64,
}

const fn rtts(count: u64, capacity: f64, queue_ms: f64, lost: f64) -> Rtts {
    Rtts { count, capacity, queue_ms, lost }
}

/// A controller on a path, with a line of text for each change of state and each reason.
struct Exchange {
    controller: Sabul2026,
    facts: Facts,
    phase: &'static str,
    lines: Vec<String>,
}

impl Exchange {
    fn new(mut controller: Sabul2026) -> Self {
        controller.probing.at = Instant::ZERO;
        Self { controller, facts: Facts::new(), phase: "cruise", lines: Vec::new() }
    }

    /// Sends ten ACKs per RTT.
    fn pass(&mut self, rtts: Rtts) {
        let base = BASE.as_secs_f64();
        for _ in 0..rtts.count * 10 {
            let excess = (self.controller.allowed() - rtts.capacity * base).max(0.0);
            let queue_ms = rtts.queue_ms + excess / rtts.capacity * 1e3;
            let lost = if excess > 0.1 * rtts.capacity { 0.1 } else { rtts.lost };
            let rate = self.controller.allowed() / (base + rtts.queue_ms / 1e3);
            self.facts.feed_once(&mut self.controller, rate.min(rtts.capacity), queue_ms, lost);
            self.record();
        }
    }

    fn time_out(&mut self) {
        let mut cx = cx(self.facts.now, BASE).with_reasons(Some(&mut self.facts.reasons));
        self.controller.on_timeout(&mut cx);
        self.record();
    }

    fn record(&mut self) {
        let reasons: Vec<&str> =
            self.facts.reasons.take().into_iter().flatten().map(Reason::word).collect();
        let phase = self.controller.phase().name();
        if phase != self.phase || !reasons.is_empty() {
            let ms = self.facts.now.since(Instant::ZERO).as_millis_f64();
            let window = self.controller.window_packets;
            self.lines.push(format!("{ms:.0} ms | {phase} | {window:.0} | {}", reasons.join("+")));
        }
        self.phase = phase;
    }
}

/// Returns a controller in this state, at half of the link's rate and without a queue.
fn in_state(phase: &str) -> Exchange {
    let mut exchange = Exchange::new(found(LINK / 2.0));
    exchange.controller.probing.at = Instant::MAX;
    exchange.pass(rtts(3, LINK / 2.0, 0.0, 0.0));
    let epoch = Epoch {
        rate_pps: LINK / 2.0,
        carried_pps: LINK / 2.0,
        packets: LINK / 20.0,
        lost: 0.02,
        shortest_s: 0.1,
        longest_s: 0.1,
        is_limited: false,
    };
    let controller = &mut exchange.controller;
    match phase {
        "probe" => {
            controller.start_probe(&epoch);
            if let State::Probe(probe) = &mut controller.state {
                probe.epochs_left = 0;
            }
        }
        "settle" => controller.state = State::Settle(1),
        "test" => {
            controller.losses.start_test(exchange.facts.now);
            controller.start_test(epoch.lost, &epoch);
            if let State::Test(test) = &mut controller.state {
                test.settles_left = 0;
            }
        }
        "drain" => {
            controller.state = State::Drain { window: 400.0, until: exchange.facts.now };
        }
        "refill" => controller.state = State::Refill,
        _ => {}
    }
    assert_eq!(controller.phase().name(), phase);
    exchange.lines.clear();
    exchange.phase = controller.phase().name();
    exchange
}

fn transitions() -> String {
    let half = LINK / 2.0;
    let kinds = [
        ("no queue", Some(rtts(1, half, 0.0, 0.0))),
        ("more arrives", Some(rtts(1, LINK, 0.0, 0.0))),
        ("a queue of 30 ms", Some(rtts(1, half, 30.0, 0.0))),
        ("a queue of 60 ms, 5 % lost", Some(rtts(1, half, 60.0, 0.05))),
        ("1 % lost, no queue", Some(rtts(1, half, 0.0, 0.01))),
        ("half is lost, no queue", Some(rtts(1, half, 0.0, 0.5))),
        ("timeout", None),
    ];
    let mut text = "state | one RTT | next states | window before | after | reasons\n".to_owned();
    for phase in PHASES {
        for (name, kind) in kinds {
            let mut exchange = in_state(phase);
            let before = exchange.controller.window_packets;
            match kind {
                Some(rtts) => exchange.pass(rtts),
                None => exchange.time_out(),
            }
            let after = exchange.controller.window_packets;
            let column = |number: usize| {
                let cells = exchange.lines.iter().filter_map(|line| line.split(" | ").nth(number));
                cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", ")
            };
            let (next, reasons) = (column(1), column(3));
            writeln!(text, "{phase} | {name} | {next} | {before:.0} | {after:.0} | {reasons}")
                .unwrap();
        }
    }
    text
}

fn runs() -> String {
    let half = LINK / 2.0;
    let runs: [(&str, Policy, &[Rtts]); 6] = [
        ("alone on the link", Policy::Fair, &[rtts(80, LINK, 0.0, 0.0)]),
        (
            "the link becomes twice as fast",
            Policy::Fair,
            &[rtts(40, half, 0.0, 0.0), rtts(60, LINK, 0.0, 0.0)],
        ),
        ("two per cent of random loss", Policy::Fair, &[rtts(120, LINK, 0.0, 0.02)]),
        (
            "a queue overflows",
            Policy::Fair,
            &[rtts(20, half, 30.0, 0.0), rtts(1, half, 40.0, 0.1), rtts(20, half, 0.0, 0.0)],
        ),
        (
            "a competitor fills the queue, and leaves",
            Policy::Fair,
            &[rtts(3, half, 0.0, 0.0), rtts(40, half, 200.0, 0.0), rtts(400, LINK, 0.0, 0.0)],
        ),
        (
            "policy low, another flow's queue",
            Policy::Low,
            &[rtts(20, LINK, 0.0, 0.0), rtts(10, half, 40.0, 0.0), rtts(60, LINK, 0.0, 0.0)],
        ),
    ];
    let mut text = String::new();
    for (name, policy, parts) in runs {
        let mut controller = found(LINK / 2.0);
        controller.gains = PolicyGains::of(policy);
        let mut exchange = Exchange::new(controller);
        parts.iter().for_each(|part| exchange.pass(*part));
        writeln!(text, "\n{name}: time | state | window | reasons").unwrap();
        exchange.lines.iter().for_each(|line| writeln!(text, "{line}").unwrap());
    }
    text
}

#[test]
fn the_states_and_events_match_the_golden_table() {
    let text = transitions() + &runs();
    crate::conformance::compare_golden("states/sabul2026.txt", &text);
}

#[test]
fn each_state_and_each_reason_of_the_source_occurs_in_the_table() {
    let text = transitions() + &runs();
    let of_source = SOURCE.match_indices("Reason::Own(").flat_map(|(at, _)| {
        let rest = &SOURCE[at..];
        let call = &rest[..rest.find(");").unwrap_or(rest.len())];
        call.split('"').skip(1).step_by(2)
    });
    let missing: Vec<&str> = of_source.chain(PHASES).filter(|word| !text.contains(*word)).collect();
    assert_eq!(missing, [""; 0]);
}
