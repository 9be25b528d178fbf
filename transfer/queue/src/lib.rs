//! Queue of copies: a durable store of jobs and the rules of its runner.
//!
//! Model:       a job is a command (`sabul cp` or `sabul sync`) with the directory and the settings of its
//!              user. The runner takes the job of the highest priority, then the oldest, runs the command and
//!              records its end in one transaction.
//! States:      waiting → running → done | failed | waiting | waiting for you; paused and cancelled on request.
//! Stores:      of a user on one machine in SQLite ([`Store`]), or of a site in PostgreSQL ([`site`]).
//! Invariants:  an acknowledged job survives a power cut. A job is taken by one runner at a time, and has one end
//!              ([`folder`] on one machine, leases at a site).
//! Not here:    starting processes, exit codes, and output: the program does these.

mod action;
mod columns;
pub mod folder;
mod job;
mod jobs;
mod json;
mod lease;
mod rules;
#[cfg(feature = "site")]
pub mod site;
#[cfg(not(feature = "site"))]
#[path = "no_site.rs"]
pub mod site;
mod store;
mod times;
mod timetable;

pub use action::{Action, Refusal};
pub use job::{
    Command, Ending, HookState, Job, JobId, NewJob, Outcome, Progress, Request, State, Times,
};
pub use jobs::{Jobs, QueueError};
pub use json::{JobJson, QueueJson, Shown};
pub use rules::{RETRY_FOR, retry_pause};
pub use store::{Store, StoreError};
pub use times::{TimeError, now_ms, parse_time, show_time};
pub use timetable::{Timetable, TimetableError};
