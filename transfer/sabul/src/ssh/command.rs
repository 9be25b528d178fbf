//! The ssh command: parsing of the user's setting, and execution.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::forward::Forward;

/// Options that scp also passes to OpenSSH: no terminal, no forwarding, and no other command than
/// ours, whatever the user's configuration of this host says.
const OPENSSH: &[&str] = &[
    "-x",
    "-T",
    "-oClearAllForwardings=yes",
    "-oForwardAgent=no",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
];
/// Ours: time limit for `ssh -G`.
const CONFIGURATION: Duration = Duration::from_secs(5);

/// The ssh program and the user's options for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    words: Vec<String>,
    /// Options before our own ones.
    forwarding: Vec<String>,
}

/// Error in splitting a command line into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitError {
    /// The command line is empty.
    Empty,
    /// A quote is not closed.
    Quote(char),
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("name a program, such as 'ssh -p 2222'"),
            Self::Quote(quote) => write!(f, "the quote {quote} is not closed"),
        }
    }
}

impl std::error::Error for SplitError {}

impl Default for Program {
    /// The `ssh` of the user.
    fn default() -> Self {
        Self { words: vec!["ssh".to_owned()], forwarding: Vec::new() }
    }
}

impl Program {
    /// Parses a program with options, such as `ssh -p 2222 -J gate`. Words are split like in a
    /// shell, with quotes and `\`; nothing is expanded.
    ///
    /// # Errors
    ///
    /// If the text is empty or a quote is not closed.
    pub fn parse(text: &str) -> Result<Self, SplitError> {
        let words = split(text)?;
        if words.first().is_none_or(String::is_empty) {
            return Err(SplitError::Empty);
        }
        Ok(Self { words, forwarding: Vec::new() })
    }

    /// Returns the name of the program as given.
    pub fn name(&self) -> &str {
        &self.words[0]
    }

    /// Returns the program for use without a user: OpenSSH fails instead of a question for a password or a host key.
    #[must_use]
    pub fn unattended(mut self) -> Self {
        if self.is_openssh() {
            // The first value of an option applies.
            self.words.insert(1, "-oBatchMode=yes".to_owned());
        }
        self
    }

    /// Returns the program with a port at the far end that leads to a server; `None` if the program is not OpenSSH.
    #[must_use]
    pub fn forwarding(mut self, forward: &Forward) -> Option<Self> {
        self.forwarding = forward.options();
        self.is_openssh().then_some(self)
    }

    /// Returns whether the program accepts the options of OpenSSH, judged by its name.
    fn is_openssh(&self) -> bool {
        Path::new(self.name()).file_name() == Some(OsStr::new("ssh"))
    }

    /// Returns the command that runs `remote` on the far end, with pipes for standard input, output
    /// and error. Prompts of ssh use the terminal.
    pub(super) fn command(&self, account: &str, remote: &str) -> Command {
        let mut command = Command::new(self.name());
        if self.is_openssh() {
            command.args(&self.forwarding).args(OPENSSH);
        }
        command.args(&self.words[1..]).arg("--").arg(account).arg(remote);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Returns the host name or address that ssh uses for this account, and whether ssh goes
    /// through another host. `None` if the program is not OpenSSH or the configuration cannot be
    /// read.
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

/// Host as resolved by the configuration of ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) host: String,
    pub(super) goes_through_another: bool,
}

impl Resolved {
    /// Parses the output of `ssh -G`.
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
    fn command_words_are_split_as_by_a_shell() {
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
    fn user_options_precede_the_host_and_the_host_is_never_an_option() {
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
    fn an_unattended_ssh_never_prompts_whatever_the_user_set() {
        let words = |text: &str| Program::parse(text).unwrap().unattended().words;
        let expected = ["ssh", "-oBatchMode=yes", "-oBatchMode=no"];
        assert_eq!(words("ssh -oBatchMode=no"), expected);
        assert_eq!(words("rsh"), ["rsh"], "another program has other options");
    }

    #[test]
    fn the_ssh_configuration_gives_the_real_host() {
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
