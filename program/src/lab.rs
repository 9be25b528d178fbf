//! `sabul lab`: real programs and scenario files over emulated paths.
//!
//! Commands that create hosts run in a second process of this program with its own namespaces, so
//! nothing is left behind at any end ([`isolated`]). All checks of the input come before that and
//! need no privileges.

mod compare;
mod presets;
pub(crate) mod run;
mod shell;

use sabul_emu::isolate;

use crate::args::{LabArgs, LabCommand};
use crate::error::CliError;

/// Runs `sabul lab` and returns the exit code. The process must have a single thread until this
/// call.
pub(crate) fn run(args: LabArgs) -> Result<u8, CliError> {
    if isolate::is_inside() {
        isolate::init_inside()?;
    }
    match args.command {
        LabCommand::Run(args) => run::run(&args),
        LabCommand::Shell(args) => shell::run(args),
        LabCommand::Far(args) => shell::far(args.command),
        LabCommand::Presets(args) => presets::run(&args),
        LabCommand::Compare(args) => compare::run(&args),
    }
}
