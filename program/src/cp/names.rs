//! Names of entries: of sources, in directories, and of the entries to copy.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabul::internal::compare::{Replaces, Selected, Selection, Skipped};

/// How long a transfer waits for a name before it sends the entries so far.
const WAIT: Duration = Duration::from_millis(20);

/// Takes name, size and modification time of an entry that is sent.
pub(super) type SentObserver = Box<dyn Fn(&[u8], u64, Option<i64>) + Send>;

/// Objects at the destination that the entries to copy may replace, by name.
pub(super) type Replaced = Arc<Mutex<HashMap<Vec<u8>, Replaces>>>;

/// A panic elsewhere does not permit to replace any object.
pub(super) fn lock(replaced: &Replaced) -> MutexGuard<'_, HashMap<Vec<u8>, Replaces>> {
    replaced.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of the entries to copy.
pub(super) struct Names {
    first: Option<Selected>,
    rest: Receiver<Selected>,
    /// Entries that need no copy.
    pub(super) skipped: Arc<Skipped>,
    watch: Option<Watch>,
    /// The last name.
    last: Vec<u8>,
}

/// Observer of the entries that are sent to a replica.
pub(super) struct Watch {
    /// Called with size and modification time of each entry.
    pub(super) sent: SentObserver,
    /// An entry replaces only the object that was compared.
    pub(super) replaced: Replaced,
}

impl Names {
    pub(super) const fn new(
        first: Option<Selected>,
        rest: Receiver<Selected>,
        skipped: Arc<Skipped>,
        watch: Option<Watch>,
    ) -> Self {
        Self { first, rest, skipped, watch, last: Vec::new() }
    }

    /// No entries.
    pub(super) fn none() -> Self {
        let (_, rest) = std::sync::mpsc::sync_channel(0);
        Self::new(None, rest, Arc::default(), None)
    }

    /// These entries, in the order of a walk.
    pub(super) fn of(names: Vec<Vec<u8>>) -> Self {
        let (sender, rest) = std::sync::mpsc::sync_channel(names.len());
        // The channel has room for all names.
        names.into_iter().for_each(|name| drop(sender.try_send(Selected::Name(name))));
        Self::new(None, rest, Arc::default(), None)
    }
}

impl Selection for Names {
    fn next(&mut self) -> Selected {
        let next = self.first.take().map_or_else(|| self.rest.recv_timeout(WAIT), Ok);
        match next {
            Ok(selected) => {
                if let (Selected::Name(name) | Selected::Changed(name, _), Some(_)) =
                    (&selected, &self.watch)
                {
                    self.last.clone_from(name);
                }
                selected
            }
            Err(RecvTimeoutError::Timeout) => Selected::NotYet,
            Err(RecvTimeoutError::Disconnected) => Selected::End,
        }
    }

    fn replaces(&mut self) -> Option<Replaces> {
        let mut replaced = lock(&self.watch.as_ref()?.replaced);
        // Each name of a copy to a replica was compared.
        Some(replaced.remove(&self.last).unwrap_or(Replaces::Nothing))
    }

    fn sent(&mut self, name: &[u8], size: u64, modified_ns: Option<i64>) {
        if let Some(watch) = &self.watch {
            (watch.sent)(name, size, modified_ns);
        }
    }
}

/// Names of these sources in the transfer; empty for the content of a directory. `None` if names can collide.
pub(super) fn names_of<'a>(sources: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Vec<u8>>> {
    let name = |source: &[u8]| match means_content(source) {
        true => Vec::new(),
        false => source.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec(),
    };
    let names: Vec<Vec<u8>> = sources.map(name).collect();
    let has_content = names.len() > 1 && names.iter().any(Vec::is_empty);
    let is_unique = names.iter().collect::<BTreeSet<_>>().len() == names.len();
    let is_stream = names.iter().any(|name| name == b"-");
    (is_unique && !has_content && !is_stream && !names.is_empty()).then_some(names)
}

/// Path of a name in a directory; with an empty name, the content of the directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend(name);
    path
}

/// Path of a name below a directory, with the mark below which the other end follows no link.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let directory = match directory {
        b"" => b".",
        directory => directory.strip_suffix(b"/").unwrap_or(directory),
    };
    [directory, b"/./", name].concat()
}

pub(super) fn is_pattern(path: &[u8]) -> bool {
    sabul::internal::escape_pattern(path) != path
}

/// Returns whether a remote source means the content of a directory: the root, or a path that ends
/// in `/`, `.` or `..`.
pub(crate) fn means_content(path: &[u8]) -> bool {
    matches!(path.rsplit(|&byte| byte == b'/').next(), None | Some(b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_ends_in_a_slash_means_its_content() {
        for (path, expected) in
            [(&b""[..], true), (b"a/", true), (b".", true), (b"a/..", true), (b"a", false)]
        {
            assert_eq!(means_content(path), expected, "{path:?}");
        }
        assert!(means_content(b"caf\xE9/"));
    }
}
