//! Copies as people meet them, for any program: hosts that are reached through their own [`ssh`], how much there
//! is to copy ([`scan`]), how it goes ([`course`]), and what limits it ([`limiter`]).

pub mod course;
pub mod limiter;
pub mod listen;
pub mod pipe;
pub mod scan;
pub mod ssh;
