//! `sabul lab shell` and `sabul lab far`: user programs at both ends of an emulated path.

use std::ffi::OsString;

use sabul_emu::shell::{self, ShellConfig};
use sabul_study::shell::{greeting, summary};
use sabul_study::{path, runs};

use crate::args::LabShellArgs;
use crate::error::CliError;
use crate::output;
use crate::stop::isolated;

/// Runs `sabul lab shell` and returns the exit code.
pub(super) fn run(args: LabShellArgs) -> Result<u8, CliError> {
    let wishes = args.path.into();
    let link = path::plan(&wishes)?;
    if let Some(dir) = &args.pcap {
        runs::make_directory(dir, "--pcap")?;
    }
    isolated(|| {
        output::warn_of_debug_build();
        for line in greeting(&wishes, &link, args.peer.is_empty()) {
            output::note(line);
        }
        let outcome = shell::run(ShellConfig {
            link: link.clone(),
            seed: args.seed,
            command: args.command,
            peer_commands: args.peer,
            capture: args.pcap,
        })?;
        output::note(summary(&link, &outcome));
        Ok(outcome.code)
    })
}

/// Runs `sabul lab far` and returns the exit code.
pub(super) fn far(command: Vec<OsString>) -> Result<u8, CliError> {
    Ok(shell::join_far(command)?)
}
