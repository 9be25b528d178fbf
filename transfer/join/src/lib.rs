//! Streaming equi-join of tables: symmetric hash join with spilling, without network access.
//!
//! SABUL §IV names the streaming join among the uses of bulk transfer: tables on several machines are
//! joined on a common key while the tables still arrive. [`Plan`] checks a request against the
//! schemas of the tables. [`Join`] receives batches in any order of tables, and returns each joined
//! row when the last row of the combination arrives. [`run`] drives a [`Join`] from one bounded
//! channel for each table. [`read`] decodes Parquet, CSV and Arrow IPC.

mod condition;
mod error;
mod inputs;
mod keys;
mod operator;
mod partition;
mod pending;
mod pieces;
mod plan;
pub mod read;
mod spill;
mod write;

pub use arrow_array::RecordBatch;
pub use arrow_schema::SchemaRef;
pub use error::JoinError;
pub use inputs::{Feed, Inputs, inputs, run};
pub use operator::{Join, Summary};
pub use pending::Sink;
pub use plan::{JoinType, Plan, Request, Table};
pub use write::Writer;
