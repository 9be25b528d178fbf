//! A running ssh, and the far end that lives as long as it.

use std::time::Duration;

use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::lines::Lines;

/// How long ssh may take to end once its input has.
const FAREWELL: Duration = Duration::from_secs(5);

/// A running ssh with a sabul at its other end. Dropping it ends both, less politely than [`Bridge::close`].
#[derive(Debug)]
pub struct Bridge {
    pub(super) child: Child,
    pub(super) input: ChildStdin,
    /// Kept open: the far end would fail to write into what is closed.
    pub(super) lines: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    /// Lets the far end know that it is done, and waits for it, for a bounded time.
    pub async fn close(self) {
        let Self { mut child, input, lines } = self;
        drop(input);
        // Dropping the child ends one that takes too long.
        let _ = tokio::time::timeout(FAREWELL, child.wait()).await;
        drop(lines);
    }
}
