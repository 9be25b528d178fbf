//! The program `sabul` with the additional controller `gentle`.

use std::process::ExitCode;

mod gentle;

fn main() -> ExitCode {
    sabul_cli::run_with(&[gentle::ENTRY])
}
