//! The `sabul` program with the controllers that it ships with.

use std::process::ExitCode;

fn main() -> ExitCode {
    sabul_program::run_with(&[])
}
