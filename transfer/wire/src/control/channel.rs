//! Settings of a channel.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::limits::MAX_WORD;

/// Most parameters of a controller.
pub(super) const MAX_PARAMS: usize = 64;

/// Settings of a channel's sender; chosen by the side that opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelParams {
    /// Name of the congestion controller.
    #[serde(deserialize_with = "bounds::text::<_, MAX_WORD>")]
    pub controller: String,
    /// Its parameters as `key`, `value` texts.
    #[serde(deserialize_with = "bounds::pairs::<_, MAX_PARAMS>")]
    pub controller_params: Vec<(String, String)>,
    /// Bytes of one block; a power of two.
    pub block_bytes: u32,
    /// Flow window: most bytes sent and not yet acknowledged.
    pub window_bytes: u64,
    /// Upper limit of the rate, in bit/s.
    pub rate_limit_bps: Option<u64>,
    /// Largest IP packet to probe for, in bytes.
    pub mtu_max: Option<u32>,
    /// Code of the rules for losses and reports: 0 standard, 1 with data sequence numbers as in the papers, from 2 on
    /// those of other algorithms. Earlier versions had a boolean here and reject values above 1.
    pub rules: u8,
    /// Carry reports on the control connection, as in the papers.
    pub control_feedback: bool,
    /// Number of UDP channels that carry the blocks at the same time, 1 to [`super::MAX_PATHS`]. With more than one, each block
    /// ends with its number in the transfer, of [`super::BLOCK_NUMBER_LEN`] bytes.
    pub paths: u8,
    /// Number of channels in a row that have the same local address, and share one controller at the sender: together
    /// they are one flow to others. Divides `paths`.
    pub channels: u8,
    /// Blocks for which the opener has room from the start, if it receives over one channel. Any receiver has room for four.
    pub room: u32,
}

impl ChannelParams {
    /// Settings for this controller without parameters and limits: blocks of 1 MiB, a window of 64 MiB, standard rules.
    pub fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            controller_params: Vec::new(),
            block_bytes: 1 << 20,
            window_bytes: 64 << 20,
            rate_limit_bps: None,
            mtu_max: None,
            rules: 0,
            control_feedback: false,
            paths: 1,
            channels: 1,
            room: 0,
        }
    }
}

/// Direction of the data, seen from the side that opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// The opener sends.
    Push,
    /// The opener receives.
    Pull,
}

/// Carrier that a sender prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preferred {
    /// TCP connections, because UDP is throttled.
    Tcp,
    /// UDP, because TCP was no better.
    Udp,
}
