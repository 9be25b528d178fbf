//! Spelling suggestions for unknown words in messages.

/// Returns the known word nearest to a mistyped word; the first of several equally near words.
///
/// A word that lacks only the unit at the end of a known word also matches.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer than every known word, so not a typing error.
    if word.is_empty() || word.len() > 64 {
        return None;
    }
    let lacks_unit =
        |near: &&&str| near.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'));
    if let Some(near) = known.iter().find(lacks_unit) {
        return Some(near);
    }
    let distances = known.iter().map(|near| (distance(word, near), *near));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (near.len() / 3).max(1)).then_some(near)
}

/// Returns up to three known words near a mistyped word, the most likely first. A word that lacks
/// only its end also matches.
pub fn near<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    if word.is_empty() || word.len() > 64 {
        return Vec::new();
    }
    let mut words: Vec<_> = known
        .iter()
        .map(|near| (distance(word, near), *near))
        .filter(|(distance, near)| {
            *distance <= (near.len() / 3).max(1) || (word.len() > 1 && near.starts_with(word))
        })
        .collect();
    words.sort_by_key(|(distance, _)| *distance);
    words.into_iter().take(3).map(|(_, near)| near).collect()
}

/// Edit distance: letters to insert, delete, change or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for (i, x) in a.iter().enumerate() {
        let [before, above, row] = &mut rows;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = above[j] + usize::from(x != y);
            row[j + 1] = change.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_suggested_only_if_it_is_close() {
        let known = ["rate_mbps", "delay_ms", "loss"];
        assert_eq!(nearest("rate_mpbs", &known), Some("rate_mbps"));
        assert_eq!(nearest("los", &known), Some("loss"));
        assert_eq!(nearest("delay", &known), Some("delay_ms"));
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
    }

    #[test]
    fn all_close_words_are_suggested_nearest_first() {
        let known = ["bic", "bbr1", "bbr3", "sabul2026", "sabul2003"];
        assert_eq!(near("bbr", &known), ["bbr1", "bbr3"]);
        assert_eq!(near("sabul", &known), ["sabul2026", "sabul2003"]);
        assert_eq!(near("sabul2004", &known), ["sabul2003", "sabul2026"]);
        assert!(near("vegas", &known).is_empty() && near("", &known).is_empty());
        assert!(near("b", &known).is_empty());
    }

    #[test]
    fn two_swapped_letters_count_as_one_edit() {
        assert_eq!(distance("tpc", "tcp"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
