//! The `sabul` program.
fn main() {}
