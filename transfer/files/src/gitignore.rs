//! Rule files in the syntax of gitignore(5), translated to the patterns of [`super::Rules`].

use sabul_wire::control::{Rule, RuleKind};

/// Members of the classes of characters that a pattern may name, as in `[[:digit:]]`; ASCII only, as in git.
const CLASSES: [(&str, &[(char, char)]); 12] = [
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("blank", &[(' ', ' '), ('\t', '\t')]),
    ("cntrl", &[('\0', '\x1F'), ('\x7F', '\x7F')]),
    ("digit", &[('0', '9')]),
    ("graph", &[('!', '~')]),
    ("lower", &[('a', 'z')]),
    ("print", &[(' ', '~')]),
    ("punct", &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

/// Returns the rules of a file. There the last matching pattern decides, so the rules are in reverse order. A line that
/// is no pattern is an error with the reason.
pub fn rules(text: &[u8]) -> Vec<Result<Rule, String>> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let lines = text.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).map(without_blanks);
    let lines = lines.filter(|line| !matches!(line, [] | [b'#', ..]));
    let mut rules: Vec<_> = lines.map(rule).collect();
    rules.reverse();
    rules
}

/// Removes blanks at the end, except a blank after a backslash.
fn without_blanks(line: &[u8]) -> &[u8] {
    let mut end = 0;
    let mut bytes = line.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b' ' => {}
            b'\\' => end = bytes.next().map_or(line.len(), |(at, _)| at + 1),
            _ => end = at + 1,
        }
    }
    &line[..end]
}

fn rule(line: &[u8]) -> Result<Rule, String> {
    let shown = || String::from_utf8_lossy(line);
    let line = std::str::from_utf8(line).map_err(|_| format!("'{}' is not UTF-8", shown()))?;
    let (kind, pattern) = match line.strip_prefix('!') {
        Some(rest) => (RuleKind::Include, rest),
        None => (RuleKind::Exclude, line),
    };
    // A slash before the end binds the pattern to the directory of the file.
    let is_whole = pattern.strip_suffix('/').unwrap_or(pattern).contains('/');
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
    if matches!(pattern, "" | "/") {
        return Err(format!("'{line}' matches nothing; remove the line"));
    }
    let mut translated = if is_whole { "/".to_owned() } else { String::new() };
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        match next {
            '[' => match Class::read(&mut rest) {
                Some(class) => class.write(&mut translated),
                None => return Err(format!("'{line}' has an invalid class of characters")),
            },
            '\\' => match rest.next() {
                Some(quoted) => translated.extend(['\\', quoted]),
                None => return Err(format!("'{line}' ends in a single backslash")),
            },
            // Braces are literal in gitignore(5), and alternatives in a rule.
            '{' | '}' => translated.extend(['\\', next]),
            _ => translated.push(next),
        }
    }
    Ok(Rule { kind, pattern: translated.into_bytes() })
}

/// Class of characters, as in `[a-z_]`.
struct Class {
    is_negated: bool,
    members: Vec<(char, char)>,
}

impl Class {
    /// Reads a class after its `[`, as git does; `None` if the class does not end or has an unknown name.
    fn read(rest: &mut std::str::Chars<'_>) -> Option<Self> {
        let mut next = rest.next()?;
        let is_negated = matches!(next, '!' | '^');
        if is_negated {
            next = rest.next()?;
        }
        let mut members = Vec::new();
        // The character before, if a range may begin there.
        let mut before = None;
        loop {
            let after = rest.as_str();
            let named = after.strip_prefix(':').filter(|_| next == '[');
            let named =
                named.map(|named| named.split_once(']')).map_or(Some(None), |it| it.map(Some))?;
            let named = named.and_then(|(name, after)| Some((name.strip_suffix(':')?, after)));
            if let Some((name, after)) = named {
                let (_, ranges) = CLASSES.iter().find(|(known, _)| *known == name)?;
                members.extend_from_slice(ranges);
                *rest = after.chars();
                before = None;
            } else if let ('-', Some(from), false) = (next, before, after.starts_with(']')) {
                members.push((from, quoted(rest.next()?, rest)?));
                before = None;
            } else {
                let member = quoted(next, rest)?;
                members.push((member, member));
                before = Some(member);
            }
            next = rest.next()?;
            if next == ']' {
                break;
            }
        }
        members.retain(|(from, to)| from <= to);
        Some(Self { is_negated, members })
    }

