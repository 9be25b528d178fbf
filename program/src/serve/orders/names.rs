//! Names of the entries of an ordered copy, as its client sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sabul::internal::compare::{Selected, Selection};
use sabul_content::RelativePath;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// How long a transfer waits for a name before it sends the entries so far.
const WAIT: Duration = Duration::from_millis(20);
/// Names that wait for the transfer. Ours: together at most 4 MiB.
const NAMES_WAITING: usize = 64;
/// Longest name in bytes, with its end.
const NAME_MAX: u64 = 64 << 10;
/// Interval of the checks for a lost end.
const TICK: Duration = Duration::from_millis(200);

/// Names of the entries to copy. The last name is empty.
#[derive(Debug)]
pub(super) struct OrderedNames {
    receiver: mpsc::Receiver<Vec<u8>>,
    runtime: Handle,
    /// The names ended without the last.
    are_lost: Arc<AtomicBool>,
    is_over: bool,
}

impl OrderedNames {
    /// Returns the names, and the sender for them.
    pub(super) fn new() -> (mpsc::Sender<Vec<u8>>, Self) {
        let (sender, receiver) = mpsc::channel(NAMES_WAITING);
        let (runtime, are_lost) = (Handle::current(), Arc::default());
        (sender, Self { receiver, runtime, are_lost, is_over: false })
    }

    /// Flag that is set when the names end without the last.
    pub(super) fn are_lost(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.are_lost)
    }
}

impl Selection for OrderedNames {
    fn next(&mut self) -> Selected {
        if self.is_over {
            return Selected::End;
        }
        let receiver = &mut self.receiver;
        match self.runtime.block_on(async { timeout(WAIT, receiver.recv()).await }) {
            Ok(Some(name)) if name.is_empty() => {
                self.is_over = true;
                Selected::End
            }
            Ok(Some(name)) => Selected::Name(name),
            Ok(None) => {
                // The copy is about to end with an error.
                self.are_lost.store(true, Ordering::Release);
                std::thread::sleep(WAIT);
                Selected::NotYet
            }
            Err(_) => Selected::NotYet,
        }
    }
}

/// Forwards names until the last, or until the first invalid name.
pub(super) async fn forward<R>(stream: &mut R, sender: &mpsc::Sender<Vec<u8>>)
where
    R: AsyncBufRead + Unpin,
{
    loop {
        let mut name = Vec::new();
        let read = (&mut *stream).take(NAME_MAX).read_until(0, &mut name).await;
        if read.is_err() || name.pop() != Some(0) {
            return;
        }
        let is_last = name.is_empty();
        if !is_last && RelativePath::new(&*name).is_err() {
            return;
        }
        // The copy may have ended.
        if sender.send(name).await.is_err() || is_last {
            return;
        }
    }
}

/// Waits until the names of a selection, if any, are lost.
pub(super) async fn lost(are_lost: Option<Arc<AtomicBool>>) {
    let Some(are_lost) = are_lost else { return std::future::pending().await };
    while !are_lost.load(Ordering::Acquire) {
        sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of a stream as a transfer takes them, up to the first pause.
    fn taken(text: &[u8]) -> (Vec<Selected>, bool) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (sender, mut names) = runtime.block_on(async { OrderedNames::new() });
        runtime.block_on(forward(&mut &*text, &sender));
        drop(sender);
        let mut taken = Vec::new();
        loop {
            let next = names.next();
            taken.push(next.clone());
            if matches!(next, Selected::End | Selected::NotYet) {
                return (taken, names.are_lost().load(Ordering::Acquire));
            }
        }
    }

    #[test]
    fn names_end_with_an_empty_one_and_are_lost_otherwise() {
        let name = |text: &[u8]| Selected::Name(text.to_vec());
        let all = vec![name(b"a"), name(b"b/c\n"), Selected::End];
        assert_eq!(taken(b"a\0b/c\n\0\0rest"), (all, false));
        assert_eq!(taken(b"\0"), (vec![Selected::End], false));
        for text in [&b"a\0b"[..], b"a\0", b"a\0../b\0\0", b"a\0/b\0\0"] {
            assert_eq!(taken(text), (vec![name(b"a"), Selected::NotYet], true), "{text:?}");
        }
        let long = [b"a\0".to_vec(), vec![b'x'; 1 << 20]].concat();
        assert_eq!(taken(&long), (vec![name(b"a"), Selected::NotYet], true));
    }
}
