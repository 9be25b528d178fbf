//! Memory that a row group of Parquet needs while it is decoded, from its page headers and levels.
//!
//! A file of some kilobytes can name pages of gigabytes that a compressor has made small, lists with billions of values,
//! and values that share long prefixes. The decoder allocates whatever the file names, so all columns are checked
//! before: [`Pages::add`] for each column, then [`Pages::rows`]. Footers are not used, because they may name other sizes
//! than the pages.
//! Source:      parquet.thrift, Encodings.md and Compression.md of the Parquet format; the thrift compact protocol.

use parquet::basic::{Encoding, PageType, Type};
use parquet::column::page::{Page, PageReader};
use parquet::schema::types::ColumnDescriptor;

use super::part::ROWS;
use super::thrift::{Item, Kind, take_number, walk};
use crate::error::JoinError;
use crate::pieces::PIECE;

/// Most memory of the pages that are decoded at the same time, one of each column with its dictionary, and of a row.
/// Ours: usual pages have 1 MiB. A large file may have as many columns as it has bytes for, hence the second part.
const DECODED_MAX: usize = 256 << 20;
const DECODED_PER_BYTE: usize = 16;
/// Memory of a value beside its content: offset, levels, validity.
const VALUE_COST: usize = 8;
/// Memory of the lengths of a value in the delta encodings.
const LENGTHS_COST: usize = 8;

/// Numbers of kinds of pages and of encodings in the format.
const INDEX_PAGE: u64 = 1;
const DICTIONARY_PAGE: u64 = 2;
const LAST_KIND: u64 = 3;
const DELTA_LENGTH: u64 = 6;
const DELTA_VALUES: u64 = 7;

/// Types of the fields of a page header: sizes, then a structure for each kind of page. Statistics are skipped.
const PAGE_HEADER: &[Kind] = &[
    Kind::Int,
    Kind::Int,
    Kind::Int,
    Kind::Int,
    Kind::Struct(&[Kind::Int, Kind::Int, Kind::Int, Kind::Int]),
    Kind::Struct(&[]),
    Kind::Struct(&[Kind::Int, Kind::Int, Kind::Flag]),
    Kind::Struct(&[Kind::Int, Kind::Int, Kind::Int, Kind::Int, Kind::Int, Kind::Int, Kind::Flag]),
];

/// Header of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    kind: u64,
    uncompressed: usize,
    compressed: usize,
    values: usize,
    encoding: u64,
}

/// Needs of the columns of a row group.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Bytes of the column chunks in the file.
    stored: usize,
    /// Largest pages and dictionaries.
    pages: usize,
    /// Longest row.
    row: usize,
    /// Most rows of a column.
    rows: usize,
}

impl Pages {
    /// Adds a column. `chunk` has its pages with headers, `reader` returns the same pages.
    pub(super) fn add(
        &mut self,
        column: &ColumnDescriptor,
        chunk: &[u8],
        reader: impl PageReader,
    ) -> Result<(), JoinError> {
        self.stored = self.stored.saturating_add(chunk.len());
        let headers = headers(chunk)?;
        let is_text = column.physical_type() == Type::BYTE_ARRAY;
        let (mut dictionary, mut page, mut value, mut rows) = (0, 0, VALUE_COST, 0_usize);
        let (mut has_dictionary, mut reads_all) = (false, column.max_rep_level() > 0);
        for (at, header) in headers.iter().enumerate() {
            let &Header { uncompressed, values, .. } = header;
            if header.kind == DICTIONARY_PAGE {
                // The values, and their offsets.
                dictionary = uncompressed.saturating_mul(3);
                has_dictionary |= is_text;
                reads_all |= is_text && at > 0;
                continue;
            }
            rows = rows.saturating_add(values);
            let encoding = header.encoding;
            let is_delta = is_text && [DELTA_LENGTH, DELTA_VALUES].contains(&encoding);
            reads_all |= is_delta;
            let lengths = if is_delta { values.saturating_mul(LENGTHS_COST) } else { 0 };
            page = page.max(uncompressed.saturating_add(lengths));
            let widest = match encoding {
                // A value has at most all suffixes of its page.
                DELTA_VALUES => uncompressed,
                _ => uncompressed.div_ceil(values.max(1)),
            };
            value = value.max(widest.saturating_add(VALUE_COST));
        }
        if column.physical_type() == Type::FIXED_LEN_BYTE_ARRAY {
            value = value.max(usize::try_from(column.type_length()).unwrap_or(0));
        }
        self.pages = self.pages.saturating_add(dictionary).saturating_add(page);
        self.check("pages", self.pages)?;
        let mut list = 1;
        if has_dictionary || reads_all {
            let (lists, longest) = contents(column, reader, reads_all)?;
            value = value.max(longest);
            list = lists.longest.max(1);
            if column.max_rep_level() > 0 {
                rows = lists.rows;
            }
        }
        self.rows = self.rows.max(rows);
        self.row = self.row.saturating_add(value.saturating_mul(list));
        self.check("longest row", self.row)
    }

