//! Join keys as comparable bytes: the common type of a key column, casts, and the row format.
//!
//! Two rows match if the bytes of their keys are equal. Casts are lossless: integer widths, float
//! widths, string and binary offsets, decimal scales, timestamp units. Floats: -0.0 equals 0.0, and
//! NaN equals NaN, as in DuckDB and PostgreSQL.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType, TimeUnit};

use crate::error::JoinError;

/// Casts that fail instead of writing NULL.
pub(crate) const STRICT: CastOptions<'_> =
    CastOptions { safe: false, format_options: arrow_cast::display::FormatOptions::new() };

/// Digits of a decimal of 128 and of 256 bits.
const DIGITS_128: u8 = 38;
const DIGITS_256: u8 = 76;

/// Returns the type without dictionary, run ends or views. Such columns share buffers between
/// batches, which would make the memory of a partition unknown.
pub(crate) fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

/// Returns the type in which two key columns are compared, or `None` if no lossless type exists.
pub(crate) fn common(one: &DataType, other: &DataType) -> Option<DataType> {
    use DataType as T;
    let (one, other) = (plain(one), plain(other));
    let (is_integer, is_signed) = (T::is_integer, T::is_signed_integer);
    Some(match (&one, &other) {
        (a, b) if a.is_nested() || b.is_nested() => return None,
        // A column without values, such as that of an empty CSV file, has every type.
        (T::Null, T::Null) => T::Null,
        (T::Null, b) => return common(b, b),
        (a, T::Null) => return common(a, a),
        (a, b) if a.is_floating() && b.is_floating() => T::Float64,
        (a, b) if a == b => match a {
            // The name of a zone does not change the instant.
            T::Timestamp(unit, Some(_)) => T::Timestamp(*unit, Some("UTC".into())),
            _ => one,
        },
        (a, b) if is_integer(a) && is_integer(b) => match (is_signed(a), is_signed(b)) {
            (true, true) => T::Int64,
            (false, false) => T::UInt64,
            _ if matches!(a, T::UInt64) || matches!(b, T::UInt64) => T::Decimal128(20, 0),
            _ => T::Int64,
        },
        // An earlier pair of integers has made the first a decimal.
        (T::Decimal128(20, 0), b) if is_integer(b) => T::Decimal128(20, 0),
        (T::Utf8 | T::LargeUtf8, T::Utf8 | T::LargeUtf8) => T::LargeUtf8,
        (T::Binary | T::LargeBinary, T::Binary | T::LargeBinary) => T::LargeBinary,
        (T::Timestamp(a, zone), T::Timestamp(b, other)) if zone.is_some() == other.is_some() => {
            let finer = if seconds_part(*a) > seconds_part(*b) { a } else { b };
            T::Timestamp(*finer, zone.as_ref().map(|_| "UTC".into()))
        }
        (a, b) => return common_decimal(a, b),
    })
}

/// Units of a second.
const fn seconds_part(unit: TimeUnit) -> u64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn common_decimal(one: &DataType, other: &DataType) -> Option<DataType> {
    let ((p1, s1), (p2, s2)) = (decimal_parts(one)?, decimal_parts(other)?);
    let scale = s1.max(s2);
    decimal((p1 - s1).max(p2 - s2) + scale, scale)
}

/// Returns digits and scale of a decimal type.
pub(crate) fn decimal_parts(data_type: &DataType) -> Option<(i16, i16)> {
    match data_type {
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => Some((i16::from(*digits), i16::from(*scale))),
        _ => None,
    }
}

/// Returns the decimal type with this number of digits, `scale` of them behind the point.
pub(crate) fn decimal(digits: i16, scale: i16) -> Option<DataType> {
    let (digits, scale) = (u8::try_from(digits).ok()?.max(1), i8::try_from(scale).ok()?);
    match digits {
        digits if digits <= DIGITS_128 => Some(DataType::Decimal128(digits, scale)),
        digits if digits <= DIGITS_256 => Some(DataType::Decimal256(digits, scale)),
        _ => None,
    }
}

/// Encoder of key columns.
#[derive(Debug)]
pub(crate) struct KeyEncoder {
    types: Vec<DataType>,
    converter: RowConverter,
}

/// Keys of a batch.
pub(crate) struct Keys {
    rows: Rows,
    columns: Vec<ArrayRef>,
}

