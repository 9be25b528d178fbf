//! The JSON documents that commands print.

use std::collections::BTreeMap;
use std::time::Duration;

use sabul::{ChannelStats, Failure, Progress, Report};
use sabul_transfer::Printable;
use serde::Serialize;

use crate::error::CliError;
use crate::exit;
use crate::output;

pub(crate) use sabul_study::SCHEMA;

/// What a transfer did, in the fields of `cp --json`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TransferJson {
    pub(crate) schema: u32,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) seconds: f64,
    pub(crate) goodput_bps: f64,
    pub(crate) cc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<&'static str>,
    pub(crate) rtt_ms_min: f64,
    pub(crate) rtt_ms: f64,
    pub(crate) loss_rate: f64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_retransmitted: u64,
    pub(crate) packets_lost: u64,
    pub(crate) packets_overflowed: u64,
    pub(crate) mtu: u32,
    pub(crate) resumed_bytes: u64,
    pub(crate) reconnects: u64,
    pub(crate) verified: bool,
    pub(crate) durable: bool,
    pub(crate) limiter: BTreeMap<String, f64>,
    pub(crate) cpu_seconds_sender: Option<f64>,
    pub(crate) cpu_seconds_receiver: Option<f64>,
    pub(crate) errors: Vec<ErrorJson>,
}

/// One thing that went wrong.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorJson {
    /// The file or directory, where it is about one.
    pub(crate) path: Option<String>,
    /// The class of failure.
    pub(crate) code: String,
    pub(crate) message: String,
}

impl ErrorJson {
    fn of_entry(path: &[u8], failure: &Failure) -> Self {
        Self {
            path: Some(Printable(path).to_string()),
            code: kebab_case(&format!("{:?}", failure.code)),
            message: failure.message.clone(),
        }
    }

    /// The error that ended everything.
    pub(crate) fn of_error(error: &CliError) -> Self {
        let code = exit::word_of(error.end());
        Self { path: None, code: code.to_owned(), message: error.to_string() }
    }
}

impl TransferJson {
    /// A transfer that has not done anything.
    pub(crate) fn nothing(cc: &str) -> Self {
        Self { schema: SCHEMA, cc: cc.to_owned(), ..Self::default() }
    }

    /// A transfer that reached its end.
    pub(crate) fn of_report(cc: &str, report: &Report) -> Self {
        let mut json = Self::nothing(cc).with_channel(&report.channel);
        json.bytes = report.bytes;
        json.resumed_bytes = report.bytes_resumed;
        json.files = report.files;
        json.seconds = report.elapsed.as_secs_f64();
        json.goodput_bps = report.goodput_bps;
        json.verified = report.verified;
        json.durable = report.durable;
        json.cpu_seconds_sender = report.cpu_sender.as_ref().map(Duration::as_secs_f64);
        json.cpu_seconds_receiver = report.cpu_receiver.as_ref().map(Duration::as_secs_f64);
        json.errors =
            report.failures.iter().map(|(path, why)| ErrorJson::of_entry(path, why)).collect();
        json
    }

    /// A transfer that was cut off: how far it had come.
    pub(crate) fn of_progress(cc: &str, progress: &Progress) -> Self {
        let mut json = Self::nothing(cc).with_channel(&progress.channel);
        json.bytes = progress.bytes;
        json.resumed_bytes = progress.bytes_resumed;
        json.files = progress.files;
        json.seconds = progress.elapsed.as_secs_f64();
        json.goodput_bps =
            rate_bps(progress.bytes - progress.bytes_resumed.min(progress.bytes), json.seconds);
        json
    }

    fn with_channel(mut self, channel: &ChannelStats) -> Self {
        self.rtt_ms_min = channel.rtt_ms_min;
        self.rtt_ms = channel.rtt_ms;
        self.loss_rate = channel.loss_rate();
        self.packets_sent = channel.packets;
        self.packets_retransmitted = channel.packets_repeated;
        self.packets_lost = channel.packets_lost;
        self.packets_overflowed = channel.packets_overflowed;
        self.mtu = channel.mtu;
        self.limiter =
            channel.limiter.iter().map(|&(name, share)| (name.to_owned(), share)).collect();
        self
    }
}

/// Bits per second; zero where no time has passed.
pub(crate) fn rate_bps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

/// Prints one document on a line.
pub(crate) fn print(document: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(document)
        .map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))?;
    output::print_line(text)
}

/// `NoSpace` as `no-space`.
fn kebab_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_field_that_scripts_rely_on() {
        let mut json = TransferJson::nothing("fixed");
        json.errors.push(ErrorJson::of_entry(
            b"caf\xE9",
            &Failure::new(sabul::FailureCode::NoSpace, "disk full"),
        ));
        let value = serde_json::to_value(&json).unwrap();
        for key in [
            "schema",
            "bytes",
            "files",
            "seconds",
            "goodput_bps",
            "cc",
            "rtt_ms_min",
            "rtt_ms",
            "loss_rate",
            "packets_sent",
            "packets_retransmitted",
            "resumed_bytes",
            "reconnects",
            "verified",
            "durable",
            "limiter",
            "errors",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["schema"], 1);
        assert_eq!(value["errors"][0]["code"], "no-space");
    }

    #[test]
    fn a_rate_over_no_time_is_zero() {
        assert!(rate_bps(5, 0.0).abs() < f64::EPSILON);
        assert!((rate_bps(125, 0.001) - 1e6).abs() < 1e-6);
    }
}
