//! Reliable, encrypted bulk transfer: data over UDP with congestion control, everything else over
//! TLS.
//!
//! A [`Listener`] accepts connections and issues a [`Ticket`]; the holder of the ticket can
//! [`connect`]. Both ends then have a [`Session`]. Either end may put, get, stream and measure,
//! with several transfers at once. All traffic is encrypted and authenticated. A file gets its
//! final name only when it is complete and verified.
//!
//! ```no_run
//! use sabul::files::{Source, SourceSet};
//! use sabul::{ConnectConfig, Listener, ListenerConfig, RemoteDestination, Service};
//! use sabul::{Ticket, TransferOptions, connect};
//!
//! // One side serves a directory ...
//! async fn serve() -> Result<(), sabul::Error> {
//!     let listener = Listener::bind(ListenerConfig::new(([0, 0, 0, 0], 7077).into())).await?;
//!     println!("{}", listener.ticket());
//!     let session = listener.accept().await?;
//!     let root = Some("/srv/data".into());
//!     session.serve(&Service { root, ..Service::default() }).await?;
//!     Ok(())
//! }
//!
//! // ... and the other side sends a file to that directory.
//! async fn send(ticket: &Ticket) -> Result<(), sabul::Error> {
//!     let session = connect(ticket, ConnectConfig::default()).await?;
//!     let set = SourceSet::local(vec![Source::Path("results.h5".into())], false)?;
//!     let options = TransferOptions::default();
//!     let transfer = session.put(set, RemoteDestination::default(), &options).await?;
//!     let report = transfer.finish().await?;
//!     println!("{} bytes at {:.0} Mbit/s", report.bytes, report.goodput_bps / 1e6);
//!     session.close().await;
//!     Ok(())
//! }
//! ```
//!
//! All async functions need a multi-threaded tokio runtime with I/O and time enabled.

mod address;
mod aggregate;
mod budget;
mod ceiling;
mod channel;
mod config;
mod connector;
mod control;
mod descriptors;
mod endpoint;
mod error;
mod events;
mod listener;
mod machine;
mod path;
mod paths;
mod policy;
mod retry;
pub mod seal;
mod session;
mod source;
mod steer;
mod stream;
pub mod ticket;
mod timeouts;
pub mod tls;
mod transfer;
#[cfg(test)]
mod world;
mod writers;

pub use address::{Host, Location, Remote, Server};
pub use aggregate::AggregateInterval;
pub use budget::MemoryBudget;
pub use ceiling::Ceiling;
pub use channel::ChannelStats;
pub use config::{
    Carrier, ConnectConfig, Direction, ListenerConfig, LocalDestination, LossPolicy, MeasureLimit,
    RemoteDestination, Service, TransferOptions,
};
pub use connector::{connect, connect_to};
pub use descriptors::{LISTENER_FILES_MIN, allow_many_files, files_limit};
pub use error::{Error, ErrorKind};
pub use events::{EventSink, TransferEvent};
pub use listener::{Bound, Listener};
pub use paths::{KnownPath, PathMemory};
pub use policy::{Controllers, SendPolicy};
pub use retry::Retry;
pub use sabul_cc::Policy;
pub use sabul_content::{Printable, steers};
pub use sabul_files::{self as files, Totals};
pub use sabul_udp::SocketOptions;
pub use sabul_wire::control::{
    CONTROL_VERSION as PROTOCOL_VERSION, Facts, Failure, FailureCode, NotKept, Range, Rule, Seen,
    SeenKind, Trait, View,
};
pub use session::{
    ChangeRequest, Changed, GetRequest, Listing, ListingRequest, MeasureRequest, Order, Purpose,
    PutRequest, Request, ServeSummary, Served, Serving, Session, Started, StreamRequest,
};
pub use stream::{ReceiveStream, SendStream};
pub use ticket::Ticket;
pub use timeouts::Timeouts;
pub use transfer::{Interval, Progress, Report, Transfer, TransferHandle};
