//! Hostile bytes against every part that reads them.
//!
//! A [`Target`] takes any bytes and panics where a promise is broken. `cargo test` replays the
//! committed corpus and then some seconds of seeded mutations of it ([`harness`]). `make fuzz` runs
//! the same targets under libFuzzer, which keeps and mutates on what reaches something new (the crate
//! in `fuzz/`, outside the workspace). The files in `corpus/` are written by `cargo run -p sabul-fuzz
//! --example seeds`; a failing input is kept by saving it there under another name. What libFuzzer
//! found is in `found/`, a line for each input, written by `make fuzz-keep`.
//!
//! Wire formats are read as they are. The state machines read a small script instead, one byte of
//! operation and then its operands, so that mutations change what happens and when.

mod assembler;
mod datagrams;
pub mod harness;
mod input;
mod messages;
mod opener;
mod paths;
mod receiver;
mod scenarios;
mod sender;
mod tickets;

pub use input::Input;
pub use tickets::ticket_text;

/// One thing to feed with bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of its test and of its folder of inputs.
    pub name: &'static str,
    /// Feeds it; says whether the bytes came past the first check. Panics on a broken promise.
    pub run: fn(&[u8]) -> bool,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "datagrams", run: datagrams::target },
    Target { name: "messages", run: messages::target },
    Target { name: "tickets", run: tickets::target },
    Target { name: "receiver", run: receiver::target },
    Target { name: "sender", run: sender::target },
    Target { name: "opener", run: opener::target },
    Target { name: "assembler", run: assembler::target },
    Target { name: "paths", run: paths::target },
    Target { name: "scenarios", run: scenarios::target },
];

/// The target of this name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
