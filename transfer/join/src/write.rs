//! Encoder of the result, a Parquet file.

use std::fmt;
use std::fs::File;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::error::JoinError;

/// Writer of a Parquet file, compressed with Snappy.
pub struct Writer(ArrowWriter<File>);

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a writer to an empty file.
    ///
    /// # Errors
    /// If Parquet has no type for a column.
    pub fn new(file: File, schema: SchemaRef) -> Result<Self, JoinError> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        Ok(Self(ArrowWriter::try_new(file, schema, Some(properties))?))
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), JoinError> {
        Ok(self.0.write(batch)?)
    }

    /// Writes the footer. Without a footer the file is not readable.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(self) -> Result<(), JoinError> {
        self.0.close()?;
        Ok(())
    }
}
