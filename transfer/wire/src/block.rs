//! Block format of a transfer: data, followed by a table of records that describe the data.
//!
//! ```text
//! | data | table | length of the table, 4 bytes, big-endian |
//! ```
//! The tables of all blocks of a transfer form one stream of records, each with a varint length in front. A record that
//! does not fit continues in the table of the next block. An entry with many attributes may therefore be longer than a
//! block, and no block has to stay half empty. The data of a [`Record::Part`] is in the block in which that record
//! ends. The table follows the data for two reasons: hashes are known only after the data, and files are read straight
//! into the block.

use serde::{Deserialize, Serialize};

use crate::bytes::{DecodeError, Reader, Reason, put_varint};
use crate::control::{Entry, Failure};

/// Bytes of a block besides its data and its table.
pub const BLOCK_END: usize = 4;
/// Longest record, in bytes. Ours: the largest entry has two names of 4096 bytes, 2^17 bytes of attributes, 32,768
/// extents of 20 bytes, and 4096 moved ranges of 30 bytes.
pub const MAX_RECORD: usize = 960 << 10;
/// Longest [`Record::Part`] including its length, in bytes.
pub const MAX_PART: usize = 32;

/// One record of a table. For each entry: first [`Record::Entry`], then its parts, then its end; then the next entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Announces the next entry. Entries are numbered from zero.
    Entry(Entry),
    /// Assigns the next bytes of this block's data to a range of an entry.
    Part {
        /// Number of the entry: always the entry announced last.
        index: u64,
        /// Offset in the content of the entry. The first part of an entry has an offset above zero when the receiver
        /// reported that it holds the bytes before; such a part may be empty.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Ends the content of a file or stream.
    End {
        /// Number of the entry: always the entry announced last.
        index: u64,
        /// BLAKE3 hash of the content, or the reason why the content is invalid.
        outcome: Result<[u8; 32], Failure>,
    },
    /// Ends the transfer: no entries follow.
    Last {
        /// Number of entries.
        entries: u64,
        /// Sum of their bytes, if every size was announced.
        bytes: u64,
        /// Files that grew while they were read, and were sent up to their announced size.
        grown: u64,
    },
}

impl Record {
    /// Appends the length and the record to a table.
    ///
    /// # Errors
    /// If the record is longer than [`MAX_RECORD`]; the table is unchanged then.
    pub fn encode(&self, table: &mut Vec<u8>) -> Result<(), DecodeError> {
        let offset = table.len();
        let fail = |reason| DecodeError { offset, reason };
        let body = postcard::to_allocvec(self).map_err(|_| fail(Reason::BadMessage))?;
        if body.len() > MAX_RECORD {
            return Err(fail(Reason::TooLong));
        }
        put_varint(table, body.len() as u64);
        table.extend(body);
        Ok(())
    }

    fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let (record, rest) = postcard::take_from_bytes(body)
            .map_err(|_| DecodeError { offset: 0, reason: Reason::BadMessage })?;
        match rest.len() {
            0 => Ok(record),
            more => DecodeError::at(body.len() - more, Reason::TrailingBytes),
        }
    }
}

/// Splits a block into its data and its table.
///
/// # Errors
/// If the block is shorter than its table.
pub fn split_block(block: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let fail = |reason| DecodeError { offset: block.len(), reason };
    let (rest, length) =
        block.split_last_chunk::<BLOCK_END>().ok_or_else(|| fail(Reason::Truncated))?;
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    let data = rest.len().checked_sub(length).ok_or_else(|| fail(Reason::TooLong))?;
    Ok(rest.split_at(data))
}

/// Makes a block of a buffer whose first `data` bytes are the data. The rest of the buffer is overwritten.
pub fn end_block(buffer: &mut Vec<u8>, data: usize, table: &[u8]) {
    let length = u32::try_from(table.len()).unwrap_or(u32::MAX).to_be_bytes();
    let end = data + table.len();
    buffer.resize(end + BLOCK_END, 0);
    buffer[data..end].copy_from_slice(table);
    buffer[end..].copy_from_slice(&length);
}

/// Incremental decoder of records from the tables of consecutive blocks.
#[derive(Debug, Default)]
pub struct Records {
    /// Front of a record whose rest is in a later table.
    partial: Vec<u8>,
}

