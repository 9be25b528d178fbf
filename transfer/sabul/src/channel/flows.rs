//! Controllers that several channels share: the channels of a copy, or consecutive requests of a session.
//!
//! Model:       a request for ranges is a short transfer with a channel of its own. Without the controller of earlier
//!              requests, each request would begin with a search for the rate, which takes several RTTs.
//! Bounds:      [`KEPT_MAX`] controllers a session; the oldest is dropped first.
//! Not here:    the division of rate and window, and the age of measurements (`sabul_cc::SharedController`).

use std::sync::{Arc, Mutex};

use sabul_cc::{Policy, SharedController};
use sabul_channel::{Lateness, Receiver};
use sabul_wire::control::ChannelParams;

use super::clock::Clock;
use crate::lock::lock;

/// Ours: a session rarely uses more than one controller.
const KEPT_MAX: usize = 4;

/// Common state of several channels over one path: the controller of the senders, the measurements of receivers, and the
/// clock of this end.
#[derive(Clone, Debug)]
pub(crate) struct CommonFlow {
    pub(super) controller: SharedController,
    pub(super) clock: Clock,
    lateness: Arc<Mutex<Lateness>>,
}

impl CommonFlow {
    /// Returns the state of the channels of a copy, which send at the same time.
    pub(crate) fn of_copy() -> Self {
        Self {
            controller: SharedController::default(),
            clock: Clock::start(),
            lateness: Arc::default(),
        }
    }

    /// Begins with the measurements of an earlier receiver.
    pub(super) fn begin(&self, receiver: &mut Receiver) {
        *receiver.lateness() = *lock(&self.lateness);
    }

    /// Keeps the measurements for the next receiver.
    pub(super) fn end(&self, receiver: &mut Receiver) {
        *lock(&self.lateness) = *receiver.lateness();
    }
}

/// Settings of requests that share a controller: its name, its parameters and the policy.
type Settings = (String, Vec<(String, String)>, Policy);

/// Common state of the requests of a session.
#[derive(Clone, Debug)]
pub(crate) struct RequestFlows {
    flows: Arc<Mutex<Vec<(Settings, SharedController)>>>,
    clock: Clock,
    lateness: Arc<Mutex<Lateness>>,
}

impl RequestFlows {
    pub(crate) fn new() -> Self {
        Self { flows: Arc::default(), clock: Clock::start(), lateness: Arc::default() }
    }

    /// Returns the common state of requests with these settings.
    pub(crate) fn of(&self, params: &ChannelParams, policy: Policy) -> CommonFlow {
        let settings = (params.controller.clone(), params.controller_params.clone(), policy);
        let mut flows = lock(&self.flows);
        let known = flows.iter().find(|(of, _)| *of == settings);
        let controller = known.map(|(_, controller)| controller.clone()).unwrap_or_else(|| {
            let controller = SharedController::of_one_at_a_time();
            flows.truncate(KEPT_MAX - 1);
            flows.insert(0, (settings, controller.clone()));
            controller
        });
        CommonFlow { controller, clock: self.clock, lateness: Arc::clone(&self.lateness) }
    }
}
