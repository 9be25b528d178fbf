//! Decoders of tables: Parquet by byte ranges, CSV and Arrow IPC as streams.

mod arrow;
mod csv;
mod footer;
mod pages;
mod parquet;
mod part;
mod ranges;
#[cfg(test)]
mod tests;
mod thrift;

pub use self::arrow::{arrow, arrow_schema};
pub use self::csv::{CSV_HEAD, csv, csv_schema};
pub use self::parquet::{Chunks, ParquetFile, parquet_tail};
pub(crate) use self::part::guarded_as;
pub use self::part::{Consumer, is_decoding};
pub use self::ranges::{LocalFile, Ranges};

/// Format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values with a header line.
    Csv,
    /// Arrow IPC, file or stream.
    Arrow,
}

impl Format {
    /// Returns the format for the extension of a file name.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        Some(match extension.to_ascii_lowercase().as_str() {
            "parquet" | "pq" => Self::Parquet,
            "csv" => Self::Csv,
            "arrow" | "arrows" | "feather" | "ipc" => Self::Arrow,
            _ => return None,
        })
    }
}
