//! User-facing side of copies, for any program: dry runs ([`dry`]), progress ([`progress_line`]), limiters
//! ([`limiter`]) and listings of remote files ([`format`](mod@format)). Also here are the cache of known paths
//! ([`paths`]), server logs ([`served`]) and the control socket of running commands ([`control_socket`]), and directories for
//! state ([`state`]). Programs read the same as JSON ([`json`], [`lines`], [`schema`]).

pub mod control_socket;
pub mod dry;
mod escape;
pub mod failures;
pub mod format;
pub mod json;
pub mod limiter;
pub mod lines;
pub mod listen;
pub mod lost_metadata;
mod ownership;
pub mod paths;
pub mod pipe;
pub mod progress_line;
pub mod schema;
pub mod served;
pub mod state;
