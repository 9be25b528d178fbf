//! Axes: labels, ranges and ticks.

use crate::format::{
    LARGEST, Unit, decade, fixed, index, minus, short, significant, suffix, usable, whole,
};

/// Description of an axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The quantity, for example `goodput`.
    pub label: String,
    /// The unit of the data, for example `b/s`; empty for a bare number. Units with SI prefixes are
    /// shown with the best prefix: 4.4e8 `b/s` is shown as 440 on an axis in `Mb/s`.
    pub unit: String,
    /// Logarithmic axis. Values that are not positive are gaps.
    pub log: bool,
    /// Lower and upper end in the unit of the data. The data determines the range if it is `None`
    /// or invalid (ends not finite, not increasing, not positive on a log axis).
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// Returns a linear axis whose range follows from the data.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { label: label.into(), unit: unit.into(), log: false, range: None }
    }

    /// Makes the axis logarithmic.
    #[must_use]
    pub fn with_log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Sets the range from `low` to `high`, in the unit of the data. Values outside the range are
    /// cut off.
    #[must_use]
    pub fn with_range(mut self, low: f64, high: f64) -> Self {
        self.range = Some((low, high));
        self
    }

    /// Returns whether the axis can show a value.
    pub(crate) fn can_show(&self, value: f64) -> bool {
        usable(value) && (!self.log || value >= 1.0 / LARGEST)
    }

    /// Returns the caller's range if it is valid.
    pub(crate) fn wanted_range(&self) -> Option<(f64, f64)> {
        self.range.filter(|(low, high)| {
            self.can_show(*low) && self.can_show(*high) && low < high && !level(*low, *high)
        })
    }

    /// Returns label and shown unit in one text: `goodput (Mb/s)`.
    pub(crate) fn caption(&self, unit: &str) -> String {
        match (self.label.is_empty(), unit.is_empty()) {
            (false, false) => format!("{} ({unit})", self.label),
            (true, _) => unit.to_owned(),
            (false, true) => self.label.clone(),
        }
    }
}

/// Rule for the range of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// From the smallest to the largest value. Used for the time axis.
    Exact,
    /// Extended to the next ticks, and to zero if zero is near. Used for values.
    Round,
    /// Like `Round`, but always includes zero. Used for bars.
    FromZero,
}

/// Mapping of values to positions along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
    /// Logarithmic scale.
    pub(crate) log: bool,
}

/// Returns whether two ends are too close for `f64` to represent ticks between them.
fn level(low: f64, high: f64) -> bool {
    high - low <= 1e-12 * low.abs().max(high.abs()) || high - low < 1e-290
}

impl Scale {
    /// Returns the scale of an axis for some data, with about `count` ticks. `None` if no value can
    /// be drawn.
    pub(crate) fn fit(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        fit: Fit,
        count: usize,
    ) -> Option<Self> {
        let log = axis.log;
        let (low, high) = values
            .filter(|v| axis.can_show(*v))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if low > high {
            return None;
        }
        if let Some((low, high)) = axis.wanted_range() {
            return Some(Self { low, high, log });
        }
        let scale = if log {
            Self::fit_log(low, high, fit)
        } else {
            Self::fit_linear(low, high, fit, count)
        };
        Some(scale)
    }

    fn fit_linear(mut low: f64, mut high: f64, fit: Fit, count: usize) -> Self {
        if fit != Fit::Exact {
            // Zero is included if it costs less than three fifths of the height.
            let to_zero =
                |near: f64, far: f64| fit == Fit::FromZero || near <= 0.6 * far || level(near, far);
            if low >= 0.0 && to_zero(low, high) {
                low = 0.0;
            } else if high <= 0.0 && to_zero(-high, -low) {
                high = 0.0;
            }
        }
        if level(low, high) {
            // A single value gets some margin on both sides. Zero is the lower end, because most
            // quantities are not negative.
            let room = low.abs() * 0.05;
            (low, high) = if room > 1e-281 { (low - room, high + room) } else { (0.0, 1.0) };
        }
        if fit != Fit::Exact {
            // A wider range may need a larger step. The ends have to be ticks of the final step.
            for _ in 0..3 {
                let step = step(high - low, count);
                let (down, up) = (low / step + 1e-9, high / step - 1e-9);
                (low, high) = (low.min(down.floor() * step), high.max(up.ceil() * step));
            }
        }
        Self { low, high, log: false }
    }

