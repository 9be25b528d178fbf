//! Report page of one copy (`--report FILE`): rate, RTT, loss and limiters over time.

use std::collections::BTreeMap;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::geteuid;
use sabul::{ChannelStats, Progress};
use sabul_front::json::{TransferJson, rate_bps};
use sabul_front::limiter;
use sabul_report::{Axis, Cell, Chart, Column, Item, Line, Page, Section, Style, Table, quantity};
use sabul_units::{count, show_bytes};
use tempfile::NamedTempFile;

use crate::error::CliError;
use crate::links;

/// Ours: most samples in memory. More samples are thinned to every second one, so a copy of any
/// length takes a few MB.
const SAMPLES_MAX: usize = 4096;

/// Ours: interval of the mean rate, in seconds. Content is counted in blocks of up to 1 MiB, so
/// shorter intervals would show the blocks.
const MEAN_S: f64 = 1.0;

/// Samples of a copy, and the file of its page.
#[derive(Debug)]
pub(crate) struct Recorder {
    started: Instant,
    path: PathBuf,
    samples: Vec<Sample>,
    /// Number of the attempt; counters start again with each attempt.
    attempt: u32,
    /// A call of [`Recorder::record`] is kept if its number is a multiple of this.
    every: usize,
    calls: usize,
}

/// State of a transfer at one time; counts are those of the attempt so far.
#[derive(Clone, Debug)]
struct Sample {
    t_s: f64,
    attempt: u32,
    bytes: u64,
    channel: ChannelStats,
    /// Seconds for which each limiter held the transfer back.
    spent: BTreeMap<&'static str, f64>,
}

impl Recorder {
    /// Creates and removes a file beside `path`, so an unwritable place is refused before the copy starts.
    pub(crate) fn new(path: &Path) -> Result<Self, CliError> {
        let fail = |error| CliError::usage(cannot_write(path, &error));
        // A link is kept; the file that the link names is replaced.
        let target = links::target(path).map_err(fail)?;
        if target.exists() && !target.is_file() {
            return Err(fail(io::Error::other("not a regular file")));
        }
        create_beside(&target).map_err(fail)?;
        let started = Instant::now();
        let samples = Vec::new();
        Ok(Self { started, path: target, samples, attempt: 0, every: 1, calls: 0 })
    }

    /// Begins an attempt: its counters start at zero.
    pub(crate) const fn begin(&mut self) {
        self.attempt += 1;
        self.calls = 0;
    }

