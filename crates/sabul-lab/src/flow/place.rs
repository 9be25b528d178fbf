//! Where an end of a flow lives.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command};
use std::sync::Arc;

use crate::error::LabError;
use crate::host::Host;

/// A host and its address.
#[derive(Clone, Debug)]
pub(super) struct Place {
    inside: Inside,
    address: IpAddr,
}

#[derive(Clone, Debug)]
enum Inside {
    Host(Arc<Host>),
    /// The namespace that the tests run in.
    #[cfg(test)]
    Here,
}

impl Place {
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

    /// Its address with a port that the kernel chooses.
    pub(super) fn any_port(&self) -> SocketAddr {
        SocketAddr::new(self.address, 0)
    }

    /// Moves the calling thread there for good.
    pub(super) fn enter(&self) -> Result<(), LabError> {
        match &self.inside {
            Inside::Host(host) => host.enter(),
            #[cfg(test)]
            Inside::Here => Ok(()),
        }
    }

    /// Does something there and waits for it.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        match &self.inside {
            Inside::Host(host) => host.run(work),
            #[cfg(test)]
            Inside::Here => Ok(work()),
        }
    }

    /// Starts a program there, in a process group of its own.
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
