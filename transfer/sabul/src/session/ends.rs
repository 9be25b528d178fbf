//! Facts of files of the peer together with their last bytes.

use sabul_files::ReadRange;
use sabul_wire::control::{Facts, Failure, Range};

use super::Session;
use super::ranges::RangeReads;
use crate::config::TransferOptions;
use crate::error::Error;

/// Facts of a file and its last bytes, of one version of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileEnd {
    /// Metadata of the file, without hash and attributes.
    pub facts: Facts,
    /// The last bytes: as many as requested, or the whole file if it is shorter.
    pub tail: Vec<u8>,
}

impl Session {
    /// Returns the facts of a file of the peer with its last bytes, which readers of Parquet and ZIP need first. Takes one
    /// request, so one round trip, like any short range. The first request of a session takes two.
    ///
    /// The path is never a pattern, and a link is followed as by [`Session::get`].
    ///
    /// # Errors
    /// If the file cannot be read, is a directory, or changed meanwhile; an option is invalid or the session is over.
    pub async fn stat_with_tail(
        &self,
        path: Vec<u8>,
        bytes: u64,
        options: &TransferOptions,
    ) -> Result<FileEnd, Error> {
        let found = self.stat_with_tails(vec![path], bytes, options).await?.pop();
        Ok(found.ok_or(Error::Cancelled)??)
    }

    /// As [`Self::stat_with_tail`], for many files in one request. Returns the files in the order of the paths, or the
    /// reasons why single files cannot be read. All tails are held in memory.
    ///
    /// # Errors
    /// If an option is invalid, the transfer fails or the session is over.
    pub async fn stat_with_tails(
        &self,
        paths: Vec<Vec<u8>>,
        bytes: u64,
        options: &TransferOptions,
    ) -> Result<Vec<Result<FileEnd, Failure>>, Error> {
        let mut found: Vec<_> = paths.iter().map(|_| None).collect();
        let end = Range { offset: bytes, length: Some(bytes) };
        let ranges = paths.into_iter().map(|path| (path, end)).collect();
        let mut reads = RangeReads::from_end(self, ranges, options).await?;
        while let Some(ReadRange { number, content, facts }) = reads.next_read().await? {
            let end = match content {
                Ok(tail) => Ok(file_end(tail, facts, bytes)?),
                Err(failure) => Err(failure),
            };
            if let Some(place) = found.get_mut(number) {
                *place = Some(end);
            }
        }
        let missing = || Failure::violation("it sent no end of a requested file");
        Ok(found.into_iter().map(|end| end.unwrap_or_else(|| Err(missing()))).collect())
    }
}

/// Checks that facts and tail belong together.
fn file_end(tail: Vec<u8>, facts: Option<Box<Facts>>, bytes: u64) -> Result<FileEnd, Failure> {
    match facts {
        Some(facts) if tail.len() as u64 == facts.size.min(bytes) => {
            Ok(FileEnd { facts: *facts, tail })
        }
        _ => Err(Failure::violation("it sent the end of a file without the size of the file")),
    }
}

#[cfg(test)]
mod tests {
    use sabul_wire::control::{FailureCode, SeenKind};

    use super::*;

    #[test]
    fn a_tail_that_does_not_fit_the_size_of_its_file_is_a_violation() {
        let facts = |size| Some(Box::new(Facts::new(SeenKind::File, size, None)));
        let end = file_end(vec![7; 3], facts(10), 3).unwrap();
        assert_eq!((end.facts.size, end.tail), (10, vec![7; 3]));
        file_end(vec![7; 3], facts(3), 8).unwrap();
        for wrong in [facts(4), facts(2), None] {
            let failure = file_end(vec![7; 3], wrong, 8).unwrap_err();
            assert_eq!(failure.code, FailureCode::Protocol);
        }
    }
}
