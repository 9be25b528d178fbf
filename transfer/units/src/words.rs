//! Formatters for rates and counts.

/// Formats a rate in bit/s with a decimal unit, such as `941.2 Mbit/s`.
pub fn show_rate(bps: f64) -> String {
    match bps {
        bps if bps >= 1e9 => format!("{:.2} Gbit/s", bps / 1e9),
        bps if bps >= 1e6 => format!("{:.1} Mbit/s", bps / 1e6),
        bps if bps >= 1e3 => format!("{:.1} kbit/s", bps / 1e3),
        bps => format!("{bps:.0} bit/s"),
    }
}

/// Formats a number of things: `1 file`, `2 files`.
pub fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_with_units_and_counts_with_plurals() {
        assert_eq!(show_rate(941_200_000.0), "941.2 Mbit/s");
        assert_eq!(show_rate(2.5e9), "2.50 Gbit/s");
        assert_eq!(
            (count(1, "file"), count(2, "file")),
            ("1 file".to_owned(), "2 files".to_owned())
        );
    }
}
