//! Escaping of text from a peer, so that the text cannot control a terminal.

use std::fmt::{self, Write};

/// Formats the bytes of a name for a terminal or a log.
///
/// Bytes that are not UTF-8 become U+FFFD. Control characters and characters that change the
/// direction of writing are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a [u8]);

/// Whether a character controls a terminal (cursor, escape sequence) or changes the direction of
/// writing.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Whether a text needs no escaping.
pub(crate) fn is_printable(text: &str) -> bool {
    !text.chars().any(steers)
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in String::from_utf8_lossy(self.0).chars() {
            if steers(c) {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_name_is_escaped_for_the_terminal() {
        let shown = Printable(b"a\x1b[2J\n\xFF\xE2\x80\xAEb").to_string();
        assert_eq!(shown, "a\\u{1b}[2J\\n\u{FFFD}\\u{202e}b");
        assert!(is_printable(&shown) && is_printable("caf\u{e9} \u{4f60}\u{597d}"));
        assert!(!is_printable("\u{9b}31m") && !is_printable("a\u{2067}b"));
    }
}
