//! Grid specification: grid files and their points.

use sabul_units::{Random as _, SeededRandom};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::file::{at, line_of, number, parse, reject_duplicates, text, whole, word};
use crate::params::{Builder, Key, Params, ParamsError, check_range};

/// Most points of one grid.
const POINTS_MAX: u64 = 1_000_000;

/// Spacing of the values of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Equal distances.
    Linear,
    /// Equal ratios.
    Log,
}

/// Values of one parameter in a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The parameter.
    pub key: Key,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    List(Vec<f64>),
    Range { from: f64, to: f64, steps: u64, spread: Spread },
}

impl Axis {
    /// Returns an axis of single values.
    pub const fn list(key: Key, values: Vec<f64>) -> Self {
        Self { key, values: Values::List(values) }
    }

    /// Returns an axis with a range. `steps` counts both ends, and has no effect if values are
    /// drawn at random.
    pub const fn range(key: Key, from: f64, to: f64, steps: u64, spread: Spread) -> Self {
        Self { key, values: Values::Range { from, to, steps, spread } }
    }

    fn len(&self) -> u64 {
        match &self.values {
            Values::List(values) => values.len() as u64,
            Values::Range { steps, .. } => *steps,
        }
    }

    fn value(&self, index: u64) -> f64 {
        match &self.values {
            Values::List(values) => {
                usize::try_from(index).ok().and_then(|i| values.get(i)).copied().unwrap_or(f64::NAN)
            }
            Values::Range { steps, .. } => {
                self.between(index as f64 / steps.saturating_sub(1).max(1) as f64)
            }
        }
    }

    /// Returns the value at `share` of the range.
    fn between(&self, share: f64) -> f64 {
        match &self.values {
            Values::List(values) => values.first().copied().unwrap_or(f64::NAN),
            Values::Range { from, to, spread: Spread::Linear, .. } => from + (to - from) * share,
            Values::Range { from, to, spread: Spread::Log, .. } => {
                (from.ln() + (to.ln() - from.ln()) * share).exp().clamp(*from, *to)
            }
        }
    }

    fn draw(&self, random: &mut SeededRandom) -> f64 {
        match &self.values {
            Values::List(values) => self.value(random.below(values.len() as u64)),
            Values::Range { .. } => self.between(unit(random)),
        }
    }

    /// Returns the centres of the heat map's cells.
    pub(super) fn cells(&self, is_drawn: bool) -> Vec<f64> {
        match &self.values {
            Values::List(values) => values.clone(),
            Values::Range { .. } if is_drawn => {
                (0..20).map(|cell| self.between((f64::from(cell) + 0.5) / 20.0)).collect()
            }
            Values::Range { steps, .. } => (0..*steps).map(|index| self.value(index)).collect(),
        }
    }
}

/// Returns a uniform number from 0 up to, but not including, 1.
pub(super) fn unit(random: &mut SeededRandom) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A grid: fixed parameters, axes, and the selection of points.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Values that all points share.
    pub base: Builder,
    /// The axes.
    pub axes: Vec<Axis>,
    /// Number of points to draw at random; `None`: all combinations.
    pub samples: Option<u64>,
    /// Seed of the draws.
    pub seed: u64,
    /// Horizontal and vertical axis of the heat map.
    pub heat_map: Option<(Key, Key)>,
}

impl Grid {
    /// Returns the number of points.
    pub fn points(&self) -> u64 {
        self.samples.unwrap_or_else(|| self.axes.iter().map(Axis::len).product())
    }

    /// Returns the parameters of a point; `None` if the combination is invalid.
    pub fn point(&self, index: u64) -> Option<Params> {
        let mut builder = self.base.clone();
        // Each point has its own random stream, so the order of draws does not matter.
        let mut random = SeededRandom::new(self.seed).fork(&format!("point/{index}"));
        let mut rest = index;
        for axis in &self.axes {
            let value = if self.samples.is_some() {
                axis.draw(&mut random)
            } else {
                let here = rest % axis.len();
                rest /= axis.len();
                axis.value(here)
            };
            builder = builder.with(axis.key, value);
        }
        builder.build().ok()
    }
}

/// Parses a grid file. The keys are those of a parameter file. A number can also be a list
/// `[1, 2, 3]` or a range `{ from = 1, to = 100, steps = 20, spread = "log" }`.
///
/// The grid has all combinations, or, with `samples = N` (and `seed = S`), N random points. `x` and
/// `y` name the axes of a heat map; the default is the first two axes.
///
/// # Errors
/// If the text is not TOML, a key is unknown, a value is out of range, or there are too many
/// points.
pub fn read_grid(source: &str) -> Result<Grid, ParamsError> {
    let table = parse(source)?;
    let mut grid =
        Grid { base: Params::builder(), axes: Vec::new(), samples: None, seed: 1, heat_map: None };
    let (mut x, mut y) = (None, None);
    let mut given = Vec::new();
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    // The order of the file is the order of the axes.
    entries.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in entries {
        let line = line_of(source, name.span().start);
        let name = name.get_ref().as_ref();
        let placed = |error| at(line, error);
        match (Key::find(name), name) {
            (Some(key), _) => {
                match axis(key, value).map_err(placed)? {
                    Some(axis) => grid.axes.push(axis),
                    None => grid.base = grid.base.with(key, number(name, value).map_err(placed)?),
                }
                given.push((key, line));
            }
            (None, "samples") => {
                grid.samples = Some(whole(name, value, 1, POINTS_MAX).map_err(placed)?);
            }
            (None, "seed") => {
                grid.seed = whole(name, value, 0, u64::MAX >> 1).map_err(placed)?;
            }
            (None, "x") => x = Some((axis_key(name, value).map_err(placed)?, line)),
            (None, "y") => y = Some((axis_key(name, value).map_err(placed)?, line)),
            _ => grid.base = word(grid.base, name, value, &OTHERS).map_err(placed)?,
        }
    }
    reject_duplicates(&given)?;
    check_size(&grid)?;
    grid.heat_map = heat_axes(&grid, x, y)?;
    first_point(&grid)?;
    Ok(grid)
}

