//! Plan of a join: which columns of each table are read, compared, kept and written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::cast_with_options;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::condition::{self, Bound, Column, Condition};
use crate::error::JoinError;
use crate::keys::{STRICT, common, plain};

/// Rows that a join returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinType {
    /// Each combination of rows with equal keys.
    #[default]
    Inner,
    /// As [`Self::Inner`], and each row of the first table without a match.
    Left,
    /// Each row of the first table without a match.
    Anti,
}

/// A table of a request.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name in conditions, selections and output columns.
    pub name: String,
    /// Schema of the batches.
    pub schema: SchemaRef,
}

/// Request of a join.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least two tables.
    pub tables: Vec<Table>,
    /// Names of the key columns, which each table has.
    pub on: Vec<String>,
    /// Rows of the result.
    pub kind: JoinType,
    /// Condition on the rows of the result, as `WHERE` of SQL.
    pub condition: Option<String>,
    /// Columns of the result; `None` for all.
    pub select: Option<Vec<String>>,
}

/// Checked request.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) kind: JoinType,
    pub(crate) key_types: Vec<DataType>,
    pub(crate) inputs: Vec<Input>,
    /// Schema of the result.
    schema: SchemaRef,
    /// Schema of joined rows: the result, then columns for [`Self::conditions`] only.
    pub(crate) joined: SchemaRef,
    /// Each column of joined rows: table, and position among the kept columns.
    pub(crate) columns: Vec<(usize, usize)>,
    /// Conditions on joined rows.
    pub(crate) conditions: Vec<Bound>,
}

/// Plan of one table.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// Schema of the columns to read.
    pub(crate) schema: SchemaRef,
    /// Positions of the keys among the columns to read.
    pub(crate) keys: Vec<usize>,
    /// Positions of the columns to keep among the columns to read.
    kept: Vec<usize>,
    pub(crate) kept_schema: SchemaRef,
    conditions: Vec<Bound>,
}

impl Plan {
    /// Checks a request.
    ///
    /// # Errors
    /// If a column is unknown or ambiguous, key types have no common type, or the condition is wrong.
    pub fn new(request: &Request) -> Result<Self, JoinError> {
        let Request { tables, on, kind, .. } = request;
        check(tables, on, *kind)?;
        let key_types = on.iter().map(|key| key_type(tables, key)).collect::<Result<_, _>>()?;
        let mut outputs = outputs(request)?;
        let shown = outputs.len();
        let terms = terms(request)?;
        for (table, column) in terms.joined_columns(request)? {
            if !outputs.iter().any(|it| (it.table, it.column) == (table, column)) {
                outputs.push(Output { table, column, name: String::new() });
            }
        }
        let mut inputs = Vec::new();
        for (at, table) in tables.iter().enumerate() {
            let kept =
                outputs.iter().filter(|output| output.table == at).map(|output| output.column);
            inputs.push(Input::new(table, on, kept.collect(), &terms.before[at])?);
        }
        let mut next = vec![0; tables.len()];
        let columns = outputs.iter().map(|output| {
            next[output.table] += 1;
            (output.table, next[output.table] - 1)
        });
        let columns = columns.collect();
        let fields: Vec<Field> = outputs
            .iter()
            .map(|output| {
                let field = tables[output.table].schema.field(output.column);
                let may_be_null =
                    field.is_nullable() || (*kind == JoinType::Left && output.table > 0);
                Field::new(&output.name, plain(field.data_type()), may_be_null)
            })
            .collect();
        let place = |column: &Column| {
            let (table, column) = joined_column(request, column)?;
            let is_same = |output: &Output| (output.table, output.column) == (table, column);
            let at = outputs.iter().position(is_same);
            let at = at.map_or_else(|| refuse("condition: a column is missing"), Ok)?;
            Ok((at, fields[at].data_type().clone()))
        };
        let conditions =
            terms.after.iter().map(|term| term.bind(&place)).collect::<Result<_, _>>()?;
        let schema = Arc::new(Schema::new(fields[..shown].to_vec()));
        let joined = Arc::new(Schema::new(fields));
        Ok(Self { kind: *kind, key_types, inputs, schema, joined, columns, conditions })
    }

    /// Returns the schema of the result.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns the names of the columns of a table that the join needs, in the order of its batches.
    pub fn needed(&self, table: usize) -> Vec<&str> {
        self.inputs[table].schema.fields().iter().map(|field| field.name().as_str()).collect()
    }
}

