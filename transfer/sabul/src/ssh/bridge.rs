//! Running ssh process that keeps the far end alive.

use std::time::Duration;

use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::lines::Lines;

/// Ours: time for ssh to exit after the end of its input.
const FAREWELL: Duration = Duration::from_secs(5);

/// Running ssh with a sabul server at its far end. Dropping it kills ssh; [`Bridge::close`] ends
/// both in order.
#[derive(Debug)]
pub struct Bridge {
    pub(super) child: Child,
    pub(super) input: ChildStdin,
    /// Kept open: the far end would fail to write into a closed pipe.
    pub(super) lines: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    /// Closes the input of ssh and waits for its exit, for a limited time.
    pub async fn close(self) {
        let Self { mut child, input, lines } = self;
        drop(input);
        // Dropping the child kills a process that does not exit in time.
        let _ = tokio::time::timeout(FAREWELL, child.wait()).await;
        drop(lines);
    }
}
