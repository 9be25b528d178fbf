//! Results of a copy while the command runs.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use sabul::files::Identity;
use sabul_content::Printable;
use sabul_front::control_socket::Job;
use sabul_front::failures::Machines;
use sabul_front::json::{ErrorJson, TransferJson};
use sabul_front::lines::LineBuilder;
use sabul_units::{count, show_bytes};

use super::compare::Compared;
use super::receipt::Receipt;
use super::report::Recorder;
use super::sync::Selecting;
use super::totals::AttemptTotals;
use crate::args::CopyArgs;
use crate::policy::controller;
use crate::progress::Meter;
use crate::{exit, json};

/// Ours: interval between two lines while there is no connection.
const LINE_INTERVAL: Duration = Duration::from_millis(1800);

/// Results of a copy, complete at any end of the command.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) json: TransferJson,
    pub(super) code: u8,
    /// JSON Lines, if requested.
    pub(super) lines: Option<LineBuilder>,
    /// State for `sabul ps` and `sabul set`.
    pub(super) job: Job,
    /// Sum of all attempts.
    pub(super) totals: AttemptTotals,
    /// Names of the two machines, for messages.
    pub(super) machines: Machines,
    /// Samples for `--report`.
    pub(super) recorder: Option<Recorder>,
    pub(super) selecting: Selecting,
    /// Result of the comparison of both ends, from the last attempt.
    pub(super) compared: Compared,
    /// Identity of the destination of a synchronisation.
    pub(super) destination: Option<Identity>,
    /// Number of removed entries.
    pub(super) removed: u64,
    /// Reason why entries were not removed, their metadata was not set, or no receipt was written.
    pub(super) incomplete: Vec<ErrorJson>,
    /// Receipt to write.
    pub(super) receipt: Option<Receipt>,
    /// Line about the receipt.
    pub(super) receipt_line: Option<String>,
}

impl Outcome {
    /// Starts the results of the command `name`.
    pub(super) fn new(
        name: &'static str,
        args: &CopyArgs,
        selecting: Selecting,
        receipt: Option<Receipt>,
    ) -> Self {
        Self {
            json: TransferJson::nothing(controller(args)),
            code: exit::DONE,
            lines: args.json_lines.then(LineBuilder::default),
            job: job(name, args),
            totals: AttemptTotals::default(),
            machines: Machines::default(),
            recorder: None,
            selecting,
            compared: Compared::default(),
            destination: None,
            removed: 0,
            incomplete: Vec::new(),
            receipt,
            receipt_line: None,
        }
    }

    /// Waits for `work` between two attempts and reports meanwhile that there is no connection.
    pub(super) async fn meanwhile<T>(&self, args: &CopyArgs, work: impl Future<Output = T>) -> T {
        let Some(since) = self.totals.lost_at else { return work.await };
        let meter = Meter::new(args.quiet || args.json_lines, true);
        let mut work = std::pin::pin!(work);
        let mut ticks = tokio::time::interval(LINE_INTERVAL);
        ticks.tick().await;
        loop {
            tokio::select! {
                result = &mut work => {
                    meter.clear();
                    return result;
                }
                _ = ticks.tick() => {}
            }
            let line = self.lines.as_ref().and_then(LineBuilder::still);
            line.iter().for_each(|line| drop(json::print(line)));
            meter.say(format!("no connection for {} s; reconnecting", since.elapsed().as_secs()));
        }
    }
}

/// Returns the places of the copy, separated by spaces.
pub(super) fn title(args: &CopyArgs) -> String {
    let places = args.places.iter().map(|place| Printable(place.as_bytes()).to_string());
    places.collect::<Vec<_>>().join(" ")
}

/// Returns the copy as `sabul ps` shows it.
fn job(name: &'static str, args: &CopyArgs) -> Job {
    let bps = |rate: Option<sabul_units::Rate>| rate.map(|rate| rate.0);
    Job::new(name, &title(args)).with_rates(
        args.policy.name(),
        bps(args.bwlimit),
        bps(args.min_rate),
    )
}

/// Describes the data that an interrupted copy keeps. More may have arrived than this side knows.
pub(super) fn what_stays(outcome: &Outcome) -> String {
    let stays = match (outcome.json.files, outcome.json.durable_bytes) {
        (0, 0) => String::new(),
        (0, bytes) => {
            format!("the receiver keeps the data on its disk (at least {}); ", show_bytes(bytes))
        }
        (files, _) => {
            format!("the receiver keeps complete files (at least {}); ", count(files, "file"))
        }
    };
    stays + "run the same command again to resume"
}
