//! Congestion controllers of related work, for experiments: SABUL 2002 and 2003, UDT, TCP variants,
//! TFRC, bulk transfer protocols, and explicit control with its router halves.
//!
//! [`register`] adds them to [`sabul_cc::registry`], after the controllers offered to users, and the
//! channel [`rules`] of bulk transfer protocols to [`sabul_channel::rules`]. Crates of the laboratory
//! use [`registry`], which does so before each look-up. [`routers`] lists the router halves.

mod bulk;
mod explicit;
pub mod registry;
pub mod routers;
pub mod rules;
mod sabul2002;
mod sabul2003;
mod tcp;
mod tfrc;
mod udt;
mod unused;

pub use explicit::Explicit;
pub use registry::register;
