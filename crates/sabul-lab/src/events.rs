//! What happens in a run, and why: the ends of flows and the router tell it, whoever measures hears it.
//!
//! Lines are those of the simulator (`sabul_run::events`) in time since the start of the run, with two columns
//! more where an end of a flow tells: `host`, `near` or `far`, and `transfer`, the number of the copy's transfer
//! in its session. What was prepared before the run is not told.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use sabul::EventSink;
use sabul_path::Drop;
use sabul_run::events::drop_line;
use sabul_run::scenario::Scenario;

use crate::clock::Clock;

/// Hears of everything that happens, a line each.
pub type OnEvent = Box<dyn FnMut(&str) + Send>;

/// What is told.
#[derive(Debug)]
enum Told {
    Line(String),
    Drop(Drop),
}

/// Tells what happens; clones tell the same hearer.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    told: Sender<Told>,
    clock: Arc<OnceLock<Clock>>,
}

impl Teller {
    /// The run has begun.
    pub(crate) fn start(&self, clock: Clock) {
        // The first start counts; there is one.
        let _ = self.clock.set(clock);
    }

    /// For the library, at this end of this flow.
    pub(crate) fn sink(&self, flow: &str, host: &'static str) -> EventSink {
        let (teller, of) = (self.clone(), format!("flow:{flow}"));
        EventSink::new(move |told| {
            let Some(clock) = teller.clock.get() else { return };
            let Some(line) = told.to_json_since(clock.start_moment(), &of) else { return };
            let line = line.trim_end_matches('}');
            let transfer = told.transfer();
            let line = format!("{line},\"host\":\"{host}\",\"transfer\":{transfer}}}");
            teller.tell(Told::Line(line));
        })
    }

    /// The router dropped packets.
    pub(crate) fn dropped(&self, drop: Drop) {
        self.tell(Told::Drop(drop));
    }

    fn tell(&self, told: Told) {
        // Nobody hears what happens after the end.
        let _ = self.told.send(told);
    }
}

/// Hears what is told.
pub(crate) struct Hearer {
    told: Receiver<Told>,
    hear: OnEvent,
    /// Names of links and flows.
    links: Vec<String>,
    flows: Vec<String>,
}

impl fmt::Debug for Hearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearer").finish_non_exhaustive()
    }
}

impl Hearer {
    /// Someone who hears, and what to tell him with.
    pub(crate) fn new(scenario: &Scenario, hear: OnEvent) -> (Teller, Self) {
        let (sender, told) = channel();
        let links = scenario.links.iter().map(|link| link.id.clone()).collect();
        let flows = scenario.flows.iter().map(|flow| flow.id.clone()).collect();
        let teller = Teller { told: sender, clock: Arc::default() };
        (teller, Self { told, hear, links, flows })
    }

    /// Takes in what was told since the last call.
    pub(crate) fn hear(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            match told {
                Told::Line(line) => (self.hear)(&line),
                Told::Drop(drop) => {
                    // Below the conversations of a pair of hosts is the number of its flow.
                    let flow = drop.flow.map(|flow| (flow & 0xffff) as usize);
                    let flow = flow.and_then(|flow| self.flows.get(flow)).map(String::as_str);
                    let link = self.links.get(drop.link).map_or("", String::as_str);
                    (self.hear)(&drop_line(&drop, link, flow));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sabul_path::{DropReason, LinkConfig, LinkPlan, Way};
    use sabul_run::scenario::{FlowPlan, Transport};
    use sabul_units::{Instant, Span};

    use super::*;

    #[test]
    fn a_drop_is_told_by_the_names_of_link_and_flow() {
        let link = LinkConfig::builder().build().unwrap();
        let scenario = Scenario {
            name: "x".to_owned(),
            duration: Span::from_secs(1),
            warmup: Span::ZERO,
            sample: Span::from_secs(1),
            seed: 1,
            links: vec![LinkPlan { id: "l".to_owned(), forward: link.clone(), back: link }],
            flows: ["a", "b"].map(|id| FlowPlan::new(id, Transport::Tcp, "cubic", vec![0])).into(),
        };
        let heard = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&heard);
        let hear = move |line: &str| lines.lock().unwrap().push(line.to_owned());
        let (teller, mut hearer) = Hearer::new(&scenario, Box::new(hear));
        let at = Instant::ZERO + Span::from_millis(5);
        // The third conversation of the second pair of hosts.
        let flow = Some(1 + (2 << 16));
        let drop = Drop { link: 0, way: Way::Back, at, why: DropReason::Full, flow, packets: 3 };
        teller.dropped(drop);
        hearer.hear();
        assert_eq!(
            *heard.lock().unwrap(),
            [
                r#"{"t_s":0.005000,"source":"link:l","event":"drop","way":"back","why":"full","packets":3,"flow":"b"}"#
            ]
        );
    }
}
