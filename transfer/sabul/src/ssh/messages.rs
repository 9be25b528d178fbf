//! Standard error of ssh: forwarded to the user; its last bytes are kept.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

use crate::lock::lock;

/// Ours: number of bytes kept.
const KEPT: usize = 4096;
/// Ours: time to read the rest after ssh has ended. A background master of ssh keeps standard error
/// open.
const REST: Duration = Duration::from_millis(300);
/// Messages of the OpenSSH client for a failed login or a host key that does not verify.
const REFUSALS: &[&str] =
    &["Permission denied (", "Too many authentication failures", "Host key verification failed"];

/// Standard error of ssh.
#[derive(Debug)]
pub(super) struct Messages {
    tail: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Messages {
    /// Forwards `from` to standard error.
    pub(super) fn pass_on(from: Option<ChildStderr>) -> Self {
        let tail = Arc::<Mutex<Vec<u8>>>::default();
        let kept = Arc::clone(&tail);
        let reader = from.map(|mut from| {
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = from.read(&mut buffer).await {
                    // ssh continues even if standard error has no reader.
                    let _ = std::io::stderr().write_all(&buffer[..length]);
                    let mut kept = lock(&kept);
                    kept.extend_from_slice(&buffer[..length]);
                    let old = kept.len().saturating_sub(KEPT);
                    kept.drain(..old);
                }
            })
        });
        Self { tail, reader }
    }

    /// Returns whether ssh, which has ended, reported a refused login or host key.
    pub(super) async fn name_a_refusal(&mut self) -> bool {
        if let Some(reader) = &mut self.reader {
            let _ = tokio::time::timeout(REST, reader).await;
        }
        is_refusal(&lock(&self.tail))
    }
}

fn is_refusal(said: &[u8]) -> bool {
    let said = String::from_utf8_lossy(said);
    REFUSALS.iter().any(|refusal| said.contains(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_is_distinguished_from_an_unreachable_host() {
        for refused in [
            "me@far: Permission denied (publickey,password).\r\n",
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\r\n",
            "Host key verification failed.\r\n",
        ] {
            assert!(is_refusal(refused.as_bytes()), "{refused}");
        }
        for other in [
            "ssh: connect to host far port 22: Connection refused\r\n",
            "ssh: Could not resolve hostname far: Name or service not known\r\n",
            "sh: 1: /opt/x: Permission denied\n",
            "",
        ] {
            assert!(!is_refusal(other.as_bytes()), "{other}");
        }
    }
}
