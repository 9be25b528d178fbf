//! Types of single settings: limits of memory and rate, timeouts, sockets, events, path memory. Details of errors.

pub use sabul_cc::ConfigError;
pub use sabul_udp::{SocketOptions, UdpError};

pub use crate::budget::{BudgetTooSmall, MemoryBudget};
pub use crate::ceiling::Ceiling;
pub use crate::channels::MeasuredChannels;
pub use crate::config::{
    Carrier, Direction, IntroducerConfig, LossPolicy, MeasureLimit, ReportCarrier,
};
pub use crate::error::Cause;
pub use crate::events::{EventSink, TransferEvent};
pub use crate::paths::{KnownPath, PathMemory};
pub use crate::policy::{Controllers, SendPolicy};
pub use crate::ticket::{Introduction, TicketError};
pub use crate::timeouts::Timeouts;
pub use crate::via::Via;
