//! Channel rules of related protocols: order of transmission and reports of the receiver.
//!
//! Both ends of a channel follow the rules that its controller asks for. Each file has both halves.
//! Under *requests*, *buffers* and *rounds*, reported losses go first, and a mark informs the receiver
//! when nothing more may be sent. *Cyclic* keeps a cursor instead of a loss list and starts over where
//! the others would wait. *Pairs* are SABUL's own rules with packet pairs.
//! To add some: a file here with its `RULES`, a line in [`ENTRIES`].

mod buffers;
mod cyclic;
mod pairs;
mod reports;
mod requests;
mod rounds;
mod spacing;

use sabul_cc::ChannelRules;
use sabul_channel::rules::RuleSet;

pub use buffers::{BUFFER_PACKETS, BUFFERS};
pub use cyclic::CYCLIC;
pub use pairs::PAIRS;
pub use requests::REQUESTS;
pub use rounds::ROUNDS;

/// Rules of this crate, which [`crate::register`] adds to [`sabul_channel::rules`].
pub const ENTRIES: &[RuleSet] =
    &[rounds::RULES, requests::RULES, cyclic::RULES, buffers::RULES, pairs::RULES];

/// Names of all rules, SABUL's own first.
pub const ALL: [ChannelRules; 6] =
    [ChannelRules::STANDARD, ROUNDS, REQUESTS, CYCLIC, BUFFERS, PAIRS];
