//! Explicit congestion control: routers signal rates to flows. Each algorithm has both halves in
//! one file.
//!
//! Source: [ECC], and the sources of each algorithm. The host half is a
//! [`Controller`](sabul_cc::Controller) that sets header fields
//! ([`Controller::header`](sabul_cc::Controller::header)) and receives router feedback
//! ([`Acked::echo`](sabul_cc::Acked::echo)). [`Explicit`] wraps it, bounds its rate, and replaces it
//! where no router answers. The router half is a
//! [`RouterController`](sabul_cc::router::RouterController);
//! [`Router`](sabul_cc::router::Router) wraps it and runs its clock.
//! To add one:  a file here with its `ENTRY` and its `ROUTER`, a line in [`crate::registry`] and a
//!              line in [`crate::routers`]; its header form, if new, in `sabul-units` and
//!              `sabul-wire`. A program adds its own with [`crate::routers::add`].
//! Not here:    the bytes of a header (`sabul-wire`); the calls of a router from a link
//!              (`sabul-net`).

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
#[cfg(test)]
mod testing;
mod watch;
pub(crate) mod xcp;

pub use host::Explicit;
