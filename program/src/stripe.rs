//! Copies of large files by several pairs of hosts: `sabul cp --stripe`.
//!
//! The hosts of each side share a file system. A process at each destination host reads chunks from its source host and
//! writes them into the same part file. This machine divides the files ([`division`]) and sees no content. One pair then
//! copies everything else, skips the files that are there, and sets the metadata.

mod chunks;
mod division;
mod list;
mod messages;
mod options;
mod pairs;
mod worker;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sabul::internal::ssh::{self, RemoteCommand, UploadObserver};
use sabul::internal::{Server, escape_pattern};
use sabul_content::Printable;
use sabul_front::lines::{CopyEvent, LineBuilder};
use sabul_units::{count, show_bytes, show_rate};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use crate::args::{CopyArgs, CpArgs};
use crate::between::{self, Between, Driver, Started};
use crate::cp::names::means_content;
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::progress::Meter;
use crate::upload::UploadProgress;
use crate::{json, output};
use division::{Division, Orders, Wanted};
use list::List;
use messages::{Answer, Names, Order};
use pairs::HostPair;

/// Most bytes of the list of files, and of an answer.
const LIST_MAX: u64 = 256 << 20;
const ANSWER_MAX: u64 = 1 << 20;
/// Most bytes of messages that are held back.
const HELD_MAX: usize = 64 << 10;
/// Ours: a pair without an answer for this long is lost; its host answers every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Ours: time for the hosts to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the progress line, and of the search for late chunks.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between two lines of `--json-lines`.
const TICKS_OF_LINE: u64 = 10;

/// Runs the copy by several pairs, or `run` without `--stripe`.
pub(crate) async fn run_or(
    args: CpArgs,
    run: impl AsyncFnOnce(CpArgs) -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    if args.pieces {
        return worker::run(args.copy).await;
    }
    match args.stripe.clone().filter(|_| !args.copy.dry_run) {
        Some(file) => copy(&args, &file).await,
        None => run(args).await,
    }
}

async fn copy(args: &CpArgs, file: &Path) -> Result<u8, CliError> {
    let hosts = pairs::read(file)?;
    options::check(args, hosts.len())?;
    let copy = &args.copy;
    let between = Between::of(copy)?.ok_or_else(|| {
        CliError::usage(
            "--stripe copies between other machines; write both sides as [USER@]HOST:PATH",
        )
    })?;
    check_hosts(&between, &hosts)?;
    let interrupt = Interrupt::listen()?;
    let started = Instant::now();
    let striped = stripe(copy, &between, &hosts, &interrupt).await;
    let Striped { division, pair } = striped.inspect_err(|error| {
        // A failure to print is followed by the error itself.
        let _ = between::print_failed(copy, error);
    })?;
    if !is_quiet(copy) && division.files > 0 {
        output::note(format_args!("the rest, from {pair}:"));
    }
    let last = between.by(&pair.source, &pair.destination);
    let sums = Sums { files: division.files, bytes: division.bytes, started };
    last.run_with("cp", args, &interrupt, |done| sums.add_to(done)).await
}

const fn is_quiet(args: &CopyArgs) -> bool {
    args.quiet || args.json || args.json_lines
}

/// Result of the pairs, and a pair that still works.
struct Striped {
    division: Division,
    pair: HostPair,
}

/// Copies the large files by all pairs.
async fn stripe(
    args: &CopyArgs,
    between: &Between<'_>,
    hosts: &[HostPair],
    interrupt: &Interrupt,
) -> Result<Striped, CliError> {
    let started = Instant::now();
    let meter = Meter::new(is_quiet(args), false);
    let striped = async {
        let pairs = start(args, between, hosts).await?;
        let mut wanted = list(args, between, &pairs).await?;
        let is_alone = between.source_paths().len() == 1;
        let pairs = meet(pairs, &mut wanted, is_alone).await?;
        let lines = args.json_lines.then(LineBuilder::default);
        Ok::<_, CliError>(divide(pairs, wanted, &meter, lines.as_ref()).await)
    };
    let (division, hosts) = tokio::select! {
        striped = striped => striped?,
        () = interrupt.wait() => {
            return Err(CliError::interrupted("interrupted: run the same command again to continue"));
        }
    };
    meter.clear();
    report(is_quiet(args), &division, &hosts, started.elapsed());
    match hosts.into_iter().find(|(_, works)| *works) {
        Some((pair, _)) => Ok(Striped { division, pair }),
        None => Err(CliError::lost("all pairs of hosts were lost; run the same command again")),
    }
}

