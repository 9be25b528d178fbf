//! Decoders with right, cut and changed content.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::file::properties::WriterProperties;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array, NullArray,
    RecordBatch, RunArray, StringArray,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

use super::*;
use crate::error::JoinError;

/// A file in memory.
pub(super) struct Memory(pub(super) Bytes);

impl Ranges for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        self.0.get(range.clone()).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(self.0.slice(range))
    }
}

/// Returns a batch of 300 rows.
fn table() -> RecordBatch {
    let texts: StringArray = (0..300).map(|row| (row % 7 > 0).then(|| format!("t{row}"))).collect();
    let words: DictionaryArray<arrow_array::types::Int32Type> =
        (0..300).map(|row| Some(["one", "two"][row % 2])).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int64Array::from_iter_values(0..300))),
        ("f", Arc::new(Float64Array::from_iter_values((0..300).map(f64::from)))),
        ("t", Arc::new(texts)),
        ("w", Arc::new(words)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn as_parquet(compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(100))
        .build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, table().schema(), Some(properties)).unwrap();
    writer.write(&table()).unwrap();
    writer.close().unwrap();
    file
}

fn as_arrow(is_file: bool) -> Vec<u8> {
    let (mut file, table) = (Vec::new(), table());
    if is_file {
        let mut writer = FileWriter::try_new(&mut file, &table.schema()).unwrap();
        writer.write(&table).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new(&mut file, &table.schema()).unwrap();
        writer.write(&table).unwrap();
        writer.finish().unwrap();
    }
    file
}

fn as_csv() -> Vec<u8> {
    let rows = (0..300).map(|row| format!("{row},{row}.5,\"t\n{row}\",\n"));
    format!("k,f,t,w\n{}", rows.collect::<String>()).into_bytes()
}

/// Decodes two columns of a file; returns the number of rows, and the sum of the keys.
fn decoded(content: &[u8], format: Format) -> Result<(usize, i64), JoinError> {
    let columns = ["t", "k"];
    let (mut rows, mut sum) = (0, 0_i64);
    let mut send = |batch: RecordBatch| {
        rows += batch.num_rows();
        if let Some(keys) = batch.column(1).as_any().downcast_ref::<Int64Array>() {
            sum = keys.values().iter().fold(sum, |sum, key| sum.wrapping_add(*key));
        }
        Ok(true)
    };
    match format {
        Format::Csv => {
            csv(content, &csv_schema(content, true)?, &columns, &mut send)?;
        }
        Format::Arrow => {
            arrow_schema(content)?;
            arrow(content, &columns, &mut send)?;
        }
        Format::Parquet => {
            let content = Memory(Bytes::copy_from_slice(content));
            let file = ParquetFile::open(&content, 0)?;
            for group in 0..file.row_groups() {
                let chunks = file.fetch(group, &columns, |range| content.read(range.clone()))?;
                file.decode(chunks, group, &columns, &mut send)?;
            }
        }
    }
    Ok((rows, sum))
}

fn files() -> Vec<(Vec<u8>, Format)> {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let parquet = [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW, zstd];
    let mut files: Vec<_> =
        parquet.into_iter().map(|compression| (as_parquet(compression), Format::Parquet)).collect();
    files.extend([true, false].map(|is_file| (as_arrow(is_file), Format::Arrow)));
    files.push((as_csv(), Format::Csv));
    files
}

#[test]
fn each_format_is_decoded() {
    for (at, (file, format)) in files().into_iter().enumerate() {
        assert_eq!(decoded(&file, format).unwrap(), (300, 299 * 150), "file {at}");
    }
}

