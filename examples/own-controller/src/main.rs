//! The program `sabul`, with the controller `gentle` beside those that it ships with.

use std::process::ExitCode;

mod gentle;

fn main() -> ExitCode {
    sabul_cli::run_with(&[gentle::ENTRY])
}
