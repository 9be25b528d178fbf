//! Check of a Parquet footer before the library parses it.
//!
//! The library parses the schema by recursion, and reserves memory for as many children or row groups as the footer
//! names. A stack overflow or failed reservation ends the program. Some bytes of a column chunk need 400 bytes of memory.
//! So depth, numbers and memory are checked here.
//! Source: parquet.thrift of the Parquet format: `FileMetaData`.

use std::mem::size_of;

use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::arrow::schema_memory;
use super::thrift::{Item, Kind, malformed, walk};
use crate::error::JoinError;

/// Name of the object in messages.
const WHAT: &str = "Parquet footer";
/// Most nested groups of a schema, the root among them. Ours: 31 lists in lists; a group needs about 1 kB of stack.
const GROUPS_MAX: usize = 64;
/// Copies of a footer in memory: its bytes, and the texts and statistics of the parsed footer.
const COPIES: usize = 2;
/// Memory of an element of a schema: types of both libraries and columns, without names; and copies of its name.
const ELEMENT: usize = 1024;
const NAMES: usize = 4;
/// Memory of a name in the path of a leaf beside its content, of text in statistics, and of other structures.
const PATH_PART: usize = 40;
const TEXT: usize = 64;
const STRUCTURE: usize = 64;
/// Bytes of a name in a message.
const NAME_SHOWN: usize = 64;

const EMPTY: Kind = Kind::Struct(&[]);
const TIME_UNIT: Kind = Kind::Struct(&[EMPTY, EMPTY, EMPTY]);
const TIME: Kind = Kind::Struct(&[Kind::Flag, TIME_UNIT]);
const LOGICAL_TYPE: Kind = Kind::Struct(&[
    EMPTY,
    EMPTY,
    EMPTY,
    EMPTY,
    // Decimal.
    Kind::Struct(&[Kind::Int, Kind::Int]),
    EMPTY,
    TIME,
    TIME,
    Kind::Any,
    // Integer.
    Kind::Struct(&[Kind::Byte, Kind::Flag]),
    EMPTY,
    EMPTY,
    EMPTY,
    EMPTY,
    EMPTY,
    // Variant, geometry, geography.
    Kind::Struct(&[Kind::Byte]),
    Kind::Struct(&[Kind::Bytes]),
    Kind::Struct(&[Kind::Bytes, Kind::Int]),
]);
const SCHEMA_ELEMENT: Kind = Kind::Struct(&[
    Kind::Int,
    Kind::Int,
    Kind::Int,
    // Name, children.
    Kind::Bytes,
    Kind::Int,
    Kind::Int,
    Kind::Int,
    Kind::Int,
    Kind::Int,
    LOGICAL_TYPE,
]);
const STATISTICS: Kind = Kind::Struct(&[
    Kind::Bytes,
    Kind::Bytes,
    Kind::Long,
    Kind::Long,
    Kind::Bytes,
    Kind::Bytes,
    Kind::Flag,
    Kind::Flag,
]);
const LONGS: Kind = Kind::List(&Kind::Long);
const INTS: Kind = Kind::List(&Kind::Int);
const COLUMN_METADATA: Kind = Kind::Struct(&[
    Kind::Int,
    INTS,
    // The path.
    Kind::Any,
    Kind::Int,
    Kind::Long,
    Kind::Long,
    Kind::Long,
    Kind::Any,
    Kind::Long,
    Kind::Long,
    Kind::Long,
    STATISTICS,
    // Encodings of pages.
    Kind::List(&Kind::Struct(&[Kind::Int, Kind::Int, Kind::Int])),
    Kind::Long,
    Kind::Int,
    // Sizes.
    Kind::Struct(&[Kind::Long, LONGS, LONGS]),
    // Geometry.
    Kind::Struct(&[Kind::Struct(&[Kind::Double; 8]), INTS]),
]);
const COLUMN_CHUNK: Kind = Kind::Struct(&[
    Kind::Bytes,
    Kind::Long,
    COLUMN_METADATA,
    Kind::Long,
    Kind::Int,
    Kind::Long,
    Kind::Int,
]);
const ROW_GROUP: Kind = Kind::Struct(&[
    Kind::List(&COLUMN_CHUNK),
    Kind::Long,
    Kind::Long,
    Kind::List(&Kind::Struct(&[Kind::Int, Kind::Flag, Kind::Flag])),
    Kind::Long,
    Kind::Long,
    Kind::Int,
]);
const FILE_METADATA: &[Kind] = &[
    Kind::Int,
    Kind::List(&SCHEMA_ELEMENT),
    Kind::Long,
    Kind::List(&ROW_GROUP),
    // Keys and values.
    Kind::List(&Kind::Struct(&[Kind::Bytes, Kind::Bytes])),
    Kind::Bytes,
    // Orders of columns.
    Kind::List(&Kind::Struct(&[EMPTY])),
];

