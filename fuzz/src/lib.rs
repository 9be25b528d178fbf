//! Fuzz targets for every part that parses untrusted bytes.
//!
//! A [`Target`] accepts any bytes and panics when an invariant is violated. `cargo test` replays
//! the committed corpus and then runs some seconds of seeded mutations ([`harness`]). `make fuzz`
//! runs the same targets under libFuzzer with coverage feedback (the crate in `fuzz/`, outside the
//! workspace). The files in `corpus/` are written by `cargo run -p sabul-fuzz --example seeds`; a
//! failing input is kept there under another name. Inputs found by libFuzzer are in `found/`, one
//! line per input, written by `make fuzz-keep`.
//!
//! Wire formats are parsed as they are. State machines read a small script instead, one operation
//! byte followed by its operands, so that mutations change events and their times.

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

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, of its test and of its folder of inputs.
    pub name: &'static str,
    /// Runs the target on an input. Returns whether the input passed the first check; panics on a
    /// violated invariant.
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

/// Returns the target of this name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
