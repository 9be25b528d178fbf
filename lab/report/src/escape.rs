//! Escaping of text for XML, HTML, Markdown and terminals.

/// Replaces characters that XML 1.0 forbids even as references by the replacement character.
fn legal(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        _ => c,
    }
}

/// Escapes text for XML or HTML, in content or in a quoted attribute.
pub(crate) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars().map(legal) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// Escapes text for a Markdown table cell, as one line.
pub(crate) fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Returns one line of text for a terminal. Control characters, including escape sequences, become
/// spaces.
pub(crate) fn terminal(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><img src=x onerror=\"a('b')\">&\u{0}\u{2028}\\";

    #[test]
    fn xml_text_is_escaped() {
        let safe = xml(HOSTILE);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{0}']), "{safe}");
        assert!(safe.starts_with("&lt;/script&gt;"));
    }

    #[test]
    fn markdown_cells_escape_bars_and_newlines() {
        assert_eq!(markdown("a|b\nc*<i>"), "a\\|b c\\*&lt;i>");
    }

    #[test]
    fn terminals_get_no_escape_sequences() {
        assert_eq!(terminal("a\u{1b}[31mb\r\n"), "a [31mb  ");
    }
}