impl KeyEncoder {
    /// Creates an encoder for these common types.
    pub(crate) fn new(types: Vec<DataType>) -> Result<Self, JoinError> {
        let fields = types.iter().cloned().map(SortField::new).collect();
        Ok(Self { converter: RowConverter::new(fields)?, types })
    }

    /// Returns the keys of a batch, whose key columns are `at`.
    pub(crate) fn encode(&self, batch: &RecordBatch, at: &[usize]) -> Result<Keys, JoinError> {
        let columns = at.iter().zip(&self.types).map(|(&at, to)| {
            let column = batch.column(at);
            let column = match column.data_type() {
                // A cast from one zone to another changes no instant.
                from if from == to => Arc::clone(column),
                _ => cast_with_options(column, to, &STRICT)?,
            };
            Ok::<_, JoinError>(one_zero(&column))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(Keys { rows: self.converter.convert_columns(&columns)?, columns })
    }
}

/// Replaces -0.0 by 0.0 and each NaN by one NaN; other types are unchanged.
pub(crate) fn one_zero(column: &ArrayRef) -> ArrayRef {
    if *column.data_type() != DataType::Float64 {
        return Arc::clone(column);
    }
    let values = column.as_primitive::<Float64Type>();
    let plain: Float64Array =
        values.unary(|value| if value.is_nan() { f64::NAN } else { value + 0.0 });
    Arc::new(plain)
}

impl Keys {
    /// Returns the bytes of the key of a row, or `None` if a part is NULL: such a row matches no row.
    pub(crate) fn get(&self, row: usize) -> Option<impl AsRef<[u8]> + '_> {
        let is_null = self.columns.iter().any(|column| column.is_null(row));
        (!is_null).then(|| self.rows.row(row))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        Decimal128Array, Int8Array, Int64Array, TimestampMicrosecondArray, TimestampSecondArray,
        UInt64Array,
    };
    use arrow_schema::{Field, Schema};

    use super::*;

    /// Returns the keys of two columns in their common type.
    fn keys(one: ArrayRef, other: ArrayRef) -> Vec<Vec<u8>> {
        let to = common(one.data_type(), other.data_type()).unwrap();
        let encoder = KeyEncoder::new(vec![to]).unwrap();
        let keys = [one, other].map(|column| {
            let schema = Schema::new(vec![Field::new("k", column.data_type().clone(), true)]);
            let batch = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
            encoder.encode(&batch, &[0]).unwrap().get(0).unwrap().as_ref().to_vec()
        });
        keys.into()
    }

    #[test]
    fn keys_of_different_types_are_equal_by_value() {
        let decimal = |value, digits, scale| -> ArrayRef {
            let array = Decimal128Array::from(vec![value]);
            Arc::new(array.with_precision_and_scale(digits, scale).unwrap())
        };
        let zoned = TimestampSecondArray::from(vec![7]).with_timezone("+02:00");
        let other = TimestampMicrosecondArray::from(vec![7_000_000]).with_timezone("UTC");
        let pairs: [(ArrayRef, ArrayRef); 4] = [
            (Arc::new(Int8Array::from(vec![-7])), Arc::new(Int64Array::from(vec![-7]))),
            (Arc::new(Int64Array::from(vec![7])), Arc::new(UInt64Array::from(vec![7]))),
            (decimal(700, 5, 2), decimal(70_000, 9, 4)),
            (Arc::new(zoned), Arc::new(other)),
        ];
        for (one, other) in pairs {
            let types = (one.data_type().clone(), other.data_type().clone());
            let keys = keys(one, other);
            assert_eq!(keys[0], keys[1], "{types:?}");
        }
        let unequal = keys(decimal(700, 5, 2), decimal(700, 9, 4));
        assert_ne!(unequal[0], unequal[1]);
    }

    #[test]
    fn types_without_a_lossless_common_type_are_refused() {
        let seconds =
            |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
        for (one, other) in [
            (DataType::Int32, DataType::Float64),
            (DataType::Int32, DataType::Utf8),
            (seconds(None), seconds(Some("UTC"))),
            (DataType::Date32, seconds(None)),
            (DataType::Null, DataType::new_list(DataType::Int32, true)),
            (DataType::Decimal256(76, 0), DataType::Decimal256(76, 40)),
        ] {
            assert_eq!(common(&one, &other), None, "{one} and {other}");
            assert_eq!(common(&other, &one), None, "{other} and {one}");
        }
    }
}
