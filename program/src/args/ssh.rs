//! Flags for hosts reached through ssh.

use std::convert::Infallible;
use std::sync::Arc;

use clap::Args;
use sabul::internal::ssh::{Order, Ports, Program, Push, UploadObserver};

use super::channel::CarrierArg;

/// Options of a connection to `[USER@]HOST:PATH`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Hosts reached through ssh")]
pub(crate) struct SshArgs {
    /// The ssh program and its options.
    ///
    /// For example 'ssh -p 2222 -J gate'.
    #[arg(short = 'e', long = "ssh", value_name = "COMMAND", default_value = "ssh", env = "SABUL_SSH",
          value_parser = Program::parse)]
    program: Program,
    /// Path of sabul on the other machine [default: searched for].
    #[arg(long, value_name = "PATH", conflicts_with = "push")]
    remote_sabul: Option<String>,
    /// Upload this program, or FILE, and run it there.
    ///
    /// FILE is a program for another system. The upload is kept in the cache there and checked by
    /// its hash at each use.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "",
          value_parser = parse_push)]
    push: Option<Push>,
    /// Ports on the other machine, for TCP and UDP.
    ///
    /// The first free port is used.
    #[arg(long, value_name = "A-B", default_value_t)]
    ports: Ports,
    /// ssh fails instead of a question. Given by the runner of the queue.
    #[arg(long, hide = true)]
    batch: bool,
    /// Servers that ssh starts copy to and from other servers on an order.
    #[arg(skip)]
    pub(crate) dials: bool,
}

impl SshArgs {
    /// Returns the parameters of a connection to this account.
    pub(crate) fn order(
        &self,
        account: &str,
        carrier: CarrierArg,
        observer: &Arc<dyn UploadObserver>,
    ) -> Order {
        let program = self.program.clone();
        Order {
            account: account.to_owned(),
            program: if self.batch { program.unattended() } else { program },
            remote_path: self.remote_sabul.clone(),
            ports: self.ports,
            push: self.push.clone().unwrap_or_default(),
            carrier: carrier.carrier(),
            version: env!("CARGO_PKG_VERSION"),
            dials: self.dials,
            observer: Arc::clone(observer),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "clap requires a result")]
fn parse_push(file: &str) -> Result<Push, Infallible> {
    Ok(if file.is_empty() { Push::Own } else { Push::File(file.into()) })
}