fn refuse<T>(text: impl Into<String>) -> Result<T, JoinError> {
    Err(JoinError::Refused(text.into()))
}

/// Largest number of columns of a table. Ours: each batch costs time and memory for each column.
const COLUMNS_MAX: usize = 16_384;

fn check(tables: &[Table], on: &[String], kind: JoinType) -> Result<(), JoinError> {
    if tables.len() < 2 {
        return refuse("a join needs at least two tables; name another one");
    }
    if tables.len() > 2 && kind != JoinType::Inner {
        return refuse("a join of more than two tables is inner; use --type inner or two tables");
    }
    if on.is_empty() {
        return refuse("a join needs at least one key column; give --on KEY");
    }
    let names: BTreeSet<_> = tables.iter().map(|table| &table.name).collect();
    if names.len() < tables.len() {
        return refuse("two tables have the same name");
    }
    for table in tables {
        let columns = table.schema.fields().len();
        if columns > COLUMNS_MAX {
            let text = format!(
                "table '{}' has {columns} columns, at most {COLUMNS_MAX} are supported",
                table.name
            );
            return refuse(text);
        }
        let names: BTreeSet<_> = table.schema.fields().iter().map(|field| field.name()).collect();
        if names.len() < table.schema.fields().len() {
            return refuse(format!("table '{}' has two columns of the same name", table.name));
        }
    }
    Ok(())
}

/// Refuses columns with list views: many of them can share values, so that a small file needs unbounded memory. Parquet
/// has no list views.
fn refuse_list_views(table: &str, schema: &Schema) -> Result<(), JoinError> {
    let is_view = |field: &&Field| {
        matches!(field.data_type(), DataType::ListView(_) | DataType::LargeListView(_))
    };
    for field in schema.fields() {
        let alone = Schema::new(vec![Arc::clone(field)]);
        if alone.flattened_fields().iter().any(is_view) {
            return refuse(format!(
                "column '{}' of table '{table}' has list views, which may share values and so need unbounded memory; \
                 write the file with lists, or leave the column out with --select",
                field.name()
            ));
        }
    }
    Ok(())
}

fn position(table: &Table, name: &str) -> Result<usize, JoinError> {
    table.schema.index_of(name).or_else(|_| {
        let known: Vec<_> =
            table.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let known = known.join(", ");
        refuse(format!("table '{}' has no column '{name}'; its columns: {known}", table.name))
    })
}

/// Returns the type in which a key column is compared.
fn key_type(tables: &[Table], key: &str) -> Result<DataType, JoinError> {
    let mut result: Option<DataType> = None;
    for table in tables {
        let found = table.schema.field(position(table, key)?).data_type();
        let so_far = result.unwrap_or_else(|| plain(found));
        let Some(both) = common(&so_far, found) else {
            return refuse(format!(
                "key '{key}' has the type {found} in table '{}', and {so_far} before; the types \
                 cannot be compared without loss: convert a table first",
                table.name
            ));
        };
        result = Some(both);
    }
    match result {
        // No table has a value, and NULLs match nothing in any type.
        Some(DataType::Null) => Ok(DataType::Boolean),
        Some(found) => Ok(found),
        None => refuse("no tables"),
    }
}

/// A column of the result.
struct Output {
    table: usize,
    column: usize,
    name: String,
}

/// Returns the columns of the result: the keys once, then the other columns of each table. A name
/// that several tables have gets `_TABLE` behind it.
fn outputs(request: &Request) -> Result<Vec<Output>, JoinError> {
    let Request { tables, on, kind, select, .. } = request;
    let shown = if *kind == JoinType::Anti { &tables[..1] } else { &tables[..] };
    let mut count = BTreeMap::<&str, usize>::new();
    for field in shown.iter().flat_map(|table| table.schema.fields()) {
        *count.entry(field.name()).or_default() += 1;
    }
    let mut all = Vec::new();
    for key in on {
        all.push(Output { table: 0, column: position(&tables[0], key)?, name: key.clone() });
    }
    for (at, table) in shown.iter().enumerate() {
        for (column, field) in table.schema.fields().iter().enumerate() {
            let name = field.name();
            if on.contains(name) {
                continue;
            }
            let several = count[name.as_str()] > 1;
            let name = if several { format!("{name}_{}", table.name) } else { name.clone() };
            all.push(Output { table: at, column, name });
        }
    }
    let mut result = match select {
        None => all,
        Some(select) => selected(request, all, select)?,
    };
    let names: BTreeSet<_> = result.iter().map(|output| &output.name).collect();
    if names.len() < result.len() {
        return refuse("two output columns have the same name; choose columns with --select");
    }
    if result.is_empty() {
        return refuse("the result has no column; name at least one in --select");
    }
    result.shrink_to_fit();
    Ok(result)
}

