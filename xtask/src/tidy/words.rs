//! Word list: names and comments use standard terms, not the words that the glossary rejects.

use std::sync::LazyLock;

use regex::Regex;

use super::file::{File, Finding};
use super::rust_text::code_of;

/// Words that no defined name contains: verbs of persons, and metaphors with a standard term.
const AVOIDED: &[&str] = &[
    "hear",
    "hears",
    "heard",
    "tell",
    "tells",
    "told",
    "telling",
    "heed",
    "believe",
    "believes",
    "ask",
    "asks",
    "asked",
    "asking",
    "whoever",
    "nobody",
    "somebody",
    "luck",
    "road",
    "jail",
    "want",
    "wants",
    "forget",
    "forgets",
    "forgotten",
    "owe",
    "owes",
    "owed",
    "hungry",
    "guest",
    "guests",
];
/// Words that begin no sentence of a comment or document.
const OPENINGS: &str = "What|Who|Whoever|Of";
/// Verbs of persons that no comment or document contains.
const VERBS: &str = "[Ww]ants?|[Ff]orgets?|[Ff]orgot|[Ff]orgotten|[Oo]wes?|[Oo]wed";

/// Defined names contain no word of [`AVOIDED`].
pub(crate) fn check_names(file: &File) -> Vec<Finding> {
    static DEFINED: LazyLock<Regex> = LazyLock::new(|| {
        // Items, variables, fields and parameters.
        Regex::new(r"\b(?:fn|struct|enum|trait|mod|type|const|static|let mut|let)\s+(\w+)|\b([a-z_]\w*):\s")
            .expect("the pattern is constant")
    });
    let mut findings = Vec::new();
    for (index, line) in code_of(&file.text).lines().enumerate() {
        for found in DEFINED.captures_iter(line) {
            let name = found.get(1).or_else(|| found.get(2)).map_or("", |name| name.as_str());
            if let Some(word) = words(name).find(|word| AVOIDED.contains(&word.as_str())) {
                let what = format!("the name `{name}` contains `{word}`");
                findings.push(file.finding(index + 1, what, "use a term of docs/manual/words.md"));
            }
        }
    }
    findings
}

/// No sentence of a comment or document begins with a word of [`OPENINGS`], and no comment or document contains a word of
/// [`VERBS`].
pub(crate) fn check_sentences(file: &File) -> Vec<Finding> {
    static OPENING: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(&format!(r"(?:^|[a-z)`\]][.:!?] )({OPENINGS}) "))
            .expect("the pattern is constant")
    });
    static VERB: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(&format!(r"(?:^|[^\w`'-])({VERBS})(?:$|[^\w`'-])"))
            .expect("the pattern is constant")
    });
    let mut findings = Vec::new();
    let prose = file
        .text
        .lines()
        .enumerate()
        .filter_map(|(index, line)| Some((index, prose_of(&file.path, line)?)));
    for (index, prose) in prose {
        if let Some(found) = OPENING.captures(prose) {
            let what = format!("the sentence begins with `{}`", &found[1]);
            findings.push(file.finding(index + 1, what, "begin with the noun that it is about"));
        }
        if let Some(found) = VERB.captures(prose) {
            let what = format!("the text contains the verb `{}`", &found[1]);
            findings.push(file.finding(index + 1, what, "use a verb for what the code does"));
        }
    }
    findings
}

/// Returns the text of a line that readers read: a comment, a line of a document, or a line of a long text in TOML.
fn prose_of<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    static RUST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^(?:.*[;,{}()] |\s*)//[/!]?\s+(.*)$").expect("the pattern is constant")
    });
    static SCRIPT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^(?:.* |)#\s+(.*)$").expect("the pattern is constant"));
    let (_, extension) = path.rsplit_once('.')?;
    if path.starts_with("docs/results/") {
        return None;
    }
    let comment = |pattern: &Regex| {
        pattern.captures(line).and_then(|found| found.get(1)).map(|text| text.as_str())
    };
    match extension {
        "rs" => comment(&RUST),
        "sh" | "py" => comment(&SCRIPT),
        "toml" => comment(&SCRIPT).or(Some(line)),
        "md" => Some(line),
        _ => None,
    }
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
        let rust = "/// What it is.\n// of a kind\n//! Of two.\nlet what = 1; // Whoever\n\
                    let text = \"Of two\";\n";
        let inside = format!("f(); // A set. {} two\n", "Of");
        let lines = |path: &str, text: &str| -> Vec<usize> {
            check_sentences(&file(path, text)).iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines("transfer/a/src/a.rs", rust), [1, 3]);
        assert_eq!(lines("transfer/a/src/a.rs", &inside), [1]);
        assert_eq!(lines("docs/a.md", "Who is it?\nWhat?\nIt is. Of what\n"), [1, 3]);
        assert_eq!(lines("a.sh", "#!/bin/sh\n# What it is\necho Of all # Of all\n"), [2, 3]);
        assert_eq!(lines("a.py", "# Who it is\n"), [1]);
        assert_eq!(lines("a.toml", "a = 1 # Of two\nWhat is it\n"), [1, 2]);
        assert!(lines("docs/results/2026/README.md", "Of two.\n").is_empty());
    }

    #[test]
    fn a_verb_of_a_person_in_a_comment_is_found() {
        let rust = "// The peer owes an ACK.\n/// Takes `wants`.\nlet wants = 1;\n//! Forget it\n";
        let findings = check_sentences(&file("transfer/a/src/a.rs", rust));
        let lines: Vec<_> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 4]);
        assert_eq!(findings[0].what, "the text contains the verb `owes`");
    }
}