    fn check(&self, what: &str, bytes: usize) -> Result<(), JoinError> {
        let most = self.stored.saturating_mul(DECODED_PER_BYTE).saturating_add(DECODED_MAX);
        if bytes <= most {
            return Ok(());
        }
        Err(JoinError::Table(format!(
            "the {what} of a Parquet row group may need {} MiB, at most {} MiB are supported for its {} bytes; \
             leave out large columns with --select, or write the file with smaller pages or rows",
            bytes >> 20,
            most >> 20,
            self.stored
        )))
    }

    /// Compares the rows of the pages with those of the row group in the footer, whose number is limited.
    pub(super) fn check_rows(&self, named: i64) -> Result<(), JoinError> {
        if u64::try_from(named).is_ok_and(|named| self.rows as u64 <= named) {
            return Ok(());
        }
        Err(JoinError::Table(format!(
            "a Parquet row group has {} rows in its pages, {named} in the footer; the file is damaged, write it again",
            self.rows
        )))
    }

    /// Returns the rows of a decoded batch.
    pub(super) fn rows(&self) -> usize {
        (PIECE / self.row.max(1)).clamp(1, ROWS)
    }
}

/// Returns the lists of a column, and the length of the longest text of its dictionary. Reads only the dictionary if not
/// `reads_all`.
fn contents(
    column: &ColumnDescriptor,
    mut reader: impl PageReader,
    reads_all: bool,
) -> Result<(Lists, usize), JoinError> {
    let is_text = column.physical_type() == Type::BYTE_ARRAY;
    let (mut lists, mut text) = (Lists::default(), 0);
    while let Some(page) = reader.get_next_page()? {
        // The dictionary is the first page.
        if !reads_all && page.page_type() != PageType::DICTIONARY_PAGE {
            break;
        }
        match &page {
            Page::DictionaryPage { buf, .. } if is_text => text = text.max(longest(buf)),
            Page::DictionaryPage { .. } => {}
            _ => {
                let levels = levels(column, &page)?;
                lists.add(column, levels.repetition, page.num_values() as usize)?;
                check_lengths(&page, levels.content)?;
            }
        }
    }
    Ok((lists, text))
}

fn malformed(what: &str) -> JoinError {
    JoinError::Table(format!("the {what} of a Parquet page is malformed"))
}

/// Returns the length of the longest value. Each value follows its length, a little-endian number of 4 bytes.
fn longest(mut values: &[u8]) -> usize {
    let mut longest = 0;
    while let Some((length, rest)) = values.split_first_chunk() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some(rest) = rest.get(length..) else { break };
        longest = longest.max(length);
        values = rest;
    }
    longest
}

/// Returns the headers of all pages of a column chunk.
fn headers(mut chunk: &[u8]) -> Result<Vec<Header>, JoinError> {
    let mut headers = Vec::new();
    while !chunk.is_empty() {
        let header = Header::take(&mut chunk)?;
        chunk = chunk.get(header.compressed..).ok_or_else(|| malformed("size"))?;
        if header.kind != INDEX_PAGE {
            headers.push(header);
        }
    }
    Ok(headers)
}