/// Contents of a footer so far.
#[derive(Debug, Default)]
struct Footer {
    /// Elements of the schema, and how many of them the groups have named.
    elements: usize,
    named: usize,
    /// Children of the current element.
    children: i64,
    /// Groups around the current element.
    groups: Vec<Group>,
    /// Bytes of the name of the current element.
    name: usize,
    /// Name of the column of the table that has the current element.
    column: String,
    row_groups: usize,
    chunks: usize,
    /// Estimated memory of the parsed footer.
    memory: usize,
    /// Whether the current key is that of an Arrow schema.
    is_arrow: bool,
}

/// A group of the schema: children that follow, memory of the path of a leaf up to this group.
#[derive(Debug)]
struct Group {
    left: i64,
    path: usize,
}

/// Checks the size of a footer before it is read.
///
/// # Errors
/// If a footer of this size needs more memory.
pub(super) fn check_size(bytes: u64, memory_max: usize) -> Result<(), JoinError> {
    let memory = bytes.saturating_mul(COPIES as u64);
    if memory > memory_max as u64 { Err(too_large(bytes, "", memory, memory_max)) } else { Ok(()) }
}

fn too_large(bytes: u64, contents: &str, memory: u64, memory_max: usize) -> JoinError {
    JoinError::Table(format!(
        "the Parquet footer of {bytes} bytes{contents} may need {} MiB of memory, at most {} MiB are used; \
         use more --memory, or write the file with fewer row groups or columns",
        memory >> 20,
        memory_max >> 20
    ))
}

/// Checks a footer, without the length and magic at its end.
///
/// # Errors
/// If the library cannot parse the footer safely, or may need more than `memory_max` bytes for it.
pub(super) fn check(bytes: &[u8], memory_max: usize) -> Result<(), JoinError> {
    let mut footer = Footer { memory: bytes.len() * COPIES, ..Footer::default() };
    walk(&mut &*bytes, WHAT, FILE_METADATA, &mut |path, item| footer.add(path, item))?;
    if footer.memory > memory_max {
        let Footer { elements, row_groups, chunks, .. } = footer;
        let contents = format!(
            " with {elements} elements of the schema, {row_groups} row groups and {chunks} column chunks"
        );
        return Err(too_large(bytes.len() as u64, &contents, footer.memory as u64, memory_max));
    }
    Ok(())
}

impl Footer {
    fn add(&mut self, path: &[i16], item: Item<'_>) -> Result<(), JoinError> {
        match (path, item) {
            ([2], Item::List(count)) => self.elements = count,
            ([2], Item::Begin) => (self.children, self.name) = (0, 0),
            ([2, 4], Item::Bytes(name)) => {
                self.name = name.len();
                if self.groups.len() == 1 {
                    let name = &name[..name.len().min(NAME_SHOWN)];
                    self.column = String::from_utf8_lossy(name).escape_debug().to_string();
                }
            }
            ([2, 5], Item::Number(children)) => self.children = children,
            ([2], Item::End) => self.add_element()?,
            ([4], Item::Begin) => {
                self.row_groups += 1;
                self.charge(size_of::<RowGroupMetaData>());
            }
            ([4, 1], Item::Begin) => {
                self.chunks += 1;
                self.charge(size_of::<ColumnChunkMetaData>());
            }
            ([4, 1, 3, 12, ..], Item::Bytes(_)) => self.charge(TEXT),
            // Histograms and types of geometries.
            ([4, 1, 3, 16 | 17, ..], Item::List(count)) => {
                self.charge(count.saturating_mul(size_of::<i64>()));
            }
            ([5, 1], Item::Bytes(key)) => self.is_arrow = key == ARROW_SCHEMA_META_KEY.as_bytes(),
            ([5, 2], Item::Bytes(value)) if self.is_arrow => {
                // The library refuses a schema that cannot be decoded.
                let schema = base64(value).unwrap_or_default();
                self.charge(schema_memory(&schema)?);
            }
            // The others are part of a chunk.
            ([_] | [4, 4] | [4, 1, 3, 17, ..], Item::Begin) => self.charge(STRUCTURE),
            _ => {}
        }
        Ok(())
    }

