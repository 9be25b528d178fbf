//! The program from a user's view: commands, output, exit codes, files, sandbox.

mod addresses;
mod apply;
mod archive;
mod card;
mod cli;
mod common;
mod control_socket;
mod delta;
mod files;
#[cfg(feature = "join")]
mod join;
mod json;
mod keys;
mod lab;
mod lab_namespaces;
mod left_out;
mod lists;
mod model;
mod orders;
mod perf_and_demo;
mod pressure;
mod progress;
mod queue;
mod receipts;
mod repeated;
mod replicate;
mod reproduce;
mod router;
mod serve;
mod servers;
mod several;
mod sim;
mod ssh;
mod stripe;
mod sync;
mod third_party;
