//! Line protocol between the two ends of an ssh connection, embedded in other output such as
//! banners.

use std::collections::VecDeque;

use sabul_content::Printable;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// Prefix of each line of the protocol.
pub(super) const MARK: &str = "@sabul ";
/// Version of the line protocol.
pub(super) const LINES: u32 = 1;
/// Ours: maximum length of a line in bytes; longer lines are cut. A ticket has at most 8192 bytes.
const LINE_MAX: usize = 16 << 10;
/// Ours: maximum number of bytes before the ready line. A message of the day is smaller.
const BEFORE_MAX: usize = 1 << 20;
/// Ours: number of foreign lines kept for error messages.
const TAIL_LINES: usize = 5;
/// Ours: maximum length of each kept line, in characters.
const TAIL_LINE_MAX: usize = 200;

/// Parsed line of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProtocolLine {
    /// The script found no sabul. Holds the system (`uname -sm`) and the places searched.
    Missing { system: String, searched: String },
    /// The script requests the program for this system, compressed if the system has gzip.
    Wants { system: String, has_gzip: bool },
    /// The received program is damaged.
    Damaged { why: String },
    /// The script executes this program of this version.
    Found { path: String, version: String },
    /// The program could not listen.
    Failed { why: String },
    /// The program listens.
    Ready { protocol: u32, version: String, ticket: String },
    /// A line of the protocol that this version does not support.
    Unknown,
}

impl ProtocolLine {
    /// Parses a line. Returns `None` for foreign output. A banner without a line end may precede
    /// the prefix.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (_, text) = line.split_once(MARK)?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        // A tab precedes each field that may contain spaces.
        let mut parts = rest.split('\t').map(|part| part.trim().to_owned());
        let mut part = || parts.next().unwrap_or_default();
        Some(match word {
            "missing" => Self::Missing { system: part(), searched: part() },
            "wants" => Self::Wants { system: part(), has_gzip: part() == "gzip" },
            "damaged" => Self::Damaged { why: part() },
            "found" => Self::Found { path: part(), version: part() },
            "failed" => Self::Failed { why: part() },
            "ready" => {
                let words: Vec<_> = rest.split_whitespace().collect();
                match words.as_slice() {
                    [lines, protocol, version, ticket] if lines.parse() == Ok(LINES) => {
                        let Ok(protocol) = protocol.parse() else { return Some(Self::Unknown) };
                        let [version, ticket] = [version, ticket].map(|word| (*word).to_owned());
                        Self::Ready { protocol, version, ticket }
                    }
                    _ => Self::Unknown,
                }
            }
            _ => Self::Unknown,
        })
    }
}

/// Bounded reader of lines. Keeps the last foreign lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    seen: usize,
    tail: VecDeque<String>,
}

/// Next event of the reader.
#[derive(Debug)]
pub(super) enum LineEvent {
    ProtocolLine(ProtocolLine),
    /// More than [`BEFORE_MAX`] bytes without an expected line.
    TooMuch,
    End,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, seen: 0, tail: VecDeque::new() }
    }

    /// Returns the next line of the protocol.
    pub(super) async fn next(&mut self) -> LineEvent {
        loop {
            let Some(line) = self.line().await else { return LineEvent::End };
            let text = escaped(line.trim_ascii_end());
            match ProtocolLine::read(&text) {
                Some(said) => return LineEvent::ProtocolLine(said),
                None => self.keep(&text),
            }
            if self.seen > BEFORE_MAX {
                return LineEvent::TooMuch;
            }
        }
    }

    /// Returns a line without its end, cut at [`LINE_MAX`], or `None` at the end of input.
    async fn line(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            // A read error counts as the end of input.
            let chunk = self.reader.fill_buf().await.ok().filter(|chunk| !chunk.is_empty());
            let Some(chunk) = chunk else { return (!line.is_empty()).then_some(line) };
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let used = end.map_or(chunk.len(), |end| end + 1);
            let text = &chunk[..end.unwrap_or(chunk.len())];
            line.extend_from_slice(&text[..text.len().min(LINE_MAX.saturating_sub(line.len()))]);
            self.reader.consume(used);
            self.seen = self.seen.saturating_add(used);
            if end.is_some() || self.seen > BEFORE_MAX {
                return Some(line);
            }
        }
    }

    fn keep(&mut self, text: &str) {
        let line: String = text.trim().replace('\t', " ").chars().take(TAIL_LINE_MAX).collect();
        if line.is_empty() {
            return;
        }
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// Returns the reader, behind the last line.
    pub(super) fn into_reader(self) -> R {
        self.reader
    }

    /// Returns the last foreign lines, for an error message.
    pub(super) fn tail(&self) -> String {
        let lines: Vec<&str> = self.tail.iter().map(String::as_str).collect();
        match lines.as_slice() {
            [] => "there was no output".to_owned(),
            lines => format!("last output: {}", lines.join(" / ")),
        }
    }
}