/// Checks that the hosts of the places are in the file.
fn check_hosts(between: &Between<'_>, hosts: &[HostPair]) -> Result<(), CliError> {
    let Some((source, destination)) = between.accounts() else {
        return Err(CliError::usage(
            "--stripe needs ssh on both sides; write [USER@]HOST:PATH twice",
        ));
    };
    let missing = match () {
        () if !hosts.iter().any(|pair| pair.source == source) => (source, "source"),
        () if !hosts.iter().any(|pair| pair.destination == destination) => {
            (destination, "destination")
        }
        () => return Ok(()),
    };
    Err(CliError::usage(format!(
        "'{}' is no {} host of the stripe file; name the hosts in the file as in the command",
        missing.0, missing.1
    )))
}

/// Prints the result of the division.
fn report(is_quiet: bool, division: &Division, hosts: &[(HostPair, bool)], time: Duration) {
    for (path, why) in &division.failed {
        output::error(format_args!(
            "{}: not striped: {}; one pair copies the file",
            Printable(path.as_bytes()),
            Printable(why.as_bytes())
        ));
    }
    for (&number, (files, path, why)) in &division.apart {
        let is_failed = *files == 1 && division.failed.iter().any(|(failed, _)| failed == path);
        let Some((pair, _)) = hosts.get(number).filter(|_| !is_failed) else { continue };
        output::error(format_args!(
            "{pair}: left {} to other pairs: {}: {}",
            count(*files, "file"),
            Printable(path.as_bytes()),
            Printable(why.as_bytes())
        ));
    }
    if is_quiet || division.files == 0 {
        return;
    }
    let by = hosts
        .iter()
        .enumerate()
        .map(|(number, (pair, _))| format!("{pair} {}", show_bytes(division.bytes_of(number))));
    output::note(format_args!(
        "striped {} in {}, {:.2} s, {} ({})",
        show_bytes(division.bytes),
        count(division.files, "file"),
        time.as_secs_f64(),
        show_rate(division.bytes as f64 * 8.0 / time.as_secs_f64().max(1e-9)),
        by.collect::<Vec<_>>().join(", ")
    ));
}

/// Sums of the division, for the document of the last copy.
#[derive(Clone, Copy, Debug)]
struct Sums {
    files: u64,
    bytes: u64,
    started: Instant,
}

impl Sums {
    /// Adds the sums to the document of the copy that skipped these files.
    fn add_to(&self, done: &mut Value) {
        let Value::Object(fields) = done else { return };
        let number = |fields: &serde_json::Map<String, Value>, name: &str| {
            fields.get(name).and_then(Value::as_u64).unwrap_or(0)
        };
        let bytes = number(fields, "bytes") + self.bytes;
        let seconds = self.started.elapsed().as_secs_f64();
        let skipped = number(fields, "skipped_files").saturating_sub(self.files);
        let skipped_bytes = number(fields, "skipped_bytes").saturating_sub(self.bytes);
        for (name, value) in [
            ("files", (number(fields, "files") + self.files).into()),
            ("bytes", bytes.into()),
            ("striped_bytes", self.bytes.into()),
            ("seconds", seconds.into()),
            ("goodput_bps", (bytes as f64 * 8.0 / seconds.max(1e-9)).into()),
        ] {
            fields.insert(name.to_owned(), value);
        }
        for (name, value) in [("skipped_files", skipped), ("skipped_bytes", skipped_bytes)] {
            if fields.contains_key(name) {
                fields.insert(name.to_owned(), value.into());
            }
        }
    }
}

/// A pair whose hosts are connected.
#[derive(Debug)]
struct Pair {
    hosts: HostPair,
    /// Ticket of the server at the source host.
    ticket: String,
    server: Option<Started>,
    child: Child,
    /// Orders, whose end ends the destination host; `None` once the pair is lost.
    orders: Option<mpsc::UnboundedSender<Order>>,
    /// Answers; `None` once a task reads them.
    output: Option<BufReader<ChildStdout>>,
    /// Time of the last answer.
    answered: Instant,
}

