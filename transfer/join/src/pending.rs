//! Joined rows that wait to become an output batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, Schema};
use arrow_select::interleave::interleave;

use crate::error::JoinError;
use crate::plan::{Input, JoinType, Plan};

/// Rows of an output batch. Ours: few enough for caches, and enough to make the cost of a batch small.
const ROWS: usize = 8192;

/// Bytes of text and binary values of an output batch, and of the other values. Ours: a long value that many rows share
/// is copied for each row.
const BYTES: usize = 8 << 20;

/// Receiver of output batches; an error ends the join.
pub type Sink<'a> = &'a mut (dyn FnMut(RecordBatch) -> Result<(), JoinError> + Send);

/// Joined rows as positions in the batches of their tables.
#[derive(Debug)]
pub(crate) struct Pending {
    plan: Arc<Plan>,
    sides: Vec<Side>,
    rows: usize,
    /// Most rows of a batch.
    rows_max: usize,
    /// Bytes of text and binary values of the rows.
    bytes: usize,
    /// A row of NULLs for each row of the first table without a match, in a left join.
    nulls: Option<Arc<RecordBatch>>,
    started: Instant,
    /// Rows returned so far.
    pub(crate) rows_out: u64,
    /// Time from the start to the first returned row.
    pub(crate) first: Option<Duration>,
}

#[derive(Debug, Default)]
struct Side {
    batches: Vec<Arc<RecordBatch>>,
    /// Position of each batch in `batches`, by its address: `batches` keeps the batch alive.
    places: HashMap<usize, usize>,
    picks: Vec<(usize, usize)>,
    /// Columns of text and binary values.
    texts: Vec<usize>,
}

impl Pending {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        let side = |input: &Input| {
            let fields = input.kept_schema.fields().iter().enumerate();
            let texts = fields.filter(|(_, field)| is_text(field.data_type()));
            Side { texts: texts.map(|(column, _)| column).collect(), ..Side::default() }
        };
        let sides = plan.inputs.iter().map(side).collect();
        let widths = plan.joined.fields().iter().map(|it| it.data_type().primitive_width());
        let width: usize = widths.flatten().sum();
        Self {
            plan,
            sides,
            rows: 0,
            rows_max: (BYTES / width.max(1)).clamp(1, ROWS),
            bytes: 0,
            nulls: None,
            started: Instant::now(),
            rows_out: 0,
            first: None,
        }
    }

    /// Sets the row of a table in the next joined row.
    pub(crate) fn pick(&mut self, table: usize, batch: &Arc<RecordBatch>, row: usize) {
        let side = &mut self.sides[table];
        let place = *side.places.entry(Arc::as_ptr(batch).addr()).or_insert_with(|| {
            side.batches.push(Arc::clone(batch));
            side.batches.len() - 1
        });
        side.picks.push((place, row));
        let texts = side.texts.iter();
        self.bytes += texts.map(|&column| length_of(batch.column(column), row)).sum::<usize>();
    }

    /// Completes a joined row.
    pub(crate) fn complete(&mut self, sink: Sink<'_>) -> Result<(), JoinError> {
        self.rows += 1;
        if self.rows >= self.rows_max || self.bytes >= BYTES { self.flush(sink) } else { Ok(()) }
    }

    /// Adds a row of the first table without a match.
    pub(crate) fn unmatched(
        &mut self,
        batch: &Arc<RecordBatch>,
        row: usize,
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        self.pick(0, batch, row);
        if self.plan.kind == JoinType::Left {
            let nulls = match &self.nulls {
                Some(nulls) => Arc::clone(nulls),
                None => Arc::new(nulls_of(&self.plan.inputs[1].kept_schema)?),
            };
            self.pick(1, &nulls, 0);
            self.nulls = Some(nulls);
        }
        self.complete(sink)
    }

    /// Returns the waiting rows that satisfy the condition, and releases the batches of the tables.
    pub(crate) fn flush(&mut self, sink: Sink<'_>) -> Result<(), JoinError> {
        if self.rows > 0 {
            let batch = self.batch()?;
            (self.rows, self.bytes) = (0, 0);
            if batch.num_rows() > 0 {
                self.first.get_or_insert_with(|| self.started.elapsed());
                self.rows_out += batch.num_rows() as u64;
                sink(batch)?;
            }
        }
        for side in &mut self.sides {
            side.batches.clear();
            side.places.clear();
            side.picks.clear();
        }
        Ok(())
    }

    fn batch(&self) -> Result<RecordBatch, JoinError> {
        let columns = self.plan.columns.iter().map(|&(table, column)| {
            let side = &self.sides[table];
            let arrays: Vec<&dyn Array> =
                side.batches.iter().map(|batch| batch.column(column).as_ref()).collect();
            Ok::<_, JoinError>(interleave(&arrays, &side.picks)?)
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut batch = batch_of(Arc::clone(&self.plan.joined), columns, self.rows)?;
        for condition in &self.plan.conditions {
            batch = condition.filter(&batch)?;
        }
        let shown = self.plan.schema();
        let columns = batch.columns()[..shown.fields().len()].to_vec();
        batch_of(shown, columns, batch.num_rows())
    }
}

/// Returns a row of NULLs.
fn nulls_of(schema: &Schema) -> Result<RecordBatch, JoinError> {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    batch_of(schema, nulls, 1)
}

/// Whether [`length_of`] returns the bytes of the values.
const fn is_text(kind: &DataType) -> bool {
    use DataType as T;
    matches!(kind, T::Utf8 | T::LargeUtf8 | T::Binary | T::LargeBinary)
}

/// Returns the bytes of a text or binary value, and 0 for other types.
pub(crate) fn length_of(column: &dyn Array, row: usize) -> usize {
    use DataType as T;
    let length = match column.data_type() {
        T::Utf8 => usize::try_from(column.as_string::<i32>().value_length(row)),
        T::LargeUtf8 => usize::try_from(column.as_string::<i64>().value_length(row)),
        T::Binary => usize::try_from(column.as_binary::<i32>().value_length(row)),
        T::LargeBinary => usize::try_from(column.as_binary::<i64>().value_length(row)),
        T::Utf8View => Ok(column.as_string_view().value(row).len()),
        T::BinaryView => Ok(column.as_binary_view().value(row).len()),
        _ => Ok(0),
    };
    length.unwrap_or(0)
}

/// Returns a batch, which may have no columns.
pub(crate) fn batch_of(
    schema: arrow_schema::SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, JoinError> {
    let rows = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
}
