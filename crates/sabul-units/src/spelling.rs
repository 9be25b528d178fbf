//! Which known word a mistyped one meant, for messages.

/// The known word that a mistyped one most likely meant; the first of several as near.
///
/// A word that lacks only the unit at the end of a known one is near too.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer than any word known here: not a slip of the finger.
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

/// The known words that a mistyped one may mean, the most likely first; at most three. A word that only lacks its end is
/// near too.
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

/// Letters to insert, drop, change or swap with their neighbour to make one word the other.
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
    fn the_nearest_word_is_named_only_if_it_is_near() {
        let known = ["rate_mbps", "delay_ms", "loss"];
        assert_eq!(nearest("rate_mpbs", &known), Some("rate_mbps"));
        assert_eq!(nearest("los", &known), Some("loss"));
        assert_eq!(nearest("delay", &known), Some("delay_ms"));
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
    }

    #[test]
    fn all_near_words_are_named_the_nearest_first_and_no_other() {
        let known = ["bic", "bbr1", "bbr3", "sabul2026", "sabul2003"];
        assert_eq!(near("bbr", &known), ["bbr1", "bbr3"]);
        assert_eq!(near("sabul", &known), ["sabul2026", "sabul2003"]);
        assert_eq!(near("sabul2004", &known), ["sabul2003", "sabul2026"]);
        assert!(near("vegas", &known).is_empty() && near("", &known).is_empty());
        assert!(near("b", &known).is_empty());
    }

    #[test]
    fn two_letters_swapped_are_one_slip() {
        assert_eq!(distance("tpc", "tcp"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