impl Records {
    /// Removes the next record from the front of `table` and returns it; `None` once the table is used up.
    ///
    /// # Errors
    /// If the bytes are not a valid record.
    pub fn next(&mut self, table: &mut &[u8]) -> Result<Option<Record>, DecodeError> {
        if self.partial.is_empty()
            && let Some((body, rest)) = whole(table)?
        {
            *table = rest;
            return Record::decode(body).map(Some);
        }
        // Copies no byte beyond the end of the record that began in an earlier table.
        while let Some((first, rest)) = table.split_first() {
            let missing = missing(&self.partial)?;
            let (now, rest) = match missing {
                Some(missing) => table.split_at(missing.min(table.len())),
                None => (std::slice::from_ref(first), rest),
            };
            self.partial.extend_from_slice(now);
            *table = rest;
            if let Some((body, _)) = whole(&self.partial)? {
                let record = Record::decode(body);
                self.partial = Vec::new();
                return record.map(Some);
            }
        }
        Ok(None)
    }

    /// Bytes held of a record whose end has not arrived.
    pub const fn begun_bytes(&self) -> usize {
        self.partial.len()
    }
}

/// Length of the record at the front and the bytes after the length; `None` while the length is incomplete.
fn length(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.varint() {
        Err(DecodeError { reason: Reason::Truncated, .. }) if bytes.len() < 3 => Ok(None),
        Ok(length) if (1..=MAX_RECORD as u64).contains(&length) => {
            let rest = reader.rest_bytes();
            Ok(Some((usize::try_from(length).unwrap_or(usize::MAX), rest)))
        }
        _ => DecodeError::at(0, Reason::TooLong),
    }
}

/// Body of a record without its length, and the bytes after the record.
type Front<'a> = (&'a [u8], &'a [u8]);

/// The record at the front; `None` while the record is incomplete.
fn whole(bytes: &[u8]) -> Result<Option<Front<'_>>, DecodeError> {
    Ok(length(bytes)?.and_then(|(length, rest)| rest.split_at_checked(length)))
}

