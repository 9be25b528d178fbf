//! Both ends of one flow: protocol, timers and counters.

mod application;
mod cbr;
mod control;
mod machine;
mod port;
mod sabul;
mod tcp;

use sabul_cc::Guarded;
use sabul_run::meter::{Counters, Gauges};
use sabul_run::scenario::{Carrier, FlowPlan};
use sabul_units::{Instant, SeededRandom};

use crate::net::Body;

pub(crate) use cbr::CbrHost;
pub(crate) use port::Port;
pub(crate) use sabul::{SabulHost, sizes as sabul_sizes};
pub(crate) use tcp::TcpHost;

/// Both ends of a flow.
#[derive(Debug)]
pub(crate) enum Host {
    Sabul(Box<SabulHost>),
    Tcp(Box<TcpHost>),
    Cbr(CbrHost),
}

impl Host {
    /// Creates the hosts of a flow with `bytes` to send, or endless, with a controller for each
    /// connection. `random` drives the random behaviour of machines.
    pub(crate) fn new(
        now: Instant,
        plan: &FlowPlan,
        bytes: Option<u64>,
        mut controllers: Vec<Guarded>,
        random: &SeededRandom,
    ) -> Self {
        match (&plan.carrier, controllers.pop()) {
            (Carrier::Tcp(ends), Some(last)) => {
                controllers.push(last);
                Self::Tcp(Box::new(TcpHost::new(now, plan, *ends, bytes, controllers)))
            }
            (Carrier::Sabul(ends), Some(controller)) => {
                Self::Sabul(Box::new(SabulHost::new(now, plan, *ends, bytes, controller, random)))
            }
            (Carrier::UdpCbr { rate }, _) => Self::Cbr(CbrHost::new(now, plan, Some(*rate), bytes)),
            // A world rejects flows of a command, and gives every other flow a controller.
            _ => Self::Cbr(CbrHost::new(now, plan, None, bytes)),
        }
    }

    /// Processes a packet at the receiving end.
    pub(crate) fn at_receiver(&mut self, now: Instant, body: &Body, is_marked: bool) {
        match self {
            Self::Sabul(host) => host.at_receiver(now, body, is_marked),
            Self::Tcp(host) => host.at_receiver(now, body, is_marked),
            Self::Cbr(host) => host.at_receiver(body),
        }
    }

    /// Processes a packet at the sending end.
    pub(crate) fn at_sender(&mut self, now: Instant, body: &Body) {
        match self {
            Self::Sabul(host) => host.at_sender(now, body),
            Self::Tcp(host) => host.at_sender(now, body),
            Self::Cbr(_) => {}
        }
    }

    /// Sends everything due at the sending end; returns when to call again.
    pub(crate) fn wake_sender(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        match self {
            Self::Sabul(host) => host.wake_sender(now, port),
            Self::Tcp(host) => host.wake_sender(now, port),
            Self::Cbr(host) => host.wake_sender(now, port),
        }
    }

    /// Sends everything due at the receiving end; returns when to call again.
    pub(crate) fn wake_receiver(&mut self, now: Instant, port: &mut Port<'_>) -> Option<Instant> {
        match self {
            Self::Sabul(host) => host.wake_receiver(now, port),
            Self::Tcp(host) => host.wake_receiver(now, port),
            Self::Cbr(_) => None,
        }
    }

    /// Whether everything has been sent and acknowledged.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Sabul(host) => host.is_over(),
            Self::Tcp(host) => host.is_over(),
            Self::Cbr(host) => host.is_over(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        match self {
            Self::Sabul(host) => host.counters(),
            Self::Tcp(host) => host.counters(),
            Self::Cbr(host) => host.counters(),
        }
    }

    pub(crate) fn gauges(&self) -> Gauges {
        match self {
            Self::Sabul(host) => host.gauges(),
            Self::Tcp(host) => host.gauges(),
            Self::Cbr(host) => host.gauges(),
        }
    }

    /// Describes the contract violation of the sending end's controller `cc`, if any.
    pub(crate) fn fault(&self, cc: &str) -> Option<String> {
        match self {
            Self::Sabul(host) => host.fault(cc),
            Self::Tcp(host) => host.fault(),
            Self::Cbr(_) => None,
        }
    }

    /// Starts to record events of controllers and fired protocol timers.
    pub(crate) fn listen(&mut self) {
        match self {
            Self::Sabul(host) => host.listen(),
            Self::Tcp(host) => host.listen(),
            Self::Cbr(_) => {}
        }
    }

    /// Appends the events since the last call as lines with the source `of`.
    pub(crate) fn drain_events(&mut self, of: &str, lines: &mut Vec<String>) {
        match self {
            Self::Sabul(host) => host.drain_events(of, lines),
            Self::Tcp(host) => host.drain_events(of, lines),
            Self::Cbr(_) => {}
        }
    }

    /// From now on, checks that each byte is delivered once, where packets have byte offsets.
    pub(crate) fn audit(&mut self) {
        if let Self::Sabul(host) = self {
            host.audit();
        }
    }

    /// Checks the invariants that hold between any two events.
    pub(crate) fn check_invariants(&self) {
        match self {
            Self::Sabul(host) => host.check_invariants(),
            Self::Tcp(host) => host.check_invariants(),
            Self::Cbr(_) => {}
        }
    }
}
