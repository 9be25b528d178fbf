//! What the threads of any flow work with, and how they start in their hosts.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use ::sabul::EventSink;
use sabul_run::meter::RttEstimate;
use sabul_run::scenario::FlowPlan;
use sabul_units::{Instant, SeededRandom, Span};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::board::Board;
use super::place::Place;
use crate::clock::Clock;
use crate::error::LabError;
use crate::events::Teller;

/// What a flow's threads are told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Stay prepared.
    Wait,
    /// The run has begun.
    Go { clock: Clock, end: Instant },
    /// Leave.
    Quit,
}

/// What the threads of any flow work with.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) plan: FlowPlan,
    pub(super) near: Place,
    pub(super) far: Place,
    /// The stream from which this plan draws.
    pub(super) random: SeededRandom,
    pub(super) board: Arc<Board>,
    pub(super) orders: watch::Receiver<Order>,
    /// Tells what happens, if anybody listens.
    pub(super) teller: Option<Teller>,
}

impl Task {
    pub(super) fn failed(&self, why: impl Into<String>) -> LabError {
        LabError::Flow { id: self.plan.id.clone(), why: why.into() }
    }

    /// Where the library's end in this host tells what happens.
    pub(super) fn sink(&self, host: &'static str) -> Option<EventSink> {
        self.teller.as_ref().map(|teller| teller.sink(&self.plan.id, host))
    }

    /// Waits for the run to begin; none if it never will.
    pub(super) async fn start(&mut self) -> Option<(Clock, Instant)> {
        loop {
            match *self.orders.borrow_and_update() {
                Order::Wait => {}
                Order::Go { clock, end } => return Some((clock, end)),
                Order::Quit => return None,
            }
            // The flow is gone, and with it whoever could say go.
            self.orders.changed().await.ok()?;
        }
    }

    /// Waits until there is nothing more to do.
    pub(super) async fn quit(&mut self) {
        while !self.is_over() && self.orders.changed().await.is_ok() {}
    }

    /// Whether there is nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.orders.borrow(), Order::Quit) || self.orders.has_changed().is_err()
    }
}

/// The kind of a flow, as its owner sees it.
pub(super) trait Engine: std::fmt::Debug + Send {
    /// Brings the board up to date.
    fn refresh(&self);

    /// Whether the router counts what this flow sends, because nobody else can.
    fn counts_by_router(&self) -> bool {
        false
    }
}

/// A runtime for the calling thread: what it starts stays in this thread's namespace.
pub(super) fn runtime() -> Result<Runtime, LabError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LabError::system("start the tasks of a flow"))
}

/// Says once how the preparation of a thread went.
pub(super) struct Prepared<T>(mpsc::Sender<Result<T, LabError>>);

impl<T> Prepared<T> {
    /// Tells it, and gives the value back to those who may go on. None after a failure.
    pub(super) fn tell<U>(self, result: Result<(T, U), LabError>) -> Option<U> {
        let (told, rest) = match result {
            Ok((value, rest)) => (Ok(value), Some(rest)),
            Err(error) => (Err(error), None),
        };
        // Whoever started this thread waits for it.
        self.0.send(told).ok()?;
        rest
    }
}

/// Starts a thread in a host and waits until it has prepared what it needs.
pub(super) fn start_thread<T: Send + 'static>(
    name: &str,
    place: &Place,
    threads: &mut Vec<JoinHandle<()>>,
    work: impl FnOnce(Prepared<T>) + Send + 'static,
) -> Result<T, LabError> {
    let (sender, receiver) = mpsc::channel();
    let inside = place.clone();
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

/// The round trip as far as averages tell: `latest` is the smoothed one.
pub(super) fn averaged_rtt(smoothed: Span, variance: Span, min: Span) -> Option<RttEstimate> {
    let rtt = RttEstimate { latest: smoothed, smoothed, variance, min };
    (smoothed > Span::ZERO).then_some(rtt)
}
