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

    /// Returns the text of the failure, with the machine's name before the path.
    pub fn place(&self, failure: &Failure) -> String {
        match self.of(failure.code) {
            Some(machine) => failure.on_machine(machine),
            None => failure.message.clone(),
        }
    }
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
        let own = failure.file_action();
        let kind = own.map(|own| (own.action, own.reason));
        let is_alike = |failure: &Failure| {
            failure.file_action().map(|other| (other.action, other.reason)) == kind
        };
        let alike: Vec<usize> = match own {
            Some(_) => (at..failures.len()).filter(|&it| is_alike(&failures[it].1)).collect(),
            None => vec![at],
        };
        let (shown, covered) = match own {
            Some(own) if alike.len() >= MANY => {
                let direction = if own.action == "read" { "from" } else { "into" };
                let action = format!("{} {direction}", own.action);
                let folder = shared_folder(alike.iter().map(|&it| &failures[it].1));
                let reason = format!("{} ({} entries)", own.reason, alike.len());
                (Failure::of_file(failure.code, &action, folder, reason), alike)
            }
            _ => (with_path(path, failure), vec![at]),
        };
        lines.push(machines.place(&shown));
        listed += covered.len() as u64;
        covered.into_iter().for_each(|it| is_listed[it] = true);
    }
    if total > listed {
        lines.push(format!("and {} more failures", total - listed));
    }
    lines
}

/// Returns the deepest directory that contains all of these paths.
fn shared_folder<'a>(failures: impl Iterator<Item = &'a Failure>) -> String {
    let folders = failures.filter_map(|failure| {
        let path = failure.file_action()?.path;
        Some(path.rsplit_once('/').map_or("", |(folder, _)| folder))
    });
    let shared =
        folders.map(|folder| folder.split('/').collect::<Vec<_>>()).reduce(|one, other| {
            one.into_iter().zip(other).take_while(|(a, b)| a == b).map(|(name, _)| name).collect()
        });
    match shared.unwrap_or_default().join("/") {
        folder if folder.is_empty() => ".".to_owned(),
        folder => folder,
    }
}

/// Returns the failure, with the path of the entry in front if the text names no path.
fn with_path(path: &[u8], failure: &Failure) -> Failure {
    let path = Printable(path).to_string();
    if failure.names_file() {
        failure.clone()
    } else {
        Failure::new(failure.code, format!("'{path}': {failure}"))
    }
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
        let place = |code, text: &str| machines.place(&Failure::new(code, text));
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
