//! User-facing side of copies, for any program: hosts reached through [`ssh`], dry runs ([`dry`]),
//! progress ([`course`]), limiters ([`limiter`]), listings of remote files ([`show`]), the cache of
//! known paths ([`paths`]), server logs ([`served`]), the control socket of running commands
//! ([`desk`]), and all of that for programs ([`json`], [`lines`], [`schema`]).

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