const OTHERS: [&str; 4] = ["samples", "seed", "x", "y"];

fn check_size(grid: &Grid) -> Result<(), ParamsError> {
    let sizes = grid.axes.iter().map(Axis::len);
    let all = sizes.fold(1_u64, u64::saturating_mul);
    if grid.samples.is_none() && all > POINTS_MAX {
        return Err(ParamsError::new(format!(
            "the grid has {all} points, more than {POINTS_MAX}: take fewer steps, or draw some \
             of them with `samples = N`"
        )));
    }
    Ok(())
}

fn heat_axes(
    grid: &Grid,
    x: Option<(Key, usize)>,
    y: Option<(Key, usize)>,
) -> Result<Option<(Key, Key)>, ParamsError> {
    for (key, line) in [x, y].into_iter().flatten() {
        if !grid.axes.iter().any(|axis| axis.key == key) {
            let message = format!("'{}' does not vary, so it is no axis", key.name());
            return Err(ParamsError { line: Some(line), message });
        }
    }
    let x = x.map(|(key, _)| key);
    let y = y.map(|(key, _)| key);
    let free =
        |taken: Option<Key>| grid.axes.iter().map(|axis| axis.key).find(|&key| Some(key) != taken);
    let x = x.or_else(|| free(y));
    let y = y.or_else(|| free(x));
    Ok(x.zip(y).filter(|(x, y)| x != y))
}

/// Returns the error of a grid if none of its first 1000 points is valid.
fn first_point(grid: &Grid) -> Result<(), ParamsError> {
    let some = grid.points().min(1000);
    if (0..some).any(|index| grid.point(index).is_some()) {
        return Ok(());
    }
    let builder = grid.axes.iter().fold(grid.base.clone(), |builder, axis| {
        let value = if grid.samples.is_some() { axis.between(0.5) } else { axis.value(0) };
        builder.with(axis.key, value)
    });
    builder.build().map(|_| ()).map_err(|error| {
        ParamsError::new(format!("no point of the grid makes sense; one of them: {error}"))
    })
}

fn axis_key(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Key, ParamsError> {
    let word = text(name, value, "the keys that vary")?;
    Key::find(word).ok_or_else(|| {
        ParamsError::new(format!("{name} = \"{word}\" is not allowed: it is a key that varies"))
    })
}

/// Parses the axis of a list or range; `None` for a plain value.
fn axis(key: Key, value: &Spanned<DeValue<'_>>) -> Result<Option<Axis>, ParamsError> {
    let name = key.name();
    match value.get_ref() {
        DeValue::Array(items) if items.is_empty() => {
            Err(ParamsError::new(format!("'{name}' is an empty list: give it values")))
        }
        DeValue::Array(items) => {
            let values: Result<Vec<f64>, ParamsError> =
                items.iter().map(|item| number(name, item)).collect();
            let values = values?;
            values.iter().try_for_each(|&value| check_range(key, value))?;
            Ok(Some(Axis::list(key, values)))
        }
        DeValue::Table(table) => range(key, table).map(Some),
        _ => check_range(key, number(name, value)?).map(|()| None),
    }
}

fn range(key: Key, table: &DeTable<'_>) -> Result<Axis, ParamsError> {
    let name = key.name();
    let (mut from, mut to, mut steps, mut spread) = (None, None, 10, Spread::Linear);
    for (part, value) in table {
        match part.get_ref().as_ref() {
            "from" => from = Some(number("from", value)?),
            "to" => to = Some(number("to", value)?),
            "steps" => steps = whole("steps", value, 2, POINTS_MAX)?,
            "spread" => {
                spread = match text("spread", value, SPREADS)? {
                    "linear" => Spread::Linear,
                    "log" => Spread::Log,
                    other => {
                        let message = format!("{name}: spread \"{other}\" is not one of {SPREADS}");
                        return Err(ParamsError::new(message));
                    }
                }
            }
            other => {
                return Err(ParamsError::new(format!(
                    "a range has no '{other}': {name} = {{ from = A, to = B, steps = N, \
                     spread = \"log\" }}"
                )));
            }
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err(ParamsError::new(format!("the range of '{name}' needs 'from' and 'to'")));
    };
    check_range(key, from)?;
    check_range(key, to)?;
    if from >= to {
        let message = format!("the range of '{name}' goes from {from} down to {to}: swap them");
        return Err(ParamsError::new(message));
    }
    if spread == Spread::Log && from <= 0.0 {
        let message = format!("the range of '{name}' starts at 0, which no \"log\" spread can");
        return Err(ParamsError::new(message));
    }
    Ok(Axis::range(key, from, to, steps, spread))
}

const SPREADS: &str = "\"linear\", \"log\"";
