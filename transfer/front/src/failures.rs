//! Messages for failures of single files: with the machine's name, and grouped by kind.

use sabul::internal::Printable;
use sabul::{Failure, FailureCode};

/// Ours: number of failures of one kind from which they are grouped into one line.
const MANY: usize = 4;

/// Names of the two machines of a copy, as in `host:path`. `None` is this machine.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    /// Machine of the sources.
    pub source: Option<String>,
    /// Machine of the destination.
    pub destination: Option<String>,
}

impl Machines {
    /// Returns the machine that a failure concerns.
    fn of(&self, code: FailureCode) -> Option<&str> {
        use FailureCode as Code;
        match code {
            Code::NotFound | Code::Unreadable | Code::Changed => self.source.as_deref(),
            Code::Permission | Code::NoSpace | Code::Unwritable => self.destination.as_deref(),
            _ => None,
        }
    }

    /// Returns the message with the machine's name before the path.
    pub fn place(&self, code: FailureCode, message: &str) -> String {
        match (self.of(code), message.split_once('\'')) {
            (None, _) => message.to_owned(),
            (Some(machine), Some((front, rest))) => format!("{front}'{machine}:{rest}"),
            (Some(machine), None) => format!("{machine}: {message}"),
        }
    }
}

/// Failure with a message of the form `cannot VERB 'PATH': REASON`.
struct Kind<'a> {
    verb: &'a str,
    folder: &'a str,
    reason: &'a str,
}

fn kind(message: &str) -> Option<Kind<'_>> {
    let rest = message.strip_prefix("cannot ")?;
    let (verb, rest) = rest.split_once(" '")?;
    let (path, reason) = rest.split_once("': ")?;
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    Some(Kind { verb, folder, reason })
}

/// Returns at most `most` lines for these failures, of `total` in all.
pub fn lines(
    failures: &[(Vec<u8>, Failure)],
    total: u64,
    machines: &Machines,
    most: usize,
) -> Vec<String> {
    let (mut lines, mut listed) = (Vec::new(), 0_u64);
    let mut is_listed = vec![false; failures.len()];
    for (at, (path, failure)) in failures.iter().enumerate() {
        if is_listed[at] {
            continue;
        }
        if lines.len() == most {
            break;
        }
        let own = kind(&failure.message);
        let alike: Vec<usize> = match &own {
            Some(own) => {
                (at..failures.len()).filter(|&it| is_alike(own, &failures[it].1)).collect()
            }
            None => vec![at],
        };
        let (text, covered) = match own {
            Some(own) if alike.len() >= MANY => {
                let message = format!(
                    "cannot {} {} '{}': {} ({})",
                    own.verb,
                    if own.verb == "read" { "from" } else { "into" },
                    shared_folder(alike.iter().map(|&it| &failures[it].1)),
                    own.reason,
                    format_args!("{} entries", alike.len())
                );
                (message, alike)
            }
            _ => (with_path(path, failure), vec![at]),
        };
        lines.push(machines.place(failure.code, &text));
        listed += covered.len() as u64;
        covered.into_iter().for_each(|it| is_listed[it] = true);
    }
    if total > listed {
        lines.push(format!("and {} more failures", total - listed));
    }
    lines
}

fn is_alike(own: &Kind<'_>, failure: &Failure) -> bool {
    kind(&failure.message).is_some_and(|it| (it.verb, it.reason) == (own.verb, own.reason))
}

/// Returns the deepest directory that contains all of these paths.
fn shared_folder<'a>(failures: impl Iterator<Item = &'a Failure>) -> String {
    let folders = failures.filter_map(|failure| kind(&failure.message)).map(|kind| kind.folder);
    let shared =
        folders.map(|folder| folder.split('/').collect::<Vec<_>>()).reduce(|one, other| {
            one.into_iter().zip(other).take_while(|(a, b)| a == b).map(|(name, _)| name).collect()
        });
    match shared.unwrap_or_default().join("/") {
        folder if folder.is_empty() => ".".to_owned(),
        folder => folder,
    }
}

/// Returns the message, with the path of the entry in front if the message names no path.
fn with_path(path: &[u8], failure: &Failure) -> String {
    let (path, text) = (Printable(path).to_string(), &failure.message);
    let name = path.rsplit('/').next().unwrap_or(&path);
    let names_a_path = text.contains('\'') || text.contains(name);
    if names_a_path { text.clone() } else { format!("'{path}': {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_far() -> Machines {
        Machines { destination: Some("far".to_owned()), source: None }
    }

    fn failed(path: &str, code: FailureCode, message: &str) -> (Vec<u8>, Failure) {
        (path.as_bytes().to_vec(), Failure::new(code, message))
    }

    #[test]
    fn many_failures_of_one_kind_are_one_line_with_host_and_folder() {
        let denied = |n| {
            let message = format!("cannot write 'content/d{}/f{n}': Permission denied", n % 2);
            failed(&format!("d/f{n}"), FailureCode::Permission, &message)
        };
        let mut failures: Vec<_> = (0..51).map(denied).collect();
        failures.insert(7, failed("x", FailureCode::NotFound, "cannot read 'x': No such file"));
        assert_eq!(
            lines(&failures, 52, &to_far(), 20),
            [
                "cannot write into 'far:content': Permission denied (51 entries)",
                "cannot read 'x': No such file"
            ]
        );
    }

    #[test]
    fn a_few_failures_are_a_line_each_and_the_rest_is_counted() {
        let failures: Vec<_> = (0..3)
            .map(|n| {
                let message = format!("cannot write 'f{n}': reason {n}");
                failed(&format!("f{n}"), FailureCode::Unwritable, &message)
            })
            .collect();
        assert_eq!(
            lines(&failures, 9, &to_far(), 2),
            [
                "cannot write 'far:f0': reason 0",
                "cannot write 'far:f1': reason 1",
                "and 7 more failures"
            ]
        );
    }

    #[test]
    fn a_failure_names_the_host_of_a_remote_source() {
        let machines = Machines { source: Some("far".to_owned()), destination: None };
        let place = |code, text| machines.place(code, text);
        assert_eq!(
            place(FailureCode::NotFound, "cannot read 'nope': No such file or directory"),
            "cannot read 'far:nope': No such file or directory"
        );
        assert_eq!(place(FailureCode::Permission, "cannot write 'a': no"), "cannot write 'a': no");
        assert_eq!(place(FailureCode::Changed, "it grew"), "far: it grew");
        let plain = failed("d/a", FailureCode::Refused, "not here");
        assert_eq!(lines(&[plain], 1, &machines, 5), ["'d/a': not here"]);
    }
}
