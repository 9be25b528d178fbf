//! Running ssh process that keeps the far end alive.

use std::time::Duration;

use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::lines::Lines;
use crate::relay::Tasks;
use crate::ticket::Ticket;

/// Ours: time for ssh to exit after the end of its input.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Running ssh with a sabul server at its far end. Dropping it kills ssh; [`Bridge::close`] ends
/// both in order.
#[derive(Debug)]
pub struct Bridge {
    pub(super) child: Child,
    pub(super) pipes: Pipes,
    /// Ticket of a server whose ports this machine reaches.
    pub(super) ticket: Option<Ticket>,
}

/// Standard input and output of ssh.
#[derive(Debug)]
pub(super) enum Pipes {
    Lines {
        input: ChildStdin,
        /// Kept open: the far end would fail to write into a closed pipe.
        lines: Lines<BufReader<ChildStdout>>,
    },
    /// The pipes carry the session.
    Relay(Tasks),
}

impl Bridge {
    /// Returns the ticket of the server, for further connections; `None` if the session goes through ssh.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Waits until ssh has ended by itself; returns whether the server there ended in order.
    pub async fn ended(&mut self) -> bool {
        self.child.wait().await.is_ok_and(|status| status.success())
    }

    /// Closes the input of ssh and waits for its exit, for a limited time.
    pub async fn close(self) {
        let Self { mut child, pipes, .. } = self;
        let ending = async {
            let _output = match pipes {
                Pipes::Lines { input, lines } => {
                    drop(input);
                    Some(lines)
                }
                Pipes::Relay(tasks) => {
                    tasks.close().await;
                    None
                }
            };
            child.wait().await
        };
        // Dropping the child kills a process that does not exit in time.
        let _ = tokio::time::timeout(EXIT_TIMEOUT, ending).await;
    }
}
