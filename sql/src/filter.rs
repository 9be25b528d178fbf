//! Conditions of a query as text for `sabul join --where`.

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};

/// Values of an `IN` list that become comparisons. Ours: the text stays far below the limit of a command line.
const LIST_MAX: usize = 200;

/// Returns the condition as text; `None` if `--where` cannot express the condition.
pub(crate) fn condition(expression: &Expr, schema: &Schema) -> Option<String> {
    let inner = |expression: &Expr| condition(expression, schema);
    Some(match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            format!("({} AND {})", inner(left)?, inner(right)?)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            format!("({} OR {})", inner(left)?, inner(right)?)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (Expr::Column(_), _) => comparison(left, *op, right, schema)?,
            _ => comparison(right, op.swap()?, left, schema)?,
        },
        Expr::Not(expression) => format!("NOT ({})", inner(expression)?),
        Expr::IsNull(expression) => format!("{} IS NULL", column(expression, schema)?.0),
        Expr::IsNotNull(expression) => format!("{} IS NOT NULL", column(expression, schema)?.0),
        Expr::Between(Between { expr, negated, low, high }) => {
            let low = comparison(expr, Operator::GtEq, low, schema)?;
            let high = comparison(expr, Operator::LtEq, high, schema)?;
            format!("{}({low} AND {high})", if *negated { "NOT " } else { "" })
        }
        Expr::InList(list) if (1..=LIST_MAX).contains(&list.list.len()) => {
            let equal = |value: &Expr| comparison(&list.expr, Operator::Eq, value, schema);
            let terms = list.list.iter().map(equal).collect::<Option<Vec<_>>>()?;
            format!("{}({})", if list.negated { "NOT " } else { "" }, terms.join(" OR "))
        }
        Expr::Column(_) => {
            let (name, data_type) = column(expression, schema)?;
            (*data_type == DataType::Boolean).then(|| format!("{name} = TRUE"))?
        }
        _ => return None,
    })
}

/// Returns the name of a column in double quotes, and its type.
fn column<'a>(expression: &Expr, schema: &'a Schema) -> Option<(String, &'a DataType)> {
    let Expr::Column(column) = expression else { return None };
    let field = schema.field_with_name(&column.name).ok()?;
    Some((format!("\"{}\"", column.name.replace('"', "\"\"")), field.data_type()))
}

fn comparison(left: &Expr, op: Operator, right: &Expr, schema: &Schema) -> Option<String> {
    let (name, data_type) = column(left, schema)?;
    let op = match op {
        Operator::Eq => "=",
        Operator::NotEq => "<>",
        Operator::Lt => "<",
        Operator::LtEq => "<=",
        Operator::Gt => ">",
        Operator::GtEq => ">=",
        _ => return None,
    };
    let Expr::Literal(value, _) = right else { return None };
    Some(format!("{name} {op} {}", literal(value, data_type)?))
}

/// Returns a literal for a column of this type. Only values that both sides compare in the same way: no floats, whose
/// text may be another value, no times, whose zone may differ, and no NULL.
fn literal(value: &ScalarValue, column: &DataType) -> Option<String> {
    if value.is_null() {
        return None;
    }
    match value {
        ScalarValue::Int8(_)
        | ScalarValue::Int16(_)
        | ScalarValue::Int32(_)
        | ScalarValue::Int64(_)
        | ScalarValue::UInt8(_)
        | ScalarValue::UInt16(_)
        | ScalarValue::UInt32(_)
        | ScalarValue::UInt64(_) => column.is_numeric().then(|| value.to_string()),
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => {
            let is_text = matches!(column, DataType::Utf8 | DataType::LargeUtf8);
            (is_text && !text.contains('\0')).then(|| format!("'{}'", text.replace('\'', "''")))
        }
        ScalarValue::Boolean(Some(value)) => {
            (*column == DataType::Boolean).then(|| value.to_string().to_uppercase())
        }
        ScalarValue::Date32(Some(_)) => (*column == DataType::Date32).then(|| format!("'{value}'")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("f", DataType::Float64, true),
            Field::new("t", DataType::Utf8, true),
            Field::new("a \"b\"", DataType::Boolean, true),
            Field::new("d", DataType::Date32, true),
        ])
    }

    #[test]
    fn conditions_become_text() {
        let quoted = Expr::Column(datafusion::common::Column::new_unqualified("a \"b\""));
        let day = Expr::Literal(ScalarValue::Date32(Some(365)), None);
        for (expression, text) in [
            (col("n").gt(lit(1_i64)), "\"n\" > 1"),
            (lit(1_i64).gt(col("n")), "\"n\" < 1"),
            (col("f").lt_eq(lit(-3_i64)), "\"f\" <= -3"),
            (col("t").eq(lit("it's")), "\"t\" = 'it''s'"),
            (quoted.clone().is_not_null(), "\"a \"\"b\"\"\" IS NOT NULL"),
            (quoted, "\"a \"\"b\"\"\" = TRUE"),
            (col("d").not_eq(day), "\"d\" <> '1971-01-01'"),
            (
                col("n").between(lit(1_i64), lit(2_i64)).or(col("t").is_null()),
                "((\"n\" >= 1 AND \"n\" <= 2) OR \"t\" IS NULL)",
            ),
            (col("n").in_list(vec![lit(1_i64), lit(2_i64)], true), "NOT (\"n\" = 1 OR \"n\" = 2)"),
        ] {
            assert_eq!(condition(&expression, &schema()).as_deref(), Some(text), "{expression}");
        }
    }

    #[test]
    fn other_conditions_stay_with_datafusion() {
        for expression in [
            col("f").gt(lit(0.1)),
            col("t").like(lit("x%")),
            col("n").gt(col("f")),
            (col("n") + lit(1_i64)).gt(lit(2_i64)),
            col("t").eq(lit(1_i64)),
            col("n").eq(lit(ScalarValue::Int64(None))),
            col("n").eq(lit(1_i64)).and(col("t").like(lit("x%"))),
            col("missing").is_null(),
        ] {
            assert_eq!(condition(&expression, &schema()), None, "{expression}");
        }
    }
}
