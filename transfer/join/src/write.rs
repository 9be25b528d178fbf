//! Encoders of the result: a Parquet file, or an Arrow IPC stream.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::error::JoinError;
use crate::read::guarded_as;

/// Error for a panic of an encoder.
const NOT_ENCODED: &str = "the result cannot be encoded: the encoder has a fault with a type of its columns; leave \
                           columns out with --select";

/// Writer of the result.
pub struct Writer(Kind);

enum Kind {
    Parquet(Box<ArrowWriter<Counted>>),
    Stream(Box<StreamWriter<Counted>>),
}

/// Counts the written bytes.
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a writer of a Parquet file, compressed with Snappy.
    ///
    /// # Errors
    /// If Parquet has no type for a column.
    pub fn parquet(file: File, schema: SchemaRef) -> Result<Self, JoinError> {
        refuse_types(&schema)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = Counted { file, bytes: 0 };
        let create = || Ok(ArrowWriter::try_new(file, schema, Some(properties))?);
        let writer = guarded_as(NOT_ENCODED, create)?;
        Ok(Self(Kind::Parquet(Box::new(writer))))
    }

    /// Creates a writer of an Arrow IPC stream without compression. Each batch is written at once.
    ///
    /// # Errors
    /// If the schema cannot be written.
    pub fn stream(file: File, schema: &SchemaRef) -> Result<Self, JoinError> {
        let file = Counted { file, bytes: 0 };
        let writer = guarded_as(NOT_ENCODED, || Ok(StreamWriter::try_new(file, schema)?))?;
        Ok(Self(Kind::Stream(Box::new(writer))))
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// If the result cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), JoinError> {
        guarded_as(NOT_ENCODED, || match &mut self.0 {
            Kind::Parquet(writer) => Ok(writer.write(batch)?),
            Kind::Stream(writer) => Ok(writer.write(batch)?),
        })
    }

    /// Writes the footer, without which the result is not complete. Returns the bytes of the result.
    ///
    /// # Errors
    /// If the result cannot be written.
    pub fn finish(self) -> Result<u64, JoinError> {
        let counted = guarded_as(NOT_ENCODED, || match self.0 {
            Kind::Parquet(writer) => Ok(writer.into_inner()?),
            // Also writes the end mark.
            Kind::Stream(writer) => Ok(writer.into_inner()?),
        });
        Ok(counted?.bytes)
    }
}

/// Refuses columns of types that Parquet does not have. The encoder panics on them.
fn refuse_types(schema: &Schema) -> Result<(), JoinError> {
    for field in schema.fields() {
        let alone = Schema::new(vec![Arc::clone(field)]);
        let is_unknown =
            |of: &DataType| matches!(of, DataType::Union(..) | DataType::FixedSizeBinary(0));
        if let Some(inner) =
            alone.flattened_fields().into_iter().find(|it| is_unknown(it.data_type()))
        {
            return Err(JoinError::Refused(format!(
                "column '{}' has values of the type {}, which Parquet does not have; write an Arrow stream with -o -, or \
                 leave the column out with --select",
                field.name(),
                inner.data_type()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, UnionFields, UnionMode};

    use super::*;

    fn written(of: DataType, is_parquet: bool) -> Result<u64, String> {
        let schema = Arc::new(Schema::new(vec![Field::new("w", of, true)]));
        let file = tempfile::tempfile().unwrap();
        let writer = match is_parquet {
            true => Writer::parquet(file, Arc::clone(&schema)),
            false => Writer::stream(file, &schema),
        };
        let written = writer.and_then(|mut writer| {
            writer.write(&RecordBatch::new_empty(schema))?;
            writer.finish()
        });
        written.map_err(|error| error.to_string())
    }

    #[test]
    fn types_that_parquet_does_not_have_are_refused_without_a_panic() {
        let fields = || [(0, Arc::new(Field::new("i", DataType::Int64, true)))];
        let union = |mode| DataType::Union(UnionFields::from_iter(fields()), mode);
        let inside = DataType::new_list(union(UnionMode::Dense), true);
        for of in [
            union(UnionMode::Dense),
            union(UnionMode::Sparse),
            inside,
            DataType::FixedSizeBinary(0),
        ] {
            let error = written(of.clone(), true).unwrap_err();
            assert!(error.starts_with("column 'w' has values of the type "), "{of}: {error}");
            assert!(error.contains("-o -, or leave the column out"), "{of}: {error}");
            assert!(written(of, false).unwrap() > 0);
        }
        assert!(written(DataType::FixedSizeBinary(1), true).unwrap() > 0);
    }

    #[test]
    fn other_types_are_written_or_refused_without_a_panic() {
        use arrow_schema::{IntervalUnit, TimeUnit};
        for of in [
            DataType::Null,
            DataType::Float16,
            DataType::Duration(TimeUnit::Second),
            DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::Struct(Vec::<Field>::new().into()),
        ] {
            if let Err(error) = written(of.clone(), true) {
                assert!(!error.is_empty(), "{of}");
            }
        }
    }
}
