//! Copies to several machines: the source sends each byte once, and receivers pass on what they receive.
//!
//! The first destination is served from this machine, and each further destination from the one before. All copies
//! begin at once: a destination that still receives passes on complete files, and large files while they are written
//! (`fan_out/feed.rs`). If that copy does not end with all files, further copies follow: of the files that are complete
//! while the destination still receives, and a last one at its end. If a destination fails, the next one is served from
//! the nearest destination before, or from this machine, and keeps its parts: all copies name the same source. No
//! destination is served from one that had a directory of the sources before the copy: the directory may have other
//! entries.

mod feed;
mod site;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sabul::Ticket;
use sabul::files::{Source, SourceSet};
use sabul::internal::Location;
use sabul_content::Printable;
use sabul_units::{count, show_bytes, show_rate};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::args::{self, CpArgs};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::movement::Movements;
use crate::options::own_program;
use crate::progress::Meter;
use crate::{between, exit, json, output};
use feed::Listing;

use site::Site;

/// Flags that are not passed on.
const OWN_FLAGS: &[&str] = &["json", "json-lines", "quiet", "verbose", "progress"];
/// Ours: shortest time between two copies of the files that are complete at a destination.
const PAUSE: Duration = Duration::from_secs(1);
/// Ours: time for copies to end after an interrupt of the terminal, which reaches them, too.
const TERMINAL_GRACE: Duration = Duration::from_secs(3);

/// State of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Number of times at which more files were complete.
    Receiving(u64),
    Complete,
    Failed,
}

/// Kind of a copy to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A copy of all that the source receives meanwhile.
    Following,
    /// A copy of the files that are complete at a source that still receives.
    Early,
    /// A copy from a complete source. Only this copy prints its errors.
    Last,
}

impl Step {
    const fn of(is_last: bool) -> Self {
        if is_last { Self::Last } else { Self::Early }
    }
}

/// A copy that has logged in at a source and waits.
#[derive(Debug)]
struct Ready {
    from: usize,
    child: Child,
}

/// A copy to several destinations.
#[derive(Debug)]
struct FanOut {
    sources: Vec<OsString>,
    /// Names of the sources, below each destination.
    names: Vec<OsString>,
    flags: Vec<OsString>,
    sites: Vec<Site>,
    /// For all sites: whether a directory of the sources existed there before the copy. It may have other entries, so
    /// no other site is served from there.
    had_directories: Vec<bool>,
    /// For all sites: whether no entry of the sources existed there before the copy.
    are_new: Vec<bool>,
    listing: Listing,
    /// Files of each site that is complete.
    files: Mutex<Vec<Option<u64>>>,
    is_quiet: bool,
    /// Print the events of all copies.
    has_lines: bool,
    interrupt: Interrupt,
    /// Copies run in the group of the terminal, so that ssh can prompt there.
    has_terminal: bool,
    meter: Meter,
    /// Progress of each destination.
    progress: Mutex<Vec<String>>,
    movements: Movements,
}

/// Runs the copy to several destinations, or `run` if there is only one.
pub(crate) async fn run_or(
    args: CpArgs,
    run: impl AsyncFnOnce(CpArgs) -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    match destinations(&args.copy.places) {
        Some(at) if !args.copy.stdio => copy(&args, at).await,
        _ => run(args).await,
    }
}

/// Returns the index of the first destination if local sources and at least two remote destinations are given.
fn destinations(places: &[OsString]) -> Option<usize> {
    let is_remote = |place: &OsString| matches!(Location::parse(place), Ok(Location::Remote(_)));
    let at = places.iter().position(is_remote).filter(|&at| at > 0)?;
    let is_several = places.len() - at > 1 && places[at..].iter().all(is_remote);
    is_several.then_some(at)
}

