//! What runs in the hosts: flows that start and stop when their plan says.
//!
//! A flow has a thread of its own in each of its hosts, in which its sockets are made. Once told to
//! go ([`Flow::go`]) it keeps its times itself; whoever owns it looks at what it counts. Every copy of
//! a flow is told of three times at most ([`FlowEvent`]): when it starts, when all its bytes have
//! arrived, and when it is over. What a copy has counted is part of [`Flow::look`] until its end has
//! been told, and of [`FlowEvent::Retired`] from then on, so that no byte counts twice or never.
//!
//! | Part | Is |
//! |---|---|
//! | `board.rs` | what the threads of a flow write down |
//! | `task.rs` | what they work with, and how they start |
//! | `copies.rs` | when copies start, and until when they run |
//! | `tcp.rs`, `cbr.rs`, `sabul.rs`, `command.rs` | who carries the data |
//!
//! What a lab can do about a plan and what it cannot: [`notes`] and [`host_settings`].

mod board;
mod cbr;
mod command;
mod copies;
mod place;
mod sabul;
mod task;
mod tcp;

use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use sabul_run::meter::{Counters, Gauges};
use sabul_run::scenario::{FlowPlan, Transport};
use sabul_units::{Instant, SeededRandom};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::LabError;
use crate::events::Teller;
use crate::host::Host;
use board::Board;
pub(crate) use board::FlowEvent;
use place::Place;
use task::{Engine, Order, Task};
pub use tcp::check_kernel_algorithm;

/// The two hosts of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// Where data comes from.
    pub(crate) near: Arc<Host>,
    pub(crate) near_address: IpAddr,
    /// Where it goes.
    pub(crate) far: Arc<Host>,
    pub(crate) far_address: IpAddr,
}

/// A flow of the scenario, prepared or running: all copies of it.
#[derive(Debug)]
pub(crate) struct Flow {
    id: String,
    board: Arc<Board>,
    engine: Box<dyn Engine>,
    orders: watch::Sender<Order>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    /// Prepares the hosts' ends (listeners, servers, first handshakes are done); nothing is sent
    /// before [`Flow::go`] but that. TCP connections are the exception: opening one is part of its
    /// copy's life.
    ///
    /// # Errors
    /// If the plan asks for what cannot be done here, or an end cannot be made.
    pub(crate) fn prepare(
        plan: &FlowPlan,
        ends: Ends,
        seed: u64,
        teller: Option<Teller>,
    ) -> Result<Self, LabError> {
        let Ends { near, near_address, far, far_address } = ends;
        let (near, far) = (Place::host(near, near_address), Place::host(far, far_address));
        Self::prepare_at(plan, near, far, seed, teller)
    }

    fn prepare_at(
        plan: &FlowPlan,
        near: Place,
        far: Place,
        seed: u64,
        teller: Option<Teller>,
    ) -> Result<Self, LabError> {
        ::sabul::allow_many_files();
        let (orders, receiver) = watch::channel(Order::Wait);
        let board = Arc::new(Board::default());
        let task = Task {
            plan: plan.clone(),
            near,
            far,
            random: SeededRandom::new(seed).fork(&format!("flow/{}", plan.id)),
            board: Arc::clone(&board),
            orders: receiver,
            teller,
        };
        // A thread that waits for orders ends when `orders` is dropped, so an error leaves none.
        let mut threads = Vec::new();
        let engine: Box<dyn Engine> = match plan.transport() {
            Transport::Tcp => Box::new(tcp::prepare(&task, &mut threads)?),
            Transport::UdpCbr => Box::new(cbr::prepare(&task, &mut threads)?),
            Transport::Sabul => Box::new(sabul::prepare(&task, &mut threads)?),
            Transport::Command => Box::new(command::prepare(&task, &mut threads)?),
        };
        Ok(Self { id: plan.id.clone(), board, engine, orders, threads })
    }

    /// Lets it start and stop by itself, on this clock, until `end`.
    pub(crate) fn go(&self, clock: Clock, end: Instant) {
        self.orders.send_replace(Order::Go { clock, end });
    }

    /// What its live copies have counted, and what stands for them (of many copies, for the oldest).
    pub(crate) fn look(&self) -> (Counters, Option<Gauges>) {
        self.engine.refresh();
        self.board.look()
    }

    /// What each copy has counted whose end has not been told, as of the last look.
    pub(crate) fn copies(&self) -> Vec<(u64, Counters)> {
        self.board.copies()
    }

    /// What has happened since the last call.
    pub(crate) fn events(&self) -> Vec<FlowEvent> {
        self.board.take_events()
    }

    /// Whether the counters are the router's business: those of [`Flow::look`] and
    /// [`FlowEvent::Retired`] are zero, and only the gauges mean something.
    pub(crate) fn counts_by_router(&self) -> bool {
        self.engine.counts_by_router()
    }

    /// Whether it still does what it should.
    ///
    /// # Errors
    /// If it has failed, which [`Flow::finish`] will say too.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        match self.board.failure() {
            Some(why) => Err(LabError::Flow { id: self.id.clone(), why }),
            None => Ok(()),
        }
    }

    /// Ends it: what still runs is retired, programs are ended (politely first), threads joined.
    ///
    /// # Errors
    /// If it failed on the way; a program of a `command` flow that ended badly, too.
    pub(crate) fn finish(mut self) -> Result<Vec<FlowEvent>, LabError> {
        self.stop();
        self.check()?;
        Ok(self.events())
    }

    fn stop(&mut self) {
        self.orders.send_replace(Order::Quit);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.board.fail("a fault of this program ended one of its threads");
            }
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a reader should know of how this plan is carried here.
pub(crate) fn notes(plan: &FlowPlan) -> Vec<String> {
    let mut notes = Vec::new();
    let id = &plan.id;
    if plan.transport() == Transport::Tcp && plan.window_packets.is_some() {
        notes.push(format!(
            "flow '{id}': the kernel's receive window follows window_packets only roughly"
        ));
    }
    notes
}

/// Kernel settings that this flow asks of its hosts, for those who make them.
pub(crate) fn host_settings(plan: &FlowPlan) -> Vec<(String, String)> {
    let ecn = if plan.tcp().is_some_and(|ends| ends.is_ecn_capable) { "1" } else { "0" };
    vec![("net.ipv4.tcp_ecn".to_owned(), ecn.to_owned())]
}

#[cfg(test)]
mod tests;
