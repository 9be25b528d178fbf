//! Log lines of a server: one for each transfer, session and failed request.

use std::net::SocketAddr;

use sabul::internal::Printable;
use sabul::server::{Order, Purpose, ServeSummary, Served};
use sabul::settings::Direction;
use sabul::{Error, Failure, FailureCode};
use sabul_units::{count, show_bytes, show_rate};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::limiter;

/// Ours: maximum number of names of a transfer in one line.
const NAMES_SHOWN: usize = 3;
/// Ours: maximum length of each name in `ps`, in characters.
const NAME_CHARACTERS: usize = 120;

/// Returns the current time, as `2026-11-23T03:04:05Z`.
pub fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let now = now.replace_nanosecond(0).unwrap_or(now);
    now.format(&Rfc3339).unwrap_or_else(|_| now.unix_timestamp().to_string())
}

/// Returns the address of a peer in canonical form: an IPv4 peer of a dual-stack socket gets its
/// IPv4 address.
pub fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// Formats the result of a transfer: client, direction, names, amount and rate.
pub fn transfer_line(served: &Served<'_>) -> String {
    let Served { order, result, .. } = served;
    let peer = canonical(served.peer);
    let what = what(order);
    let (did, would) = words(order);
    match result {
        Ok(report) => {
            let failed = match report.entries_failed {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            let limits = match limiter::shares(&report.channel) {
                shares if shares.is_empty() => String::new(),
                shares => format!("; limited by {shares}"),
            };
            format!(
                "{peer} {did} {what}: {} in {}{failed}, {:.2} s, {}{limits}",
                show_bytes(report.bytes),
                count(report.files, "file"),
                report.elapsed.as_secs_f64(),
                show_rate(report.goodput_bps),
            )
        }
        Err(error @ Error::Failed(Failure { code: FailureCode::Refused, .. })) => {
            format!("{peer} {would} {what} was refused: {error}")
        }
        Err(error) => format!("{peer} {would} {what} failed: {error}"),
    }
}

/// Returns the first names of a request, shortened, for `ps`.
pub(crate) fn names(order: &Order) -> Vec<String> {
    let shown = order.names.iter().take(NAMES_SHOWN);
    shown.map(|name| Printable(name).to_string().chars().take(NAME_CHARACTERS).collect()).collect()
}

/// Formats the first names of a request.
fn what(order: &Order) -> String {
    if order.names.is_empty() && order.purpose == Purpose::Measurement {
        return "a measurement".to_owned();
    }
    let shown = order.names.iter().take(NAMES_SHOWN);
    // An empty name is the served directory itself.
    let name = |name: &Vec<u8>| if name.is_empty() { b"/".to_vec() } else { name.clone() };
    let shown: Vec<_> = shown.map(|it| format!("'{}'", Printable(&name(it)))).collect();
    let rest = order.names.len() - shown.len();
    shown.join(", ") + &if rest > 0 { format!(" and {rest} more") } else { String::new() }
}

/// Returns the words before the names: for a completed and for a failed request.
fn words(order: &Order) -> (&'static str, &'static str) {
    match (order.purpose, order.direction) {
        (Purpose::Listing, _) => ("listed", "listing"),
        (Purpose::Removal, _) => ("removed", "removing"),
        (Purpose::Folders, _) => ("made", "making"),
        (Purpose::Renaming, _) => ("renamed", "renaming"),
        (Purpose::Metadata, _) => ("set metadata of", "setting metadata of"),
        (Purpose::Receipt, _) => ("signed a receipt of", "signing a receipt of"),
        (_, Direction::Send) => ("sent", "sending"),
        (Purpose::Files, Direction::Receive) => ("received into", "receiving into"),
        (_, Direction::Receive) => ("received", "receiving"),
    }
}

/// Returns the word for a purpose in JSON documents.
pub(crate) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Measurement => "measurement",
        Purpose::Stream => "stream",
        Purpose::Listing => "listing",
        Purpose::Removal => "removal",
        Purpose::Folders => "folders",
        Purpose::Renaming => "renaming",
        Purpose::Metadata => "metadata",
        Purpose::Receipt => "receipt",
        _ => "files",
    }
}

/// Formats the totals of a session.
pub fn session_line(summary: &ServeSummary) -> String {
    let mut line = count(summary.transfers, "transfer");
    if summary.answers > 0 {
        line += &format!(", {}", count(summary.answers, "answer"));
    }
    if summary.failed > 0 {
        line += &format!(", {} more failed", summary.failed);
    }
    if summary.entries_failed > 0 {
        line += &format!(", {} failed", count(summary.entries_failed, "file"));
    }
    format!("session over: {line}, {}", show_bytes(summary.bytes))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sabul::Report;

    use super::*;

    #[test]
    fn a_server_log_line_has_peer_files_direction_and_rate() {
        let names = ["a", "b", "c\u{7}", "d"].map(|name| name.as_bytes().to_vec()).to_vec();
        let mut order = Order::new(Direction::Send, Purpose::Files, names);
        let peer = "[::ffff:192.0.2.1]:7".parse().unwrap();
        let mut report = Report::default();
        (report.bytes, report.files, report.entries_failed) = (3 << 20, 4, 1);
        (report.elapsed, report.goodput_bps) = (Duration::from_secs(2), 12_582_912.0);
        let line = transfer_line(&Served::new(peer, &order, Ok(&report)));
        assert_eq!(
            line,
            "192.0.2.1:7 sent 'a', 'b', 'c\\u{7}' and 1 more: 3.0 MiB in 4 files, 1 failed, 2.00 s, 12.6 Mbit/s"
        );
        (order.direction, order.names) = (Direction::Receive, vec![b"in/".to_vec()]);
        let error = Error::Cancelled;
        let line = transfer_line(&Served::new(peer, &order, Err(&error)));
        assert_eq!(line, "192.0.2.1:7 receiving into 'in/' failed: the transfer was cancelled");
        order.names = vec![Vec::new()];
        let line = transfer_line(&Served::new(peer, &order, Err(&error)));
        assert!(line.contains("receiving into '/' failed"), "{line}");
    }

    #[test]
    fn a_log_line_names_the_refused_operation() {
        let peer = "192.0.2.1:7".parse().unwrap();
        let error = Error::Failed(Failure::new(FailureCode::Refused, "not here"));
        for (purpose, direction, line) in [
            (Purpose::Removal, Direction::Receive, "removing 'a' was refused: not here"),
            (Purpose::Folders, Direction::Receive, "making 'a' was refused: not here"),
            (Purpose::Listing, Direction::Send, "listing 'a' was refused: not here"),
            (Purpose::Stream, Direction::Receive, "receiving 'a' was refused: not here"),
            (Purpose::Files, Direction::Receive, "receiving into 'a' was refused: not here"),
        ] {
            let order = Order::new(direction, purpose, vec![b"a".to_vec()]);
            let said = transfer_line(&Served::new(peer, &order, Err(&error)));
            assert_eq!(said, format!("192.0.2.1:7 {line}"));
        }
    }

    #[test]
    fn log_times_are_utc_in_seconds() {
        let now = now();
        assert!(now.len() == 20 && now.starts_with("20") && now.ends_with('Z'), "{now}");
    }
}