async fn copy(args: &CpArgs, at: usize) -> Result<u8, CliError> {
    refuse_options(args)?;
    let (sources, places) = args.copy.places.split_at(at);
    let names = sources.iter().map(|source| name(source)).collect::<Result<Vec<_>, _>>()?;
    let interrupt = Interrupt::listen()?;
    let (senders, mut sites): (Vec<_>, Vec<_>) = places
        .iter()
        .map(|place| {
            let (sender, state) = watch::channel(State::Receiving(0));
            (sender, Site::new(directory(place), state))
        })
        .unzip();
    let is_quiet = args.copy.quiet || args.copy.json || args.copy.json_lines;
    let looking = sites.iter_mut().map(|site| site.find(&args.copy, &names, &interrupt));
    let found = futures_util::future::join_all(looking).await;
    let had_directory = |found: &Vec<bool>| {
        sources.iter().zip(found).any(|(source, &is_there)| is_there && Path::new(source).is_dir())
    };
    let fan_out = Arc::new(FanOut {
        sources: sources.to_vec(),
        names,
        had_directories: found.iter().map(had_directory).collect(),
        are_new: found.iter().map(|found| !found.contains(&true)).collect(),
        listing: Listing::of(sources, &args.copy),
        files: Mutex::new(vec![None; sites.len()]),
        flags: [args::given("cp", OWN_FLAGS), vec![origins(sources)?]].concat(),
        progress: Mutex::new(vec![String::new(); sites.len()]),
        movements: Movements::new(sites.len()),
        sites,
        is_quiet,
        has_lines: args.copy.json_lines,
        interrupt,
        has_terminal: std::io::stderr().is_terminal(),
        meter: Meter::new(is_quiet, args.copy.retry.is_some()),
    });
    let mut tasks = JoinSet::new();
    for (number, sender) in senders.into_iter().enumerate() {
        let fan_out = Arc::clone(&fan_out);
        tasks.spawn(async move { fan_out.serve(number, &sender).await });
    }
    let mut code = exit::DONE;
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.map_err(|_| CliError::failed("a copy ended with a fault"))??;
        if args.copy.json {
            json::print(&ended.document())?;
        }
        code = code.max(ended.code);
    }
    fan_out.meter.clear();
    futures_util::future::join_all(fan_out.sites.iter().map(Site::close)).await;
    if fan_out.interrupt.is_seen() {
        return Err(CliError::interrupted("interrupted: run the same command again to resume"));
    }
    Ok(code)
}

/// Rejects options that mean one copy.
fn refuse_options(args: &CpArgs) -> Result<(), CliError> {
    let copy = &args.copy;
    let flags = [
        (args.bag, "--bag"),
        (copy.dry_run, "--dry-run"),
        (copy.report.is_some(), "--report"),
        (copy.receipt.receipt.is_some(), "--receipt"),
    ];
    match flags.iter().find(|(is_given, _)| *is_given) {
        Some((_, flag)) => Err(CliError::usage(format!(
            "{flag} is not supported with several destinations; leave it out, or copy to each destination by itself"
        ))),
        None => Ok(()),
    }
}

/// Identifiers of the sources as a flag, for the copies from all machines.
fn origins(sources: &[OsString]) -> Result<OsString, CliError> {
    let sources = sources.iter().map(|source| Source::from_argument(source)).collect();
    let set = SourceSet::local(sources, true);
    let set = set.map_err(|failure| CliError::usage(failure.to_string()))?;
    let all =
        set.origins().into_iter().map(|origin| format!("{:016x}", u64::from_be_bytes(origin)));
    Ok(format!("--origins={}", all.collect::<Vec<_>>().join(",")).into())
}

/// Name of a source below a destination.
fn name(source: &OsStr) -> Result<OsString, CliError> {
    let last = source.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if matches!(last, b"" | b"." | b".." | b"-") {
        return Err(CliError::usage(format!(
            "'{}' has no name of its own, which a copy to several destinations needs; name a file or a directory without '/' at its end",
            Printable(source.as_bytes())
        )));
    }
    Ok(OsStr::from_bytes(last).to_owned())
}

/// The place as a directory.
fn directory(place: &OsString) -> OsString {
    let mut place = place.clone();
    if !matches!(place.as_bytes().last(), Some(b'/' | b':')) {
        place.push("/");
    }
    place
}

/// Name of a destination in front of a message: the home directory of a host is the host.
fn label(place: &OsStr) -> String {
    Printable(place.as_bytes()).to_string().trim_end_matches(':').to_owned()
}

/// End of the last copy to a destination.
#[derive(Debug)]
struct Ended {
    place: OsString,
    /// Place of the files that were copied.
    from: OsString,
    code: u8,
    /// Document of the copy, if the copy began.
    done: Option<Value>,
}

