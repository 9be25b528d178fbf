//! Reliable, encrypted bulk transfer: data over UDP with congestion control, everything else over
//! TLS.
//!
//! The simplest complete program sends a file to itself:
//!
//! ```
//! use sabul::files::{RemoteDestination, SourceSet};
//! use sabul::{ConnectConfig, Listener, ListenerConfig, Service, TransferOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (here, there) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let (source, root) = (here.path().join("results.h5"), there.path().to_owned());
//! # std::fs::write(&source, "content")?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! // The receiver serves a directory to the holders of its ticket.
//! let listener = Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?)).await?;
//! let ticket = listener.ticket().clone();
//! let receiver = tokio::spawn(async move {
//!     listener.accept().await?.serve(&Service::default().root(root)).await
//! });
//!
//! // The sender has the ticket; a session sends, receives, streams and measures.
//! let session = sabul::connect(&ticket, ConnectConfig::default()).await?;
//! let (to, options) = (RemoteDestination::default(), TransferOptions::default());
//! let transfer = session.put(SourceSet::path(source), to, &options).await?;
//! let report = transfer.finish().await?.into_result()?;
//! println!("{} bytes at {:.0} Mbit/s", report.bytes, report.goodput_bps / 1e6);
//! session.close().await;
//! receiver.await??;
//! # assert_eq!(std::fs::read(there.path().join("results.h5"))?, b"content");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! The names of this page:
//!
//! | names | purpose |
//! | --- | --- |
//! | [`Listener`], [`ListenerConfig`], [`Ticket`] | a server, and the secret that authorises its clients |
//! | [`connect`], [`ConnectConfig`] | a session with the server of a ticket |
//! | [`Session`] | both ends of a connection: put, get, list, remove, stream, measure, serve |
//! | [`Service`], [`server`] | permissions of a peer, and its requests one by one |
//! | [`TransferOptions`], [`Policy`] | controller, policy, rate limit, sync, resume of a transfer |
//! | [`Transfer`], [`TransferHandle`], [`Progress`] | a running transfer, its changes, its progress |
//! | [`Report`], [`Interval`], [`ChannelStats`] | the result of a transfer; [`Report::into_result`] makes failed files an error |
//! | [`SendStream`], [`ReceiveStream`] | byte streams between two applications |
//! | [`ssh`] | sessions with a server that the user's own ssh starts, for `host:path` |
//! | [`keys`] | sessions with a standing server, by ssh keys |
//! | [`files`] | sources and destinations, open files of the peer, listings, include rules; memory and stores of the application |
//! | [`blocking`] | the main functions without `async` |
//! | [`settings`] | limits of memory and rate, timeouts, sockets, events, path memory; details of errors |
//! | [`Error`], [`ErrorKind`], [`Failure`], [`FailureCode`] | errors, and failures of single files |
//! | [`Rate`], [`Bytes`] | units of settings |
//!
//! Types that may grow are `#[non_exhaustive]`. Make settings with `new` or `default`, and change them by the methods
//! with the names of their fields.
//!
//! # Runtime
//!
//! The functions run in any tokio runtime with I/O and time enabled, with one thread or several. The threads of a
//! transfer are its own, but control messages need a runtime that runs.

#[macro_use]
mod setters;

mod access;
mod address;
mod aggregate;
pub mod blocking;
mod budget;
mod calls;
mod ceiling;
mod channel;
mod channels;
mod config;
mod connection;
mod connector;
mod control;
mod descriptors;
mod dial;
mod endpoint;
mod error;
mod events;
pub mod files;
#[doc(hidden)]
pub mod internal;
mod introducer;
mod joins;
pub mod keys;
mod listener;
mod lock;
mod machine;
mod metered;
mod outside;
mod passes;
mod path;
mod paths;
mod policy;
mod rate;
mod redial;
mod registrar;
mod relay;
mod resume;
mod retry;
mod seal;
pub mod server;
mod session;
pub mod settings;
mod source;
pub mod ssh;
mod steer;
mod stream;
mod ticket;
mod timeouts;
mod tls;
mod transfer;
mod via;
#[cfg(test)]
mod world;
mod writers;

pub use channel::ChannelStats;
pub use config::{ConnectConfig, ListenerConfig, Service, TransferOptions};
pub use connector::connect;
pub use error::{Error, ErrorKind};
pub use listener::Listener;
pub use sabul_cc::Policy;
pub use sabul_units::{Bytes, Rate};
pub use sabul_wire::control::{Failure, FailureCode};
pub use session::Session;
pub use stream::{ReceiveStream, SendStream};
pub use ticket::Ticket;
pub use transfer::{Interval, Progress, Report, Transfer, TransferHandle};
