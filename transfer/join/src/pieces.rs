//! Arriving batches in pieces of bounded memory.
//!
//! Dictionaries, run ends and views name a long value many times in a few bytes. The join stores plain values, so such
//! a batch can need far more memory than the file has bytes.

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use crate::pending::length_of;

/// Largest estimated memory of the plain values of a piece that has several rows. Ours: small beside the budgets of
/// users, and larger than usual batches.
pub(crate) const PIECE: usize = 64 << 20;

/// Memory of a row beside its columns while it is joined: hash, position, key. Ours.
const ROW_COST: usize = 64;

/// Calls `visit` with consecutive pieces of a batch.
pub(crate) fn each_piece<E>(
    batch: RecordBatch,
    visit: &mut impl FnMut(RecordBatch) -> Result<(), E>,
) -> Result<(), E> {
    let rows = batch.num_rows();
    if rows < 2 {
        return visit(batch);
    }
    let widest: usize = batch.columns().iter().map(|column| widest(column)).sum();
    if rows.saturating_mul(widest.saturating_add(ROW_COST)) <= PIECE {
        return visit(batch);
    }
    each_piece(batch.slice(0, rows / 2), visit)?;
    each_piece(batch.slice(rows / 2, rows - rows / 2), visit)
}

/// Returns the bytes of the longest plain value of a column whose buffers can name a value for many rows, otherwise 0.
fn widest(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Dictionary(..) => {
            let column = column.as_any_dictionary();
            let values = column.values();
            if values.is_empty() {
                return 0;
            }
            let named = column.normalized_keys().into_iter();
            named.map(|at| plain_length(values, at)).max().unwrap_or(0)
        }
        DataType::RunEndEncoded(..) => {
            let values = column.as_any_ree().values();
            (0..values.len()).map(|at| plain_length(values, at)).max().unwrap_or(0)
        }
        DataType::Utf8View | DataType::BinaryView => {
            (0..column.len()).map(|row| plain_length(column, row)).max().unwrap_or(0)
        }
        _ => 0,
    }
}

/// Returns the bytes of a value, at least.
fn plain_length(values: &dyn Array, at: usize) -> usize {
    match values.data_type() {
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) => widest(&values.slice(at, 1)),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap_or(0),
        kind if kind.is_nested() => values.get_array_memory_size(),
        kind => kind.primitive_width().unwrap_or_else(|| length_of(values, at)),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, DictionaryArray, Int32Array, Int64Array, RunArray, StringArray, StringViewArray,
    };

    use super::*;

    fn pieces(column: ArrayRef) -> Vec<usize> {
        let mut rows = Vec::new();
        let batch = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let Ok(()) = each_piece::<Infallible>(batch, &mut |piece| {
            rows.push(piece.num_rows());
            Ok(())
        });
        rows
    }

    /// Returns a dictionary column with these positions of a short and a long text.
    fn dictionary(keys: Vec<i32>) -> ArrayRef {
        let values = StringArray::from(vec!["short".to_owned(), "x".repeat(1 << 20)]);
        Arc::new(DictionaryArray::<Int32Type>::new(Int32Array::from(keys), Arc::new(values)))
    }

    #[test]
    fn a_batch_of_plain_values_is_one_piece() {
        let column = StringArray::from(vec!["x".repeat(1 << 20); 100]);
        assert_eq!(pieces(Arc::new(column)), [100]);
    }

    #[test]
    fn a_long_value_that_each_row_names_makes_small_pieces() {
        let rows = pieces(dictionary(vec![1; 8192]));
        assert_eq!(rows.iter().sum::<usize>(), 8192);
        assert_eq!(rows.iter().max(), Some(&32));
        let views: StringViewArray = (0..256).map(|_| Some("x".repeat(1 << 20))).collect();
        assert_eq!(pieces(Arc::new(views)), [32; 8]);
    }

    #[test]
    fn a_long_value_of_one_row_cuts_only_near_this_row() {
        let mut keys = vec![0; 8192];
        keys[5000] = 1;
        let rows = pieces(dictionary(keys));
        assert_eq!(rows.iter().sum::<usize>(), 8192);
        assert!(rows.len() < 20, "{rows:?}");
        assert!(pieces(dictionary(vec![0; 8192])) == [8192], "no row has the long value");
    }

    #[test]
    fn a_run_of_many_rows_makes_pieces_of_bounded_rows() {
        let ends = Int32Array::from(vec![1 << 30]);
        let run = RunArray::<Int32Type>::try_new(&ends, &Int64Array::from(vec![7])).unwrap();
        let rows = pieces(Arc::new(run));
        assert_eq!(rows.iter().sum::<usize>(), 1 << 30);
        assert!(rows.iter().all(|&rows| rows <= PIECE / 64), "{}", rows[0]);
    }

    #[test]
    fn an_empty_dictionary_is_one_piece() {
        let keys = Int32Array::from(vec![None, None, None]);
        let values = Arc::new(StringArray::from(Vec::<&str>::new()));
        assert_eq!(pieces(Arc::new(DictionaryArray::<Int32Type>::new(keys, values))), [3]);
    }
}
