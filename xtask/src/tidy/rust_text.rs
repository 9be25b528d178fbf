//! Rust source with comments, literals or tests blanked out, line for line.

/// Returns the code alone: comments and the contents of literals become spaces, lines stay in
/// place.
pub(crate) fn code_of(source: &str) -> String {
    let mut blanker = Blanker { rest: source, out: String::with_capacity(source.len()) };
    while let Some(first) = blanker.rest.chars().next() {
        let rest = blanker.rest;
        let after_word = blanker.out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if rest.starts_with("//") {
            blanker.blank(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            blanker.blank(block_comment_length(rest));
        } else if let Some(length) = raw_string_length(rest).filter(|_| !after_word) {
            blanker.blank(length);
        } else if first == '"' {
            blanker.blank(quoted_length(rest, '"'));
        } else if first == '\'' && is_char_literal(rest) {
            blanker.blank(quoted_length(rest, '\''));
        } else {
            blanker.keep(first.len_utf8());
        }
    }
    blanker.out
}

/// Returns [`code_of`] without the items under `#[cfg(test)]` and similar attributes.
pub(crate) fn shipped_code_of(source: &str) -> String {
    let mut code = code_of(source);
    let mut from = 0;
    while let Some(start) = code[from..].find("#[cfg(").map(|at| at + from) {
        let attribute_end = code[start..].find(']').map_or(code.len(), |at| at + start + 1);
        let attribute = &code[start..attribute_end];
        let mut words = attribute.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if !words.any(|word| word == "test") || attribute.contains("not(") {
            from = attribute_end;
            continue;
        }
        from = item_end(&code, attribute_end);
        let mut blanker = Blanker { rest: &code[start..from], out: code[..start].to_owned() };
        blanker.blank(from - start);
        let blanked = blanker.out;
        code = blanked + &code[from..];
    }
    code
}

/// Whether the file has only tests, benchmarks or examples.
pub(crate) fn is_test_path(path: &str) -> bool {
    let folder = |name: &str| path.split('/').rev().skip(1).any(|part| part == name);
    path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
        || ["tests", "benches", "examples", "fuzz"].into_iter().any(folder)
}

struct Blanker<'a> {
    rest: &'a str,
    out: String,
}

impl Blanker<'_> {
    fn keep(&mut self, length: usize) {
        let (kept, rest) = self.rest.split_at(length);
        self.out.push_str(kept);
        self.rest = rest;
    }

    /// Replaces every byte by a space, so that offsets and lines stay.
    fn blank(&mut self, length: usize) {
        let (gone, rest) = self.rest.split_at(length);
        self.out.extend(gone.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

/// Block comments nest in Rust.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn raw_string_length(text: &str) -> Option<usize> {
    let body = ["r", "br", "cr"].into_iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let content = body[hashes..].strip_prefix('"')?;
    let opening = text.len() - content.len();
    let closing = format!("\"{}", "#".repeat(hashes));
    Some(content.find(&closing).map_or(text.len(), |at| opening + at + closing.len()))
}

/// Returns the length of a literal that starts with `quote` and has `\` escapes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Distinguishes `'a'` from the lifetime `'a`.
fn is_char_literal(text: &str) -> bool {
    let mut after = text.chars().skip(1);
    match after.next() {
        Some('\\') => true,
        Some(_) => after.next() == Some('\''),
        None => false,
    }
}

/// Returns the line of an offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Returns the end of the item that follows `from`: its `;`, or its closing brace.
pub(crate) fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            // The end of the enclosing block, behind a field or an arm.
            '}' | ')' | ']' if depth == 0 => return from + at,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && c == '}' {
                    return from + at + 1;
                }
            }
            ';' if depth == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_spaces_and_lines_stay() {
        let source = "let a = \"x // \\\" y\"; // note\n/* a /* b */ c */ let b = 'q';\nz";
        let code = code_of(source);
        assert_eq!(code.len(), source.len());
        assert_eq!(code.lines().count(), 3);
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words, ["let", "a", "=", ";", "let", "b", "=", ";", "z"]);
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let code = code_of("let a = r#\"one \" two\"#; let b = br\"x\"; over\"s\"");
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(words, ["let", "a", "=", ";", "let", "b", "=", ";", "over"]);
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        let source = "fn f<'a>(x: &'a str, q: char) -> bool { q == '\\'' || q == '\"' }";
        let code = code_of(source);
        assert!(code.contains("&'a str") && code.ends_with('}'), "{code}");
        assert!(!code.contains('"'), "{code}");
    }

    #[test]
    fn shipped_code_has_no_test_items() {
        let source = "use a;\n#[cfg(test)]\nuse gone;\n#[cfg(any(test, feature = \"x\"))]\n\
            mod tests { fn f() { gone(); } }\n#[cfg(not(test))]\nfn kept() {}\n";
        let code = shipped_code_of(source);
        assert!(!code.contains("gone"), "{code}");
        assert!(code.contains("fn kept") && code.lines().count() == source.lines().count());
    }

    #[test]
    fn test_paths_are_known_by_folder_or_name() {
        for path in
            ["transfer/a/tests/b.rs", "transfer/a/src/b/tests.rs", "transfer/a/benches/b.rs"]
        {
            assert!(is_test_path(path), "{path}");
        }
        for path in ["transfer/a/src/tests_of_fit.rs", "transfer/a/src/lib.rs", "tests"] {
            assert!(!is_test_path(path), "{path}");
        }
    }
}