/// Returns a line as escaped text, which cannot control a terminal or a log. Tabs are kept, because
/// they separate the fields of a line.
fn escaped(bytes: &[u8]) -> String {
    let parts = bytes.split(|&byte| byte == b'\t').map(|part| Printable(part).to_string());
    parts.collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> (Vec<ProtocolLine>, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut lines = Lines::new(text);
            let mut said = Vec::new();
            while let LineEvent::ProtocolLine(line) = lines.next().await {
                said.push(line);
            }
            (said, lines.tail())
        })
    }

    #[test]
    fn protocol_lines_are_found_among_banners() {
        let text =
            b"Welcome!\r\n\n\xff\xfe no text @sab\nprompt> @sabul found /opt/a b\tsabul 0.1.0\r\n\
            @sabul ready 1 4 0.1.0 sabul1-abc\nbye\n";
        let (said, tail) = read(text);
        let path = "/opt/a b".to_owned();
        let found = ProtocolLine::Found { path, version: "sabul 0.1.0".to_owned() };
        let [version, ticket] = ["0.1.0", "sabul1-abc"].map(str::to_owned);
        assert_eq!(said, [found, ProtocolLine::Ready { protocol: 4, version, ticket }]);
        assert!(tail.contains("Welcome!") && tail.ends_with("bye"), "{tail}");
    }

    #[test]
    fn remote_lines_are_escaped_for_the_terminal() {
        let said = read(
            b"\x1b[2Jbanner\n@sabul missing \x1b[31mLinux\t\x9b2J\xc2\x9bx\n@sabul wants \x1b\n\
            @sabul damaged \x1b[31mx\n@sabul found /\x1bx\tsabul \x1b[5m9\n@sabul failed \x1b]0;o\x07\n\
            @sabul ready 1 4 \x1b[31m \x1b\n",
        );
        let shown = format!("{said:?}");
        assert_eq!(said.0.len(), 6, "{shown}");
        // Debug formatting escapes ESC, and adds a backslash to text that is already escaped.
        assert!(!shown.replace("\\\\u{", "").contains("\\u{"), "{shown}");
        assert!(said.1.contains("\\u{1b}[2Jbanner"), "{}", said.1);
    }

    #[test]
    fn protocol_lines_of_other_versions_are_recognised() {
        let (said, _) =
            read(b"@sabul ready 2 4 0.1.0 x y\n@sabul ready 1 x 0 t\n@sabul\n@sabul what\n");
        assert_eq!(said, [ProtocolLine::Unknown, ProtocolLine::Unknown, ProtocolLine::Unknown]);
    }

    #[test]
    fn endless_remote_output_is_read_only_up_to_a_limit() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for unit in *b"x\n" {
            let text = vec![unit; 3 << 20];
            runtime.block_on(async {
                let mut lines = Lines::new(&text[..]);
                assert!(matches!(lines.next().await, LineEvent::TooMuch));
                assert!(lines.tail().len() < 2000);
            });
        }
        assert_eq!(read(b"").1, "there was no output");
    }
}
