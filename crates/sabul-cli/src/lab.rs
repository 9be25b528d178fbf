//! `sabul lab`: real programs and scenario files over emulated paths.
//!
//! Whatever makes hosts runs in a second process of this program with namespaces of its own, so that
//! nothing is left behind however it ends ([`isolated`]). All that can be refused is refused before
//! that, without needing privileges.

mod compare;
mod presets;
pub(crate) mod run;
mod shell;

use sabul_lab::isolate;

use crate::args::{LabArgs, LabCommand};
use crate::error::CliError;

/// Runs `sabul lab`. The process must have one thread until then.
pub(crate) fn run(args: LabArgs) -> Result<u8, CliError> {
    if isolate::is_inside() {
        isolate::settle()?;
    }
    match args.command {
        LabCommand::Run(args) => run::run(&args),
        LabCommand::Shell(args) => shell::run(args),
        LabCommand::Far(args) => shell::far(args.command),
        LabCommand::Presets(args) => presets::run(&args),
        LabCommand::Compare(args) => compare::run(&args),
    }
}
