//! Event log of a lab run, with reasons: ends of flows and router send events, one receiver formats
//! them.
//!
//! Lines are those of the simulator (`sabul_run::events`), in time since the start of the run.
//! Lines of an end of a flow have two more columns: `host`, `near` or `far`, and `transfer`, the
//! number of the copy's transfer in its session. Events before the start of the run are omitted.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use sabul::settings::EventSink;
use sabul_net::DropEvent;
use sabul_run::events::drop_line;
use sabul_run::scenario::Scenario;

use crate::clock::Clock;

/// Callback for each line of the event log.
pub type OnEvent = Box<dyn FnMut(&str) + Send>;

/// An event.
#[derive(Debug)]
enum Message {
    Line(String),
    Drop(DropEvent),
}

/// Sender of events; clones share one receiver.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    messages: Sender<Message>,
    clock: Arc<OnceLock<Clock>>,
}

impl EventSender {
    /// Sets time zero: the run has begun.
    pub(crate) fn start(&self, clock: Clock) {
        // Only the first start counts; there is only one.
        let _ = self.clock.set(clock);
    }

    /// Returns the library's event sink for this end of this flow.
    pub(crate) fn sink(&self, flow: &str, host: &'static str) -> EventSink {
        let (event_sender, of) = (self.clone(), format!("flow:{flow}"));
        EventSink::new(move |event| {
            let Some(clock) = event_sender.clock.get() else { return };
            let Some(line) = event.to_json_since(clock.start_moment(), &of) else { return };
            let line = line.trim_end_matches('}');
            let transfer = event.transfer();
            let line = format!("{line},\"host\":\"{host}\",\"transfer\":{transfer}}}");
            event_sender.send(Message::Line(line));
        })
    }

    /// Records a drop at the router.
    pub(crate) fn dropped(&self, drop: DropEvent) {
        self.send(Message::Drop(drop));
    }

    fn send(&self, message: Message) {
        // Events after the end of the run are discarded.
        let _ = self.messages.send(message);
    }
}

/// Receiver of events.
pub(crate) struct EventReceiver {
    messages: Receiver<Message>,
    deliver: OnEvent,
    /// Names of links and flows.
    links: Vec<String>,
    flows: Vec<String>,
}

impl fmt::Debug for EventReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearer").finish_non_exhaustive()
    }
}

impl EventReceiver {
    /// A connected sender and receiver of events.
    pub(crate) fn new(scenario: &Scenario, deliver: OnEvent) -> (EventSender, Self) {
        let (sender, messages) = channel();
        let links = scenario.links.iter().map(|link| link.id.clone()).collect();
        let flows = scenario.flows.iter().map(|flow| flow.id.clone()).collect();
        let event_sender = EventSender { messages: sender, clock: Arc::default() };
        (event_sender, Self { messages, deliver, links, flows })
    }

    /// Formats all events since the last call.
    pub(crate) fn deliver(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Line(line) => (self.deliver)(&line),
                Message::Drop(drop) => {
                    // The low 16 bits are the number of the pair's flow; the bits above number the
                    // pair's conversations.
                    let flow = drop.flow.map(|flow| (flow & 0xffff) as usize);
                    let flow = flow.and_then(|flow| self.flows.get(flow)).map(String::as_str);
                    let link = self.links.get(drop.link).map_or("", String::as_str);
                    (self.deliver)(&drop_line(&drop, link, flow));
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
        let received = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&received);
        let deliver = move |line: &str| lines.lock().unwrap().push(line.to_owned());
        let (event_sender, mut event_receiver) = EventReceiver::new(&scenario, Box::new(deliver));
        let at = Instant::ZERO + Span::from_millis(5);
        // The third conversation of the second pair of hosts.
        let flow = Some(1 + (2 << 16));
        let drop =
            DropEvent { link: 0, way: Way::Back, at, why: DropReason::Full, flow, packets: 3 };
        event_sender.dropped(drop);
        event_receiver.deliver();
        assert_eq!(
            *received.lock().unwrap(),
            [
                r#"{"t_s":0.005000,"source":"link:l","event":"drop","way":"back","why":"full","packets":3,"flow":"b"}"#
            ]
        );
    }
}