#[test]
fn a_cut_binary_file_is_an_error() {
    for (at, (file, format)) in files().into_iter().enumerate() {
        for length in (0..file.len()).step_by(13) {
            let result = decoded(&file[..length], format);
            let is_right = match (at, &result) {
                (_, Err(_)) => true,
                // The footer of an Arrow file is not needed.
                (4, Ok(found)) => *found == (300, 299 * 150),
                // A stream of Arrow may end between two messages; CSV has no mark of its end.
                (_, Ok((rows, _))) => at > 4 && *rows < 300,
            };
            assert!(is_right, "file {at}, {length} of {} bytes: {result:?}", file.len());
        }
    }
}

#[test]
fn changed_bytes_never_end_the_program() {
    // Fixed multipliers: a failure repeats.
    let mut state = 7_u64;
    let mut draw = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % bound
    };
    let mut errors = 0;
    for (file, format) in files() {
        for _ in 0..400 {
            let mut file = file.clone();
            for _ in 0..=draw(3) {
                // The schema and sizes are at both ends.
                let at = [draw(file.len()), draw(200), file.len() - 1 - draw(200)][draw(3)];
                file[at] =
                    [0, 0xff, 0x7f, file[at] ^ (1 << draw(8)), file[at].wrapping_add(1)][draw(5)];
            }
            errors += usize::from(decoded(&file, format).is_err());
        }
    }
    assert!(errors > 700, "only {errors} of 2,800 changed files were refused");
}

#[test]
fn an_arrow_message_with_a_false_size_is_refused_before_memory_is_reserved() {
    let mut file = as_arrow(false);
    file[4..8].copy_from_slice(&0xf000_0000_u32.to_le_bytes());
    let error = decoded(&file, Format::Arrow).unwrap_err().to_string();
    assert!(error.contains("an Arrow message has 4026531840 bytes"), "{error}");
}

#[test]
fn an_arrow_schema_with_many_nested_lists_is_refused() {
    let write = |lists| {
        let kind = (0..lists).fold(DataType::Int32, |kind, _| DataType::new_list(kind, true));
        let mut file = Vec::new();
        let schema = Schema::new(vec![Field::new("k", kind, true)]);
        StreamWriter::try_new(&mut file, &schema).unwrap().finish().unwrap();
        file
    };
    let nested = |lists| {
        // The writer calls itself for each list; the reader must not.
        let writer = std::thread::Builder::new().stack_size(256 << 20);
        let file = writer.spawn(move || write(lists)).unwrap().join().unwrap();
        arrow_schema(&*file).map_err(|error| error.to_string())
    };
    assert_eq!(nested(40).unwrap().fields().len(), 1);
    for lists in [64, 2000] {
        let error = nested(lists).unwrap_err();
        assert!(error.contains("Nested table depth limit reached"), "{error}");
    }
}

/// Returns an Arrow stream whose fields share one long name.
pub(super) fn shared_name(length: usize, fields: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let name = |at: usize| if at == 0 { "n".repeat(length) } else { format!("c{at}") };
    let fields: Vec<_> =
        (0..fields).map(|at| Field::new(name(at), DataType::Int32, true)).collect();
    StreamWriter::try_new(&mut file, &Schema::new(fields)).unwrap().finish().unwrap();
    let message = arrow_ipc::root_as_message(&file[8..]).unwrap();
    let fields = message.header_as_schema().unwrap().fields().unwrap();
    // A table has an offset to its name, whose place is in the vtable.
    let slots = fields.iter().map(|field| {
        8 + field._tab.loc() + usize::from(field._tab.vtable().get(arrow_ipc::Field::VT_NAME))
    });
    let slots: Vec<_> = slots.collect();
    let offset = |file: &[u8]| u32::from_le_bytes(file[slots[0]..][..4].try_into().unwrap());
    let text = slots[0] + usize::try_from(offset(&file)).unwrap();
    for slot in slots {
        let offset = u32::try_from(text - slot).unwrap().to_le_bytes();
        file[slot..slot + 4].copy_from_slice(&offset);
    }
    file
}