    /// Records the state of the transfer.
    pub(crate) fn record(&mut self, progress: &Progress) {
        let is_due = self.calls.is_multiple_of(self.every) || progress.is_finished;
        self.calls += 1;
        if !is_due || progress.place.is_some() {
            return;
        }
        let seconds = progress.elapsed.as_secs_f64();
        let shares = progress.channel.limiter.iter();
        self.samples.push(Sample {
            t_s: self.started.elapsed().as_secs_f64(),
            attempt: self.attempt,
            bytes: progress.bytes.saturating_sub(progress.bytes_resumed),
            channel: progress.channel.clone(),
            spent: shares.map(|&(name, share)| (name, share * seconds)).collect(),
        });
        if self.samples.len() >= SAMPLES_MAX {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// Writes the page and replaces the file.
    pub(crate) fn finish(self, title: &str, copy: &TransferJson) -> Result<(), CliError> {
        let html = page(title, copy, &self.samples).to_html();
        let fail = |error| CliError::failed(cannot_write(&self.path, &error));
        let mut aside = create_beside(&self.path).map_err(fail)?;
        // A replaced report of this user keeps its mode; set first, so a private report is never readable by others.
        let replaced = std::fs::metadata(&self.path).ok();
        if let Some(old) = replaced.filter(|old| old.uid() == geteuid().as_raw()) {
            let mode = Permissions::from_mode(old.mode() & 0o777);
            aside.as_file().set_permissions(mode).map_err(fail)?;
        }
        aside.as_file_mut().write_all(html.as_bytes()).map_err(fail)?;
        aside.persist(&self.path).map_err(|error| fail(error.error))?;
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!("cannot write the report to {path}: {error}; choose another file with --report")
}

/// Returns the page of a copy.
fn page(title: &str, copy: &TransferJson, samples: &[Sample]) -> Page {
    let policy = copy.policy.map_or_else(String::new, |policy| format!(", policy {policy}"));
    let version = env!("CARGO_PKG_VERSION");
    let subtitle = format!("sabul {version}, controller {}{policy}", copy.cc);
    let mut page = Page::new(title, subtitle).with_summary(format!(
        "{} in {}, {:.2} s, {}",
        show_bytes(copy.bytes),
        count(copy.files, "file"),
        copy.seconds,
        quantity(copy.goodput_bps, "bit/s"),
    ));
    let shares = limiter::listed(copy.limiter.iter().map(|(name, share)| (name.as_str(), *share)));
    if !shares.is_empty() {
        page = page.with_summary(format!("Limited by {shares} of the time"));
    }
    for error in &copy.errors {
        let path = error.path.iter().map(|path| format!("{path}: ")).collect::<String>();
        page = page.with_summary(format!("Failed: {path}{}", error.message));
    }
    let is_sender = samples.iter().any(|sample| !sample.spent.is_empty());
    let mut charts = Section::new("Over time", explanation(is_sender))
        .with_item(Item::Chart(rates(samples)))
        .with_item(Item::Chart(round_trips(samples)))
        .with_item(Item::Chart(losses(samples, is_sender)));
    if is_sender {
        charts = charts.with_item(Item::Chart(limiters(samples)));
    }
    page = page.with_section(charts);
    if is_sender {
        page = page
            .with_section(Section::new("Limiters", "").with_item(Item::Table(limiter_table(copy))));
    }
    page
}

const fn explanation(is_sender: bool) -> &'static str {
    if is_sender {
        "This machine sent. A gap is a time without a connection."
    } else {
        "This machine received; only the sender measures limiters and its allowed rate. A gap is a \
         time without a connection."
    }
}

/// Returns a line over time. `value` computes the value of the interval between two samples;
/// a change of the attempt is a gap.
fn line(samples: &[Sample], name: &str, value: impl Fn(&Sample, &Sample) -> f64) -> Line {
    let points = samples.windows(2).map(|pair| {
        let [before, now] = pair else { return (f64::NAN, f64::NAN) };
        let is_gap = before.attempt != now.attempt;
        (now.t_s, if is_gap { f64::NAN } else { value(before, now) })
    });
    Line::new(name, points.collect())
}

/// Creates a temporary file in the folder of this file.
fn create_beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    tempfile::Builder::new()
        .prefix(".sabul-report-")
        // Errors of the other functions name the temporary file.
        .make_in(folder.unwrap_or_else(|| Path::new(".")), |path| {
            OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
        })
}

fn chart(title: &str, axis: Axis) -> Chart {
    Chart::new(title, Axis::new("time", "s"), axis)
}

fn rates(samples: &[Sample]) -> Chart {
    let goodput = samples.iter().enumerate().skip(1).map(|(at, now)| {
        // At least the interval since the sample before, if that is of the same attempt.
        let recent = samples[..at].iter().rev().take_while(|sample| sample.attempt == now.attempt);
        let before = recent
            .enumerate()
            .take_while(|(number, sample)| *number == 0 || now.t_s - sample.t_s <= MEAN_S)
            .last();
        let rate = |(_, before): (usize, &Sample)| {
            rate_bps(now.bytes.saturating_sub(before.bytes), now.t_s - before.t_s)
        };
        (now.t_s, before.map_or(f64::NAN, rate))
    });
    let name = "goodput, mean of a second";
    let mut chart =
        chart("Rate", Axis::new("rate", "bit/s")).with_line(Line::new(name, goodput.collect()));
    if samples.iter().any(|sample| sample.channel.rate_bps.is_some()) {
        let allowed = |_: &Sample, now: &Sample| now.channel.rate_bps.unwrap_or(f64::NAN);
        let line = line(samples, "allowed by the controller", allowed);
        chart = chart.with_line(line.with_style(Style::Dashed));
    }
    chart
}

fn round_trips(samples: &[Sample]) -> Chart {
    // Zero means that there is no measurement yet.
    let known = |ms: f64| if ms > 0.0 { ms / 1000.0 } else { f64::NAN };
    chart("Round-trip time", Axis::new("RTT", "s"))
        .with_line(line(samples, "smoothed", |_, now| known(now.channel.rtt_ms)))
        .with_line(
            line(samples, "smallest so far", |_, now| known(now.channel.rtt_ms_min))
                .with_style(Style::Dashed),
        )
}

fn losses(samples: &[Sample], is_sender: bool) -> Chart {
    let share = |count: fn(&ChannelStats) -> u64| {
        move |before: &Sample, now: &Sample| {
            let packets = now.channel.packets.saturating_sub(before.channel.packets);
            let those = count(&now.channel).saturating_sub(count(&before.channel));
            if packets == 0 { f64::NAN } else { those as f64 / packets as f64 * 100.0 }
        }
    };
    let again = if is_sender { "retransmitted" } else { "received twice" };
    chart("Loss", Axis::new("share of packets", "%"))
        .with_line(line(samples, "lost", share(|channel| channel.packets_lost)))
        .with_line(line(samples, again, share(|channel| channel.packets_retransmitted)))
}

fn limiters(samples: &[Sample]) -> Chart {
    let mut chart = chart("Limiter", Axis::new("share of time", "%").with_range(0.0, 100.0));
    let named = |name| samples.iter().any(|sample| sample.spent.contains_key(name));
    for (name, ..) in limiter::MEANINGS.iter().filter(|(name, ..)| named(*name)) {
        let spent = |sample: &Sample| sample.spent.get(name).copied().unwrap_or(0.0);
        let share = |before: &Sample, now: &Sample| {
            let all: f64 = now.spent.values().sum::<f64>() - before.spent.values().sum::<f64>();
            let share = (spent(now) - spent(before)) / all * 100.0;
            if all > 0.0 { share.clamp(0.0, 100.0) } else { f64::NAN }
        };
        chart = chart.with_line(line(samples, name, share));
    }
    chart
}

fn limiter_table(copy: &TransferJson) -> Table {
    let columns = vec![
        Column::text("limiter"),
        Column::number("share", "%"),
        Column::text("the copy waited for"),
        Column::text("remedy"),
    ];
    let row = |(name, share): (&String, &f64)| {
        let known = limiter::MEANINGS.iter().find(|(known, ..)| known == name);
        let (_, meaning, remedy) = known.copied().unwrap_or_default();
        let share = Cell::Fixed(*share * 100.0, 1);
        vec![name.clone().into(), share, meaning.to_owned().into(), remedy.to_owned().into()]
    };
    Table { title: String::new(), columns, rows: copy.limiter.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    fn progress(tenths: u64, bytes: u64, limiter: &[(&'static str, f64)]) -> Progress {
        let mut progress = Progress::default();
        (progress.bytes, progress.elapsed) = (bytes, Duration::from_millis(tenths * 100));
        let channel = &mut progress.channel;
        (channel.packets, channel.packets_lost) = (bytes / 1000, bytes / 10_000);
        channel.limiter = limiter.to_vec();
        progress
    }

    fn values(line: &Line) -> Vec<f64> {
        line.points.iter().map(|point| point.1).collect()
    }

    #[test]
    fn lines_show_intervals_and_a_reconnect_is_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(&folder.path().join("t.html")).unwrap();
        recorder.begin();
        recorder.record(&progress(10, 100_000, &[("path", 1.0)]));
        // Half of the second interval is spent on the destination.
        recorder.record(&progress(20, 300_000, &[("path", 0.75), ("destination", 0.25)]));
        recorder.begin();
        recorder.record(&progress(5, 300_000, &[("path", 1.0)]));
        recorder.record(&progress(10, 300_000, &[("path", 1.0)]));
        for (at, sample) in recorder.samples.iter_mut().enumerate() {
            sample.t_s = at as f64;
        }
        let samples = &recorder.samples;
        let goodput = values(&rates(samples).lines[0]);
        assert!(goodput[1].is_nan(), "{goodput:?}");
        assert_eq!((goodput[0], goodput[2]), (1_600_000.0, 0.0));
        assert!((values(&losses(samples, true).lines[0])[0] - 10.0).abs() < 1e-9);
        let chart = limiters(samples);
        let names: Vec<_> = chart.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["path", "destination"]);
        assert_eq!((values(&chart.lines[0])[0], values(&chart.lines[1])[0]), (50.0, 50.0));
    }

    #[test]
    fn a_long_copy_keeps_a_bounded_number_of_samples_from_its_start_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(&folder.path().join("t.html")).unwrap();
        recorder.begin();
        for tenths in 0..50_000 {
            recorder.record(&progress(tenths, tenths, &[]));
        }
        let mut last = progress(50_000, 50_000, &[]);
        last.is_finished = true;
        recorder.record(&last);
        let bytes: Vec<_> = recorder.samples.iter().map(|sample| sample.bytes).collect();
        assert!((SAMPLES_MAX / 2 - 1..SAMPLES_MAX).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!((bytes[0], bytes[bytes.len() - 1]), (0, 50_000));
        assert!(bytes.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_report_replaces_a_file_at_its_end_only_and_refuses_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.html");
        std::fs::write(&path, "before").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let hostile = "<script>alert(1)</script>";
        let recorder = Recorder::new(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        recorder.finish(hostile, &TransferJson::nothing("sabul2026")).unwrap();
        let html = std::fs::read_to_string(&path).unwrap();
        assert!(html.contains("&lt;script&gt;alert") && !html.contains(hostile));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        for bad in [folder.path(), &folder.path().join("none/t.html"), Path::new("/dev/null")] {
            let error = Recorder::new(bad).unwrap_err();
            assert!(error.to_string().contains("--report") && error.code() == 2, "{error}");
        }
    }
}