/// Connects all pairs. A pair that cannot be connected takes no part. The pair with the named hosts is the first.
async fn start(
    args: &CopyArgs,
    between: &Between<'_>,
    hosts: &[HostPair],
) -> Result<Vec<Pair>, CliError> {
    let starting = hosts.iter().map(|pair| start_one(args, between, pair, hosts.len()));
    let mut pairs = Vec::new();
    let mut failed = None;
    for (pair, started) in hosts.iter().zip(futures_util::future::join_all(starting).await) {
        match started {
            Ok(started) => pairs.push(started),
            Err(error) => {
                output::error(format_args!("{pair}: takes no part: {error}"));
                failed = Some(error);
            }
        }
    }
    if let Some((source, destination)) = between.accounts() {
        pairs.sort_by_key(|pair: &Pair| {
            (pair.hosts.destination != destination, pair.hosts.source != source)
        });
    }
    match failed {
        Some(error) if pairs.is_empty() => Err(error),
        _ => Ok(pairs),
    }
}

async fn start_one(
    args: &CopyArgs,
    between: &Between<'_>,
    hosts: &HostPair,
    pairs: usize,
) -> Result<Pair, CliError> {
    let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(true, true));
    let source = Server::Ssh(hosts.source.clone());
    let (ticket, server) = between::start(args, &source, &observer).await?;
    let ticket = ticket.to_string();
    let mut flags = vec!["--pieces".to_owned()];
    flags.extend(options::limit(args, pairs).map(|limit| format!("--bwlimit={}", limit.0)));
    flags.extend(options::of_pieces()?);
    let RemoteCommand { child, input, mut output } =
        run_at(args, between, hosts, &ticket, &flags, &observer).await?;
    match read_answer(&mut output).await {
        Some(Answer::Ready) => {}
        _ => {
            return Err(CliError::lost(format!(
                "'{}' did not connect to '{}': its message is above",
                hosts.destination, hosts.source
            )));
        }
    }
    let (orders, output) = (Some(write_orders(input)), Some(output));
    Ok(Pair {
        hosts: hosts.clone(),
        ticket,
        server,
        child,
        orders,
        output,
        answered: Instant::now(),
    })
}

/// Writes orders to a destination host, which ends if none comes for some time.
fn write_orders(mut input: ChildStdin) -> mpsc::UnboundedSender<Order> {
    let (orders, mut queue) = mpsc::unbounded_channel::<Order>();
    let mut alive = tokio::time::interval(worker::ALIVE_INTERVAL);
    tokio::spawn(async move {
        loop {
            let order = tokio::select! {
                order = queue.recv() => match order {
                    Some(order) => order,
                    None => break,
                },
                _ = alive.tick() => Order::Alive,
            };
            let Ok(mut line) = serde_json::to_vec(&order) else { continue };
            line.push(b'\n');
            if input.write_all(&line).await.is_err() {
                break;
            }
        }
    });
    orders
}

/// Lets the destination hosts open the destination, and keeps the pairs whose hosts share it. If the first host cannot
/// write there, no file is divided.
async fn meet(
    mut pairs: Vec<Pair>,
    wanted: &mut Vec<Wanted>,
    is_alone: bool,
) -> Result<Vec<Pair>, CliError> {
    // The destination may then be the name of the file.
    let is_single = is_alone && wanted.iter().all(|file| file.names.is_alone());
    let [first, others @ ..] = &mut pairs[..] else { return Ok(pairs) };
    let Some(names) = wanted.first().map(|file| file.names.clone()) else { return Ok(pairs) };
    let preparing = first.answer_to(Order::Prepare { is_single, names: names.clone() });
    let (probe, state) = match preparing.await {
        Some(Answer::Prepared { probe, state }) => (probe, state),
        Some(Answer::Apart { error }) => {
            output::error(format_args!(
                "'{}': {}; one pair copies all files",
                first.hosts.destination,
                Printable(error.as_bytes())
            ));
            wanted.clear();
            return Ok(pairs);
        }
        answer => {
            let text = format!("'{}': {}", first.hosts.destination, why(answer));
            return Err(CliError::lost(text));
        }
    };
    let joining = others.iter_mut().map(|pair| {
        let (probe, names) = (probe.clone(), names.clone());
        pair.answer_to(Order::Join { is_single, probe, names, state })
    });
    let mut joined = vec![None];
    for answer in futures_util::future::join_all(joining).await {
        joined.push((!matches!(answer, Some(Answer::Joined))).then(|| why(answer)));
    }
    first.send(Order::Settle);
    let mut met = Vec::new();
    for (pair, apart) in pairs.into_iter().zip(joined) {
        match apart {
            None => met.push(pair),
            Some(why) => {
                output::error(format_args!(
                    "{}: takes no part: '{}': {}",
                    pair.hosts,
                    pair.hosts.destination,
                    Printable(why.as_bytes())
                ));
                pair.stop().await;
            }
        }
    }
    Ok(met)
}

