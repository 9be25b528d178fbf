//! Drawn joins against nested loops.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_schema::{Field, Schema};

use super::*;
use crate::plan::{Request, Table};

/// SplitMix64: a seed repeats a failure.
struct Draw(u64);

impl Draw {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Key, and the number of the row.
type Row = (Option<i64>, i64);
type Rows = Vec<Row>;

#[derive(Clone, Copy, Debug)]
enum Key {
    Int,
    Float,
    Text,
}

fn batch(rows: &[Row], table: usize, key: Key) -> RecordBatch {
    let keys = rows.iter().map(|row| row.0);
    let keys: ArrayRef = match key {
        Key::Int => Arc::new(keys.collect::<Int64Array>()),
        // The sign of zero depends on the table.
        Key::Float => Arc::new(
            keys.map(|key| {
                key.map(|key| match i32::try_from(key).unwrap() {
                    0 if table == 0 => -0.0,
                    1 => f64::NAN,
                    key => f64::from(key),
                })
            })
            .collect::<Float64Array>(),
        ),
        Key::Text => Arc::new(
            keys.map(|key| {
                key.map(|key| "k".repeat(usize::try_from(key % 9).unwrap()) + &key.to_string())
            })
            .collect::<StringArray>(),
        ),
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
    let fields = vec![
        Field::new("k", keys.data_type().clone(), true),
        Field::new(format!("n{table}"), numbers.data_type().clone(), false),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![keys, numbers]).unwrap()
}

/// A condition, and its result for the numbers of a joined row.
type Condition = (&'static str, fn(&[Option<i64>]) -> bool);

const CONDITIONS: [Condition; 4] = [
    ("n0 < 30 or n0 >= 200", |row| row[0].is_some_and(|it| !(30..200).contains(&it))),
    ("n1 < 30", |row| row[1].is_some_and(|it| it < 30)),
    ("n1 is null or n0 >= 20", |row| row[1].is_none() || row[0] >= Some(20)),
    ("not n1 >= 90 and n0 < 100", |row| row[1].is_some_and(|it| it < 90) && row[0] < Some(100)),
];

/// Row numbers of each joined row that satisfies the condition, ascending.
fn nested_loops(
    tables: &[Rows],
    kind: JoinType,
    condition: Option<Condition>,
) -> Vec<Vec<Option<i64>>> {
    let mut result = Vec::new();
    for &(key, number) in &tables[0] {
        let mut rows = vec![vec![Some(number)]];
        for table in &tables[1..] {
            let matches: Vec<i64> =
                table.iter().filter(|row| key.is_some() && row.0 == key).map(|row| row.1).collect();
            rows = rows
                .iter()
                .flat_map(|row| matches.iter().map(|it| [row.as_slice(), &[Some(*it)]].concat()))
                .collect();
        }
        match (kind, rows.is_empty()) {
            (JoinType::Inner, _) | (JoinType::Left, false) => result.extend(rows),
            (JoinType::Left, true) => result.push(vec![Some(number), None]),
            (JoinType::Anti, true) => result.push(vec![Some(number)]),
            (JoinType::Anti, false) => {}
        }
    }
    result.retain(|row| condition.is_none_or(|(_, fits)| fits(row)));
    result.sort_unstable();
    result
}

/// Runs a join with drawn batches in a drawn order.
fn joined(
    tables: &[Rows],
    (kind, key, budget, condition): (JoinType, Key, usize, Option<Condition>),
    draw: &mut Draw,
) -> (Vec<Vec<Option<i64>>>, Summary) {
    let request = Request {
        tables: (0..tables.len())
            .map(|at| Table { name: format!("t{at}"), schema: batch(&[], at, key).schema() })
            .collect(),
        on: vec!["k".to_owned()],
        kind,
        condition: condition.map(|(text, _)| text.to_owned()),
        select: None,
    };
    let parent = tempfile::tempdir().unwrap();
    let mut join = Join::new(Plan::new(&request).unwrap(), budget, parent.path()).unwrap();
    let mut rows = Vec::new();
    let mut sink = |batch: RecordBatch| {
        let columns: Vec<_> =
            batch.columns()[1..].iter().map(|it| it.as_primitive::<Int64Type>()).collect();
        for row in 0..batch.num_rows() {
            let value = |it: &&Int64Array| (!it.is_null(row)).then(|| it.value(row));
            rows.push(columns.iter().map(value).collect::<Vec<_>>());
        }
        Ok(())
    };
    let mut open: Vec<(usize, &[Row])> = tables.iter().map(Vec::as_slice).enumerate().collect();
    let favourite = draw.below(3);
    while !open.is_empty() {
        let last = open.len() as u64 - 1;
        let at = match favourite {
            0 => 0,
            1 => last,
            _ => draw.below(last + 1),
        };
        let at = usize::try_from(at).unwrap();
        let (table, left) = open[at];
        if left.is_empty() {
            join.end(table, &mut sink).unwrap();
            open.remove(at);
            continue;
        }
        let count = usize::try_from(1 + draw.below(200)).unwrap().min(left.len());
        let all = batch(&left[..count], table, key);
        let needed = join.plan.needed(table);
        let at_needed: Vec<_> =
            needed.iter().map(|it| all.schema().index_of(it).unwrap()).collect();
        join.push(table, all.project(&at_needed).unwrap(), &mut sink).unwrap();
        open[at].1 = &left[count..];
    }
    let summary = join.finish(&mut sink).unwrap();
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "spilled rows stay");
    rows.sort_unstable();
    (rows, summary)
}

fn drawn_table(draw: &mut Draw, keys: u64, skew: bool) -> Rows {
    let count = draw.below(400) * draw.below(2) + draw.below(40);
    (0..i64::try_from(count).unwrap())
        .map(|number| {
            let key = if skew && draw.below(3) > 0 { 0 } else { draw.below(keys) };
            let is_null = draw.below(20) == 0;
            ((!is_null).then(|| i64::try_from(key).unwrap()), number)
        })
        .collect()
}

#[test]
fn drawn_joins_equal_nested_loops_for_every_type_order_and_budget() {
    let mut spilled = 0;
    for seed in 0..600 {
        let draw = &mut Draw(seed);
        let kind = draw.pick(&[JoinType::Inner, JoinType::Left, JoinType::Anti]);
        let key = draw.pick(&[Key::Int, Key::Float, Key::Text]);
        let count = if kind == JoinType::Inner { 2 + draw.below(2) } else { 2 };
        let keys = draw.pick(&[2, 30, 1000]).max(if count > 2 { 30 } else { 0 });
        let tables: Vec<_> =
            (0..count).map(|_| drawn_table(draw, keys, count == 2 && seed % 3 == 0)).collect();
        let budget = draw.pick(&[1, 2_000, 20_000, 200_000, 1 << 30]);
        let condition = match kind {
            JoinType::Anti => draw.pick(&[None, Some(CONDITIONS[0])]),
            _ => Some(draw.pick(&CONDITIONS)).filter(|_| seed % 2 == 0),
        };
        let expected = nested_loops(&tables, kind, condition);
        let (rows, summary) = joined(&tables, (kind, key, budget, condition), draw);
        assert!(
            rows == expected,
            "seed {seed}, {kind:?}, {key:?}, budget {budget}, {condition:?}: {} rows, expected {}",
            rows.len(),
            expected.len()
        );
        assert_eq!(summary.rows_out, rows.len() as u64);
        spilled += u32::from(summary.spilled_bytes > 0);
    }
    assert!(spilled > 200, "only {spilled} of 600 joins spilled");
}

#[test]
fn long_values_that_many_rows_share_make_small_batches() {
    let texts = |count: usize, text: &str, name: &str| {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![7; count]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text; count]));
        RecordBatch::try_from_iter([("k", keys), (name, texts)]).unwrap()
    };
    let (long, many) = (texts(1, &"x".repeat(1 << 20), "x"), texts(100, "y", "y"));
    let table =
        |name: &str, batch: &RecordBatch| Table { name: name.into(), schema: batch.schema() };
    let request = Request {
        tables: vec![table("a", &long), table("b", &many)],
        on: vec!["k".to_owned()],
        kind: JoinType::Inner,
        condition: None,
        select: None,
    };
    let mut join = Join::new(Plan::new(&request).unwrap(), 1 << 30, Path::new("/")).unwrap();
    let (mut rows, mut bytes) = (0, 0);
    let mut sink = |batch: RecordBatch| {
        rows += batch.num_rows();
        bytes = bytes.max(batch.get_array_memory_size());
        Ok(())
    };
    join.push(0, long, &mut sink).unwrap();
    join.push(1, many, &mut sink).unwrap();
    assert_eq!(rows, 100);
    assert!(bytes < 20 << 20, "a batch has {bytes} bytes");
}

#[test]
fn the_first_joined_row_comes_before_an_input_ends() {
    let request = Request {
        tables: (0..2)
            .map(|at| Table { name: format!("t{at}"), schema: batch(&[], at, Key::Int).schema() })
            .collect(),
        on: vec!["k".to_owned()],
        kind: JoinType::Inner,
        condition: None,
        select: None,
    };
    let mut join = Join::new(Plan::new(&request).unwrap(), 1 << 20, Path::new("/")).unwrap();
    let mut rows = 0;
    let mut sink = |batch: RecordBatch| {
        rows += batch.num_rows();
        Ok(())
    };
    join.push(0, batch(&[(Some(7), 0)], 0, Key::Int), &mut sink).unwrap();
    join.push(1, batch(&[(Some(7), 0)], 1, Key::Int), &mut sink).unwrap();
    assert_eq!(rows, 1);
}