/// Keeps the outputs that `select` names as `OUTPUT`, or as `TABLE.COLUMN`, in that order.
fn selected(
    request: &Request,
    all: Vec<Output>,
    select: &[String],
) -> Result<Vec<Output>, JoinError> {
    let known: Vec<_> = all.iter().map(|output| output.name.clone()).collect();
    let mut all: Vec<_> = all.into_iter().map(Some).collect();
    select
        .iter()
        .map(|wanted| {
            let found = all.iter_mut().find(|output| {
                output.as_ref().is_some_and(|output| {
                    let table = &request.tables[output.table];
                    let column = table.schema.field(output.column).name();
                    output.name == *wanted || format!("{}.{column}", table.name) == *wanted
                })
            });
            found.and_then(Option::take).map_or_else(
                || {
                    let known = known.join(", ");
                    refuse(format!(
                        "--select: no column '{wanted}', or named twice; columns: {known}"
                    ))
                },
                Ok,
            )
        })
        .collect()
}

/// Terms of the condition.
struct Terms {
    /// For each table: terms on its rows before the join.
    before: Vec<Vec<Condition>>,
    /// Terms on joined rows.
    after: Vec<Condition>,
}

impl Terms {
    /// Returns table and position of each column of [`Self::after`].
    fn joined_columns(&self, request: &Request) -> Result<Vec<(usize, usize)>, JoinError> {
        let mut columns = Vec::new();
        self.after.iter().for_each(|term| term.columns(&mut |it| columns.push(it)));
        columns.into_iter().map(|column| joined_column(request, column)).collect()
    }
}

/// Divides the condition. A term on one table is evaluated before the join, except on the second table
/// of a left join: its rows without a match are rows of NULL for `WHERE`.
fn terms(request: &Request) -> Result<Terms, JoinError> {
    let Request { tables, on, kind, .. } = request;
    let mut terms = Terms { before: vec![Vec::new(); tables.len()], after: Vec::new() };
    let Some(text) = &request.condition else { return Ok(terms) };
    for mut term in condition::parse(text)? {
        term.columns_mut(&mut |column| name_table(tables, column));
        let mut used = BTreeSet::new();
        let mut is_key = true;
        let mut result = Ok(());
        term.columns(&mut |column| {
            is_key &= column.table.is_none() && on.contains(&column.name);
            match joined_column(request, column) {
                Ok((table, _)) => drop(used.insert(table)),
                Err(error) => result = Err(error),
            }
        });
        result?;
        let before = match used.first() {
            Some(&table) if used.len() == 1 => table == 0 || *kind != JoinType::Left,
            _ => false,
        };
        match used.first().filter(|_| before) {
            None => terms.after.push(term),
            Some(&table) => {
                // Equal keys satisfy the same condition, so other rows need not wait for a match.
                // A text has another meaning for another type, such as a time in another zone.
                for (at, before) in terms.before.iter_mut().enumerate() {
                    if at == table
                        || (is_key && has_same_types(&term, [&tables[table], &tables[at]]))
                    {
                        before.push(term.clone());
                    }
                }
            }
        }
    }
    Ok(terms)
}

/// Divides a name of the result, `COLUMN_TABLE`, into both, unless a table has a column of this name. Only columns that
/// several tables have get such a name. A name with two meanings stays, and no table has the name.
fn name_table(tables: &[Table], column: &mut Column) {
    let Column { table: None, name } = column else { return };
    let with = |name: &str| tables.iter().filter(|it| it.schema.index_of(name).is_ok()).count();
    if with(name) > 0 {
        return;
    }
    let meanings = tables.iter().filter_map(|table| {
        let rest = name.strip_suffix(&table.name)?.strip_suffix('_')?;
        let is_of_table = table.schema.index_of(rest).is_ok() && with(rest) > 1;
        is_of_table.then(|| Column { table: Some(table.name.clone()), name: rest.to_owned() })
    });
    if let [meaning] = &meanings.collect::<Vec<_>>()[..] {
        *column = meaning.clone();
    }
}