impl Ended {
    /// Returns the document of the copy, with both places.
    fn document(&self) -> Value {
        let shown = |place: &OsString| Printable(place.as_bytes()).to_string();
        let mut document = self.done.clone().unwrap_or_else(|| serde_json::json!({ "schema": 1 }));
        if let Value::Object(fields) = &mut document {
            fields.retain(|name, _| name != "event" && name != "t_s");
            fields.insert("place".to_owned(), shown(&self.place).into());
            fields.insert("from".to_owned(), shown(&self.from).into());
            fields.insert("exit".to_owned(), self.code.into());
        }
        document
    }

    /// Number of files that are at the destination now.
    fn files(&self) -> Option<u64> {
        let done = self.done.as_ref()?;
        let skipped = done["skipped_files"].as_u64().unwrap_or(0);
        Some(done["files"].as_u64()?.saturating_add(skipped))
    }

    /// Formats the summary.
    fn line(&self) -> String {
        let number = |name: &str| self.done.as_ref().and_then(|done| done[name].as_u64());
        let float = |name: &str| self.done.as_ref().and_then(|done| done[name].as_f64());
        let (files, skipped) = (number("files").unwrap_or(0), number("skipped_files").unwrap_or(0));
        let there = match skipped {
            0 => String::new(),
            files => format!("; {} there already", count(files, "file")),
        };
        format!(
            "{}: {} in {} from {}, {:.2} s, {}{there}",
            label(&self.place),
            show_bytes(number("bytes").unwrap_or(0)),
            count(files, "file"),
            label(&self.from),
            float("seconds").unwrap_or(0.0),
            show_rate(float("goodput_bps").unwrap_or(0.0)),
        )
    }
}

impl FanOut {
    /// Copies to a destination until it is complete or cannot be served.
    async fn serve(&self, number: usize, state: &watch::Sender<State>) -> Result<Ended, CliError> {
        let mut excluded = self.had_directories[..number].to_vec();
        // After a failure, the next copy waits for the end of the destination before.
        let mut begins_early = true;
        // A source is followed once.
        let (mut followed, mut ready) = (None, None);
        loop {
            let from = (0..number).rev().find(|&at| !excluded[at] && self.can_serve(at));
            let follows = followed != from && self.can_follow(number, from);
            followed = from;
            let is_last = match from {
                Some(_) if follows => Some(false),
                Some(at) => self.wait_for(number, at, begins_early, &mut excluded).await,
                None => Some(true),
            };
            let Some(is_last) = is_last else { continue };
            if self.interrupt.is_seen() {
                state.send_replace(State::Failed);
                return Ok(self.ended(number, from, exit::INTERRUPTED, None));
            }
            let step = if follows { Step::Following } else { Step::of(is_last) };
            let waiting = from
                .filter(|_| follows)
                .and_then(|at| self.take_ready(number, at, &excluded, &mut ready));
            let has_ticket = self.ticket(number, from).is_some();
            let mut ended = self.run(number, from, step, waiting, state).await?;
            if self.is_interrupted(&ended).await {
                state.send_replace(State::Failed);
                return Ok(ended);
            }
            let is_last = is_last || follows && self.is_all(from, &ended).await;
            match (ended.code, is_last, from) {
                (exit::DONE, true, _) => {
                    self.complete(number, &ended, state);
                    return Ok(ended);
                }
                // The server of the ticket has ended. A copy from this machine with a new login follows.
                (exit::FAILED.., _, _) if has_ticket && self.sites[number].is_gone_soon().await => {
                    excluded.fill(true);
                }
                (exit::FAILED.., _, Some(at)) if self.sites[at].is_gone_soon().await => {
                    self.replace(number, at, &mut excluded, "is gone");
                    begins_early = true;
                }
                // Copies of complete files follow.
                (_, false, _) if follows => {}
                (code, false, _) => begins_early &= code == exit::DONE,
                (_, true, Some(at)) => self.replace(number, at, &mut excluded, "cannot serve"),
                (code, true, None) => {
                    state.send_replace(State::Failed);
                    ended.code = code.max(exit::FAILED);
                    return Ok(ended);
                }
            }
        }
    }

