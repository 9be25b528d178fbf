//! Placeholder.

pub mod files;
pub mod jail;
pub mod seal;
pub mod ticket;
pub mod tls;