    const fn charge(&mut self, bytes: usize) {
        self.memory = self.memory.saturating_add(bytes);
    }

    /// Adds an element of the schema. The elements are in depth-first order.
    fn add_element(&mut self) -> Result<(), JoinError> {
        let mut path = self.name.saturating_add(PATH_PART);
        if let Some(parent) = self.groups.last_mut() {
            parent.left -= 1;
            path = path.saturating_add(parent.path);
        }
        self.charge(ELEMENT.saturating_add(self.name.saturating_mul(NAMES)));
        if self.children > 0 {
            self.named = self.named.saturating_add(usize::try_from(self.children).unwrap_or(0));
            // The root is in no path.
            let path = if self.groups.is_empty() { 0 } else { path };
            self.groups.push(Group { left: self.children, path });
        } else {
            self.charge(path);
        }
        if self.children < 0 || self.named >= self.elements.max(1) {
            return Err(malformed("schema of a Parquet footer"));
        }
        if self.groups.len() > GROUPS_MAX {
            return Err(JoinError::Table(format!(
                "column '{}' of the Parquet file is in more than {GROUPS_MAX} nested groups, which are not supported; \
                 write the file with a flatter schema",
                self.column
            )));
        }
        while self.groups.last().is_some_and(|group| group.left == 0) {
            self.groups.pop();
        }
        Ok(())
    }
}