    fn fit_log(low: f64, high: f64, fit: Fit) -> Self {
        if fit == Fit::Exact && !level(low, high) {
            return Self { low, high, log: true };
        }
        let below = |v: f64| {
            let one = 10f64.powi(decade(v));
            [5.0, 2.0].into_iter().map(|m| m * one).find(|x| *x <= v * 1.000_001).unwrap_or(one)
        };
        let above = |v: f64| {
            let one = 10f64.powi(decade(v));
            [1.0, 2.0, 5.0]
                .into_iter()
                .map(|m| m * one)
                .find(|x| *x >= v * 0.999_999)
                .unwrap_or(one * 10.0)
        };
        let (mut a, mut b) = (below(low), above(high));
        if level(a, b) || fit == Fit::FromZero {
            // The bar of the smallest value needs a visible length.
            a /= 2.0;
        }
        if level(low, high) {
            b *= 2.0;
        }
        Self { low: a, high: b, log: true }
    }

    /// Returns the position of a value: 0 at the lower end, 1 at the upper end, NaN if the value
    /// has no position.
    pub(crate) fn fraction(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Returns about `count` ticks of this scale, in the best unit.
    pub(crate) fn ticks(&self, unit: &str, count: usize) -> Ticks {
        if self.log { self.log_ticks(unit, count) } else { self.linear_ticks(unit, count) }
    }

    /// Returns the unit for values of this scale. A log axis with few decades uses the prefix of
    /// its middle. With many decades, the caller's unit stays and each label has its own letter.
    pub(crate) fn unit(&self, unit: &str) -> Unit {
        if !self.log {
            // An end of exactly 1000 M is better than 1 G, because the data lies below the end.
            Unit::for_size(unit, self.low.abs().max(self.high.abs()) * 0.999)
        } else if self.high / self.low <= 1.001e4 {
            Unit::for_size(unit, self.low.sqrt() * self.high.sqrt())
        } else {
            Unit::plain(unit)
        }
    }

    fn linear_ticks(&self, unit: &str, count: usize) -> Ticks {
        let largest = self.low.abs().max(self.high.abs());
        let shown = self.unit(unit);
        let step = step(self.high - self.low, count);
        let shown_largest = largest / shown.divisor;
        // Beyond the prefix of the unit, thousands are abbreviated by a letter.
        let (by, letter) = if (1e5..1e18).contains(&shown_largest) {
            let power = decade(shown_largest).div_euclid(3) * 3;
            (shown.divisor * 10f64.powi(power), suffix(power))
        } else {
            (shown.divisor, "")
        };
        let decimals = usize::try_from(-decade(step / by * 1.000_001)).unwrap_or(0);
        let write = |at: f64| {
            if at.abs() < step / 2.0 {
                "0".to_owned()
            } else if decimals > 6 || at.abs() / by >= 1e9 {
                let digits = decade(at.abs()) - decade(step) + 1;
                significant(at / by, usize::try_from(digits).unwrap_or(1))
            } else {
                format!("{}{letter}", fixed(at / by, decimals))
            }
        };
        let first = (self.low / step - 1e-6).ceil();
        let at = (0..50)
            .map(|i| (first + f64::from(i)) * step)
            .take_while(|v| *v <= self.high + step * 1e-6)
            .map(|v| Tick { at: v, label: minus(&write(v)) })
            .collect();
        Ticks { labelled: at, minor: Vec::new(), unit: shown.name, divisor: shown.divisor }
    }

    fn log_ticks(&self, unit: &str, count: usize) -> Ticks {
        let shown = self.unit(unit);
        let (from, to) = (decade(self.low), decade(self.high));
        let decades = usize::try_from(to - from).unwrap_or(0);
        let every = i32::try_from(decades.div_ceil(count.max(2))).unwrap_or(1).max(1);
        let inside = |v: &f64| *v >= self.low * 0.999_999 && *v <= self.high * 1.000_001;
        let of_decade = |p: i32, multiples: &[f64]| -> Vec<f64> {
            multiples.iter().map(|m| m * 10f64.powi(p)).filter(inside).collect()
        };
        let span = (self.high / self.low).log10();
        let wanted: Vec<f64> = if span < 0.7 {
            // Within one decade, linear ticks are easier to read.
            let linear = Self { log: false, ..*self };
            linear.linear_ticks("", count).labelled.iter().map(|t| t.at).filter(inside).collect()
        } else if span <= count as f64 / 2.5 {
            (from..=to).flat_map(|p| of_decade(p, &[1.0, 2.0, 5.0])).collect()
        } else {
            (from..=to)
                .filter(|p| p.rem_euclid(every) == 0)
                .flat_map(|p| of_decade(p, &[1.0]))
                .collect()
        };
        let minor = if decades <= 6 && span >= 0.7 {
            let all = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
            (from..=to).flat_map(|p| of_decade(p, &all)).collect()
        } else if every > 1 {
            Vec::new()
        } else {
            (from..=to).flat_map(|p| of_decade(p, &[1.0])).collect()
        };
        let labelled = wanted
            .into_iter()
            .map(|at| Tick { at, label: minus(&short(at / shown.divisor)) })
            .collect();
        Ticks { labelled, minor, unit: shown.name, divisor: shown.divisor }
    }
}

/// One labelled position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// The value in the unit of the data.
    pub(crate) at: f64,
    /// Text at the tick.
    pub(crate) label: String,
}

