//! Copies as people meet them, for any program: hosts that are reached through their own [`ssh`].

pub mod ssh;
