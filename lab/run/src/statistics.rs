//! Statistics of runs, shared by the meter and by comparisons of runs.

/// The mean; `None` of no values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u64);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

/// Standard deviation of a sample; `None` for fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values.iter().copied()).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The median; for an even number of values the mean of the middle two. `None` of no values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// The quantile `share` of sorted values, by nearest rank. Zero of no values.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the length")]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Standard deviation ÷ mean; zero for fewer than two values or a mean of zero. \[SLAC\]
pub fn stability(values: &[f64]) -> f64 {
    match (mean(values.iter().copied()), deviation(values)) {
        (Some(mean), _) if mean <= 0.0 => 0.0,
        (Some(mean), Some(deviation)) => deviation / mean,
        _ => 0.0,
    }
}

/// Jain's index, (Σx)² ÷ (n Σx²); 1 if the sum is zero.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares <= 0.0 { 1.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_follow_their_formulas() {
        // (1 + 3)² ÷ (2 × (1 + 9)) = 0.8.
        assert!((jain(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
        assert!((jain(&[]) - 1.0).abs() < 1e-12);
        // Mean 2, deviations −1, 0, 1: √(2 ÷ 2) ÷ 2 = 0.5.
        assert!((stability(&[1.0, 2.0, 3.0]) - 0.5).abs() < 1e-12);
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert!((quantile(&values, 0.99) - 198.0).abs() < 1e-12);
        assert!((quantile(&values, 0.5) - 100.0).abs() < 1e-12);
        assert!(quantile(&[], 0.5).abs() < 1e-12);
    }

    #[test]
    fn no_values_have_no_mean_and_one_value_has_no_deviation() {
        assert_eq!((mean([]), median(Vec::new()), deviation(&[7.0])), (None, None, None));
        assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(deviation(&[1.0, 3.0]), Some(2.0_f64.sqrt()));
        assert!(stability(&[7.0]).abs() < 1e-12);
    }

    #[test]
    fn the_median_is_the_middle_one_or_the_mean_of_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 30.0]), Some(3.0));
        assert_eq!(median(vec![7.0]), Some(7.0));
    }
}
