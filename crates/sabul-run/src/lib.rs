//! A run, whichever arm it runs on: what it is made of, and what has been measured of it.
//!
//! | Part | Is |
//! |---|---|
//! | [`scenario`] | what a run is made of: links, flows, how long |
//! | [`traffic`] | when flows arrive and how much each of them sends |
//! | [`meter`] | what is measured while a run goes on |
//! | [`events`] | what happened in it, and why |
//! | [`results`] | what a run has shown: averages and series |
//! | [`statistics`] | means and the like, each once |
//!
//! Simulator and lab are told the same and measured by the same meter, so what differs between their
//! results is not how they were taken. Plain values and arithmetic: no files, clocks or threads here.

pub mod events;
mod flow;
pub mod meter;
pub mod results;
pub mod scenario;
mod size;
pub mod statistics;
pub mod traffic;
