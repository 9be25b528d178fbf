//! Explicit congestion control: routers say what a flow may send, each algorithm with both its halves in one
//! file.
//!
//! Source: [ECC], and what each algorithm names. The host half is a [`Controller`](crate::Controller) that says
//! what to write ([`Controller::header`](crate::Controller::header)) and hears what came of it
//! ([`Acked::echo`](crate::Acked::echo)), behind [`Explicit`], which bounds what it may do and finds it out
//! where no router answers. The router half is a [`RouterController`], behind [`Router`], which keeps its clock.
//! To add one:  its file here with its `ENTRY` and its `ROUTER`, a line in [`crate::registry`] and one in
//!              [`routers`]; its form, if it needs its own, in `sabul-units` and `sabul-wire`.
//! Not here:    the bytes of a header (`sabul-wire`), where a link calls its router (`sabul-path`).

pub(crate) mod emkc;
mod host;
#[cfg(test)]
mod hostile;
pub(crate) mod jetmax;
mod load;
pub(crate) mod maxnet;
mod number;
pub(crate) mod piqi_rcp;
pub(crate) mod rcp;
mod router;
pub mod routers;
#[cfg(test)]
mod testing;
mod watch;
pub(crate) mod xcp;

pub use host::{Explicit, FALLBACK};
pub use router::{LinkState, Router, RouterController, RouterStats};