    /// Writes the class as a pattern of a rule. There a backslash quotes nothing in a class, `]` must be first and `-`
    /// last. No class matches a slash.
    fn write(self, pattern: &mut String) {
        let has =
            |member: char| self.members.iter().any(|(from, to)| (*from..=*to).contains(&member));
        let special = |member: &char| matches!(member, '!' | '^' | '-' | ']' | '/');
        let others = ('\x01'..='\x7F').filter(|member| has(*member) && !special(member));
        let others: String = others.collect();
        let beyond = self.members.iter().filter(|(_, to)| !to.is_ascii());
        let beyond: String =
            beyond.map(|(from, to)| format!("{}-{to}", (*from).max('\u{80}'))).collect();
        let signs: Vec<char> = "!^-".chars().filter(|sign| has(*sign)).collect();
        let bracket = if has(']') { "]" } else { "" };
        if !self.is_negated && bracket.is_empty() && others.is_empty() && beyond.is_empty() {
            // A leading sign would negate the class.
            let signs: Vec<String> = signs.iter().map(|sign| format!("\\{sign}")).collect();
            *pattern += &format!("{{{}}}", signs.join(","));
            return;
        }
        let negation = if self.is_negated { "!" } else { "" };
        let slash = if self.is_negated { "/" } else { "" };
        let signs: String = signs.into_iter().collect();
        *pattern += &format!("[{negation}{bracket}{slash}{others}{beyond}{signs}]");
    }
}

/// The character, or the next one after a backslash.
fn quoted(character: char, rest: &mut std::str::Chars<'_>) -> Option<char> {
    if character == '\\' { rest.next() } else { Some(character) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Option<String> {
        let mut rules = rules(line.as_bytes());
        let rule = rules.pop().unwrap().ok()?;
        Some(String::from_utf8(rule.pattern).unwrap())
    }

    #[test]
    fn a_file_becomes_rules_in_reverse_order() {
        let text = b"\xEF\xBB\xBF*.o\n# no\n\nbuild/\n/top\na/b\n!keep.o  \n\\#x\nend\\ \n{a}\n**/deep/*.c\nx/**\r\n";
        let rules: Vec<(bool, String)> = rules(text)
            .into_iter()
            .map(Result::unwrap)
            .map(|Rule { kind, pattern }| {
                (kind == RuleKind::Include, String::from_utf8(pattern).unwrap())
            })
            .collect();
        let expected = [
            (false, "/x/**"),
            (false, "/**/deep/*.c"),
            (false, "\\{a\\}"),
            (false, "end\\ "),
            (false, "\\#x"),
            (true, "keep.o"),
            (false, "/a/b"),
            (false, "/top"),
            (false, "build/"),
            (false, "*.o"),
        ];
        assert_eq!(rules, expected.map(|(takes, pattern)| (takes, pattern.to_owned())));
    }

    #[test]
    fn classes_of_characters_keep_their_meaning() {
        for (line, pattern) in [
            ("[a-c]", "[abc]"),
            ("[!a-c]", "[!/abc]"),
            ("[^]x]", "[!]/x]"),
            ("[]-]", "[]-]"),
            ("[[:digit:]_]", "[0123456789_]"),
            ("[a\\]b]", "[]ab]"),
            ("[[:a]", "[:[a]"),
            ("[!]", ""),
            ("[^^]", "[!/^]"),
            ("[\\^]", "{\\^}"),
            ("[--!]", "{\\-}"),
            ("[.-0]", "[.0]"),
            ("[z-a]", "[z]"),
        ] {
            let found = translated(line).map(|found| {
                let sorted: std::collections::BTreeSet<char> = found.chars().collect();
                (found, sorted)
            });
            match found {
                Some((found, sorted)) => {
                    assert_eq!(sorted, pattern.chars().collect(), "{line} {found}");
                }
                None => assert_eq!(pattern, "", "{line}"),
            }
        }
        for bad in ["/", "!", "[[:letters:]]", "[a", "a\\"] {
            assert_eq!(translated(bad), None, "{bad}");
        }
    }
}