fn has_same_types(term: &Condition, tables: [&Table; 2]) -> bool {
    let mut is_same = true;
    term.columns(&mut |column| {
        let [one, other] = tables.map(|table| {
            table.schema.field_with_name(&column.name).map(|field| plain(field.data_type())).ok()
        });
        is_same &= one == other;
    });
    is_same
}

/// Returns table and position of a column of the condition. A key without table is that of the first
/// table, as in the result.
fn joined_column(request: &Request, column: &Column) -> Result<(usize, usize), JoinError> {
    let Request { tables, on, kind, .. } = request;
    let written = column.written();
    let visible = if *kind == JoinType::Anti { 1 } else { tables.len() };
    let is_key = column.table.is_none() && on.contains(&column.name);
    let found: Vec<_> = (0..tables.len())
        .filter(|&at| column.table.as_ref().is_none_or(|name| *name == tables[at].name))
        .filter_map(|at| Some((at, tables[at].schema.index_of(&column.name).ok()?)))
        .collect();
    let seen: Vec<_> = found.iter().filter(|(at, _)| *at < visible).collect();
    match seen[..] {
        [only] => Ok(*only),
        [first, ..] if is_key => Ok(*first),
        [_, ..] => refuse(format!(
            "condition: several tables have the column '{written}'; write TABLE.COLUMN"
        )),
        [] if !found.is_empty() => refuse(format!(
            "condition: column '{written}' with --type anti: rows of the result have columns of \
             table '{}' only",
            tables[0].name
        )),
        [] => refuse(format!(
            "condition: no table has the column '{written}'; tables: {}",
            tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>().join(", ")
        )),
    }
}

impl Column {
    fn written(&self) -> String {
        self.table.as_ref().map_or_else(|| self.name.clone(), |it| format!("{it}.{}", self.name))
    }
}

impl Input {
    fn new(
        table: &Table,
        on: &[String],
        kept: Vec<usize>,
        conditions: &[Condition],
    ) -> Result<Self, JoinError> {
        let mut needed: BTreeSet<usize> = kept.iter().copied().collect();
        for key in on {
            needed.insert(position(table, key)?);
        }
        let mut names = Vec::new();
        conditions.iter().for_each(|term| term.columns(&mut |it| names.push(&it.name)));
        for name in names {
            needed.insert(position(table, name)?);
        }
        let needed: Vec<usize> = needed.into_iter().collect();
        let schema = Arc::new(table.schema.project(&needed)?);
        refuse_list_views(&table.name, &schema)?;
        let place = |column: usize| needed.partition_point(|&it| it < column);
        let kept: Vec<usize> = kept.into_iter().map(place).collect();
        let kept_fields: Vec<Field> = kept
            .iter()
            .map(|&at| {
                let field = schema.field(at);
                Field::new(field.name(), plain(field.data_type()), field.is_nullable())
            })
            .collect();
        let keys = on.iter().map(|key| schema.index_of(key)).collect::<Result<_, _>>()?;
        let place = |column: &Column| {
            let at = schema.index_of(&column.name)?;
            Ok((at, schema.field(at).data_type().clone()))
        };
        let conditions = conditions.iter().map(|it| it.bind(&place)).collect::<Result<_, _>>()?;
        Ok(Self { keys, kept, kept_schema: Arc::new(Schema::new(kept_fields)), conditions, schema })
    }

    /// Returns the rows of a batch that satisfy the conditions.
    pub(crate) fn filter(&self, mut batch: RecordBatch) -> Result<RecordBatch, JoinError> {
        let expected = self.schema.fields().iter().map(|it| (it.name(), it.data_type()));
        let schema = batch.schema();
        if !schema.fields().iter().map(|it| (it.name(), it.data_type())).eq(expected) {
            return Err(JoinError::Table(format!(
                "a batch has the columns {}, expected {}: all files of a table need the same columns",
                names(&schema),
                names(&self.schema)
            )));
        }
        for condition in &self.conditions {
            batch = condition.filter(&batch)?;
        }
        Ok(batch)
    }