#[test]
fn an_arrow_schema_whose_fields_share_a_long_name_is_refused() {
    assert_eq!(arrow_schema(&*shared_name(1000, 100)).unwrap().fields().len(), 100);
    let error = arrow_schema(&*shared_name(1 << 20, 100)).unwrap_err().to_string();
    assert!(error.contains("an Arrow schema may need 100 MiB of memory"), "{error}");
}

/// Returns the rows of a stream that has this column `batches` times.
fn rows_of_column(column: ArrayRef, batches: usize) -> Result<usize, String> {
    let batch = RecordBatch::try_from_iter([("k", column)]).unwrap();
    let mut file = Vec::new();
    let mut writer = StreamWriter::try_new(&mut file, &batch.schema()).unwrap();
    (0..batches).for_each(|_| writer.write(&batch).unwrap());
    writer.finish().unwrap();
    let mut rows = 0;
    let mut send = |batch: RecordBatch| {
        rows += batch.num_rows();
        Ok(true)
    };
    let more = arrow(&*file, &["k"], &mut send).map_err(|error| error.to_string())?;
    assert!(more);
    Ok(rows)
}

#[test]
fn arrow_columns_with_many_rows_and_no_bytes_are_refused() {
    let run = |rows: i64| -> ArrayRef {
        let (ends, values) = (Int64Array::from(vec![rows]), Int64Array::from(vec![7]));
        Arc::new(RunArray::<Int64Type>::try_new(&ends, &values).unwrap())
    };
    let nulls = |rows| -> ArrayRef { Arc::new(NullArray::new(rows)) };
    let empty = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        std::iter::repeat_n(Some([]), 1 << 20),
        0,
    );
    let empty: ArrayRef = Arc::new(empty.unwrap());
    for (column, batches, rows) in [
        (run(1 << 40), 1, 1_u64 << 40),
        (nulls((1 << 31) - 1), 1, (1 << 31) - 1),
        (nulls(20 << 20), 9, 20 << 20),
    ] {
        let error = rows_of_column(column, batches).unwrap_err();
        assert!(error.contains(&format!("bytes name {rows} rows")), "{error}");
    }
    // Batches of a million rows, as usual.
    for column in [run(1 << 20), nulls(1 << 20), empty] {
        assert_eq!(rows_of_column(column, 30), Ok(30 << 20));
    }
}

#[test]
fn pages_with_more_rows_than_the_footer_names_are_refused() {
    let mut file = as_parquet(Compression::UNCOMPRESSED);
    // Numbers of 64 bits in the footer: 99 instead of 100.
    let footer = file.len() - 1500;
    let mut changed = 0;
    for at in footer..file.len() - 8 {
        if file[at..].starts_with(&[0x16, 0xc8, 1]) {
            file[at + 1] = 0xc6;
            changed += 1;
        }
    }
    assert!(changed >= 3, "one for each row group");
    let error = decoded(&file, Format::Parquet).unwrap_err().to_string();
    assert!(error.contains("has 100 rows in its pages, 99 in the footer"), "{error}");
}

fn csv_rows(content: &str, schema: &SchemaRef) -> Result<usize, JoinError> {
    let mut rows = 0;
    let mut send = |batch: RecordBatch| {
        rows += batch.num_rows();
        Ok(true)
    };
    csv(content.as_bytes(), schema, &["a", "b"], &mut send)?;
    Ok(rows)
}

#[test]
fn another_csv_file_of_the_table_needs_the_same_header() {
    let schema = csv_schema(b"a,b\n1,\n", true).unwrap();
    assert_eq!(csv_rows("a,b\n2,\n3,\n", &schema).unwrap(), 2);
    for (content, text) in [
        ("b,a\n,2\n", "expected \"a\" but found \"b\""),
        ("a,b\n2,x\n", "column 'b' has values"),
        ("a,b\nx,\n", "x"),
        ("a,b\n1\n", "incorrect number of fields"),
    ] {
        let error = csv_rows(content, &schema).unwrap_err().to_string();
        assert!(error.contains(text), "{content}: {error}");
    }
}

