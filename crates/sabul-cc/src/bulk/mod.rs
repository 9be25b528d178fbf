//! SABUL's relatives: little rate control, and rules of the channel of their own.

pub(crate) mod fobs;
pub(crate) mod netblt;
pub(crate) mod rbudp;
pub(crate) mod tsunami;