    /// Returns the kept columns of a batch, without dictionaries and views.
    pub(crate) fn keep(&self, batch: &RecordBatch) -> Result<RecordBatch, JoinError> {
        let columns = self.kept.iter().zip(self.kept_schema.fields());
        let columns = columns
            .map(|(&at, field)| cast_with_options(batch.column(at), field.data_type(), &STRICT))
            .collect::<Result<_, _>>()?;
        let rows = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.kept_schema), columns, &rows)?)
    }
}

fn names(schema: &Schema) -> String {
    let names = schema.fields().iter().map(|it| format!("{}: {}", it.name(), it.data_type()));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(condition: Option<&str>, select: Option<&[&str]>) -> Request {
        let table = |name: &str, columns: &[(&str, DataType)]| Table {
            name: name.to_owned(),
            schema: Arc::new(Schema::new(
                columns
                    .iter()
                    .map(|(name, of)| Field::new(*name, of.clone(), true))
                    .collect::<Vec<_>>(),
            )),
        };
        Request {
            tables: vec![
                table(
                    "a",
                    &[("v", DataType::Int64), ("k", DataType::Int64), ("x", DataType::Utf8)],
                ),
                table(
                    "b",
                    &[("k", DataType::Int32), ("v", DataType::Int64), ("y", DataType::Utf8)],
                ),
            ],
            on: vec!["k".to_owned()],
            kind: JoinType::Inner,
            condition: condition.map(ToOwned::to_owned),
            select: select.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
        }
    }

    fn columns(plan: &Plan) -> Vec<String> {
        plan.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    #[test]
    fn the_key_is_returned_once_and_common_names_get_the_table() {
        let plan = Plan::new(&request(None, None)).unwrap();
        assert_eq!(columns(&plan), ["k", "v_a", "x", "v_b", "y"]);
    }

    #[test]
    fn only_selected_columns_keys_and_columns_of_the_condition_are_needed() {
        let plan = Plan::new(&request(Some("a.v > 3 and k < 9"), Some(&["y", "b.v"]))).unwrap();
        assert_eq!(columns(&plan), ["y", "v_b"]);
        assert_eq!((plan.needed(0), plan.needed(1)), (vec!["v", "k"], vec!["k", "v", "y"]));
    }

    #[test]
    fn a_term_is_evaluated_before_the_join_where_the_result_stays_that_of_sql() {
        for (kind, condition, before, after) in [
            (JoinType::Inner, "a.v > 3 and b.v > 3", [1, 1], 0),
            (JoinType::Inner, "a.v > 3 or b.v > 3", [0, 0], 1),
            (JoinType::Inner, "v_a > 3 and not v_b > 3", [1, 1], 0),
            (JoinType::Left, "x = 'x' and y is null", [1, 0], 1),
            (JoinType::Left, "b.k is null or v_a > 3", [0, 0], 1),
            // The keys have different types.
            (JoinType::Inner, "k < 9", [1, 0], 0),
            (JoinType::Left, "k < 9", [1, 0], 0),
            (JoinType::Inner, "b.k < 9", [0, 1], 0),
            (JoinType::Left, "b.k < 9", [0, 0], 1),
            (JoinType::Anti, "v > 3", [1, 0], 0),
        ] {
            let mut request = request(Some(condition), Some(&["x"]));
            request.kind = kind;
            let plan = Plan::new(&request).unwrap();
            let counts = [0, 1].map(|at| plan.inputs[at].conditions.len());
            assert_eq!((counts, plan.conditions.len()), (before, after), "{kind:?} {condition}");
            assert_eq!(columns(&plan), ["x"], "{condition}");
        }
    }

    /// Request for a join of tables with these columns of integers.
    fn of_tables(tables: &[(&str, &[&str])], condition: &str) -> Request {
        let table = |(name, columns): &(&str, &[&str])| {
            let fields = columns.iter().map(|name| Field::new(*name, DataType::Int64, true));
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            Table { name: (*name).to_owned(), schema }
        };
        let tables = tables.iter().map(table).collect();
        Request { tables, ..request(Some(condition), None) }
    }

    #[test]
    fn a_name_of_the_result_means_the_column_with_this_name() {
        let plan = |tables: &[(&str, &[&str])], condition| {
            let plan = Plan::new(&of_tables(tables, condition))?;
            let conditions = plan.inputs.iter().map(|input| input.conditions.len());
            Ok::<_, JoinError>((columns(&plan), conditions.collect::<Vec<_>>()))
        };
        // `v_a_b` is column `v` of `a_b`, and not column `v_a` of `b`.
        let tables = [("b", &["k", "v", "v_a"][..]), ("a_b", &["k", "v"])];
        let names = ["k", "v_b", "v_a", "v_a_b"].map(ToOwned::to_owned).to_vec();
        assert_eq!(plan(&tables, "v_a_b > 3").unwrap(), (names, vec![0, 1]));
        // No column of the result has this name.
        plan(&tables, "v_a_b_b > 3").unwrap_err();
        plan(&[("a", &["k", "x"]), ("b", &["k", "y"])], "x_a > 3").unwrap_err();
        // Two columns would have the name.
        let tables = [("b", &["k", "v", "v_a"][..]), ("a_b", &["k", "v"]), ("c", &["k", "v_a"])];
        let mut request = of_tables(&tables, "v_a_b > 3");
        request.select = Some(vec!["a_b.v".to_owned()]);
        let error = Plan::new(&request).unwrap_err().to_string();
        assert!(error.contains("no table has the column 'v_a_b'"), "{error}");
    }

    #[test]
    fn a_condition_on_a_key_applies_to_all_tables_with_the_same_type() {
        let mut request = request(Some("k < 9"), None);
        request.tables[1].schema = Arc::clone(&request.tables[0].schema);
        let plan = Plan::new(&request).unwrap();
        assert_eq!([0, 1].map(|at| plan.inputs[at].conditions.len()), [1, 1]);
    }

    #[test]
    fn key_columns_without_values_take_the_type_of_the_others_in_any_order() {
        use DataType::{Boolean, Int32, Int64, Null, Utf8};
        for (types, expected) in [
            (vec![Null, Int64], Int64),
            (vec![Int64, Null], Int64),
            (vec![Null, Utf8], Utf8),
            (vec![Null, Null, Int32, Int64], Int64),
            (vec![Null, Int32, Null], Int32),
            (vec![Null, Null], Boolean),
        ] {
            let mut request = request(None, None);
            request.tables.clear();
            for (at, of) in types.iter().enumerate() {
                let schema = Arc::new(Schema::new(vec![Field::new("k", of.clone(), true)]));
                request.tables.push(Table { name: format!("t{at}"), schema });
            }
            let plan = Plan::new(&request).unwrap();
            assert_eq!(plan.key_types, [expected], "{types:?}");
        }
    }

    #[test]
    fn a_needed_column_with_list_views_is_refused() {
        let item = Arc::new(Field::new_list_field(DataType::Null, true));
        let view = DataType::ListView(Arc::clone(&item));
        let inside = Field::new("inside", DataType::LargeListView(item), true);
        for kind in [view, DataType::Struct([inside].into_iter().collect())] {
            let mut request = request(None, None);
            let fields = [("k", DataType::Int64), ("views", kind)];
            let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
            request.tables[1].schema = Arc::new(Schema::new(fields.to_vec()));
            let error = Plan::new(&request).unwrap_err().to_string();
            assert!(error.starts_with("column 'views' of table 'b' has list views"), "{error}");
            request.select = Some(vec!["x".to_owned()]);
            Plan::new(&request).unwrap();
        }
    }

    #[test]
    fn wrong_conditions_and_selections_are_refused_with_the_reason() {
        use JoinType::{Anti, Inner};
        for (kind, condition, select, text) in [
            (Inner, Some("v > 3"), None, "write TABLE.COLUMN"),
            (Inner, Some("z = 1"), None, "no table has the column 'z'"),
            (Inner, Some("c.v = 1"), None, "no table has the column 'c.v'; tables: a, b"),
            (Inner, Some("x = 1"), None, "the types differ"),
            (Inner, Some("a.v = '1'"), None, "literal 1"),
            (Inner, Some("a.v ="), None, "condition 'a.v ='"),
            (Inner, Some("a.v = b.v"), None, "expected a number"),
            (Anti, Some("y = 'y'"), None, "columns of table 'a' only"),
            (Anti, Some("a.v = 1 or b.v = 1"), None, "columns of table 'a' only"),
            (Inner, None, Some(&["q"][..]), "no column 'q'"),
            (Inner, None, Some(&["y", "y"][..]), "named twice"),
        ] {
            let request = Request { kind, ..request(condition, select) };
            let error = Plan::new(&request).unwrap_err().to_string();
            assert!(error.contains(text), "{condition:?} {select:?}: {error}");
        }
    }
}
