//! Flows of a run inside the hosts, started and stopped by their plan.
//!
//! A flow has a thread in each of its hosts, and that thread makes the flow's sockets. After
//! [`Flow::go`] a flow starts and stops its copies without further calls; the owner polls the
//! counters. A copy causes at most three events ([`FlowEvent`]): start, arrival of all bytes, and
//! end. A copy's counters are part of [`Flow::snapshot`] until its end is reported, and afterwards part
//! of [`FlowEvent::Retired`]. Every byte therefore counts exactly once.
//!
//! | Part | Is |
//! |---|---|
//! | `board.rs` | state shared between a flow's threads and its owner |
//! | `task.rs` | context and start of a flow's threads |
//! | `copies.rs` | start and stop times of copies |
//! | `tcp.rs`, `cbr.rs`, `sabul.rs`, `command.rs` | transports |
//!
//! Limits of a lab and requirements on hosts: [`notes`] and [`host_settings`].

mod board;
mod cbr;
mod command;
mod copies;
mod end;
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
use crate::events::EventSender;
use crate::host::Host;
use board::Board;
pub(crate) use board::FlowEvent;
use end::FlowEnd;
use task::{Engine, Order, Task};
pub use tcp::check_kernel_algorithm;

/// The two hosts of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// Sending host.
    pub(crate) near: Arc<Host>,
    pub(crate) near_address: IpAddr,
    /// Receiving host.
    pub(crate) far: Arc<Host>,
    pub(crate) far_address: IpAddr,
}

/// A flow of the scenario with all its copies, prepared or running.
#[derive(Debug)]
pub(crate) struct Flow {
    id: String,
    board: Arc<Board>,
    engine: Box<dyn Engine>,
    orders: watch::Sender<Order>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    /// Prepares both ends of a flow: listeners, servers and first handshakes. Before [`Flow::go`]
    /// nothing else is sent. TCP connections are not opened here, because opening is part of a
    /// copy's life.
    ///
    /// # Errors
    /// If the lab does not support the plan, or an end cannot be made.
    pub(crate) fn prepare(
        plan: &FlowPlan,
        ends: Ends,
        seed: u64,
        event_sender: Option<EventSender>,
    ) -> Result<Self, LabError> {
        let Ends { near, near_address, far, far_address } = ends;
        let (near, far) = (FlowEnd::host(near, near_address), FlowEnd::host(far, far_address));
        Self::prepare_at(plan, near, far, seed, event_sender)
    }

    fn prepare_at(
        plan: &FlowPlan,
        near: FlowEnd,
        far: FlowEnd,
        seed: u64,
        event_sender: Option<EventSender>,
    ) -> Result<Self, LabError> {
        ::sabul::internal::allow_many_files();
        let (orders, receiver) = watch::channel(Order::Wait);
        let board = Arc::new(Board::default());
        let task = Task {
            plan: plan.clone(),
            near,
            far,
            random: SeededRandom::new(seed).fork(&format!("flow/{}", plan.id)),
            board: Arc::clone(&board),
            orders: receiver,
            event_sender,
        };
        // A thread that waits for orders ends when `orders` is dropped, so an error leaves no
        // thread.
        let mut threads = Vec::new();
        let engine: Box<dyn Engine> = match plan.transport() {
            Transport::Tcp => Box::new(tcp::prepare(&task, &mut threads)?),
            Transport::UdpCbr => Box::new(cbr::prepare(&task, &mut threads)?),
            Transport::Sabul => Box::new(sabul::prepare(&task, &mut threads)?),
            Transport::Command => Box::new(command::prepare(&task, &mut threads)?),
        };
        Ok(Self { id: plan.id.clone(), board, engine, orders, threads })
    }

    /// Starts the flow on this clock; the flow stops by itself at `end` at the latest.
    pub(crate) fn go(&self, clock: Clock, end: Instant) {
        self.orders.send_replace(Order::Go { clock, end });
    }

    /// Returns the counters of live copies and the current gauges (of several copies, the oldest
    /// copy's).
    pub(crate) fn snapshot(&self) -> (Counters, Option<Gauges>) {
        self.engine.refresh();
        self.board.snapshot()
    }

    /// Returns the counters of each copy whose end has not been reported, as of the last look.
    pub(crate) fn copies(&self) -> Vec<(u64, Counters)> {
        self.board.copies()
    }

    /// Returns the events since the last call.
    pub(crate) fn events(&self) -> Vec<FlowEvent> {
        self.board.take_events()
    }

    /// Returns whether the router counts this flow. If so, the counters of [`Flow::snapshot`] and
    /// [`FlowEvent::Retired`] are zero, and only the gauges are valid.
    pub(crate) fn counts_by_router(&self) -> bool {
        self.engine.counts_by_router()
    }

    /// Checks that the flow has not failed.
    ///
    /// # Errors
    /// If the flow has failed; [`Flow::finish`] returns the same error.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        match self.board.failure() {
            Some(why) => Err(LabError::Flow { id: self.id.clone(), why }),
            None => Ok(()),
        }
    }

    /// Ends the flow: retires live copies, terminates programs (SIGTERM first) and joins threads.
    ///
    /// # Errors
    /// If the flow failed, or a program of a `command` flow ended with an error.
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

/// Returns remarks on how the lab runs this plan.
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

/// Returns the kernel settings that this flow requires of its hosts.
pub(crate) fn host_settings(plan: &FlowPlan) -> Vec<(String, String)> {
    let ecn = if plan.tcp().is_some_and(|ends| ends.is_ecn_capable) { "1" } else { "0" };
    vec![("net.ipv4.tcp_ecn".to_owned(), ecn.to_owned())]
}

#[cfg(test)]
mod tests;
