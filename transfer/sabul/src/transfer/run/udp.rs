//! Settings and supervision of the UDP channels of a transfer.

use std::sync::Arc;
use std::time::Duration;

use sabul_cc::Policy;
use sabul_wire::control::ChannelParams;
use tokio::task::JoinHandle;

use crate::channel::{ChannelStart, ChannelStats, OpenPath, RequestFlows};
use crate::endpoint::Endpoint;

/// Interval of the checks of UDP.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Silence of UDP after which another carrier is tried in a running transfer; at least [`SILENT_RTTS`] RTTs.
const SILENT: Duration = Duration::from_secs(1);
const SILENT_RTTS: f64 = 4.0;

/// Time without an answer after which other paths carry the blocks of a path; at least [`UNANSWERED_RTTS`] RTTs. While
/// blocks are on their way, a receiver sends ACKs every 10 ms.
const UNANSWERED: Duration = Duration::from_millis(500);
const UNANSWERED_RTTS: f64 = 2.0;

/// Whether a path has not answered for so long that the other paths carry its blocks.
pub(super) fn is_unanswered(stats: &ChannelStats) -> bool {
    let rtts = Duration::from_secs_f64(UNANSWERED_RTTS * stats.rtt_ms / 1e3);
    stats.unanswered > UNANSWERED.max(rtts)
}

/// Whether UDP has been silent for so long that another carrier is tried.
pub(super) fn is_silent(stats: &ChannelStats) -> bool {
    stats.silence > SILENT.max(Duration::from_secs_f64(SILENT_RTTS * stats.rtt_ms / 1e3))
}

/// Settings of a UDP channel.
#[derive(Clone)]
pub(super) struct UdpSettings {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) number: u32,
    pub(super) params: ChannelParams,
    pub(super) policy: Policy,
    /// Common state of the requests of the session, for a request for ranges.
    pub(super) flows: Option<RequestFlows>,
}

impl UdpSettings {
    /// Makes the start parameters of a channel over this path.
    pub(super) fn with(self, path: OpenPath) -> ChannelStart {
        let Self { endpoint, number, params, policy, flows } = self;
        ChannelStart {
            path: path.socket.peer_addr().map(|peer| endpoint.paths.of(peer.ip())),
            open: path,
            silence: endpoint.timeouts.silence.into(),
            address_changed: Arc::clone(&endpoint.address_changed),
            flow: flows.map(|flows| flows.of(&params, policy)),
            events: endpoint.events.clone().map(|sink| sink.of_transfer(number)),
            params,
            policy,
            ceilings: endpoint.sending.ceiling.iter().cloned().collect(),
        }
    }
}

/// A task that ends when the value is dropped.
#[derive(Debug)]
pub(super) struct Task(JoinHandle<()>);

impl From<JoinHandle<()>> for Task {
    fn from(task: JoinHandle<()>) -> Self {
        Self(task)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
