//! Location of an end of a flow.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command};
use std::sync::Arc;

use crate::error::LabError;
use crate::host::Host;

/// A host and its address.
#[derive(Clone, Debug)]
pub(super) struct FlowEnd {
    inside: Inside,
    address: IpAddr,
}

#[derive(Clone, Debug)]
enum Inside {
    Host(Arc<Host>),
    /// The namespace of the tests.
    #[cfg(test)]
    Here,
}

impl FlowEnd {
    pub(super) fn host(host: Arc<Host>, address: IpAddr) -> Self {
        Self { inside: Inside::Host(host), address }
    }

    #[cfg(test)]
    pub(super) fn here(address: IpAddr) -> Self {
        Self { inside: Inside::Here, address }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the address with port 0, for a port chosen by the kernel.
    pub(super) fn any_port(&self) -> SocketAddr {
        SocketAddr::new(self.address, 0)
    }

    /// Moves the calling thread into the host for good.
    pub(super) fn enter(&self) -> Result<(), LabError> {
        match &self.inside {
            Inside::Host(host) => host.enter(),
            #[cfg(test)]
            Inside::Here => Ok(()),
        }
    }

    /// Runs `work` in the host and waits for its result.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        match &self.inside {
            Inside::Host(host) => host.run(work),
            #[cfg(test)]
            Inside::Here => Ok(work()),
        }
    }

    /// Starts a program in the host, in its own process group.
    pub(super) fn spawn(&self, command: Command) -> Result<Child, LabError> {
        match &self.inside {
            Inside::Host(host) => host.spawn(command),
            #[cfg(test)]
            Inside::Here => {
                let mut command = command;
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                command.spawn().map_err(LabError::system(format!("start {command:?}")))
            }
        }
    }
}
