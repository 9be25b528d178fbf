//! Scenario files: reading, errors, sweeps, results, and the manual's tables.

mod arms;
mod bad_files;
mod good_files;
mod keys;
mod manual;
mod mutations;
mod results;
mod traces;
mod variations;
