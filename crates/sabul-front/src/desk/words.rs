//! What is asked and answered: a line of JSON each way.

use sabul_units::{count, show_bytes, show_rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest question in bytes.
pub const ASK_MAX: u64 = 4096;
/// Longest answer in bytes that is read.
pub const ANSWER_MAX: u64 = 1 << 16;

/// What is asked of a running command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// What it does and how far it is.
    Look,
    /// To go on otherwise.
    Set(Change),
}

/// What is to be different; all of it, or nothing where something is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// How its transfers stand beside other traffic: `fair`, `high` or `low`.
    pub policy: Option<String>,
    /// The highest rate of each of its transfers in bit/s; 0 lifts it.
    pub rate_limit_bps: Option<u64>,
    /// The highest rate of all transfers of a server together, each way, in bit/s; 0 lifts it.
    pub rate_limit_total_bps: Option<u64>,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// How it is now.
    Job(JobJson),
    /// Why nothing was changed.
    Refused(String),
}

/// A running command: a line of `ps --json`, and what `set --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobJson {
    /// Version of this document.
    pub schema: u32,
    /// Its process id.
    pub pid: u32,
    /// Which command: `cp`, `perf`, `serve` or `perf serve`.
    pub command: String,
    /// What it works on, as it was asked.
    pub what: String,
    /// For how long, in seconds.
    pub seconds: f64,
    /// Transfers that run now.
    pub transfers: u64,
    /// Content bytes that have arrived so far, those that were there before among them.
    pub bytes: u64,
    /// All content bytes, or as many as were found so far; none of a pipe, a measurement or a server.
    pub bytes_total: Option<u64>,
    /// The total is all there is; otherwise there is at least so much.
    pub is_total_certain: bool,
    /// New content bytes over the time of the transfers that run, in bit/s.
    pub goodput_bps: f64,
    /// How its transfers stand beside other traffic; none of a server, whose clients say that.
    pub policy: Option<String>,
    /// The highest rate of each of its transfers in bit/s, where there is one.
    pub rate_limit_bps: Option<u64>,
    /// The highest rate of all transfers of a server together, each way, in bit/s, where there is one.
    pub rate_limit_total_bps: Option<u64>,
    /// Sessions that a server has now; none of other commands.
    pub sessions: Option<u64>,
    /// Transfers that a server has finished.
    pub transfers_done: Option<u64>,
    /// Those of a server that run now, fifty at most.
    #[serde(default)]
    pub running: Vec<RunningJson>,
}

/// A transfer of a server that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunningJson {
    /// Who asked for it.
    pub peer: String,
    /// What the server does: `sending` or `receiving`.
    pub direction: String,
    /// What the peer wanted: `files` or `measurement`.
    pub purpose: String,
    /// The first paths that the peer named.
    pub names: Vec<String>,
    /// For how long, in seconds.
    pub seconds: f64,
    /// Content bytes that have arrived so far, those that were there before among them.
    pub bytes: u64,
    /// All content bytes, or as many as were found so far.
    pub bytes_total: Option<u64>,
    /// The total is all there is; otherwise there is at least so much.
    pub is_total_certain: bool,
    /// New content bytes over its time, in bit/s.
    pub goodput_bps: f64,
}

impl RunningJson {
    /// All of it for people.
    fn line(&self) -> String {
        let what = match (&self.names[..], self.purpose.as_str()) {
            ([], "measurement") => "a measurement".to_owned(),
            // No name at all is the directory that is served.
            ([name], _) if name.is_empty() => "/".to_owned(),
            (names, _) => names.join(" "),
        };
        let come = come(self.bytes, self.bytes_total, self.is_total_certain);
        let (Self { peer, direction, .. }, time) = (self, show_time(self.seconds));
        let rate = show_rate(self.goodput_bps);
        format!("{direction:>18} {time:>8}  {come}, {rate}: {what}, {peer}")
    }
}

/// How much has come of how much.
fn come(bytes: u64, total: Option<u64>, is_certain: bool) -> String {
    let total = match (total, is_certain) {
        (None, _) => String::new(),
        (Some(total), true) => format!(" of {}", show_bytes(total)),
        (Some(total), false) => format!(" of at least {}", show_bytes(total)),
    };
    show_bytes(bytes) + &total
}

impl JobJson {
    /// All of it for people: a line, and one more for each transfer of a server.
    pub fn lines(&self) -> String {
        let all = std::iter::once(self.line()).chain(self.running.iter().map(RunningJson::line));
        all.collect::<Vec<_>>().join("\n")
    }

    /// It on a line.
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

/// A time as `m:ss`, or `h:mm:ss` from an hour on.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a process")]
fn show_time(seconds: f64) -> String {
    crate::course::show_time(std::time::Duration::from_secs(seconds.max(0.0) as u64))
}
