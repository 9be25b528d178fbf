//! Expansion of a sweep into the settings of each run.

use crate::arm::Arm;
use crate::error::{Origin, Problem};
use crate::set::{self, Override, Target, VALUES_MAX};
use crate::tree::{Field, Node, Value, find};

/// Most runs of one file with its overrides.
pub const RUNS_MAX: usize = 10_000;

/// A key or keys with the values of a sweep.
#[derive(Clone, Debug)]
struct Dimension {
    key: String,
    at: Origin,
    target: Target,
    values: Vec<Node>,
}

/// All settings from sweep and overrides, in the order of application.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    dimensions: Vec<Dimension>,
    count: usize,
}

/// One combination of values.
#[derive(Clone, Debug)]
pub(crate) struct Combination {
    /// Settings that distinguish this combination from the others; empty for a single combination.
    pub(crate) label: String,
    /// All settings from sweep and overrides.
    pub(crate) settings: Vec<(String, String)>,
    /// The file with those settings applied.
    pub(crate) fields: Vec<Field>,
}

impl Sweep {
    /// Removes the `[sweep]` table from a file and adds the overrides, which take precedence.
    pub(crate) fn take(
        fields: &mut Vec<Field>,
        overrides: &[Override],
    ) -> Result<Self, Vec<Problem>> {
        let place = fields.iter().position(|field| field.key == "sweep");
        let table = place.map(|place| fields.remove(place));
        let mut problems = Vec::new();
        let swept = table.map_or_else(Vec::new, |table| {
            let mut settings = Vec::new();
            match &table.node.value {
                Value::Table(inner) => collect(inner, "", fields, &mut settings, &mut problems),
                _ => problems.push(Problem::new(&table.at, "key sweep", "use a table, [sweep]")),
            }
            settings
        });
        let mut dimensions = Vec::new();
        let from_file = swept.len();
        for (n, given) in swept.iter().chain(overrides).enumerate() {
            let Override { key, at, values } = given;
            match set::resolve(fields, key, at) {
                Ok(target) => {
                    let covered = |earlier: &Dimension| target.covers(&earlier.target);
                    if n < from_file && dimensions.iter().any(covered) {
                        let what = "is swept twice; use each setting once";
                        problems.push(Problem::new(at, &format!("key sweep.{key}"), what));
                    }
                    dimensions.retain(|earlier| !covered(earlier));
                    let (key, at, values) = (key.clone(), at.clone(), values.clone());
                    dimensions.push(Dimension { key, at, target, values });
                }
                Err(problem) => problems.push(problem),
            }
        }
        let count = dimensions
            .iter()
            .try_fold(1_usize, |count, dimension| count.checked_mul(dimension.values.len()))
            .filter(|count| *count <= RUNS_MAX);
        match count {
            _ if !problems.is_empty() => Err(problems),
            Some(count) => Ok(Self { dimensions, count }),
            None => {
                let at = dimensions.last().map_or(Origin::File, |last| last.at.clone());
                let what = format!("this sweep has more than {RUNS_MAX} runs; use fewer values");
                Err(vec![Problem::new(&at, "", what)])
            }
        }
    }

    /// Returns the number of runs.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the settings of run `n` on an arm; the last dimension varies fastest.
    pub(crate) fn combination(&self, n: usize, fields: &[Field], arm: Arm) -> Combination {
        let mut fields = fields.to_vec();
        let mut settings = Vec::new();
        let mut label = Vec::new();
        let mut runs_each = self.count;
        for Dimension { key, target, values, .. } in &self.dimensions {
            runs_each /= values.len();
            let node = &values[n / runs_each % values.len()];
            set::apply(&mut fields, target, node, arm);
            let value = node.value.plain();
            if values.len() > 1 {
                label.push(format!("{key}={value}"));
            }
            settings.push((key.clone(), value));
        }
        Combination { label: label.join(", "), settings, fields }
    }
}

/// Collects the settings of a `[sweep]`. The parser returns dotted keys as nested tables.
fn collect(
    table: &[Field],
    prefix: &str,
    file: &[Field],
    settings: &mut Vec<Override>,
    problems: &mut Vec<Problem>,
) {
    for field in table {
        let key = format!("{prefix}{}", field.key);
        let place = format!("key sweep.{key}");
        let refuse = |what: String| Problem::new(&field.node.at, &place, what);
        let values = match &field.node.value {
            Value::Table(inner) => {
                collect(inner, &format!("{key}."), file, settings, problems);
                continue;
            }
            Value::Integer(count) if key == "seeds" => seeds(*count, file).map_err(refuse),
            Value::List(nodes) if nodes.is_empty() => {
                Err(refuse("has no values; give one or more".to_owned()))
            }
            Value::List(nodes) if nodes.len() > VALUES_MAX => {
                Err(refuse(format!("has more than {VALUES_MAX} values; use fewer")))
            }
            Value::List(nodes) => Ok(nodes.clone()),
            Value::Text(text) => {
                set::parse_values(text, &field.node.at).map_err(|problem| refuse(problem.what))
            }
            other => Err(refuse(format!("{} is not allowed; use a list", other.shown()))),
        };
        let key = if key == "seeds" { "seed".to_owned() } else { key };
        match values {
            Ok(values) => settings.push(Override { key, at: field.node.at.clone(), values }),
            Err(problem) => problems.push(problem),
        }
    }
}

/// Returns `count` seeds, starting at the file's own seed.
fn seeds(count: i64, file: &[Field]) -> Result<Vec<Node>, String> {
    let first = match find(file, "seed").map(|field| &field.node.value) {
        Some(Value::Integer(seed)) => *seed,
        _ => 1,
    };
    let limit = i64::try_from(RUNS_MAX).unwrap_or(i64::MAX);
    match first.checked_add(count) {
        Some(end) if (1..=limit).contains(&count) => Ok((first..end)
            .map(|seed| Node { at: Origin::File, value: Value::Integer(seed) })
            .collect()),
        _ => Err(format!("{count} is not allowed; use a number of seeds from 1 to {RUNS_MAX}")),
    }
}
