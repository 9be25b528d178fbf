//! The router in front of a link: the router half of an explicit controller, as packets pass; and a forger behind it.
//!
//! A packet is shown to it when it comes to the queue, whatever the queue makes of it, and when the serialiser
//! takes it. What it reads and rewrites is the congestion header of the packet, which is the payload's.

use std::fmt;

use sabul_cc::{Router, RouterStats, routers};
use sabul_units::{Bytes, CongestionHeader, Instant, Rate};

use crate::forge::Forger;
use crate::setting::{LinkError, ensure};

/// A payload that may have a congestion header.
pub trait Headed {
    /// The header, where it has one.
    fn congestion(&mut self) -> Option<&mut CongestionHeader>;
}

/// Which router a link has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterPlan {
    /// The name of its algorithm.
    pub algorithm: String,
    /// Parameters of that, as names and values.
    pub params: Vec<(String, String)>,
    /// The rate that it takes the link to have, where that is another than the link's.
    pub believes: Option<Rate>,
}

impl RouterPlan {
    /// That algorithm, with its defaults.
    pub fn new(algorithm: &str) -> Self {
        Self { algorithm: algorithm.to_owned(), params: Vec::new(), believes: None }
    }

    /// Whether a link of that rate can have it.
    pub(crate) fn check(&self, rate: Option<Rate>) -> Result<(), LinkError> {
        let is_allowed = rate.is_some_and(|rate| self.build(rate, 1).is_some());
        let value = || format!("{} {:?}", self.algorithm, self.params);
        let allowed =
            "an algorithm that routers have, with parameters of its own, on a link that has a rate";
        ensure(is_allowed, "router", value, allowed)
    }

    /// The router of a link of that rate, which goes by that number.
    pub(crate) fn build(&self, rate: Rate, id: u32) -> Option<Router> {
        let entry = routers::find(&self.algorithm).ok()?;
        entry.router(&self.params, self.believes.unwrap_or(rate), id).ok()
    }
}

/// Where a payload's header is, as far as the link knows.
pub(crate) type Find<P> = fn(&mut P) -> Option<&mut CongestionHeader>;

/// Who reads and writes headers at a link: a router, a forger, or both.
pub(crate) struct Seat<P> {
    router: Option<Router>,
    forger: Option<Forger>,
    find: Find<P>,
    framing: u32,
}

impl<P> Seat<P> {
    /// A seat for these two; none where there is neither.
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

impl<P> fmt::Debug for Seat<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("router", &self.router).finish_non_exhaustive()
    }
}

/// What a router says and has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterAccount {
    /// What it has seen.
    pub stats: RouterStats,
    /// The rate that it tells now, where its law has one.
    pub told: Option<Rate>,
}
