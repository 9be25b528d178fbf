//! The ssh program as its user writes it, and how it is run.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// What scp tells OpenSSH too: no terminal, no forwarding, and no other command than ours, whatever the
/// user's configuration has for logins to this host.
const OPENSSH: &[&str] = &[
    "-x",
    "-T",
    "-oClearAllForwardings=yes",
    "-oForwardAgent=no",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
];
/// Longest time that reading ssh's configuration may take.
const CONFIGURATION: Duration = Duration::from_secs(5);

/// The ssh program and the options that the user gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    words: Vec<String>,
}

/// A command line that cannot be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitError {
    /// There is nothing in it.
    Empty,
    /// A quote has no end.
    Quote(char),
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("name a program, such as 'ssh -p 2222'"),
            Self::Quote(quote) => write!(f, "the {quote} in it has no end"),
        }
    }
}

impl std::error::Error for SplitError {}

impl Program {
    /// A program with options in front of the host, such as `ssh -p 2222 -J gate`; words are told apart as
    /// by a shell, with quotes and `\`, and nothing is expanded.
    ///
    /// # Errors
    /// If it is empty or a quote has no end.
    pub fn parse(text: &str) -> Result<Self, SplitError> {
        let words = split(text)?;
        if words.first().is_none_or(String::is_empty) {
            return Err(SplitError::Empty);
        }
        Ok(Self { words })
    }

    /// The program's name, as it is looked for.
    pub fn name(&self) -> &str {
        &self.words[0]
    }

    /// Whether it takes the options of OpenSSH, by its name.
    fn is_openssh(&self) -> bool {
        Path::new(self.name()).file_name() == Some(OsStr::new("ssh"))
    }

    /// Runs `remote` at the other end, with pipes for its input, output and messages. What ssh asks reaches the terminal.
    pub(super) fn command(&self, account: &str, remote: &str) -> Command {
        let mut command = Command::new(self.name());
        if self.is_openssh() {
            command.args(OPENSSH);
        }
        command.args(&self.words[1..]).arg("--").arg(account).arg(remote);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// The host's name or address that ssh dials for this account, by its configuration, and whether it goes
    /// through another host. None where that cannot be had.
    pub(super) async fn resolve(&self, account: &str) -> Option<Resolved> {
        if !self.is_openssh() {
            return None;
        }
        let mut command = Command::new(self.name());
        command.args(&self.words[1..]).args(["-G", "--", account]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(CONFIGURATION, command.output()).await.ok()?.ok()?;
        Resolved::read(&String::from_utf8_lossy(&output.stdout))
    }
}

/// What ssh's configuration makes of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) host: String,
    pub(super) goes_through_another: bool,
}

impl Resolved {
    /// Reads what `ssh -G` prints.
    fn read(text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(' ')?.trim()))
        };
        let is_set = |key| value(key).is_some_and(|value| value != "none");
        Some(Self {
            host: value("hostname").filter(|host| !host.is_empty())?.to_owned(),
            goes_through_another: is_set("proxyjump") || is_set("proxycommand"),
        })
    }
}

fn split(text: &str) -> Result<Vec<String>, SplitError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            _ if sign.is_whitespace() => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match signs.next().ok_or(SplitError::Quote(sign))? {
                        end if end == sign => break,
                        '\\' if sign == '"' => {
                            word.push(signs.next().ok_or(SplitError::Quote(sign))?);
                        }
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(signs.next()),
            _ => word.get_or_insert_default().push(sign),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_as_by_a_shell() {
        for (text, words) in [
            ("ssh", &["ssh"][..]),
            ("  ssh -p 2222  -J x ", &["ssh", "-p", "2222", "-J", "x"]),
            (
                r#"ssh -o "ProxyCommand=nc %h %p" 'a b'"#,
                &["ssh", "-o", "ProxyCommand=nc %h %p", "a b"],
            ),
            (r#"my\ ssh "a\"b" '' $HOME"#, &["my ssh", "a\"b", "", "$HOME"]),
        ] {
            assert_eq!(Program::parse(text).unwrap().words, words, "{text}");
        }
        assert_eq!(Program::parse(" "), Err(SplitError::Empty));
        assert_eq!(Program::parse("''"), Err(SplitError::Empty));
        assert_eq!(Program::parse("ssh 'x"), Err(SplitError::Quote('\'')));
        assert_eq!(Program::parse("ssh \"x\\"), Err(SplitError::Quote('"')));
    }

    #[test]
    fn the_users_options_come_before_the_host_and_the_host_is_no_option() {
        let program = Program::parse("/opt/bin/ssh -p 22").unwrap();
        let command = program.command("me@host", "true");
        let words: Vec<_> = command.as_std().get_args().filter_map(OsStr::to_str).collect();
        assert!(words.ends_with(&["-p", "22", "--", "me@host", "true"]), "{words:?}");
        assert!(words.contains(&"-T"));
        let other = Program::parse("rsh").unwrap();
        let command = other.command("host", "true");
        let words: Vec<_> = command.as_std().get_args().filter_map(OsStr::to_str).collect();
        assert_eq!(words, ["--", "host", "true"]);
    }

    #[test]
    fn the_configuration_names_the_real_host() {
        let text = "user me\nhostname 192.0.2.7\nport 22\nproxyjump gate\n";
        let resolved = Resolved::read(text).unwrap();
        assert_eq!(resolved.host, "192.0.2.7");
        assert!(resolved.goes_through_another);
        let text = "hostname host.example\nproxycommand none\n";
        assert!(!Resolved::read(text).unwrap().goes_through_another);
        assert_eq!(Resolved::read("hostname \n"), None);
        assert_eq!(Resolved::read("usage: ssh\n"), None);
    }
}
