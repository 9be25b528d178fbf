//! Context of a flow's threads, and their start in the hosts.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use ::sabul::settings::EventSink;
use sabul_run::meter::RttEstimate;
use sabul_run::scenario::FlowPlan;
use sabul_units::{Instant, SeededRandom, Span};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::board::Board;
use super::end::FlowEnd;
use crate::clock::Clock;
use crate::error::LabError;
use crate::events::EventSender;

/// Order to a flow's threads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Stay prepared.
    Wait,
    /// Start the run.
    Go { clock: Clock, end: Instant },
    /// Stop.
    Quit,
}

/// Context of a flow's threads.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) plan: FlowPlan,
    pub(super) near: FlowEnd,
    pub(super) far: FlowEnd,
    /// Random stream of this plan.
    pub(super) random: SeededRandom,
    pub(super) board: Arc<Board>,
    pub(super) orders: watch::Receiver<Order>,
    /// Sender of events, if the run has an event log.
    pub(super) event_sender: Option<EventSender>,
}

impl Task {
    pub(super) fn failed(&self, why: impl Into<String>) -> LabError {
        LabError::Flow { id: self.plan.id.clone(), why: why.into() }
    }

    /// Returns the event sink of the library's end in this host.
    pub(super) fn sink(&self, host: &'static str) -> Option<EventSink> {
        self.event_sender.as_ref().map(|event_sender| event_sender.sink(&self.plan.id, host))
    }

    /// Waits for the start of the run; `None` if the flow stops before.
    pub(super) async fn start(&mut self) -> Option<(Clock, Instant)> {
        loop {
            match *self.orders.borrow_and_update() {
                Order::Wait => {}
                Order::Go { clock, end } => return Some((clock, end)),
                Order::Quit => return None,
            }
            // An error means that the flow has been dropped.
            self.orders.changed().await.ok()?;
        }
    }

    /// Waits until the flow is over.
    pub(super) async fn quit(&mut self) {
        while !self.is_over() && self.orders.changed().await.is_ok() {}
    }

    /// Whether the flow is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.orders.borrow(), Order::Quit) || self.orders.has_changed().is_err()
    }
}

/// A transport, as used by the flow's owner.
pub(super) trait Engine: std::fmt::Debug + Send {
    /// Updates the board.
    fn refresh(&self);

    /// Whether only the router can count this flow.
    fn counts_by_router(&self) -> bool {
        false
    }
}

/// A runtime on the calling thread: its tasks stay in this thread's namespace.
pub(super) fn runtime() -> Result<Runtime, LabError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LabError::system("start the tasks of a flow"))
}

/// One-time report of a thread's preparation.
pub(super) struct Prepared<T>(mpsc::Sender<Result<T, LabError>>);

impl<T> Prepared<T> {
    /// Sends the result and returns the second value; `None` after a failure.
    pub(super) fn report<U>(self, result: Result<(T, U), LabError>) -> Option<U> {
        let (outcome, rest) = match result {
            Ok((value, rest)) => (Ok(value), Some(rest)),
            Err(error) => (Err(error), None),
        };
        // The thread that started this thread waits for the result.
        self.0.send(outcome).ok()?;
        rest
    }
}

/// Starts a thread in a host and waits for its preparation.
pub(super) fn start_thread<T: Send + 'static>(
    name: &str,
    end: &FlowEnd,
    threads: &mut Vec<JoinHandle<()>>,
    work: impl FnOnce(Prepared<T>) + Send + 'static,
) -> Result<T, LabError> {
    let (sender, receiver) = mpsc::channel();
    let inside = end.clone();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || match inside.enter() {
            Ok(()) => work(Prepared(sender)),
            Err(error) => drop(sender.send(Err(error))),
        })
        .map_err(LabError::system("start a thread"))?;
    threads.push(thread);
    receiver.recv().unwrap_or_else(|_| {
        Err(LabError::Program("a thread of a flow ended while it was prepared".to_owned()))
    })
}

/// An RTT estimate from smoothed values only: `latest` is the smoothed RTT.
pub(super) fn averaged_rtt(smoothed: Span, variance: Span, min: Span) -> Option<RttEstimate> {
    let rtt = RttEstimate { latest: smoothed, smoothed, variance, min };
    (smoothed > Span::ZERO).then_some(rtt)
}