impl Header {
    /// Reads a header. The decoder reads the structure of the page's kind, so a header with another one is refused.
    fn take(bytes: &mut &[u8]) -> Result<Self, JoinError> {
        let mut header = Self::default();
        // Fields ascend, so the kind is known before the structures. Without a kind, no structure fits.
        let (mut kind, mut structure) = (None, None);
        walk(bytes, "header of a Parquet page", PAGE_HEADER, &mut |path, item| {
            if let ([field @ 5..=8], Item::Begin) = (path, item) {
                let of_kind =
                    kind.is_some_and(|kind: u64| kind + 5 == u64::from(field.unsigned_abs()));
                if !of_kind {
                    return Err(JoinError::Table(format!(
                        "a Parquet page of kind {} has the header of kind {}; the file is damaged, write it again",
                        kind.map_or_else(|| "none".to_owned(), |kind| kind.to_string()),
                        field - 5
                    )));
                }
                structure = Some(*field);
            }
            let Item::Number(value) = item else { return Ok(()) };
            // Negative numbers count as very large ones.
            let value = u64::try_from(value).unwrap_or(u64::MAX);
            let size = usize::try_from(value).unwrap_or(usize::MAX);
            match path {
                [1] => kind = (value <= LAST_KIND).then_some(value),
                [2] => header.uncompressed = size,
                [3] => header.compressed = size,
                // Data, dictionary, data of version 2.
                [5 | 7 | 8, 1] => header.values = size,
                [5 | 7, 2] | [8, 4] => header.encoding = value,
                _ => {}
            }
            Ok(())
        })?;
        header.kind = kind.ok_or_else(|| malformed("kind"))?;
        if structure.is_none() && header.kind != INDEX_PAGE {
            return Err(malformed("header"));
        }
        Ok(header)
    }
}

/// Repetition levels of a page, and its content behind all levels.
struct Levels<'a> {
    repetition: &'a [u8],
    content: &'a [u8],
}

fn levels<'a>(column: &ColumnDescriptor, page: &'a Page) -> Result<Levels<'a>, JoinError> {
    let mut content = &page.buffer()[..];
    let mut take = |length: usize| {
        let (levels, rest) = content.split_at_checked(length)?;
        content = rest;
        Some(levels)
    };
    let repetition = match page {
        Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
            let repetition = take(*rep_levels_byte_len as usize);
            take(*def_levels_byte_len as usize).and(repetition)
        }
        Page::DataPage { def_level_encoding, rep_level_encoding, .. } => {
            let mut part = |level: i16, encoding: Encoding| match (level, encoding) {
                (0, _) => Some(&[][..]),
                (_, Encoding::RLE) => {
                    let length = take(4)?.try_into().ok().map(u32::from_le_bytes)?;
                    take(usize::try_from(length).ok()?)
                }
                // A deprecated encoding that no writer uses.
                _ => None,
            };
            let repetition = part(column.max_rep_level(), *rep_level_encoding);
            part(column.max_def_level(), *def_level_encoding).and(repetition)
        }
        Page::DictionaryPage { .. } => None,
    };
    let repetition = repetition.ok_or_else(|| malformed("levels"))?;
    Ok(Levels { repetition, content })
}

/// Length of the longest row of a column with lists, in values; number of rows.
#[derive(Debug, Default)]
struct Lists {
    longest: usize,
    current: usize,
    rows: usize,
}

