//! Event log of a lab run, with reasons: ends of flows and router send events, one receiver formats
//! them.
//!
//! Lines are those of the simulator (`sabul_run::events`), in time since the start of the run.
//! Lines of an end of a flow have two more columns: `host`, `near` or `far`, and `transfer`, the
//! number of the copy's transfer in its session. Events before the start of the run are omitted.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use sabul::EventSink;
use sabul_net::Drop;
use sabul_run::events::drop_line;
use sabul_run::scenario::Scenario;

use crate::clock::Clock;

/// Callback for each line of the event log.
pub type OnEvent = Box<dyn FnMut(&str) + Send>;

/// An event.
#[derive(Debug)]
enum Told {
    Line(String),
    Drop(Drop),
}

/// Sender of events; clones share one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    told: Sender<Told>,
    clock: Arc<OnceLock<Clock>>,
}

impl Teller {
    /// Sets time zero: the run has begun.
    pub(crate) fn start(&self, clock: Clock) {
        // Only the first start counts; there is only one.
        let _ = self.clock.set(clock);
    }

    /// Returns the library's event sink for this end of this flow.
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

    /// Records a drop at the router.
    pub(crate) fn dropped(&self, drop: Drop) {
        self.tell(Told::Drop(drop));
    }

    fn tell(&self, told: Told) {
        // Events after the end of the run are discarded.
        let _ = self.told.send(told);
    }
}

/// Receiver of events.
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
    /// A connected sender and receiver of events.
    pub(crate) fn new(scenario: &Scenario, hear: OnEvent) -> (Teller, Self) {
        let (sender, told) = channel();
        let links = scenario.links.iter().map(|link| link.id.clone()).collect();
        let flows = scenario.flows.iter().map(|flow| flow.id.clone()).collect();
        let teller = Teller { told: sender, clock: Arc::default() };
        (teller, Self { told, hear, links, flows })
    }

    /// Formats all events since the last call.
    pub(crate) fn hear(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            match told {
                Told::Line(line) => (self.hear)(&line),
                Told::Drop(drop) => {
                    // The low 16 bits are the number of the pair's flow; the bits above number the
                    // pair's conversations.
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

    use sabul_net::{DropReason, LinkConfig, LinkPlan, Way};
    use sabul_run::scenario::{FlowPlan, Transport};
    use sabul_units::{Instant, Span};

    use super::*;

    #[test]
    fn a_drop_event_names_its_link_and_flow() {
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
