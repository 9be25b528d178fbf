//! Conditions on rows: a subset of SQL expressions, evaluated on batches.

mod parse;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar, StringArray};
use arrow_buffer::BooleanBuffer;
use arrow_cast::cast_with_options;
use arrow_ord::cmp;
use arrow_schema::{DataType, TimeUnit};
use arrow_select::filter::filter_record_batch;

use crate::error::JoinError;
use crate::keys::{STRICT, decimal, decimal_parts, one_zero, plain};

/// Grammar for messages.
const GRAMMAR: &str =
    "write COLUMN OPERATOR LITERAL, COLUMN IS [NOT] NULL, and AND, OR, NOT and brackets";

/// Digits of the largest integer of 64 bits.
const INTEGER_DIGITS: usize = 20;

/// Condition without bound types.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    IsNull(Column),
    Compare(Column, Op, Literal),
}

/// Comparison of a column with a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
}

/// Column as written: `COLUMN` or `TABLE.COLUMN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) table: Option<String>,
    pub(crate) name: String,
}

/// Returns position and type of a column.
pub(crate) type Place<'a> = &'a dyn Fn(&Column) -> Result<(usize, DataType), JoinError>;

/// Literal as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    Number(String),
    Text(String),
    Boolean(bool),
}

/// Parses a condition into the terms of its outermost AND.
pub(crate) fn parse(text: &str) -> Result<Vec<Condition>, JoinError> {
    let condition = parse::parse(text)
        .map_err(|error| JoinError::Refused(format!("condition '{text}': {error}; {GRAMMAR}")))?;
    Ok(match condition {
        Condition::And(terms) => terms,
        term => vec![term],
    })
}

impl Condition {
    /// Calls `visit` with each column.
    pub(crate) fn columns<'a>(&'a self, visit: &mut impl FnMut(&'a Column)) {
        match self {
            Self::And(terms) | Self::Or(terms) => terms.iter().for_each(|it| it.columns(visit)),
            Self::Not(inner) => inner.columns(visit),
            Self::IsNull(column) | Self::Compare(column, ..) => visit(column),
        }
    }

    /// Calls `change` with each column.
    pub(crate) fn columns_mut(&mut self, change: &mut impl FnMut(&mut Column)) {
        match self {
            Self::And(terms) | Self::Or(terms) => {
                terms.iter_mut().for_each(|it| it.columns_mut(change));
            }
            Self::Not(inner) => inner.columns_mut(change),
            Self::IsNull(column) | Self::Compare(column, ..) => change(column),
        }
    }

    /// Resolves columns and literals.
    pub(crate) fn bind(&self, place: Place<'_>) -> Result<Bound, JoinError> {
        let all = |terms: &[Self]| {
            terms.iter().map(|term| term.bind(place)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match self {
            Self::And(terms) => Bound::And(all(terms)?),
            Self::Or(terms) => Bound::Or(all(terms)?),
            Self::Not(inner) => Bound::Not(Box::new(inner.bind(place)?)),
            Self::IsNull(column) => Bound::IsNull(place(column)?.0),
            Self::Compare(column, op, literal) => {
                let (at, data_type) = place(column)?;
                Bound::Compare(at, *op, literal.of_type(&data_type, &column.name)?)
            }
        })
    }
}

impl Literal {
    /// Returns an array with this value as its single element, in the type of the comparison. No
    /// digit of the literal is lost.
    fn of_type(&self, column: &DataType, name: &str) -> Result<ArrayRef, JoinError> {
        let column = plain(column);
        let text = match self {
            Self::Number(text) | Self::Text(text) => text.clone(),
            Self::Boolean(value) => value.to_string(),
        };
        let refuse = |why: &str| {
            let text =
                format!("condition: column '{name}' of type {column}, literal {text}: {why}");
            JoinError::Refused(text)
        };
        let to = match self {
            Self::Number(number) => number_type(number, &column),
            Self::Text(_) if matches!(column, DataType::Utf8 | DataType::LargeUtf8) => {
                Some(column.clone())
            }
            // A column without values has every type, and no row of the column satisfies a comparison.
            Self::Text(_) if column == DataType::Null => Some(DataType::Utf8),
            Self::Boolean(_) if column == DataType::Null => Some(DataType::Boolean),
            Self::Text(text) if column.is_temporal() => {
                if is_finer(text, &column) {
                    return Err(refuse("the literal has a smaller unit of time than the column"));
                }
                Some(column.clone())
            }
            Self::Boolean(_) if column == DataType::Boolean => Some(DataType::Boolean),
            _ => None,
        };
        let Some(to) = to else {
            return Err(refuse("the types differ; quote text, dates and times with '...'"));
        };
        let array: ArrayRef = Arc::new(StringArray::from(vec![text.clone()]));
        let array =
            cast_with_options(&array, &to, &STRICT).map_err(|error| refuse(&error.to_string()))?;
        Ok(one_zero(&array))
    }
}

/// Returns the type in which a column is compared with a number: its own, or a decimal with the digits
/// of both.
fn number_type(number: &str, column: &DataType) -> Option<DataType> {
    if column.is_floating() {
        return Some(DataType::Float64);
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole_digits = whole.trim_start_matches('-').len();
    let (digits, scale) = match decimal_parts(column) {
        Some((precision, scale)) => (usize::try_from(precision - scale).ok()?, scale),
        None if column.is_integer() => {
            let array: ArrayRef = Arc::new(StringArray::from(vec![number]));
            if fraction.is_empty() && cast_with_options(&array, column, &STRICT).is_ok() {
                return Some(column.clone());
            }
            (INTEGER_DIGITS, 0)
        }
        None if *column == DataType::Null => (0, 0),
        None => return None,
    };
    let scale = scale.max(i16::try_from(fraction.len()).ok()?);
    decimal(i16::try_from(digits.max(whole_digits)).ok()?.checked_add(scale)?, scale)
}

/// Returns whether a time has more digits behind the second than the type of the column, which would
/// be cut.
fn is_finer(text: &str, column: &DataType) -> bool {
    let digits = match column {
        DataType::Date32 | DataType::Date64 => return text.contains(':'),
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            }
        }
        _ => return false,
    };
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let end = fraction.find(|it: char| !it.is_ascii_digit()).unwrap_or(fraction.len());
    fraction[..end].trim_end_matches('0').len() > digits
}

