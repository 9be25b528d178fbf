//! Router in front of a link: the router half of an explicit controller, and an optional forger
//! behind it.
//!
//! The router processes a packet twice: at arrival, whatever the queue then does with the packet,
//! and when the serialiser takes the packet. The router reads and rewrites the congestion header,
//! which is part of the payload.

use std::fmt;

use sabul_cc::router::{Router, RouterStats};
use sabul_lab_cc::routers;
use sabul_units::{Bytes, CongestionHeader, Instant, Rate};

use crate::forge::Forger;
use crate::setting::{LinkError, ensure};

/// A payload that may contain a congestion header.
pub trait Headed {
    /// Returns the header, if the payload has one.
    fn congestion(&mut self) -> Option<&mut CongestionHeader>;
}

/// Router settings of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterPlan {
    /// Name of the algorithm.
    pub algorithm: String,
    /// Parameters of the algorithm, as names and values.
    pub params: Vec<(String, String)>,
    /// Rate that the router assumes for the link, where different from the link's rate.
    pub assumed_rate: Option<Rate>,
}

impl RouterPlan {
    /// Creates the settings of an algorithm with default parameters.
    pub fn new(algorithm: &str) -> Self {
        Self { algorithm: algorithm.to_owned(), params: Vec::new(), assumed_rate: None }
    }

    /// Checks that a link of this rate can have this router.
    pub(crate) fn check(&self, rate: Option<Rate>) -> Result<(), LinkError> {
        let is_allowed = rate.is_some_and(|rate| self.build(rate, 1).is_some());
        let value = || format!("{} {:?}", self.algorithm, self.params);
        let allowed =
            "an algorithm that routers have, with parameters of its own, on a link that has a rate";
        ensure(is_allowed, "router", value, allowed)
    }

    /// Creates the router of a link of this rate; `id` identifies it.
    pub(crate) fn build(&self, rate: Rate, id: u32) -> Option<Router> {
        let entry = routers::find(&self.algorithm).ok()?;
        entry.router(&self.params, self.assumed_rate.unwrap_or(rate), id).ok()
    }
}

/// Function that finds the congestion header in a payload.
pub(crate) type Find<P> = fn(&mut P) -> Option<&mut CongestionHeader>;

/// Processes headers at a link: a router, a forger, or both.
pub(crate) struct AttachedRouter<P> {
    router: Option<Router>,
    forger: Option<Forger>,
    find: Find<P>,
    framing: u32,
}

impl<P> AttachedRouter<P> {
    /// Returns `None` where there is neither a router nor a forger.
    pub(crate) fn new(
        router: Option<Router>,
        forger: Option<Forger>,
        framing: u32,
    ) -> Option<Self> {
        let is_taken = router.is_some() || forger.is_some();
        is_taken.then_some(Self { router, forger, find: |_| None, framing })
    }

    pub(crate) fn set_find(&mut self, find: Find<P>) {
        self.find = find;
    }

    pub(crate) fn router(&self) -> Option<&Router> {
        self.router.as_ref()
    }

    #[cold] // Few links have a router.
    pub(crate) fn arrived(&mut self, now: Instant, size: u32, queue: u64, payload: &mut P) {
        let size = Bytes(u64::from(size + self.framing));
        if let Some(router) = &mut self.router {
            router.arrived(now, size, Bytes(queue), (self.find)(payload));
        }
    }

    #[cold]
    pub(crate) fn departs(&mut self, now: Instant, size: u32, queue: u64, payload: &mut P) {
        let size = Bytes(u64::from(size + self.framing));
        let mut header = (self.find)(payload);
        if let Some(router) = &mut self.router {
            router.departs(now, size, Bytes(queue), header.as_deref_mut());
        }
        if let (Some(forger), Some(header)) = (&mut self.forger, header) {
            forger.forge(header);
        }
    }
}

impl<P> fmt::Debug for AttachedRouter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedRouter").field("router", &self.router).finish_non_exhaustive()
    }
}

/// State of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterAccount {
    /// Counters.
    pub stats: RouterStats,
    /// The rate that the router grants now, where the algorithm has such a rate.
    pub signalled_rate: Option<Rate>,
}