/// Decodes base64 with padding (RFC 4648, section 4).
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for at in 0..4 {
            let digit = match group.get(at).copied() {
                Some(digit @ b'A'..=b'Z') => digit - b'A',
                Some(digit @ b'a'..=b'z') => digit - b'a' + 26,
                Some(digit @ b'0'..=b'9') => digit - b'0' + 52,
                Some(b'+') => 62,
                Some(b'/') => 63,
                None => 0,
                Some(_) => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        let [_, decoded @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(decoded.get(..group.len().checked_sub(1)?)?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::Range;

    use bytes::Bytes;

    use super::super::tests::{Memory, shared_name};
    use super::super::thrift::tests::number;
    use super::super::{ParquetFile, Ranges};
    use super::*;

    /// Returns a number field; `step` is the difference to the field before.
    fn int(step: u8, value: u64) -> Vec<u8> {
        [vec![step << 4 | 5], number(value * 2)].concat()
    }

    /// Returns the start of a list of structures.
    fn list(step: u8, count: usize) -> Vec<u8> {
        [vec![step << 4 | 9, 0xfc], number(count as u64)].concat()
    }

    /// Returns a required group: repetition, name, children.
    fn group(children: u64) -> Vec<u8> {
        [int(3, 0), vec![0x18, 1, b'a'], int(1, children), vec![0]].concat()
    }

    /// Returns a required column of integers: type, repetition, name.
    fn leaf(name: &str) -> Vec<u8> {
        let name = [number(name.len() as u64), name.into()].concat();
        [int(1, 2), int(2, 0), vec![0x18], name, vec![0]].concat()
    }

    /// Opens a file with this schema and these row groups; returns the number of fields.
    fn open(schema: &[Vec<u8>], row_groups: &[Vec<u8>]) -> Result<usize, String> {
        let file = opened(schema, row_groups, &[vec![0]])?;
        Ok(file.schema().flattened_fields().len())
    }

    /// Opens a file with this schema, these row groups and these further bytes.
    fn opened(
        schema: &[Vec<u8>],
        row_groups: &[Vec<u8>],
        end: &[Vec<u8>],
    ) -> Result<ParquetFile, String> {
        let schema = [list(1, schema.len()), schema.concat()].concat();
        let groups = [list(1, row_groups.len()), row_groups.concat()].concat();
        // Version, schema, rows, row groups.
        let footer = [int(1, 1), schema, vec![0x16, 0], groups, end.concat()].concat();
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        let file = Memory(Bytes::from([b"PAR1", &footer[..], &length, b"PAR1"].concat()));
        ParquetFile::open(&file, 0).map_err(|error| error.to_string())
    }

    fn nested(groups: usize) -> Vec<Vec<u8>> {
        [vec![group(1); groups], vec![leaf("k")]].concat()
    }

    #[test]
    fn nested_groups_beyond_the_limit_are_refused_before_the_library_recurses() {
        assert_eq!(open(&nested(1), &[]), Ok(1));
        assert_eq!(open(&nested(64), &[]), Ok(64));
        for groups in [65, 2000, 200_000] {
            let error = open(&nested(groups), &[]).unwrap_err();
            assert!(
                error.contains("column 'a' of the Parquet file is in more than 64 nested"),
                "{error}"
            );
        }
        // Many groups beside one another are not nested.
        let pairs = (0..5000).flat_map(|_| [group(1), leaf("k")]);
        let wide: Vec<_> = std::iter::once(group(5000)).chain(pairs).collect();
        assert_eq!(open(&wide, &[]), Ok(10_000));
    }

    #[test]
    fn a_schema_with_other_numbers_of_children_is_refused() {
        for children in [3, 1 << 20, (1 << 31) - 1] {
            let error = open(&[group(1), group(children), leaf("k")], &[]).unwrap_err();
            assert!(error.contains("schema of a Parquet footer is malformed"), "{error}");
        }
        // The library reads the number of children here, a walk by the types of the bytes does not.
        let hidden = [int(3, 0), vec![0x18, 1, b'a', 0x18, 2, 0, 0, 0]].concat();
        let error = open(&[group(1), hidden, leaf("k")], &[]).unwrap_err();
        assert!(error.contains("the Parquet footer is malformed"), "{error}");
    }

    /// Returns a row group of chunks without values.
    fn row_group(columns: usize) -> Vec<u8> {
        row_group_of(columns, 0)
    }

    fn row_group_of(columns: usize, rows: u64) -> Vec<u8> {
        let path = vec![0x19, 0x18, 1, b'k'];
        let long = |step: u8| vec![step << 4 | 6, 0];
        // Type, encodings, path, codec; values and sizes; offset of the first page.
        let metadata =
            [int(1, 2), vec![0x19, 5], path, int(1, 0), long(1), long(1), long(1), long(2)];
        let chunk = [long(2), vec![0x1c], metadata.concat(), vec![0, 0]].concat();
        let rows = [vec![0x16], number(rows * 2)].concat();
        [list(1, columns), chunk.repeat(columns), long(1), rows, vec![0]].concat()
    }

    fn table(columns: usize) -> Vec<Vec<u8>> {
        let leaves = (0..columns).map(|at| leaf(&format!("c{at}")));
        std::iter::once(group(columns as u64)).chain(leaves).collect()
    }

    #[test]
    fn row_groups_that_need_much_memory_are_refused_before_they_are_parsed() {
        let groups = |count| opened(&table(50), &vec![row_group(50); count], &[vec![0]]);
        let file = groups(2000).unwrap();
        assert_eq!(file.row_groups(), 2000);
        // 9.3 MB of footer.
        let error = groups(8000).map(|file| file.footer_bytes()).unwrap_err();
        assert!(error.contains("51 elements of the schema, 8000 row groups"), "{error}");
        assert!(error.contains("at most 128 MiB are used; use more --memory"), "{error}");
        // The library reserves memory for as many row groups as the list names.
        let cut = [list(1, 1 << 31), vec![0; 100]].concat();
        let error = opened(&table(1), &[], &[cut]).map(|file| file.row_groups()).unwrap_err();
        assert!(error.contains("the Parquet footer is malformed"), "{error}");
    }

    #[test]
    fn a_large_footer_is_refused_by_its_size_before_it_is_read() {
        struct Tail(u64);
        impl Ranges for Tail {
            fn size(&self) -> u64 {
                64 << 30
            }

            fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
                self.0.checked_sub(range.end - range.start).ok_or(io::ErrorKind::Other)?;
                let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
                let at = bytes.len() - 8;
                bytes[at..].copy_from_slice(b"\0\0\0\x10PAR1");
                Ok(bytes.into())
            }
        }
        let open = |budget| ParquetFile::open(&Tail(2 << 20), budget).unwrap_err().to_string();
        let error = open(1 << 30);
        assert!(
            error.contains("268435464 bytes may need 512 MiB of memory, at most 256 MiB"),
            "{error}"
        );
        // More memory permits the footer, whose bytes this file does not return.
        assert!(open(4 << 30).contains("read the Parquet footer"));
    }

    #[test]
    fn names_that_many_paths_share_are_refused() {
        // Each column below a group has the name of the group in its path.
        let name = "n".repeat(100_000);
        let children = 2000_u64;
        let shared = [int(3, 0), vec![0x18], number(name.len() as u64), name.into()];
        let shared = [shared.concat(), int(1, children), vec![0]].concat();
        let leaves = (0..children).map(|at| leaf(&format!("c{at}")));
        let schema: Vec<_> = [group(1), shared].into_iter().chain(leaves).collect();
        let error = open(&schema, &[]).unwrap_err();
        assert!(error.contains("may need 193 MiB of memory"), "{error}");
    }

    #[test]
    fn the_estimate_covers_the_memory_of_parsed_footers() {
        for (columns, groups) in [(1, 2000), (50, 100), (3000, 1)] {
            let groups = vec![row_group(columns); groups];
            let file = opened(&table(columns), &groups, &[vec![0]]).unwrap();
            let mut footer = Footer::default();
            let schema = table(columns);
            let bytes =
                [list(2, schema.len()), schema.concat(), list(2, groups.len()), groups.concat()];
            let bytes = [bytes.concat(), vec![0]].concat();
            walk(&mut &*bytes, WHAT, FILE_METADATA, &mut |path, item| footer.add(path, item))
                .unwrap();
            let real = file.footer_bytes();
            let estimate = footer.memory;
            assert!((real..real * 5).contains(&estimate), "{columns}: {real}, {estimate}");
        }
    }

    #[test]
    fn an_arrow_schema_that_shares_a_long_name_is_refused() {
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let encode = |bytes: &[u8]| -> Vec<u8> {
            let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1));
            let bits: Vec<_> = bits.collect();
            let digit =
                |bits: &[u8]| (0..6).fold(0, |all, at| all << 1 | bits.get(at).unwrap_or(&0));
            let mut text: Vec<_> =
                bits.chunks(6).map(|bits| DIGITS[usize::from(digit(bits))]).collect();
            text.resize(text.len().next_multiple_of(4), b'=');
            text
        };
        for length in 0..70_u8 {
            let bytes: Vec<_> = (0..length).map(|at| at.wrapping_mul(167)).collect();
            assert_eq!(base64(&encode(&bytes)), Some(bytes));
        }
        assert_eq!((base64(b"AA!A"), base64(b"A===")), (None, None));
        let text = |text: &[u8]| [number(text.len() as u64), text.to_vec()].concat();
        let value = text(&encode(&shared_name(1 << 20, 100)));
        let pair = [vec![0x18], text(b"ARROW:schema"), vec![0x18], value, vec![0]].concat();
        let end = [list(1, 1), pair, vec![0]].concat();
        let error = opened(&table(1), &[], &[end]).map(|file| file.row_groups()).unwrap_err();
        assert!(error.contains("an Arrow schema may need"), "{error}");
    }

    #[test]
    fn many_rows_in_a_small_file_are_refused() {
        let open = |rows, groups| open(&table(1), &vec![row_group_of(1, rows); groups]);
        assert_eq!(open(1 << 20, 16), Ok(1));
        let refused =
            [((1 << 31) - 1, 1, (1 << 31) - 1), (10 << 20, 20, 200 << 20), (1 << 62, 4, u64::MAX)];
        for (rows, groups, all) in refused {
            let error = open(rows, groups).unwrap_err();
            assert!(error.contains(&format!("bytes name {all} rows, at most")), "{error}");
        }
    }
}