/// Condition with column positions and typed literals.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    IsNull(usize),
    Compare(usize, Op, ArrayRef),
}

/// Results of a condition by row. A row of neither set is NULL.
struct Outcome {
    is_true: BooleanBuffer,
    is_false: BooleanBuffer,
}

impl Bound {
    /// Returns the rows of a batch for which the condition is true (not false, not NULL).
    pub(crate) fn filter(&self, batch: &RecordBatch) -> Result<RecordBatch, JoinError> {
        let is_true = BooleanArray::new(self.evaluate(batch)?.is_true, None);
        Ok(filter_record_batch(batch, &is_true)?)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<Outcome, JoinError> {
        Ok(match self {
            Self::And(terms) => {
                let mut all = Outcome::constant(true, batch.num_rows());
                for term in terms {
                    let Outcome { is_true, is_false } = term.evaluate(batch)?;
                    (all.is_true, all.is_false) =
                        (&all.is_true & &is_true, &all.is_false | &is_false);
                }
                all
            }
            Self::Or(terms) => {
                let mut any = Outcome::constant(false, batch.num_rows());
                for term in terms {
                    let Outcome { is_true, is_false } = term.evaluate(batch)?;
                    (any.is_true, any.is_false) =
                        (&any.is_true | &is_true, &any.is_false & &is_false);
                }
                any
            }
            Self::Not(inner) => {
                let Outcome { is_true, is_false } = inner.evaluate(batch)?;
                Outcome { is_true: is_false, is_false: is_true }
            }
            Self::IsNull(at) => match batch.column(*at).logical_nulls() {
                Some(nulls) => Outcome { is_true: !nulls.inner(), is_false: nulls.into_inner() },
                None => Outcome::constant(false, batch.num_rows()),
            },
            Self::Compare(at, op, literal) => {
                let column = cast_with_options(batch.column(*at), literal.data_type(), &STRICT)?;
                let (column, literal) = (one_zero(&column), Scalar::new(Arc::clone(literal)));
                let result = match op {
                    Op::Eq => cmp::eq(&column, &literal)?,
                    Op::NotEq => cmp::neq(&column, &literal)?,
                    Op::Lt => cmp::lt(&column, &literal)?,
                    Op::LtEq => cmp::lt_eq(&column, &literal)?,
                    Op::Gt => cmp::gt(&column, &literal)?,
                    Op::GtEq => cmp::gt_eq(&column, &literal)?,
                };
                let (values, nulls) = result.into_parts();
                let is_false = !&values;
                match nulls {
                    None => Outcome { is_true: values, is_false },
                    Some(nulls) => Outcome {
                        is_true: &values & nulls.inner(),
                        is_false: &is_false & nulls.inner(),
                    },
                }
            }
        })
    }
}

impl Outcome {
    fn constant(value: bool, rows: usize) -> Self {
        let (all, no) = (BooleanBuffer::new_set(rows), BooleanBuffer::new_unset(rows));
        let (is_true, is_false) = if value { (all, no) } else { (no, all) };
        Self { is_true, is_false }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Decimal128Array, Float64Array, Int64Array, NullArray, TimestampSecondArray};
    use arrow_schema::{Field, Schema};

    use super::*;

