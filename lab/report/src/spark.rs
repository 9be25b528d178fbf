//! Sparkline: a series in one line of text.

use crate::format::usable;

/// Eighths of a block, lowest first.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns one block character per value, from the smallest (`▁`) to the largest (`█`). A value
/// that is not finite becomes a space. If all values are equal, all are the middle block.
///
/// # Examples
/// ```
/// assert_eq!(sabul_report::sparkline(&[0.0, 1.0, f64::NAN, 7.0]), "▁▂ █");
/// ```
#[must_use]
pub fn sparkline(values: &[f64]) -> String {
    let drawable = || values.iter().copied().filter(|v| usable(*v));
    let least = drawable().fold(f64::INFINITY, f64::min);
    let span = drawable().fold(f64::NEG_INFINITY, f64::max) - least;
    let level = |value: f64| {
        if span > 0.0 { crate::format::index((value - least) / span * 7.0 + 0.5).min(7) } else { 3 }
    };
    values.iter().map(|v| if usable(*v) { LEVELS[level(*v)] } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_get_the_lowest_and_the_highest_block() {
        assert_eq!(sparkline(&[-5.0, 5.0, 0.0]), "▁█▅");
        assert_eq!(sparkline(&[1e12, 0.0]), "█▁");
    }

    #[test]
    fn equal_values_get_equal_blocks_and_missing_values_blanks() {
        assert_eq!(sparkline(&[2.0, 2.0]), "▄▄");
        assert_eq!(sparkline(&[f64::NAN, f64::INFINITY]), "  ");
        assert_eq!(sparkline(&[]), "");
    }
}
