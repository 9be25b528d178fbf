//! Sink of a request for ranges of files: the content of each range in memory.

use std::fmt;

use sabul_content::Printable;
use sabul_wire::control::{Entry, Facts, Failure, FailureCode};

use super::entry_error::EntryError;
use super::receive::{Commit, Receiver, Sink};

/// Receiver of ranges of files into memory.
pub type RangeReceiver = Receiver<RangeSink>;

/// A requested range.
#[derive(Debug)]
pub struct ReadRange {
    /// Number in the request.
    pub number: usize,
    /// Content, or the reason why the content is missing.
    pub content: Result<Vec<u8>, Failure>,
    /// Facts of the file, if the range was counted from the end.
    pub facts: Option<Box<Facts>>,
}

/// Collects the content of each entry, and passes the content on once it is verified.
pub struct RangeSink {
    /// Most bytes of each range, if limited.
    limits: Vec<Option<u64>>,
    /// Modification time of the file of each range, if the reader knows the file in one version.
    times: Vec<Option<i64>>,
    content: Vec<u8>,
    /// Takes a range; returns whether more ranges are wanted.
    deliver: Box<dyn FnMut(ReadRange) -> bool + Send>,
}

impl fmt::Debug for RangeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeSink").field("ranges", &self.limits.len()).finish_non_exhaustive()
    }
}

impl RangeSink {
    /// Whether the file has another modification time than the reader knows.
    fn has_changed(&self, index: u64, entry: &Entry) -> bool {
        let time = usize::try_from(index).ok().and_then(|index| *self.times.get(index)?);
        time.is_some() && time != entry.modified_ns
    }

    fn deliver(
        &mut self,
        index: u64,
        content: Result<Vec<u8>, Failure>,
        facts: Option<Box<Facts>>,
    ) -> Result<(), EntryError> {
        let number = usize::try_from(index).unwrap_or(usize::MAX);
        if (self.deliver)(ReadRange { number, content, facts }) {
            return Ok(());
        }
        let unwanted = Failure::new(FailureCode::Cancelled, "the reader needs no more ranges");
        Err(EntryError { ends_transfer: true, ..unwanted.into() })
    }
}

fn changed(entry: &Entry) -> Failure {
    let text = format!(
        "'{}' changed since it was opened: its parts would be of two versions; open it again",
        Printable(&entry.path)
    );
    Failure::new(FailureCode::Changed, text)
}

impl RangeReceiver {
    /// Creates a receiver of ranges with at most these lengths. A range of a file with another modification time than
    /// the one in `times`, in nanoseconds, fails. `deliver` takes each range, in any order, and returns whether more
    /// ranges are wanted.
    pub fn of_ranges(
        limits: Vec<Option<u64>>,
        times: Vec<Option<i64>>,
        transfer: u32,
        deliver: impl FnMut(ReadRange) -> bool + Send + 'static,
    ) -> Self {
        let deliver = Box::new(deliver);
        Self::with_sink(RangeSink { limits, times, content: Vec::new(), deliver }, transfer)
    }
}

impl Sink for RangeSink {
    fn max_entries(&self) -> u64 {
        self.limits.len() as u64
    }

    fn make_directory(&mut self, _index: u64, entry: &Entry) -> Result<Commit, EntryError> {
        let text = format!("'{}' is a directory and has no ranges", Printable(&entry.path));
        Err(Failure::new(FailureCode::BadSetting, text).into())
    }

    fn create(&mut self, index: u64, entry: &Entry) -> Result<(), EntryError> {
        self.content = Vec::new();
        let limit = usize::try_from(index).ok().and_then(|index| *self.limits.get(index)?);
        let is_longer = match (entry.kind.size(), limit) {
            (Some(bytes), Some(limit)) => bytes > limit,
            (Some(_), None) => false,
            (None, _) => true,
        };
        let has_holes = entry.more.as_ref().is_some_and(|more| more.data.is_some());
        if !is_longer && !has_holes {
            return Ok(());
        }
        let path = Printable(&entry.path);
        let violation =
            Failure::violation(format_args!("it sent more of '{path}' than was requested"));
        Err(EntryError { ends_transfer: true, ..violation.into() })
    }

    fn write(&mut self, _index: u64, _entry: &Entry, content: &[u8]) -> Result<(), EntryError> {
        self.content.extend_from_slice(content);
        Ok(())
    }

    fn finish(&mut self, index: u64, entry: &Entry, _hash: [u8; 32]) -> Result<Commit, EntryError> {
        let content = std::mem::take(&mut self.content);
        let result = match self.has_changed(index, entry) {
            false => Ok(content),
            true => Err(changed(entry)),
        };
        let facts = entry.more.as_ref().and_then(|more| more.facts.clone());
        self.deliver(index, result, facts).map(|()| Commit::Now)
    }

    fn discard(&mut self, _index: u64) {
        self.content = Vec::new();
    }

    fn failed(&mut self, index: u64, failure: &Failure) {
        // The next range shows that no more ranges are wanted.
        let _ = self.deliver(index, Err(failure.clone()), None);
    }

    fn pending_bytes(&self) -> usize {
        self.content.capacity()
    }

    fn abort(&mut self) {}
}