/// Number of missing bytes of an incomplete record; `None` while its length is incomplete.
fn missing(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    Ok(length(bytes)?.map(|(length, rest)| length.saturating_sub(rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{
        Attribute, EntryKind, Extent, Facts, FailureCode, Kept, MAX_ATTRIBUTE_BYTES,
        MAX_ATTRIBUTES, MAX_DELTA_EXTENTS, MAX_MOVED, MAX_NAME, More, Moved, Owner, Replaces,
        SeenKind,
    };

    fn entry(path: &[u8], more: Option<More>) -> Entry {
        let (mode, modified_ns) = (Some(0o644), Some(-1));
        let more = more.map(Box::new);
        Entry { path: path.to_vec(), kind: EntryKind::File(9), mode, modified_ns, more }
    }

    fn some() -> Vec<Record> {
        vec![
            Record::Entry(entry(b"caf\xE9/a", None)),
            Record::Part { index: 0, offset: 300, bytes: 7 },
            Record::End { index: 0, outcome: Ok([5; 32]) },
            Record::End { index: 1, outcome: Err(Failure::new(FailureCode::Changed, "grew")) },
            Record::Last { entries: 2, bytes: 9, grown: 1 },
        ]
    }

    /// The largest entry within the limits.
    fn largest() -> Record {
        let value = MAX_ATTRIBUTE_BYTES / MAX_ATTRIBUTES - 6;
        let attribute = Attribute { name: b"user.x".to_vec(), value: vec![1; value] };
        let extent = Extent { offset: u64::MAX, bytes: u64::MAX };
        let moved = Moved { to: u64::MAX, from: u64::MAX, bytes: u64::MAX };
        let seen = Facts {
            kind: SeenKind::File,
            size: u64::MAX,
            mode: u32::MAX,
            modified_ns: Some(i64::MIN),
            owner: u32::MAX,
            group: u32::MAX,
            hash: Some([9; 32]),
            attributes: None,
            id: None,
            is_shared: true,
        };
        let more = More {
            owner: Some(Owner { user: u32::MAX, group: u32::MAX }),
            target: vec![b't'; MAX_NAME],
            attributes: vec![attribute; MAX_ATTRIBUTES],
            attributes_left: u32::MAX,
            data: Some(vec![extent; MAX_DELTA_EXTENTS]),
            kept: Some(Kept { hash: [1; 32], moved: vec![moved; MAX_MOVED] }),
            replaces: Some(Replaces::Seen(Box::new(seen))),
            facts: Some(Box::new(seen)),
        };
        Record::Entry(entry(&[b'n'; MAX_NAME], Some(more)))
    }

    fn table(records: &[Record]) -> Vec<u8> {
        let mut table = Vec::new();
        for record in records {
            record.encode(&mut table).unwrap();
        }
        table
    }

    /// The same bytes as in the protocol's documentation.
    #[test]
    fn a_block_has_the_documented_bytes() {
        let mut block = b"data".to_vec();
        end_block(&mut block, 4, &table(&some()));
        let expected = [
            &b"data"[..],
            &[16, 0, 6, b'c', b'a', b'f', 0xE9, b'/', b'a', 0, 9, 1, 0xA4, 3, 1, 1, 0],
            &[5, 1, 0, 0xAC, 2, 7],
            &[35, 2, 0, 0],
            &[5; 32],
            &[9, 2, 1, 1, 6, 4, b'g', b'r', b'e', b'w'],
            &[4, 3, 2, 9, 1],
            &[0, 0, 0, 74],
        ];
        assert_eq!(block, expected.concat());
        let (data, rest) = split_block(&block).unwrap();
        assert_eq!((data, rest), (&b"data"[..], &table(&some())[..]));
    }

    #[test]
    fn records_decode_whole_and_in_order_with_any_fragmentation() {
        let records = [some(), vec![largest()], some()].concat();
        let all = table(&records);
        for step in [1, 2, 3, 7, 4096, 100_000, all.len()] {
            let (mut reader, mut found) = (Records::default(), Vec::new());
            for mut part in all.chunks(step) {
                while let Some(record) = reader.next(&mut part).unwrap() {
                    found.push(record);
                }
                assert!(part.is_empty() && reader.begun_bytes() <= MAX_RECORD + 3);
            }
            assert_eq!(found, records, "{step}");
            assert_eq!(reader.begun_bytes(), 0);
        }
    }

    #[test]
    fn the_largest_entry_and_part_records_have_the_maximum_length() {
        let Record::Entry(entry) = largest() else { unreachable!("it is one") };
        assert!(table(&[Record::Entry(entry.clone())]).len() > MAX_RECORD * 3 / 4);
        let more = entry.more.unwrap();
        let attributes = [more.attributes.clone(), more.attributes].concat();
        let too_long = Record::Entry(Entry {
            more: Some(Box::new(More { attributes, ..*largest_more() })),
            ..self::entry(b"a", None)
        });
        let mut out = vec![1];
        assert_eq!(too_long.encode(&mut out).unwrap_err().reason, Reason::TooLong);
        assert_eq!(out, [1], "nothing half-written stays");
        let part = Record::Part { index: u64::MAX, offset: u64::MAX, bytes: u64::MAX };
        assert_eq!(table(&[part]).len(), MAX_PART);
    }

    fn largest_more() -> Box<More> {
        let Record::Entry(entry) = largest() else { unreachable!("it is one") };
        entry.more.unwrap()
    }

    #[test]
    fn an_invalid_record_is_refused_without_allocation() {
        for bad in [
            &[0][..],
            // 960 KiB + 1 byte, 2^21 and more.
            &[0x81, 0x80, 0x3C],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F],
            // An unknown kind; one byte too many; one byte too few.
            &[1, 4],
            &[5, 3, 2, 9, 9, 9],
            &[2, 3, 2],
            // A path of 2^28 bytes.
            &[6, 0, 0xFF, 0xFF, 0xFF, 0x7F, 1],
        ] {
            for step in [1, bad.len()] {
                let mut reader = Records::default();
                let found = bad.chunks(step).try_for_each(|mut part| {
                    while reader.next(&mut part)?.is_some() {}
                    Ok::<_, DecodeError>(())
                });
                found.expect_err("it is refused");
            }
        }
        assert!(split_block(&[0, 0, 0]).is_err() && split_block(&[1, 0, 0, 0, 2]).is_err());
        assert_eq!(split_block(&[0; 4]), Ok((&[][..], &[][..])));
        assert!(split_block(&[0xFF; 9]).is_err());
    }
}