impl Lists {
    /// Adds the repetition levels of a page: runs of equal levels, and packed levels (RLE/bit-packing hybrid).
    fn add(
        &mut self,
        column: &ColumnDescriptor,
        mut levels: &[u8],
        values: usize,
    ) -> Result<(), JoinError> {
        let max = column.max_rep_level();
        if max == 0 {
            return Ok(());
        }
        let width = 16 - max.leading_zeros() as usize;
        let mut left = values;
        while left > 0 {
            let header = take_number(&mut levels).ok_or_else(|| malformed("levels"))?;
            let count = usize::try_from(header / 2).unwrap_or(usize::MAX);
            if header % 2 == 0 {
                let (level, rest) = levels
                    .split_at_checked(width.div_ceil(8))
                    .filter(|_| count > 0)
                    .ok_or_else(|| malformed("levels"))?;
                levels = rest;
                let count = count.min(left);
                left -= count;
                self.count(level.iter().all(|byte| *byte == 0), count);
                continue;
            }
            let bytes = count.saturating_mul(width).min(levels.len());
            let (packed, rest) = levels.split_at(bytes);
            levels = rest;
            let packed_values = (bytes * 8 / width).min(left);
            if packed_values == 0 {
                return Err(malformed("levels"));
            }
            left -= packed_values;
            for at in (0..packed_values).map(|at| at * width) {
                let is_set = |bit: usize| packed[bit / 8] >> (bit % 8) & 1 == 1;
                self.count(!(at..at + width).any(is_set), 1);
            }
        }
        Ok(())
    }

    fn count(&mut self, starts_rows: bool, values: usize) {
        if starts_rows {
            self.rows = self.rows.saturating_add(values);
        }
        self.current = if starts_rows { 1 } else { self.current.saturating_add(values) };
        self.longest = self.longest.max(self.current);
    }
}

/// Checks that the lengths of a delta encoding are not more than the values of the page.
fn check_lengths(page: &Page, mut content: &[u8]) -> Result<(), JoinError> {
    let lists = match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => return Ok(()),
    };
    if content.is_empty() {
        // No value of the page is present.
        return Ok(());
    }
    for _ in 0..lists {
        let count = skip_numbers(&mut content).ok_or_else(|| malformed("list of lengths"))?;
        if count > u64::from(page.num_values()) {
            return Err(malformed("number of lengths"));
        }
    }
    Ok(())
}

