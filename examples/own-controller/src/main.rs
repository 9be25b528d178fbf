//! The program `sabul` with the additional controller `gentle`.

use std::process::ExitCode;

mod gentle;

fn main() -> ExitCode {
    sabul_program::run_with(&[gentle::ENTRY])
}
