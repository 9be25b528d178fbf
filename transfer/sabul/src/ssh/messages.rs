//! Standard error of ssh: forwarded to the user, without control of the terminal; its last bytes are kept.
//!
//! The other machine writes to this stream, too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul_content::Printable;
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

use super::observer::UploadObserver;
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
    /// Forwards `from` to the observer.
    pub(super) fn pass_on(from: Option<ChildStderr>, observer: Arc<dyn UploadObserver>) -> Self {
        let tail = Arc::<Mutex<Vec<u8>>>::default();
        let kept = Arc::clone(&tail);
        let reader = from.map(|mut from| {
            tokio::spawn(async move {
                let (mut buffer, mut escape) = ([0; 1024], Escape::default());
                while let Ok(length @ 1..) = from.read(&mut buffer).await {
                    observer.show(&escape.text(&buffer[..length]));
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

/// Escapes the control characters of a stream, except ends of lines.
#[derive(Debug, Default)]
struct Escape {
    /// Start of a character or of an end of a line, whose rest has not arrived.
    rest: Vec<u8>,
}

impl Escape {
    /// Returns the text of the next bytes. A prompt has no end of a line, so nothing else is held back.
    fn text(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.len() - unfinished(&self.rest);
        let all: Vec<u8> = self.rest.drain(..end).collect();
        let lines = all.split(|&byte| byte == b'\n').map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            Printable(line).to_string()
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Returns the number of bytes at the end that belong to an incomplete character or to an incomplete CR LF.
fn unfinished(bytes: &[u8]) -> usize {
    if bytes.ends_with(b"\r") {
        return 1;
    }
    let last = bytes.utf8_chunks().last().map(|chunk| chunk.invalid().to_vec()).unwrap_or_default();
    match std::str::from_utf8(&last) {
        // Only an incomplete character has no error length.
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
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
    fn messages_are_escaped_for_the_terminal_wherever_they_are_cut() {
        let sent = "Last login\r\n\u{1b}[2J\u{1b}]0;x\u{7}a\rb\u{9b}31m caf\u{e9}\r\nPassword: "
            .as_bytes();
        let shown = "Last login\n\\u{1b}[2J\\u{1b}]0;x\\u{7}a\\rb\\u{9b}31m caf\u{e9}\nPassword: ";
        for size in 1..=sent.len() {
            let mut escape = Escape::default();
            let text: String = sent.chunks(size).map(|bytes| escape.text(bytes)).collect();
            assert_eq!(text, shown, "{size} bytes at once");
        }
        let mut escape = Escape::default();
        assert_eq!(escape.text(b"\xffa\xc3"), "\u{fffd}a");
        assert_eq!(escape.text(b"b"), "\u{fffd}b");
    }

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
