//! Window controllers of the TCP family. The parts that they share are in `sabul_cc::tcp`.

pub(crate) mod bbr1;
pub(crate) mod bic;
pub(crate) mod copa;
pub(crate) mod dctcp;
pub(crate) mod fast;
pub(crate) mod highspeed;
pub(crate) mod htcp;
pub(crate) mod ledbatpp;
pub(crate) mod lowpriority;
pub(crate) mod ltcp;
pub(crate) mod multcp;
pub(crate) mod reno;
pub(crate) mod scalable;
