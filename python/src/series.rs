//! Numbers over time as Arrow tables for Python.
//!
//! A table is exported by the Arrow PyCapsule interface, so pyarrow, pandas, Polars and DuckDB read the buffers of the
//! simulator without a copy.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use sabul_run::results::{FlowSeries, LinkSeries, Series};

use crate::error::Fault;

/// Columns after the time: the name, then numbers.
const FLOW_NAMES: [&str; 9] = [
    "flow",
    "goodput_bps",
    "rate_bps",
    "gap_ns",
    "rtt_ms",
    "in_flight_pkts",
    "loss_rate",
    "cwnd_pkts",
    "delivery_bps",
];
const LINK_NAMES: [&str; 4] = ["link", "queue_pkts", "drops", "utilisation"];

/// An Arrow table, with one record batch for each flow or link.
#[pyclass(frozen)]
#[derive(Clone, Debug)]
pub(crate) struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    /// Exports the table as a capsule with a stream of record batches. The schema is always that of the table.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A request for another schema need not be satisfied.
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, Arc::clone(&self.schema));
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Number of rows.
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// Returns the columns of `series.csv` and of `links.csv`.
pub(crate) fn tables(series: Series) -> Result<(Table, Table), Fault> {
    let Series { t_s, flows, links } = series;
    let rows = t_s.len();
    let times: ArrayRef = Arc::new(Float64Array::from(t_s));
    let flows = flows.into_iter().map(|flow| {
        let FlowSeries {
            id,
            goodput_bps,
            rate_bps,
            gap_ns,
            rtt_ms,
            in_flight_pkts,
            loss_rate,
            cwnd_pkts,
            delivery_bps,
        } = flow;
        let columns = vec![
            goodput_bps,
            rate_bps,
            gap_ns,
            rtt_ms,
            in_flight_pkts,
            loss_rate,
            cwnd_pkts,
            delivery_bps,
        ];
        (id, columns)
    });
    let links = links.into_iter().map(|link| {
        let LinkSeries { id, queue_pkts, drops, utilisation } = link;
        (id, vec![queue_pkts, drops, utilisation])
    });
    Ok((table(&times, &FLOW_NAMES, rows, flows)?, table(&times, &LINK_NAMES, rows, links)?))
}

/// Builds a table with a record batch for each part: its name and its columns of numbers.
fn table(
    times: &ArrayRef,
    names: &[&str],
    rows: usize,
    parts: impl Iterator<Item = (String, Vec<Vec<f64>>)>,
) -> Result<Table, Fault> {
    let mut fields = vec![Field::new("t_s", DataType::Float64, false)];
    for (at, &name) in names.iter().enumerate() {
        let kind = if at == 0 { DataType::Utf8 } else { DataType::Float64 };
        fields.push(Field::new(name, kind, at > 0));
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = |(id, columns): (String, Vec<Vec<f64>>)| {
        let ids = StringArray::from_iter_values(repeat_n(id, rows));
        let mut arrays: Vec<ArrayRef> = vec![Arc::clone(times), Arc::new(ids)];
        arrays.extend(columns.into_iter().map(|column| numbers(column, rows)));
        RecordBatch::try_new(Arc::clone(&schema), arrays)
    };
    let batches = parts.map(batch).collect::<Result<_, _>>();
    let batches = batches.map_err(|error| Fault::failed(error.to_string()))?;
    Ok(Table { schema, batches })
}

/// Returns a column with this number of rows. A value that does not exist is null, as it is an empty cell of a CSV file.
fn numbers(mut values: Vec<f64>, rows: usize) -> ArrayRef {
    values.resize(rows, f64::NAN);
    let exist: NullBuffer = values.iter().map(|value| value.is_finite()).collect();
    let exist = Some(exist).filter(|exist| exist.null_count() > 0);
    Arc::new(Float64Array::new(ScalarBuffer::from(values), exist))
}
