//! Encoders of the result: a Parquet file, or an Arrow IPC stream.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::error::JoinError;

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
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = Counted { file, bytes: 0 };
        let writer = ArrowWriter::try_new(file, schema, Some(properties))?;
        Ok(Self(Kind::Parquet(Box::new(writer))))
    }

    /// Creates a writer of an Arrow IPC stream without compression. Each batch is written at once.
    ///
    /// # Errors
    /// If the schema cannot be written.
    pub fn stream(file: File, schema: &SchemaRef) -> Result<Self, JoinError> {
        let file = Counted { file, bytes: 0 };
        Ok(Self(Kind::Stream(Box::new(StreamWriter::try_new(file, schema)?))))
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// If the result cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), JoinError> {
        match &mut self.0 {
            Kind::Parquet(writer) => Ok(writer.write(batch)?),
            Kind::Stream(writer) => Ok(writer.write(batch)?),
        }
    }

    /// Writes the footer, without which the result is not complete. Returns the bytes of the result.
    ///
    /// # Errors
    /// If the result cannot be written.
    pub fn finish(self) -> Result<u64, JoinError> {
        let counted = match self.0 {
            Kind::Parquet(writer) => writer.into_inner()?,
            // Also writes the end mark.
            Kind::Stream(writer) => writer.into_inner()?,
        };
        Ok(counted.bytes)
    }
}