    /// Waits for a source. Returns whether it is complete; `None` if another destination, or this machine, takes its place.
    async fn wait_for(
        &self,
        number: usize,
        from: usize,
        early: bool,
        excluded: &mut [bool],
    ) -> Option<bool> {
        match self.next_state(from, early).await {
            Some(State::Failed) if !self.interrupt.is_seen() => None,
            None => {
                self.replace(number, from, excluded, "has received nothing for two minutes");
                None
            }
            state => Some(state == Some(State::Complete)),
        }
    }

    /// Whether an interrupt was seen. An interrupt of the terminal reaches a copy, too, and the copy may end first.
    async fn is_interrupted(&self, ended: &Ended) -> bool {
        self.interrupt.is_seen()
            || ended.code == exit::INTERRUPTED && self.interrupt.follows_soon().await
    }

    /// Excludes a source, and prints why a destination gets another one.
    fn replace(&self, number: usize, from: usize, excluded: &mut [bool], why: &str) {
        excluded[from] = true;
        let (to, from) = (label(&self.sites[number].place), label(&self.sites[from].place));
        output::error(format_args!("{to}: {from} {why}; another source follows"));
    }

    /// Whether a site can be served from a site that still receives.
    fn can_follow(&self, number: usize, from: Option<usize>) -> bool {
        let are_new = |at: usize| self.are_new[at] && self.are_new[number];
        from.is_some_and(are_new) && !self.listing.compares_content()
    }

    /// Whether a copy from a site that received meanwhile has copied all files of the site, with all metadata.
    async fn is_all(&self, from: Option<usize>, ended: &Ended) -> bool {
        let Some(at) = from.filter(|_| ended.code == exit::DONE && self.listing.is_all()) else {
            return false;
        };
        // The copy can end before the report that the site has all files.
        self.next_state(at, false).await == Some(State::Complete)
            && self
                .files
                .lock()
                .is_ok_and(|files| files[at].is_some() && files[at] == ended.files())
    }

    /// Records that a site has all files.
    fn complete(&self, number: usize, ended: &Ended, state: &watch::Sender<State>) {
        if let Ok(mut files) = self.files.lock() {
            files[number] = ended.files();
        }
        state.send_replace(State::Complete);
        if !self.is_quiet {
            output::note(ended.line());
        }
    }

    /// Whether other destinations can be served from a site.
    fn can_serve(&self, site: usize) -> bool {
        *self.sites[site].state.borrow() != State::Failed && !self.sites[site].is_gone()
    }

    /// Waits until a destination has ended, or with `early` until it has more complete files. Returns `None` if it has
    /// received nothing for a long time.
    async fn next_state(&self, site: usize, early: bool) -> Option<State> {
        let mut state = self.sites[site].state.clone();
        let before = *state.borrow_and_update();
        let is_due = |now: &State| match now {
            State::Complete | State::Failed => true,
            State::Receiving(_) => early && *now != before,
        };
        if !matches!(before, State::Receiving(_)) {
            return Some(before);
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = self.sites[site].gone() => {}
            _ = state.wait_for(|now| !matches!(now, State::Receiving(_))) => {}
            () = self.interrupt.wait() => {}
        }
        tokio::select! {
            // A destination whose task has ended has its last state.
            changed = state.wait_for(is_due) => Some(changed.map_or(State::Failed, |now| *now)),
            () = self.sites[site].gone() => Some(State::Failed),
            () = self.movements.stalled(site) => None,
            () = self.interrupt.wait() => Some(before),
        }
    }

    /// Places of the files at a destination, or here.
    fn places_at(&self, site: Option<usize>) -> Vec<OsString> {
        let Some(site) = site else { return self.sources.clone() };
        self.names.iter().map(|name| self.sites[site].below(name)).collect()
    }