/// Why a host cannot take part.
fn why(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Apart { error }) => error,
        _ => "it does not answer; its message is above".to_owned(),
    }
}

impl Pair {
    fn send(&self, order: Order) {
        // The end of a pair is an event of its own.
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }

    /// Sends an order and returns its answer; `None` if none comes.
    async fn answer_to(&mut self, order: Order) -> Option<Answer> {
        self.send(order);
        let output = self.output.as_mut()?;
        let answer = async {
            loop {
                match read_answer(output).await {
                    Some(Answer::Alive) => {}
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(SILENCE_MAX, answer).await.ok().flatten()
    }

    /// Starts the task that reads answers. The end of the answers is `None`.
    fn listen(&mut self, number: usize, answers: mpsc::UnboundedSender<(usize, Option<Answer>)>) {
        self.answered = Instant::now();
        let Some(mut output) = self.output.take() else { return };
        tokio::spawn(async move {
            loop {
                let answer = read_answer(&mut output).await;
                let is_end = answer.is_none();
                if answers.send((number, answer)).is_err() || is_end {
                    break;
                }
            }
        });
    }

    /// Ends the hosts of the pair.
    async fn stop(mut self) {
        drop(self.orders.take());
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.start_kill();
        }
        if let Some(server) = self.server {
            server.close().await;
        }
    }
}

/// Runs `sabul cp` at a destination host with these flags.
async fn run_at(
    args: &CopyArgs,
    between: &Between<'_>,
    hosts: &HostPair,
    ticket: &str,
    flags: &[String],
    observer: &Arc<dyn UploadObserver>,
) -> Result<RemoteCommand, CliError> {
    let order = args.ssh.order(&hosts.destination, args.channel.carrier, observer);
    let mut words = vec!["cp".to_owned(), "--stdio".to_owned()];
    words.extend(flags.iter().cloned());
    words.extend(between.places_at(Driver::Destination)?);
    let mut command = ssh::run(&order, &words).await?;
    // A command that has ended is reported by its missing answer.
    let _ = command.input.write_all(format!("{ticket}\n").as_bytes()).await;
    Ok(command)
}

/// Reads the next answer of a host; `None` at the end.
async fn read_answer(output: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<Answer> {
    loop {
        let mut line = Vec::new();
        let read = (&mut *output).take(ANSWER_MAX).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return None;
        }
        // Other lines are of a banner.
        if let Ok(answer) = serde_json::from_slice(&line) {
            return Some(answer);
        }
    }
}

/// Messages of the dry run, whose failures the last copy reports, too.
#[derive(Debug, Default)]
struct Held(Mutex<String>);

impl UploadObserver for Held {
    fn progress(&self, _host: &str, _sent: u64, _total: u64) {}

    fn confirm(&self, _host: &str, _system: &str, _bytes: &dyn Fn() -> u64) -> bool {
        false
    }

    fn show(&self, text: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() < HELD_MAX {
            held.push_str(text);
        }
    }
}

/// Returns the large files that a copy would send, from a dry run at the first destination host.
async fn list(
    args: &CopyArgs,
    between: &Between<'_>,
    pairs: &[Pair],
) -> Result<Vec<Wanted>, CliError> {
    let Some(first) = pairs.first() else { return Ok(Vec::new()) };
    let held = Arc::new(Held::default());
    let observer: Arc<dyn UploadObserver> = Arc::clone(&held) as Arc<dyn UploadObserver>;
    let mut flags = ["--dry-run", "--json", "--quiet"].map(str::to_owned).to_vec();
    flags.extend(options::of_list()?);
    let command = run_at(args, between, &first.hosts, &first.ticket, &flags, &observer).await?;
    let RemoteCommand { mut child, input, mut output } = command;
    let mut text = Vec::new();
    let read = (&mut output).take(LIST_MAX).read_to_end(&mut text).await;
    drop(input);
    let _ = tokio::time::timeout(STOP_TIMEOUT, child.wait()).await;
    let lines = text.split(|&byte| byte == b'\n');
    let list = lines.filter_map(|line| serde_json::from_slice::<List>(line).ok()).next();
    let Some(list) = list.filter(|_| read.is_ok()) else {
        output::message(&held.0.lock().unwrap_or_else(PoisonError::into_inner));
        return Err(CliError::lost(format!(
            "no list of files came from '{}', or the list is longer than {}: its message is above; run the same command \
             again, or copy parts of the tree",
            first.hosts.destination,
            show_bytes(LIST_MAX)
        )));
    };
    let (wanted, unnamed) = wanted(&list, &between.source_paths());
    if unnamed > 0 && !is_quiet(args) {
        output::note(format_args!(
            "{} of patterns: one pair copies them; name files or folders without patterns for --stripe",
            count(unnamed, "large file")
        ));
    }
    Ok(wanted)
}

/// Returns the large files of a dry run, and the number of those that a pattern names. Names that are not plain text are
/// left to the last copy, as are the failures of the dry run.
fn wanted(list: &List, sources: &[&str]) -> (Vec<Wanted>, u64) {
    let mut unnamed = 0;
    let is_plain = |letter: char| letter != '\\' && letter != char::REPLACEMENT_CHARACTER;
    let plain = list.large.0.iter().filter(|(to, _)| to.chars().all(is_plain));
    let wanted = plain
        .filter_map(|(to, bytes)| {
            let names = names_of(to, sources);
            unnamed += u64::from(names.is_none());
            Some(Wanted { names: names?, bytes: *bytes })
        })
        .collect();
    (wanted, unnamed)
}

/// The source of a name in the copy; `None` for a match of a pattern.
fn names_of(name: &str, sources: &[&str]) -> Option<Names> {
    let to = name.to_owned();
    if let [source] = sources
        && means_content(source.as_bytes())
    {
        let is_pattern = escape_pattern(source.as_bytes()) != source.as_bytes();
        let below = Some(to.clone());
        return (!is_pattern).then(|| Names { source: (*source).to_owned(), below, to });
    }
    let top = name.split('/').next()?;
    let source = sources.iter().find(|source| source.rsplit('/').next() == Some(top))?;
    let below = name[top.len()..].strip_prefix('/').map(str::to_owned);
    Some(Names { source: (*source).to_owned(), below, to })
}

/// Divides the files among the pairs, whose processes have ended afterwards. Returns the division and the hosts of all
/// pairs, and whether each still works.
async fn divide(
    pairs: Vec<Pair>,
    wanted: Vec<Wanted>,
    meter: &Meter,
    lines: Option<&LineBuilder>,
) -> (Division, Vec<(HostPair, bool)>) {
    let (answer_sender, mut answers) = mpsc::unbounded_channel();
    let started = Instant::now();
    let mut division = Division::new(wanted, pairs.len());
    let mut links = pairs;
    for (number, pair) in links.iter_mut().enumerate() {
        pair.listen(number, answer_sender.clone());
    }
    let mut tick = tokio::time::interval(TICK);
    let mut ticks = 0_u64;
    send(&links, division.supply(Duration::ZERO));
    while !division.is_over() {
        let mut lost = None;
        tokio::select! {
            Some((number, answer)) = answers.recv() => {
                let link: &mut Pair = &mut links[number];
                link.answered = Instant::now();
                match answer {
                    Some(answer) => send(&links, division.answer(number, answer, started.elapsed())),
                    None => lost = Some((number, "its connection ended")),
                }
            }
            _ = tick.tick() => {
                send(&links, division.supply(started.elapsed()));
                let pairs = links.iter().filter(|link| link.orders.is_some()).count();
                show(&division, started.elapsed(), pairs, meter);
                ticks += 1;
                if ticks.is_multiple_of(TICKS_OF_LINE) {
                    let (bytes, bytes_total) = (division.written, division.total);
                    json::print_event(lines, CopyEvent::Striped { bytes, bytes_total, pairs });
                }
                let is_silent = |link: &Pair| {
                    link.orders.is_some() && link.answered.elapsed() > SILENCE_MAX
                };
                lost = links.iter().position(is_silent).map(|number| (number, "no answer for 60 s"));
            }
        }
        if let Some((number, why)) = lost
            && links[number].orders.take().is_some()
        {
            output::error(format_args!("{}: {why}; the other pairs go on", links[number].hosts));
            send(&links, division.lose(number, started.elapsed()));
        }
    }
    let hosts = links.iter().map(|link| (link.hosts.clone(), link.orders.is_some())).collect();
    futures_util::future::join_all(links.into_iter().map(Pair::stop)).await;
    (division, hosts)
}

/// Shows the progress.
fn show(division: &Division, time: Duration, pairs: usize, meter: &Meter) {
    let (written, total) = (show_bytes(division.written), show_bytes(division.total));
    let rate = show_rate(division.written as f64 * 8.0 / time.as_secs_f64().max(1e-3));
    meter.say(format!("{written} of {total}, {rate}, {}", count(pairs as u64, "pair")));
}

/// Sends orders to the pairs.
fn send(links: &[Pair], orders: Orders) {
    for (number, order) in orders {
        links[number].send(order);
    }
}

#[cfg(test)]
mod tests {
    use super::chunks::FILE_MAX;
    use super::list::STRIPED_FROM;
    use super::*;

    #[test]
    fn names_in_a_copy_lead_to_their_sources() {
        let of = |name, sources: &[&str]| names_of(name, sources).map(|names| names.from());
        let found = |path: &str| Some(path.to_owned());
        assert_eq!(of("d/a", &["x/d"]), found("x/d/a"));
        assert_eq!(of("a/b", &["x/d/"]), found("x/d/a/b"));
        assert_eq!(of("a/b", &["."]), found("./a/b"));
        assert_eq!(of("a", &[""]), found("a"));
        assert_eq!(of("big", &["x/big"]), found("x/big"));
        assert_eq!(of("big", &["/y", "/x/big"]), found("/x/big"));
        assert_eq!(of("other", &["x/*.nc"]), None);
        assert!(names_of("big", &["x/big"]).unwrap().is_alone());
        assert!(!names_of("d/big", &["x/d"]).unwrap().is_alone());
    }

    #[test]
    fn large_files_with_plain_names_are_striped() {
        let entry = |path: &str, what: &str, bytes: u64| serde_json::json!({ "path": path, "what": what, "bytes": bytes });
        let document = serde_json::json!({ "entries": [
            entry("d", "make", 0),
            entry("d/large", "send", STRIPED_FROM),
            entry("d/old", "replace", 1 << 40),
            entry("d/huge", "send", FILE_MAX + 1),
            entry("d/small", "send", STRIPED_FROM - 1),
            entry("d/same", "keep", 0),
            entry("d/\\xff", "send", 1 << 40),
        ] });
        let list: List = serde_json::from_value(document).unwrap();
        let names: Vec<_> =
            wanted(&list, &["x/d"]).0.into_iter().map(|file| file.names.from()).collect();
        assert_eq!(names, ["x/d/large", "x/d/old"]);
        for pattern in ["y/*", "y/[d]/"] {
            assert_eq!(wanted(&list, &[pattern]), (vec![], 2), "{pattern}");
        }
    }

    #[test]
    fn the_document_of_the_last_copy_has_the_sums_of_all() {
        let mut done = serde_json::json!({ "files": 2, "bytes": 10, "skipped_files": 5, "skipped_bytes": 100 });
        Sums { files: 3, bytes: 90, started: Instant::now() }.add_to(&mut done);
        for (name, expected) in [
            ("files", 5),
            ("bytes", 100),
            ("striped_bytes", 90),
            ("skipped_files", 2),
            ("skipped_bytes", 10),
        ] {
            assert_eq!(done[name], expected, "{name}");
        }
    }
}