    fn batch() -> RecordBatch {
        let decimals = Decimal128Array::from(vec![123, 124, 125, 126]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("n", Arc::new(Int64Array::from(vec![0, 1, 2, 3]))),
            ("f", Arc::new(Float64Array::from(vec![Some(-0.0), Some(1.5), None, Some(-3.0)]))),
            ("t", Arc::new(StringArray::from(vec![Some("a"), None, Some("it's"), Some("b")]))),
            ("d", Arc::new(decimals.with_precision_and_scale(9, 2).unwrap())),
            ("s", Arc::new(TimestampSecondArray::from(vec![0, 86_400, 90_000, 200_000]))),
            ("is", Arc::new(BooleanArray::from(vec![true, false, true, false]))),
            ("none", Arc::new(NullArray::new(4))),
        ];
        let fields: Vec<_> = columns
            .iter()
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
            .collect();
        let columns = columns.into_iter().map(|(_, array)| array).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    /// Returns the numbers of the rows that satisfy a condition.
    fn rows(condition: &str) -> Result<Vec<i64>, JoinError> {
        let mut batch = batch();
        let schema = batch.schema();
        let place = |column: &Column| {
            let at = schema.index_of(&column.name)?;
            Ok((at, schema.field(at).data_type().clone()))
        };
        for term in parse(condition)? {
            batch = term.bind(&place)?.filter(&batch)?;
        }
        let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
        Ok(numbers.values().to_vec())
    }

    #[test]
    fn conditions_follow_the_three_valued_logic_of_sql() {
        for (condition, expected) in [
            ("n >= 1 and n < 3", &[1, 2][..]),
            ("f = 0", &[0]),
            ("f < 0", &[3]),
            ("not f > 1", &[0, 3]),
            ("f is null or t is null", &[1, 2]),
            ("f is not null and (t = 'a' or n = 3)", &[0, 3]),
            ("t <> 'a'", &[2, 3]),
            ("t = 'it''s'", &[2]),
            ("not (t = 'a' or f > 1)", &[3]),
            ("n = -1", &[]),
            ("n = 1 OR n = 2 AND t IS NULL", &[1]),
            ("NOT n = 1 AND NOT NOT n=0", &[0]),
            ("a.\"n\"=2 and \"is\" = TRUE", &[2]),
        ] {
            assert_eq!(rows(condition).unwrap(), expected, "{condition}");
        }
    }

    #[test]
    fn a_comparison_with_a_column_without_values_is_null() {
        for (condition, expected) in [
            ("none > 1 or n = 3", &[3][..]),
            ("not none = -1.5", &[]),
            ("none = 'x' or not none = 'x'", &[]),
            ("none = true or none is null and n < 2", &[0, 1]),
        ] {
            assert_eq!(rows(condition).unwrap(), expected, "{condition}");
        }
    }

    #[test]
    fn no_digit_of_a_literal_is_lost() {
        for (condition, expected) in [
            ("n < 1.5", &[0, 1][..]),
            ("n = 1.0", &[1]),
            ("n > -99999999999999999999.5 and n < 99999999999999999999", &[0, 1, 2, 3]),
            ("d > 1.234", &[1, 2, 3]),
            ("d = 1.234", &[]),
            ("d = 1.2300", &[0]),
            ("s = '1970-01-02 01:00:00.000'", &[2]),
            ("s >= '1970-01-02'", &[1, 2, 3]),
        ] {
            assert_eq!(rows(condition).unwrap(), expected, "{condition}");
        }
    }

    #[test]
    fn other_text_is_refused_with_the_reason() {
        let nested = format!("{}n = 1{}", "(".repeat(200), ")".repeat(200));
        for (condition, text) in [
            ("", "expected a column, found the end"),
            ("n =", "expected a number, 'text', TRUE or FALSE, found the end"),
            ("n = 1 n", "expected AND, OR or the end, found 'n'"),
            ("n = t", "found 't'"),
            ("n + 1 = 2", "'+' is not supported"),
            ("n LIKE 'x'", "expected an operator or IS, found 'LIKE'"),
            ("(n = 1", "expected ')', found the end"),
            ("n is 3", "expected NULL, found '3'"),
            ("t = 'x", "the closing ' of 'x is missing"),
            ("n = 1.2.3", "literal 1.2.3"),
            ("n = 'x'", "the types differ"),
            ("t = 1", "the types differ"),
            ("s = '1970-01-01 00:00:00.5'", "a smaller unit of time"),
            (&nested, "more than 100 nested brackets"),
        ] {
            let error = rows(condition).unwrap_err().to_string();
            assert!(error.contains(text), "{condition}: {error}");
        }
    }

    #[test]
    fn long_conditions_need_no_deep_stack() {
        let long = vec!["n = 1"; 20_000].join(" or ");
        assert_eq!(rows(&long).unwrap(), [1]);
    }
}