    /// Starts the process of a copy. A copy with a ticket logs in at its source, and waits for the ticket.
    fn spawn(
        &self,
        number: usize,
        from: Option<usize>,
        step: Step,
        has_ticket: bool,
    ) -> Result<Child, CliError> {
        let program = own_program().map_err(|error| {
            CliError::failed(format!("cannot find the program's own file: {error}"))
        })?;
        let mut command = Command::new(program);
        command
            .args(["cp", "--json-lines", "--quiet", "--end-with-stdin"])
            .args((step == Step::Following).then_some("--passed-on"))
            .args(has_ticket.then_some("--ticket-line"))
            .args(&self.flags)
            .arg("--")
            .args(self.places_at(from))
            .arg(&self.sites[number].place);
        if !self.has_terminal {
            // An interrupt of the group reaches this process only, which passes the interrupt on once.
            command.process_group(0);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(if step == Step::Last { Stdio::piped() } else { Stdio::null() });
        command.spawn().map_err(|error| CliError::failed(format!("cannot start a copy: {error}")))
    }

    /// Takes the waiting copy from this source, and keeps one ready from the next source before, if there is one.
    fn take_ready(
        &self,
        number: usize,
        from: usize,
        excluded: &[bool],
        ready: &mut Option<Ready>,
    ) -> Option<Child> {
        let taken = ready.take().filter(|it| it.from == from).map(|it| it.child);
        let next = (0..from).rev().find(|&at| !excluded[at] && self.can_serve(at));
        let has_ticket = self.ticket(number, next).is_some();
        let next = next.filter(|_| has_ticket && self.can_follow(number, next));
        *ready = next.and_then(|from| {
            let child = self.spawn(number, Some(from), Step::Following, true).ok()?;
            Some(Ready { from, child })
        });
        taken
    }

    /// Ticket of the server at a site for copies from this source.
    fn ticket(&self, number: usize, from: Option<usize>) -> Option<&Ticket> {
        // A source without ssh would need its own ticket in place of this one.
        let is_by_ssh = from.is_none_or(|at| self.sites[at].ticket().is_some());
        self.sites[number].ticket().filter(|_| is_by_ssh)
    }

    /// Runs one copy from a destination, or from here.
    async fn run(
        &self,
        number: usize,
        from: Option<usize>,
        step: Step,
        ready: Option<Child>,
        state: &watch::Sender<State>,
    ) -> Result<Ended, CliError> {
        let ticket = self.ticket(number, from);
        let mut child = match ready.filter(|_| ticket.is_some()) {
            Some(child) => child,
            None => self.spawn(number, from, step, ticket.is_some())?,
        };
        self.movements.begin(number);
        // The kernel closes this pipe at any end of this process, and the copy then ends.
        let mut lifeline = child.stdin.take();
        if let (Some(input), Some(ticket)) = (&mut lifeline, ticket) {
            // A copy that has ended is reported by its exit code.
            let _ = input.write_all(format!("{ticket}\n").as_bytes()).await;
        }
        let place = &self.sites[number].place;
        let feeding = match (step, from) {
            (Step::Following, Some(at)) => lifeline.take().map(|input| {
                tokio::spawn(feed::feed(input, self.listing.clone(), self.sites[at].state.clone()))
            }),
            _ => None,
        };
        let errors =
            child.stderr.take().map(|errors| tokio::spawn(print_errors(errors, label(place))));
        let done = match child.stdout.take() {
            Some(lines) => {
                self.follow((number, from), ticket.is_some(), lines, child.id(), state).await
            }
            None => None,
        };
        let status = child.wait().await;
        drop(lifeline);
        feeding.inspect(JoinHandle::abort);
        if let Some(errors) = errors {
            let _ = errors.await;
        }
        let code = status.ok().and_then(|status| status.code());
        let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::FAILED);
        Ok(self.ended(number, from, code, done))
    }

    /// End of a copy from a destination, or from here.
    fn ended(&self, number: usize, from: Option<usize>, code: u8, done: Option<Value>) -> Ended {
        let from = match from {
            Some(at) => self.sites[at].place.clone(),
            None => "this machine".into(),
        };
        Ended { place: self.sites[number].place.clone(), from, code, done }
    }

    /// Shows the progress of all destinations.
    fn show(&self, number: usize, line: String) {
        let Ok(mut all) = self.progress.lock() else { return };
        all[number] = line;
        let sites = self.sites.iter().zip(&*all).filter(|(_, line)| !line.is_empty());
        let shown = sites.map(|(site, line)| format!("{}: {line}", label(&site.place)));
        let shown: Vec<String> = shown.collect();
        match shown.is_empty() {
            true => self.meter.say_nothing(),
            false => self.meter.say(shown.join("; ")),
        }
    }

    /// Waits until a copy from another destination stalls, or until the server of a copy with a ticket has ended.
    async fn stuck(&self, number: usize, may_stall: bool, has_ticket: bool) {
        tokio::select! {
            () = self.movements.stalled(number), if may_stall => {}
            // Further attempts of the copy would dial the server that has ended.
            () = self.sites[number].gone(), if has_ticket => {}
            else => std::future::pending().await,
        }
    }

