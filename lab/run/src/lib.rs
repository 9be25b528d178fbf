//! Plan, measurements and results of a run, for both simulator and lab.
//!
//! | Part | Is |
//! |---|---|
//! | [`scenario`] | plan of a run: links, flows, duration |
//! | [`traffic`] | arrival times and sizes of flows |
//! | [`meter`] | measurements while a run is in progress |
//! | [`events`] | event log, with reasons |
//! | [`results`] | results: averages and time series |
//! | [`statistics`] | mean, median, quantile and similar |
//!
//! Simulator and lab receive the same plan and use the same meter. Differences between their
//! results therefore do not come from the method of measurement. Only plain values and arithmetic:
//! no files, clocks or threads here.

pub mod events;
mod flow;
pub mod meter;
pub mod results;
pub mod scenario;
mod size;
pub mod statistics;
pub mod traffic;