#[test]
fn a_csv_file_that_ends_in_a_quoted_value_is_refused() {
    let schema = csv_schema(b"a,b\n1,x\n", true).unwrap();
    let mark = "\u{feff}";
    for content in [
        "a,b\n1,\"start\n2,x\n3,x\n",
        "a,b\n1,x\n2,\"cut",
        "a,b\n1,\"x\"\"",
        "a,b\n1,\"",
        // The mark is no part of the first value.
        &format!("{mark}\"a\",b\n1,\"x"),
    ] {
        for error in [
            csv_rows(content, &schema).unwrap_err(),
            csv_schema(content.as_bytes(), true).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.ends_with("is a quote missing?"), "{content:?}: {text}");
        }
    }
    csv_schema(b"\"a,b\n1,x\n", true).unwrap_err();
    for (content, rows) in [
        ("a,b\n1,\"x\ny\"\n2,\"x\"\"\"", 2),
        // A quote in a value without quotes is part of the value.
        ("a,b\n1,5\" pipe\n2,x\n", 2),
        ("a,b\r\n1,\"x\"\r\n\r\n2,\"\"\r\n", 2),
        (&format!("{mark}\"a\",b\n1,x\n"), 1),
    ] {
        csv_schema(content.as_bytes(), true).unwrap();
        assert_eq!(csv_rows(content, &schema).unwrap(), rows, "{content:?}");
    }
}

#[test]
fn types_of_csv_come_from_whole_rows_of_the_head() {
    let of = |head: &str, is_whole| {
        let schema = csv_schema(head.as_bytes(), is_whole).unwrap();
        schema.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("a,b\n1,\n2,", true), [DataType::Int64, DataType::Null]);
    // Values of the second column may come later.
    assert_eq!(of("a,b\n1,\n2,", false), [DataType::Int64, DataType::Utf8]);
    assert_eq!(of("a,b\n1,\"x\ny\"\n2,\"x\n", false), [DataType::Int64, DataType::Utf8]);
    let expected = Schema::new(vec![Field::new("a", DataType::Null, true)]);
    assert_eq!(*csv_schema(b"a\n", true).unwrap(), expected);
}

#[test]
fn batches_of_wide_csv_have_fewer_rows() {
    let names: Vec<_> = (0..9000).map(|at| format!("c{at}")).collect();
    let row = format!("1{}\n", ",".repeat(names.len() - 1));
    let content = format!("{}\n{}", names.join(","), row.repeat(1000));
    let schema = csv_schema(content.as_bytes(), true).unwrap();
    let mut rows = Vec::new();
    let mut send = |batch: RecordBatch| {
        rows.push(batch.num_rows());
        Ok(true)
    };
    csv(content.as_bytes(), &schema, &["c0"], &mut send).unwrap();
    assert_eq!(rows, [466, 466, 68]);
}

#[test]
fn batches_of_parquet_have_fewer_rows_if_a_dictionary_has_a_long_value() {
    let long = "x".repeat(1 << 20);
    let rows_of = |value: &str, compression| {
        let column: ArrayRef = Arc::new(StringArray::from(vec![value; 500]));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..500));
        let batch = RecordBatch::try_from_iter([("k", keys), ("t", column)]).unwrap();
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_dictionary_page_size_limit(4 << 20)
            .build();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let content = Memory(Bytes::from(file));
        let file = ParquetFile::open(&content, 0).unwrap();
        let chunks = file.fetch(0, &["k", "t"], |range| content.read(range.clone())).unwrap();
        let mut rows = Vec::new();
        let mut send = |batch: RecordBatch| {
            rows.push(batch.num_rows());
            Ok(true)
        };
        file.decode(chunks, 0, &["k", "t"], &mut send).unwrap();
        rows
    };
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY] {
        assert_eq!(rows_of("short", compression), [500]);
        assert_eq!(rows_of(&long, compression), [63, 63, 63, 63, 63, 63, 63, 59]);
    }
}
