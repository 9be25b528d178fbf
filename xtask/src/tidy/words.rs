//! Word list: names and comments use standard terms, not the words that the glossary rejects.

use std::sync::LazyLock;

use regex::Regex;

use super::file::{File, Finding};
use super::rust_text::code_of;

/// Words that no defined name contains: verbs of persons, and metaphors with a standard term.
const AVOIDED: &[&str] = &[
    "hear", "hears", "heard", "tell", "tells", "told", "telling", "heed", "believe", "believes",
    "ask", "asks", "asked", "asking", "whoever", "nobody", "somebody", "luck", "road", "jail",
];
/// Words that begin no sentence of a comment or document.
const OPENINGS: &str = "What|Who|Whoever|Of";

/// Defined names contain no word of [`AVOIDED`].
pub(crate) fn check_names(file: &File) -> Vec<Finding> {
    static DEFINED: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:fn|struct|enum|trait|mod|type|const|static)\s+(\w+)")
            .expect("the pattern is constant")
    });
    let mut findings = Vec::new();
    for (index, line) in code_of(&file.text).lines().enumerate() {
        for found in DEFINED.captures_iter(line) {
            let name = &found[1];
            if let Some(word) = words(name).find(|word| AVOIDED.contains(&word.as_str())) {
                let what = format!("the name `{name}` contains `{word}`");
                findings.push(file.finding(index + 1, what, "use a term of docs/manual/words.md"));
            }
        }
    }
    findings
}

/// No line of a comment or document begins with a word of [`OPENINGS`] and a blank.
pub(crate) fn check_openings(file: &File) -> Vec<Finding> {
    static COMMENT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(&format!(r"^\s*//[/!]?\s+({OPENINGS}) ")).expect("the pattern is constant")
    });
    static PROSE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(&format!(r"^({OPENINGS}) ")).expect("the pattern is constant"));
    let is_document = file.path.ends_with(".md") && !file.path.starts_with("docs/results/");
    let pattern = match () {
        () if file.is_rust() => &*COMMENT,
        () if is_document => &*PROSE,
        () => return Vec::new(),
    };
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if let Some(found) = pattern.captures(line) {
            let what = format!("the sentence begins with `{}`", &found[1]);
            findings.push(file.finding(index + 1, what, "begin with the noun that it is about"));
        }
    }
    findings
}

/// Returns the words of a name in snake case or camel case, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[A-Z]?[a-z0-9]+|[A-Z]+").expect("the pattern is constant"));
    WORD.find_iter(name).map(|word| word.as_str().to_lowercase()).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    #[test]
    fn an_avoided_word_in_a_defined_name_is_found() {
        let text = "fn task() {}\nfn is_asked() {}\nstruct Teller;\nenum FirstAsk {}\n// fn ask\n";
        let findings = check_names(&file("transfer/a/src/a.rs", text));
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 4]);
        assert_eq!(findings[0].what, "the name `is_asked` contains `asked`");
    }

    #[test]
    fn a_sentence_that_begins_with_a_pronoun_is_found() {
        let rust = "/// What it is.\n// of a kind\n//! Of two.\nlet what = 1; // Whoever\n";
        let lines = |path: &str, text: &str| -> Vec<usize> {
            check_openings(&file(path, text)).iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines("transfer/a/src/a.rs", rust), [1, 3]);
        assert_eq!(lines("docs/a.md", "Who is it?\nWhat?\n"), [1]);
        assert!(lines("docs/results/2026/README.md", "Of two.\n").is_empty());
    }
}