/// Skips numbers in the encoding DELTA_BINARY_PACKED; returns how many.
fn skip_numbers(bytes: &mut &[u8]) -> Option<u64> {
    let block = take_number(bytes)?;
    let parts = take_number(bytes)?;
    let count = take_number(bytes)?;
    take_number(bytes)?;
    let in_part = block.checked_div(parts).filter(|values| *values > 0)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        take_number(bytes)?;
        let (widths, rest) = bytes.split_at_checked(usize::try_from(parts).ok()?)?;
        *bytes = rest;
        for width in widths.iter().map(|width| u64::from(*width)) {
            if left > 0 {
                let length = width.checked_mul(in_part)? / 8;
                *bytes = bytes.get(usize::try_from(length).ok()?..)?;
            }
            left = left.saturating_sub(in_part);
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::column::page::PageMetadata;
    use parquet::errors::ParquetError;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::super::thrift::tests::number;
    use super::*;

    struct OnePage(Option<Page>);

    impl Iterator for OnePage {
        type Item = Result<Page, ParquetError>;

        fn next(&mut self) -> Option<Self::Item> {
            self.0.take().map(Ok)
        }
    }

    impl PageReader for OnePage {
        fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
            Ok(self.0.take())
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<(), ParquetError> {
            Ok(())
        }
    }

    /// Returns the header of a page without stored bytes.
    fn header(uncompressed: u64, values: u64, encoding: u64) -> Vec<u8> {
        let int = |value: u64| [vec![0x15], number(value * 2)].concat();
        let header = [int(0), int(uncompressed), int(0)].concat();
        [header, vec![0x2c], int(values), int(encoding), vec![0, 0]].concat()
    }

    fn page(content: Vec<u8>, values: u32, encoding: Encoding) -> OnePage {
        OnePage(Some(Page::DataPage {
            buf: content.into(),
            num_values: values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }))
    }

    fn add(pages: &mut Pages, column: &str, header: &[u8], page: OnePage) -> Result<(), JoinError> {
        let schema = parse_message_type(&format!("message m {{ {column} }}")).unwrap();
        let schema = SchemaDescriptor::new(Arc::new(schema));
        pages.add(&schema.column(0), header, page)
    }

    fn rows_or_error(column: &str, header: &[u8], page: OnePage) -> Result<usize, String> {
        let mut pages = Pages::default();
        let added = add(&mut pages, column, header, page);
        added.map(|()| pages.rows()).map_err(|error| error.to_string())
    }

    const TEXT: &str = "required binary t;";

    #[test]
    fn pages_that_a_compressor_made_small_are_refused_by_their_headers() {
        let unread = || OnePage(None);
        let large = header((1 << 31) - 1, 1, 0);
        let error = rows_or_error(TEXT, &large, unread()).unwrap_err();
        assert!(error.contains("pages of a Parquet row group may need 2047 MiB"), "{error}");
        // Each of many columns has a page of 64 MiB.
        let mut pages = Pages::default();
        let page = header(64 << 20, 1, 0);
        let added: Vec<_> = (0..10).map(|_| add(&mut pages, TEXT, &page, unread())).collect();
        assert_eq!(added.iter().filter(|it| it.is_ok()).count(), 4);
        // Pages with one long value make batches of few rows, although each page alone is permitted.
        assert_eq!(rows_or_error(TEXT, &header(32 << 20, 1, 0), unread()), Ok(1));
        assert_eq!(rows_or_error(TEXT, &header(1 << 20, 50_000, 0), unread()), Ok(ROWS));
    }

    #[test]
    fn values_with_long_prefixes_make_batches_of_few_rows() {
        let lengths = |values| [number(128), number(4), number(values), number(0)].concat();
        let blocks = |values| [lengths(values), [0; 5].repeat(2)].concat();
        let content = |first, second| {
            page([blocks(first), blocks(second)].concat(), 200, Encoding::DELTA_BYTE_ARRAY)
        };
        let header = header(1 << 20, 200, DELTA_VALUES);
        assert_eq!(rows_or_error(TEXT, &header, content(200, 200)), Ok(63));
        // A list of lengths has a number of its own.
        for (first, second) in [(1 << 40, 200), (200, 1 << 40)] {
            let error = rows_or_error(TEXT, &header, content(first, second)).unwrap_err();
            assert!(error.contains("lengths of a Parquet page is malformed"), "{error}");
        }
    }

    #[test]
    fn a_row_with_billions_of_values_is_refused() {
        let list = "optional group l (LIST) { repeated group list { optional int64 element; } }";
        let rows = |runs: &[(u64, u8)]| {
            let values: u64 = runs.iter().map(|(count, _)| count).sum();
            let levels =
                runs.iter().flat_map(|(count, level)| [number(count * 2), vec![*level]].concat());
            let levels: Vec<_> = levels.collect();
            let length = u32::try_from(levels.len()).unwrap().to_le_bytes();
            let content = [&length[..], &levels, &[0; 4]].concat();
            let header = header(100, values, 0);
            rows_or_error(
                list,
                &header,
                page(content, u32::try_from(values).unwrap(), Encoding::PLAIN),
            )
        };
        let error = rows(&[(1, 0), ((1 << 31) - 2, 1)]).unwrap_err();
        assert!(error.contains("the longest row of a Parquet row group may need"), "{error}");
        assert_eq!(rows(&[(1, 0), (999_999, 1), (1, 0)]), Ok(7));
        assert_eq!(rows(&[(1, 0), (9, 1), (100_000, 0)]), Ok(ROWS));
        assert!(rows(&[(0, 0), (9, 1)]).unwrap_err().contains("levels of a Parquet page"));
    }

    #[test]
    fn packed_levels_are_counted() {
        let schema = "repeated int32 v;";
        // Two groups of eight levels: a row of 3 values, one of 13.
        let content =
            [&3_u32.to_le_bytes()[..], &number(5), &[0b1111_0110, 0xff, 0, 0, 0, 0]].concat();
        let mut lists = Lists::default();
        let parsed = parse_message_type(&format!("message m {{ {schema} }}")).unwrap();
        let column = SchemaDescriptor::new(Arc::new(parsed)).column(0);
        let page = page(content, 16, Encoding::PLAIN).0.unwrap();
        lists.add(&column, levels(&column, &page).unwrap().repetition, 16).unwrap();
        assert_eq!((lists.longest, lists.current, lists.rows), (13, 13, 2));
    }

    #[test]
    fn headers_with_repeated_or_cut_fields_are_refused() {
        let whole = header(100, 1, 0);
        assert_eq!(headers(&whole.repeat(3)).unwrap().len(), 3);
        for length in 1..whole.len() {
            headers(&whole[..length]).unwrap_err();
        }
        // The second size has the same number as the first.
        let mut twice = header(100, 1, 0);
        twice.splice(twice.len() - 1.., [0x05, 4, 2, 0]);
        headers(&twice).unwrap_err();
        // A negative size. The library cuts larger numbers than 32 bits.
        let negative = [&[0x15, 0, 0x15, 1][..], &whole[5..]].concat();
        assert_eq!(headers(&negative).unwrap()[0].uncompressed, usize::MAX);
    }

    #[test]
    fn only_the_header_of_the_kind_of_a_page_is_read() {
        let ints = |values: &[u64]| -> Vec<u8> {
            values.iter().flat_map(|value| [vec![0x15], number(value * 2)].concat()).collect()
        };
        let sizes = |kind| ints(&[kind, 1 << 20, 0]);
        // The structures of the fields 5, 7 and 8; `step` is the difference to the field before.
        let one = |step: u8| [vec![step << 4 | 12], ints(&[200, DELTA_VALUES]), vec![0]].concat();
        let two =
            |step: u8| [vec![step << 4 | 12], ints(&[1 << 20, 0, 0, 0, 0, 0]), vec![0]].concat();
        let whole = |parts: &[Vec<u8>]| headers(&[&parts.concat()[..], &[0]].concat());
        for (kind, header) in [(0, one(2)), (2, one(4)), (3, two(5))] {
            assert_eq!(whole(&[sizes(kind), header]).unwrap()[0].kind, kind);
        }
        assert_eq!(whole(&[sizes(INDEX_PAGE)]).unwrap(), []);
        // A header of version 2 with another encoding and number of values, behind that of the page.
        let error = whole(&[sizes(0), one(2), two(3)]).unwrap_err().to_string();
        assert!(error.contains("a Parquet page of kind 0 has the header of kind 3"), "{error}");
        let refused = [
            whole(&[sizes(0), two(5)]),
            whole(&[sizes(3), one(2), two(3)]),
            whole(&[sizes(2), one(2), one(2)]),
            whole(&[sizes(INDEX_PAGE), one(2)]),
            whole(&[sizes(0)]),
            whole(&[sizes(4), two(5)]),
            // The kind as a byte, whose value the library reads as 3.
            whole(&[vec![0x13, 6], sizes(0)[2..].to_vec(), one(2)]),
            // Without a kind.
            whole(&[vec![0x25, 2, 0x15, 0], one(2)]),
            // The encoding as text that hides what the library reads.
            whole(&[sizes(0), vec![0x2c], ints(&[200]), vec![0x18, 14], vec![0; 15]]),
        ];
        for (at, result) in refused.into_iter().enumerate() {
            assert!(result.is_err(), "header {at}: {result:?}");
        }
    }

    #[test]
    fn pages_have_no_more_rows_than_their_row_group() {
        let mut pages = Pages::default();
        add(&mut pages, TEXT, &header(100, 1000, 0).repeat(3), OnePage(None)).unwrap();
        pages.check_rows(3000).unwrap();
        for named in [2999, 0, -1] {
            let error = pages.check_rows(named).unwrap_err().to_string();
            assert!(error.contains(&format!("has 3000 rows in its pages, {named} in")), "{error}");
        }
        // Rows of lists have several values.
        let mut lists = Pages::default();
        let content = [6, 0, 0, 0, 2, 0, 18, 1, 2, 0, 0, 0, 0, 0].to_vec();
        let page = page(content, 11, Encoding::PLAIN);
        add(&mut lists, "repeated int32 v;", &header(100, 11, 0), page).unwrap();
        lists.check_rows(2).unwrap();
        lists.check_rows(1).unwrap_err();
    }
}
