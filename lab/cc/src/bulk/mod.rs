//! Bulk transfer protocols related to SABUL: little rate control, and channel rules of their own.

pub(crate) mod fobs;
pub(crate) mod netblt;
pub(crate) mod rbudp;
pub(crate) mod tsunami;