/// All ticks of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ticks {
    /// Ticks with text.
    pub(crate) labelled: Vec<Tick>,
    /// Grid lines without text.
    pub(crate) minor: Vec<f64>,
    /// The unit of the labels.
    pub(crate) unit: String,
    /// Label = value of the data ÷ this, letters aside.
    pub(crate) divisor: f64,
}

/// Returns the step of 1, 2 or 5 × 10^n that divides a span into about `count` parts, and never
/// into more than twice as many.
fn step(span: f64, count: usize) -> f64 {
    let rough = span / count.max(1) as f64;
    let power = 10f64.powi(decade(rough));
    let times = rough / power;
    let nice = if times < 1.5 {
        1.0
    } else if times < 3.5 {
        2.0
    } else if times < 7.5 {
        5.0
    } else {
        10.0
    };
    nice * power
}

/// Returns the number of ticks for a length in pixels, from 2 to 10.
pub(crate) fn tick_count(pixels: f64, apart: f64) -> usize {
    index(f64::from(whole(pixels / apart))).clamp(2, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &Ticks) -> Vec<&str> {
        ticks.labelled.iter().map(|t| t.label.as_str()).collect()
    }

    fn fitted(axis: &Axis, values: &[f64]) -> Scale {
        Scale::fit(axis, values.iter().copied(), Fit::Round, 6).unwrap()
    }

    #[test]
    fn ticks_cover_data_of_any_magnitude() {
        for (low, high) in [
            (0.0, 1.0),
            (3.0, 17.0),
            (-5.0, 5.0),
            (-900.0, -899.0),
            (0.0, 1e12),
            (1e12, 1.000_001e12),
            (1e-9, 3e-9),
            (-1e150, 1e150),
            (0.0, 5e-324),
        ] {
            let scale = fitted(&Axis::new("v", ""), &[low, high]);
            assert!(scale.low <= low && scale.high >= high, "{low}..{high}: {scale:?}");
            let ticks = scale.ticks("", 6);
            let count = ticks.labelled.len();
            assert!((2..=14).contains(&count), "{low}..{high} has {count} ticks");
            let slack = (scale.high - scale.low) * 1e-5;
            assert!(ticks.labelled[0].at <= low + slack, "{low}..{high}: {ticks:?}");
            assert!(ticks.labelled[count - 1].at >= high - slack, "{low}..{high}: {ticks:?}");
            let mut texts = labels(&ticks);
            texts.dedup();
            assert_eq!(texts.len(), count, "labels of {low}..{high} differ: {ticks:?}");
        }
    }

    #[test]
    fn log_ticks_cover_data_of_any_span() {
        for (low, high) in
            [(1.0, 1000.0), (3e-9, 2e12), (440.0, 440.0), (1e-140, 1e140), (20.0, 30.0)]
        {
            let scale = fitted(&Axis::new("v", "").with_log(), &[low, high]);
            assert!(scale.low <= low && scale.high >= high, "{low}..{high}: {scale:?}");
            let ticks = scale.ticks("", 6);
            let count = ticks.labelled.len();
            assert!((2..=16).contains(&count), "{low}..{high}: {ticks:?}");
            for tick in &ticks.labelled {
                let at = scale.fraction(tick.at);
                assert!((-1e-6..=1.000_001).contains(&at), "{tick:?} of {scale:?}");
            }
        }
    }

    #[test]
    fn rates_are_labelled_with_a_suitable_prefix() {
        let scale = fitted(&Axis::new("goodput", "b/s"), &[1e8, 4.4e8]);
        let ticks = scale.ticks("b/s", 6);
        assert_eq!(ticks.unit, "Mb/s");
        assert_eq!(labels(&ticks), ["0", "100", "200", "300", "400", "500"]);
    }

    #[test]
    fn other_units_keep_their_name_and_shorten_their_numbers() {
        let scale = fitted(&Axis::new("sent", "packets"), &[0.0, 1.5e6]);
        let ticks = scale.ticks("packets", 3);
        assert_eq!(ticks.unit, "packets");
        assert_eq!(labels(&ticks), ["0", "0.5M", "1.0M", "1.5M"]);
    }

    #[test]
    fn decades_are_labelled_once_each() {
        let scale = fitted(&Axis::new("rate", "b/s").with_log(), &[1e3, 1e9]);
        assert_eq!(
            labels(&scale.ticks("b/s", 7)),
            ["1000", "10k", "100k", "1M", "10M", "100M", "1G"]
        );
        let scale = fitted(&Axis::new("rtt", "s").with_log(), &[0.001, 0.1]);
        let ticks = scale.ticks("s", 6);
        assert_eq!(ticks.unit, "ms");
        assert_eq!(labels(&ticks), ["1", "2", "5", "10", "20", "50", "100"]);
    }

    #[test]
    fn one_value_gets_a_range_around_it() {
        for value in [0.0, 5.0, -5.0, 1e12, -1e-9] {
            for fit in [Fit::Exact, Fit::Round, Fit::FromZero] {
                let scale = Scale::fit(&Axis::new("v", ""), [value].into_iter(), fit, 5).unwrap();
                assert!(scale.low <= value && value <= scale.high && scale.low < scale.high);
            }
        }
    }

    #[test]
    fn an_invalid_range_is_ignored() {
        let nan = f64::NAN;
        for (low, high) in [(nan, 1.0), (1.0, 1.0), (2.0, 1.0), (0.0, f64::INFINITY)] {
            let axis = Axis::new("v", "").with_range(low, high);
            assert_eq!(fitted(&axis, &[0.0, 10.0]), fitted(&Axis::new("v", ""), &[0.0, 10.0]));
        }
        assert_eq!(Axis::new("v", "").with_log().with_range(0.0, 9.0).wanted_range(), None);
        assert_eq!(Axis::new("v", "").with_range(0.0, 9.0).wanted_range(), Some((0.0, 9.0)));
    }

    #[test]
    fn data_without_drawable_values_has_no_scale() {
        let none = [f64::NAN, f64::INFINITY, 1e200];
        assert_eq!(Scale::fit(&Axis::new("v", ""), none.into_iter(), Fit::Round, 5), None);
        let axis = Axis::new("v", "").with_log();
        assert_eq!(Scale::fit(&axis, [0.0, -1.0].into_iter(), Fit::Round, 5), None);
    }
}
