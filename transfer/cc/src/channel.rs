//! Names of channel rules, and the reports that exist only under some rules.
//!
//! Relatives of SABUL differ less in rate control than in the order of pieces and in the receiver's
//! reports. An algorithm names its rules, and both ends follow them. The rules themselves are in
//! `sabul-channel` and in the crates that add rules to it.

use sabul_units::{Packets, Span};

/// Name of channel rules: order of transmission, and content and time of receiver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelRules {
    /// Name in messages; no other rules have this name.
    pub name: &'static str,
    /// Whether the receiver sends a NAK for each loss; the sender then sends losses first, then new
    /// data. Under other rules, lists of missing data report losses.
    pub has_naks: bool,
}

impl ChannelRules {
    /// Losses first, then new data; NAKs at once. [SABUL §II-D]
    pub const STANDARD: Self = Self { name: "standard", has_naks: true };
}

/// Content of a receiver report besides the list of missing pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkReport {
    /// Counts of a round, of a buffer, or since the previous report.
    Account {
        /// DATA packets that the report covers.
        sent: Packets,
        /// Covered packets that arrived; at most `sent`.
        arrived: Packets,
    },
    /// The receiver's filtered error rate, percent × 1000: 0 to 100 000. \[TSUNAMI\]
    ErrorRate(u32),
    /// The receiver's filtered time between the arrivals of two packets that left back to back; not zero.
    /// [UDT4 window.cpp]
    PairTime(Span),
}