    /// Reads the events of a copy; returns the last one.
    async fn follow(
        &self,
        (number, from): (usize, Option<usize>),
        has_ticket: bool,
        lines: impl AsyncRead + Unpin,
        child: Option<u32>,
        state: &watch::Sender<State>,
    ) -> Option<Value> {
        let mut lines = BufReader::new(lines).lines();
        let (mut done, mut entries) = (None, 0);
        let (mut is_interrupted, mut stop_at) = (false, None);
        let mut may_be_stuck = true;
        loop {
            let line = tokio::select! {
                line = lines.next_line() => line,
                () = self.interrupt.wait(), if !is_interrupted => {
                    is_interrupted = true;
                    let grace = if self.has_terminal { TERMINAL_GRACE } else { Duration::ZERO };
                    stop_at = Some(tokio::time::Instant::now() + grace);
                    continue;
                }
                () = self.stuck(number, from.is_some(), has_ticket), if may_be_stuck => {
                    (may_be_stuck, stop_at) = (false, Some(tokio::time::Instant::now()));
                    continue;
                }
                () = between::until(stop_at) => {
                    stop_at = None;
                    interrupt(child);
                    continue;
                }
            };
            let Ok(Some(line)) = line else { return done };
            let Ok(mut event) = serde_json::from_str::<Value>(&line) else { continue };
            if self.has_lines {
                event["place"] = Printable(self.sites[number].place.as_bytes()).to_string().into();
                let _ = json::print(&event);
            }
            self.movements.add(number, &event);
            let now = event["entries"].as_u64().unwrap_or(0);
            if now > entries {
                entries = now;
                state.send_modify(|state| {
                    if let State::Receiving(times) = state {
                        *times += 1;
                    }
                });
            }
            match event["event"].as_str() {
                Some("progress") => self.show(number, between::progress(&event)),
                Some("done") => {
                    self.show(number, String::new());
                    done = Some(event);
                }
                _ => {}
            }
        }
    }
}

/// Interrupts the process of a copy.
fn interrupt(child: Option<u32>) {
    let pid = child.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let _ = pid.map(|pid| kill_process(pid, Signal::INT));
}

/// Prints the errors of a copy behind the name of the destination.
async fn print_errors(errors: impl AsyncRead + Unpin, place: String) {
    let mut lines = BufReader::new(errors).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // Messages of ssh, too.
        let message = line.strip_prefix("sabul: ").unwrap_or(&line);
        output::error(format_args!("{place}: {message}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &[&str]) -> Option<usize> {
        destinations(&places.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn several_destinations_follow_local_sources() {
        assert_eq!(at(&["a", "h:", "i:"]), Some(1));
        assert_eq!(at(&["a", "b", "h:x", "sabul://i/y"]), Some(2));
        for other in
            [&["a", "h:"][..], &["h:a", "i:", "j:"], &["a", "h:x", "b"], &["a", "b"], &["a"]]
        {
            assert_eq!(at(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_name_at_a_site_is_no_pattern_and_no_home_directory() {
        let below = |place: &str, name: &str| {
            let (_, state) = watch::channel(State::Complete);
            let place = Site::new(place.into(), state).below(OsStr::new(name));
            match Location::parse(&place) {
                Ok(Location::Remote(remote)) => String::from_utf8(remote.path).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(below("h:", "data"), "./data");
        assert_eq!(below("h:", "~"), "./~");
        assert_eq!(below("h:x/", "~"), "x/~");
        assert_eq!(below("h:", "report[1].pdf"), "./report\\[1\\].pdf");
        assert_eq!(below("sabul://h:4850/x/", "a*"), "x/a\\*");
        assert_eq!(below("h:/x[1]/", "data"), "/x\\[1\\]/data");
    }

    #[test]
    fn a_source_needs_a_name_of_its_own() {
        assert_eq!(name(OsStr::new("a/data")).unwrap(), "data");
        for wrong in ["a/", ".", "..", "-", "/"] {
            assert_eq!(name(OsStr::new(wrong)).unwrap_err().code(), 2, "{wrong}");
        }
        assert_eq!(directory(&"host:".into()), "host:");
        assert_eq!(directory(&"host:a".into()), "host:a/");
    }
}
