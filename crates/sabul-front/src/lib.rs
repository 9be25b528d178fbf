//! Copies as people meet them, for any program: hosts that are reached through their own [`ssh`], what a copy
//! would do ([`dry`]), how it goes ([`course`]), what limits it ([`limiter`]), what there is on the other side
//! ([`show`]), what earlier transfers saw of paths ([`paths`]), what a server logs ([`served`]), what runs and how it is
//! changed ([`desk`]), and all of that for programs ([`json`], [`lines`], [`schema`]).

pub mod course;
pub mod desk;
pub mod dry;
pub mod failures;
mod foreign;
pub mod json;
pub mod kept;
pub mod limiter;
pub mod lines;
pub mod listen;
mod own;
pub mod paths;
pub mod pipe;
pub mod schema;
pub mod served;
pub mod show;
pub mod ssh;
