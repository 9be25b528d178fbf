//! Messages of the control socket: one line of JSON in each direction.

use sabul_units::{count, show_bytes, show_rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a request in bytes.
pub const REQUEST_MAX: u64 = 4096;
/// Maximum length of an answer in bytes.
pub const ANSWER_MAX: u64 = 1 << 16;

/// Request to a running command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// Report the current state.
    #[serde(rename = "look")]
    Report,
    /// Change settings.
    Set(Change),
}

/// Settings to change. Either all of them change or, after a refusal, none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// Sharing policy of the transfers: `fair`, `high` or `low`.
    pub policy: Option<String>,
    /// Maximum rate of each transfer in bit/s; 0 removes the limit.
    pub rate_limit_bps: Option<u64>,
    /// Maximum total rate of a server in each direction, in bit/s; 0 removes the limit.
    pub rate_limit_total_bps: Option<u64>,
}

/// Answer of a running command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// State after the request.
    Job(JobJson),
    /// Reason for a refusal. Nothing was changed.
    Refused(String),
}

/// A running command: one line of `ps --json`, and the document of `set --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobJson {
    /// Version of this document.
    pub schema: u32,
    /// Process id.
    pub pid: u32,
    /// Command: `cp`, `perf`, `serve` or `perf serve`.
    pub command: String,
    /// Places that the command copies, or the served directory or address.
    pub what: String,
    /// Time since the start, in seconds.
    pub seconds: f64,
    /// Number of running transfers.
    pub transfers: u64,
    /// Content bytes that have arrived so far, including those from earlier attempts.
    pub bytes: u64,
    /// Total content bytes, or the number found so far; null for a pipe, a measurement and a
    /// server.
    pub bytes_total: Option<u64>,
    /// Whether the total is final; otherwise it is a lower bound.
    pub is_total_certain: bool,
    /// New content bytes over the duration of the running transfers, in bit/s.
    pub goodput_bps: f64,
    /// Sharing policy of the transfers; null for a server, whose clients choose the policy.
    pub policy: Option<String>,
    /// Maximum rate of each transfer in bit/s; null without a limit.
    pub rate_limit_bps: Option<u64>,
    /// Maximum total rate of a server in each direction, in bit/s; null without a limit.
    pub rate_limit_total_bps: Option<u64>,
    /// Number of current sessions of a server; null for other commands.
    pub sessions: Option<u64>,
    /// Number of finished transfers of a server; null for other commands.
    pub transfers_done: Option<u64>,
    /// Running transfers of a server, at most 50.
    #[serde(default)]
    pub running: Vec<RunningJson>,
}

/// A running transfer of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunningJson {
    /// Address of the client.
    pub peer: String,
    /// Direction seen from the server: `sending` or `receiving`.
    pub direction: String,
    /// Request of the client: `files` or `measurement`.
    pub purpose: String,
    /// The first paths of the request.
    pub names: Vec<String>,
    /// Time since the start, in seconds.
    pub seconds: f64,
    /// Content bytes that have arrived so far, including those from earlier attempts.
    pub bytes: u64,
    /// Total content bytes, or the number found so far; null if unknown.
    pub bytes_total: Option<u64>,
    /// Whether the total is final; otherwise it is a lower bound.
    pub is_total_certain: bool,
    /// New content bytes over the duration of the transfer, in bit/s.
    pub goodput_bps: f64,
}

impl RunningJson {
    /// Formats the transfer as one line.
    fn line(&self) -> String {
        let what = match (&self.names[..], self.purpose.as_str()) {
            ([], "measurement") => "a measurement".to_owned(),
            // An empty name is the served directory itself.
            ([name], _) if name.is_empty() => "/".to_owned(),
            (names, _) => names.join(" "),
        };
        let come = come(self.bytes, self.bytes_total, self.is_total_certain);
        let (Self { peer, direction, .. }, time) = (self, show_time(self.seconds));
        let rate = show_rate(self.goodput_bps);
        format!("{direction:>18} {time:>8}  {come}, {rate}: {what}, {peer}")
    }
}

/// Formats the amount and the total.
fn come(bytes: u64, total: Option<u64>, is_certain: bool) -> String {
    let total = match (total, is_certain) {
        (None, _) => String::new(),
        (Some(total), true) => format!(" of {}", show_bytes(total)),
        (Some(total), false) => format!(" of at least {}", show_bytes(total)),
    };
    show_bytes(bytes) + &total
}

impl JobJson {
    /// Formats the command as one line, and each transfer of a server as a further line.
    pub fn lines(&self) -> String {
        let all = std::iter::once(self.line()).chain(self.running.iter().map(RunningJson::line));
        all.collect::<Vec<_>>().join("\n")
    }

    /// Formats the command as one line.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs few digits")]
    fn line(&self) -> String {
        let mut parts = Vec::new();
        if let Some(sessions) = self.sessions {
            parts.push(count(sessions, "session"));
            let done = self.transfers_done.unwrap_or_default();
            parts.push(format!("{} in {}", show_bytes(self.bytes), count(done, "transfer")));
        } else if self.transfers == 0 {
            parts.push("not connected".to_owned());
        } else {
            parts.push(come(self.bytes, self.bytes_total, self.is_total_certain));
            parts.push(show_rate(self.goodput_bps));
        }
        parts.extend(self.policy.as_ref().map(|policy| format!("policy {policy}")));
        let limit = |bps: u64| format!("at most {}", show_rate(bps as f64));
        parts.extend(self.rate_limit_bps.map(limit));
        parts.extend(self.rate_limit_total_bps.map(|bps| limit(bps) + " each way"));
        let (Self { pid, command, what, .. }, time) = (self, show_time(self.seconds));
        format!("{pid:>7} {command:<10} {time:>8}  {}: {what}", parts.join(", "))
    }
}

/// Formats a time as `m:ss`, or as `h:mm:ss` from one hour on.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a process")]
fn show_time(seconds: f64) -> String {
    crate::progress_line::show_time(std::time::Duration::from_secs(seconds.max(0.0) as u64))
}
