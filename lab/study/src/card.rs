//! Report card of a congestion controller: the results of every test on one page.
//!
//! A card is a list of scenarios (`plan.rs`). In virtual time all scenarios run in parallel. Pure
//! functions compute the numbers of the card (`measure`), and `page` renders them. If a controller
//! fails, or its runs have invalid numbers, the error names the controller. In the lab, fewer
//! and shorter scenarios run one after another (`lab`). Invalid runs are listed with reasons
//! instead of numbers.
//!
//! A card of the [`Contract`] has other tests (`contract`), but is planned, run and written in the
//! same way. A [`Draw`] is the contract on random paths (`draw`), which are written one by one.

mod contract;
mod cost;
mod draw;
mod head;
mod lab;
mod measure;
mod page;
mod picture;
mod plan;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant as Clock;

use sabul_lab_cc::registry::{self, Entry};
use sabul_scenario::keys::rivals;
use sabul_scenario::{Arm, Override, Run};
use sabul_units::Bytes;
use serde::Serialize;

use crate::folder::Folder;
use crate::runs::{self, Finished};
use crate::{COMMIT, Error, Observer, SCHEMA, simulate};
pub use contract::{Contract, Order};
pub use draw::{Draw, DrawSeed, PATHS_MAX, SEEDS};
use head::Head;
use lab::LabPart;
use measure::{Answer, Numbers};
pub(crate) use measure::{RegionTest, Trial, region_test};
pub use picture::picture;
pub use plan::Carrier;
use plan::{Exam, LAB, SIM, Subject};

const SCENARIOS: &str = "scenarios";
/// Keys that the tests set themselves. An override for all tests would make the test names untrue,
/// and so would a key that excludes one of these keys.
const OWN_LINK_KEYS: &[&str] = &["delay_ms", "loss", "queue_bdp"];
const OWN_FLOW_KEYS: &[&str] = &[
    "arrivals",
    "cc",
    "params",
    "path",
    "rate_mbps",
    "rtt_ms",
    "size",
    "start_s",
    "stop_s",
    "transport",
];

/// The controller to measure, and the options of the card.
#[derive(Clone, Debug)]
pub struct Request {
    /// Registry name of the controller.
    pub cc: String,
    /// Parameters of the controller.
    pub params: Vec<(String, String)>,
    /// Simulator or lab.
    pub arm: Arm,
    /// Transport of the flows. Default: TCP for window-based controllers, our protocol for
    /// rate-based controllers.
    pub transport: Option<Carrier>,
    /// Name prefixes of the tests to run. Empty: all tests.
    pub only: Vec<String>,
    /// Seconds from one flow start to the next in the test of seven regions. Default: depends on
    /// the arm.
    pub seconds_per_flow: Option<f64>,
    /// Number of seeds, at least 1. Every scenario runs with each seed from 1 to this number.
    pub seeds: u32,
    /// Settings to change in every scenario: `link.bottleneck.KEY` or `flow.*.KEY`.
    pub settings: Vec<Override>,
    /// Parallel runs in virtual time. Default: one per processor.
    pub threads: Option<usize>,
    /// Output directory for the files of the card, if any.
    pub out: Option<PathBuf>,
    /// Runs the contract with TCP instead of the tests.
    pub contract: Option<Contract>,
    /// Runs the contract on random paths instead of the tests and of `contract`. Simulator only.
    pub draw: Option<Draw>,
}

impl Request {
    /// Requests every test of this controller in the simulator, with one seed and without output
    /// files.
    pub fn new(cc: &str) -> Self {
        Self {
            cc: cc.to_owned(),
            params: Vec::new(),
            arm: Arm::Sim,
            transport: None,
            only: Vec::new(),
            seconds_per_flow: None,
            seeds: 1,
            settings: Vec::new(),
            threads: None,
            out: None,
            contract: None,
            draw: None,
        }
    }
}

/// Content of `card.json`.
#[derive(Debug, Serialize)]
struct Sheet {
    #[serde(flatten)]
    head: Head,
    seconds_per_flow: f64,
    #[serde(flatten)]
    numbers: Numbers,
}

/// Content of `manifest.json`: how the files of a card were made.
#[derive(Debug, Serialize)]
struct Manifest<'a> {
    schema: u32,
    program: &'static str,
    version: &'static str,
    commit: &'static str,
    arm: &'static str,
    cc: &'a str,
    transport: &'static str,
    params: &'a BTreeMap<String, String>,
    seeds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_per_flow: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'static str>,
    settings: &'a BTreeMap<String, String>,
    files: &'a [String],
}

/// A finished card.
#[derive(Debug)]
pub struct Card {
    paper: Paper,
}

/// Results by kind of card.
#[derive(Debug)]
enum Paper {
    Tests(Box<Sheet>),
    Contract(Box<contract::Sheet>),
    Draw(Box<draw::Sheet>),
}

impl Card {
    /// Returns the card as text for a terminal.
    pub fn text(&self) -> String {
        match &self.paper {
            Paper::Tests(sheet) => page::text(sheet),
            Paper::Contract(sheet) => contract::text(sheet),
            Paper::Draw(sheet) => draw::text(sheet),
        }
    }

    /// Returns the content of `card.json`, `contract.json` or `draw.json`.
    ///
    /// # Errors
    /// If a number cannot be serialized.
    pub fn to_json(&self) -> Result<String, Error> {
        match &self.paper {
            Paper::Tests(sheet) => serde_json::to_string(sheet),
            Paper::Contract(sheet) => serde_json::to_string(sheet),
            Paper::Draw(sheet) => serde_json::to_string(sheet),
        }
        .map_err(cannot_say)
    }

    /// Returns the same document as a value, for looking numbers up.
    ///
    /// # Errors
    /// If a number cannot be serialized.
    pub fn to_value(&self) -> Result<serde_json::Value, Error> {
        match &self.paper {
            Paper::Tests(sheet) => serde_json::to_value(sheet),
            Paper::Contract(sheet) => serde_json::to_value(sheet),
            Paper::Draw(sheet) => serde_json::to_value(sheet),
        }
        .map_err(cannot_say)
    }

    fn head(&self) -> &Head {
        match &self.paper {
            Paper::Tests(sheet) => &sheet.head,
            Paper::Contract(sheet) => &sheet.head,
            Paper::Draw(sheet) => &sheet.head,
        }
    }

    /// Returns one sentence for each invalid run in the lab.
    pub fn invalid(&self) -> impl Iterator<Item = String> {
        self.head().lab.iter().flat_map(LabPart::invalid)
    }

    /// Returns whether all runs are valid.
    pub fn is_valid(&self) -> bool {
        self.head().lab.as_ref().is_none_or(LabPart::is_valid)
    }
}

fn cannot_say(error: serde_json::Error) -> Error {
    Error::failed(format!("cannot write JSON: {error}"))
}

/// A validated request whose runs have not started.
#[derive(Debug)]
pub struct Sitting {
    request: Request,
    entry: &'static Entry,
    transport: Carrier,
    exams: Exams,
    /// All seeds of the first scenario, then those of the next.
    all: Vec<Run>,
}

/// The scenarios to run, by kind of card.
#[derive(Debug)]
enum Exams {
    Tests { exams: Vec<Exam>, seconds_per_flow: f64 },
    Contract { exams: Vec<Exam<contract::Question>>, order: Order },
    Draw { exams: Vec<Exam<draw::Question>>, draw: Draw, paths: Vec<draw::Path> },
}

/// Runs the tests of a controller and returns its card. In the lab the caller must have isolated
/// the process with `sabul_emu::isolate`.
///
/// # Errors
/// If the request is invalid, the controller fails, or files cannot be written.
pub fn card(request: Request, observer: &Observer) -> Result<Card, Error> {
    Sitting::new(request)?.run(observer)
}

impl Sitting {
    /// Validates the whole request and creates the output directory.
    ///
    /// # Errors
    /// If the request is invalid.
    pub fn new(request: Request) -> Result<Self, Error> {
        let entry = registry::find(&request.cc)?;
        entry.build(&request.params, Bytes(1500))?;
        let has_contract = request.contract.is_some() || request.draw.is_some();
        request.settings.iter().try_for_each(|given| check_setting(given, has_contract))?;
        let transport = transport(entry, request.transport)?;
        let subject = Subject { entry, params: &request.params, transport };
        let exams = match (request.draw, request.contract) {
            (Some(_), _) if request.arm == Arm::Lab => {
                return Err(Error::usage(
                    "--arm lab: random paths of the contract are for the simulator; use --arm sim",
                ));
            }
            (Some(draw), _) => {
                let paths = draw::paths(draw, &request.only)?;
                Exams::Draw { exams: draw::exams(&subject, &paths), draw, paths }
            }
            (None, None) => {
                let extent = match request.arm {
                    Arm::Sim => &SIM,
                    Arm::Lab => &LAB,
                };
                let seconds_per_flow = request.seconds_per_flow.unwrap_or(extent.region_s);
                let exams = chosen(subject.exams(extent, seconds_per_flow), &request.only)?;
                Exams::Tests { exams, seconds_per_flow }
            }
            (None, Some(contract)) => Exams::Contract {
                exams: contract::exams(&subject, request.arm, contract, &request.only)?,
                order: contract.order,
            },
        };
        if request.arm == Arm::Lab {
            lab::check(&subject)?;
        }
        let all = match &exams {
            Exams::Tests { exams, .. } => read(&request, exams)?,
            Exams::Contract { exams, .. } => read(&request, exams)?,
            Exams::Draw { exams, .. } => read(&request, exams)?,
        };
        // Before the runs: an unusable directory must fail early, not after the runs.
        if let Some(dir) = &request.out {
            runs::make_directory(&dir.join(SCENARIOS), "--out")?;
        }
        Ok(Self { request, entry, transport, exams, all })
    }

    /// Runs all scenarios, computes the card, and writes its files.
    ///
    /// # Errors
    /// If the controller fails, the observer interrupts the runs, or files cannot be written.
    pub fn run(self, observer: &Observer) -> Result<Card, Error> {
        let started = Clock::now();
        if let Exams::Draw { exams, draw, paths } = &self.exams {
            return self.draw(exams, *draw, paths, started, observer);
        }
        let (finished, machine) = match self.request.arm {
            Arm::Sim => (run_all(&self.all, self.request.threads, observer)?, None),
            Arm::Lab => {
                let (finished, machine) = lab::run_all(self.entry.name, &self.all, observer)?;
                (finished, Some(machine))
            }
        };
        self.mark(finished, machine, started)
    }
}

/// Returns the transport of the controller's flows. Rejects TCP for a rate-based controller.
fn transport(entry: &Entry, wanted: Option<Carrier>) -> Result<Carrier, Error> {
    let own = Carrier::of(entry);
    match wanted {
        Some(Carrier::Tcp) if own == Carrier::Sabul => Err(Error::usage(format!(
            "--transport tcp: '{}' controls a rate, and TCP has a window; leave it out",
            entry.name
        ))),
        wanted => Ok(wanted.unwrap_or(own)),
    }
}

/// Returns the tests that `--only` selects, or all tests if `only` is empty.
fn chosen(exams: Vec<Exam>, only: &[String]) -> Result<Vec<Exam>, Error> {
    let is_of = |exam: &Exam, test: &str| {
        let rest = exam.name.strip_prefix(test);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if let Some(unknown) = only.iter().find(|test| !exams.iter().any(|exam| is_of(exam, test))) {
        let names: Vec<&str> = exams.iter().map(|exam| exam.name.as_str()).collect();
        return Err(Error::usage(format!(
            "--only {unknown}: this card has no such test; use the first words of some of {}",
            names.join(", ")
        )));
    }
    let is_chosen = |exam: &Exam| only.is_empty() || only.iter().any(|test| is_of(exam, test));
    Ok(exams.into_iter().filter(is_chosen).collect())
}

impl Sitting {
    /// Runs a draw path by path, and computes its card.
    fn draw(
        &self,
        exams: &[Exam<draw::Question>],
        draw: Draw,
        paths: &[draw::Path],
        started: Clock,
        observer: &Observer,
    ) -> Result<Card, Error> {
        let Self { request, entry, transport, all, .. } = self;
        let identity = draw::Identity {
            cc: entry.name.to_owned(),
            transport: transport.name().to_owned(),
            params: request.params.iter().cloned().collect(),
            settings: settings(all),
            commit: COMMIT.to_owned(),
            seeds: request.seeds,
            draw_seed: draw.seed.number(),
        };
        let how = (request.threads, request.out.as_deref());
        let numbers = draw::run(paths, exams, all, &identity, how, observer)?;
        let sheet = draw::Sheet::new(self.head(started), draw, numbers);
        let first = all.iter().step_by(request.seeds as usize);
        let scenario = |(exam, run): (&Exam<_>, &Run)| {
            (format!("{SCENARIOS}/{}.toml", exam.name), run.text.clone())
        };
        let mut files: Vec<_> = exams.iter().zip(first).map(scenario).collect();
        files.push(("report.html".to_owned(), draw::page(&sheet).to_html()));
        files.push(("draw.csv".to_owned(), draw::csv(&sheet)));
        let card = Card { paper: Paper::Draw(Box::new(sheet)) };
        if let Some(dir) = &request.out {
            write(dir, &card, &files)?;
        }
        Ok(card)
    }

    /// Returns the card's fields that are not results; runs began at `started`.
    fn head(&self, started: Clock) -> Head {
        let Self { request, entry, transport, all, .. } = self;
        Head {
            schema: SCHEMA,
            arm: request.arm.name(),
            cc: entry.name,
            transport: transport.name(),
            params: request.params.iter().cloned().collect(),
            commit: COMMIT,
            seeds: request.seeds,
            settings: settings(all),
            wall_s: started.elapsed().as_secs_f64(),
            lab: None,
        }
    }

    /// Computes the card from the finished runs.
    fn mark(
        self,
        finished: Vec<Finished>,
        machine: Option<lab::Machine>,
        started: Clock,
    ) -> Result<Card, Error> {
        let head = self.head(started);
        let Self { request, entry, exams, all, .. } = self;
        let head = |lab| Head { lab, ..head };
        let (card, files) = match exams {
            Exams::Tests { exams, seconds_per_flow } => {
                let answers = answers(entry.name, exams, all, finished, request.seeds)?;
                let mhz = machine.as_ref().and_then(|machine| machine.cpu_mhz);
                let numbers = Numbers::new(&answers, mhz);
                let head = head(machine.map(|machine| LabPart::new(machine, &answers)));
                let sheet = Sheet { head, seconds_per_flow, numbers };
                let mut files = scenarios(&answers);
                files.push(("report.html".to_owned(), page::page(&sheet, &answers).to_html()));
                (Card { paper: Paper::Tests(Box::new(sheet)) }, files)
            }
            Exams::Contract { exams, order } => {
                let answers = answers(entry.name, exams, all, finished, request.seeds)?;
                let head = head(machine.map(|machine| LabPart::new(machine, &answers)));
                let sheet = contract::Sheet::new(head, order, &answers);
                let mut files = scenarios(&answers);
                files.push(("report.html".to_owned(), contract::page(&sheet).to_html()));
                files.push(("contract.csv".to_owned(), contract::csv(&sheet)));
                (Card { paper: Paper::Contract(Box::new(sheet)) }, files)
            }
            Exams::Draw { .. } => unreachable!("`run` has returned the card of a draw"),
        };
        if let Some(dir) = &request.out {
            write(dir, &card, &files)?;
        }
        Ok(card)
    }
}

/// Returns whether a key is set by the tests or excludes a key that the tests set.
fn is_own(list: &str, own: &[&str], key: &str) -> bool {
    own.contains(&key) || rivals(list, key).iter().any(|rival| own.contains(rival))
}

/// Rejects overrides that would remove the property that a test measures.
fn check_setting(given: &Override, has_contract: bool) -> Result<(), Error> {
    let key = given.key();
    let refuse = |what: &str| Err(Error::usage(format!("--set {key}: {what}")));
    if given.value_count() != 1 {
        return refuse("a card has one value for each setting; make a card for each");
    }
    let parts: Vec<&str> = key.split('.').collect();
    match parts.as_slice() {
        ["link", _, "rate_mbps", ..] if has_contract => {
            refuse("this is what cells of the contract set themselves; choose some with --only")
        }
        ["link", _, key, ..] if is_own("link", OWN_LINK_KEYS, key) => {
            refuse("this is what tests of the card set themselves; use sabul sim run")
        }
        ["flow", _, key, ..] if is_own("flow", OWN_FLOW_KEYS, key) => refuse(
            "this is what tests of the card set themselves; use --cc-param, or sabul sim run",
        ),
        ["link" | "flow", _, ..] => Ok(()),
        _ => refuse("use link.bottleneck.KEY or flow.*.KEY; seeds are --seeds"),
    }
}

/// Returns every run of the card: all seeds of the first scenario, then those of the next.
fn read<Q>(request: &Request, exams: &[Exam<Q>]) -> Result<Vec<Run>, Error> {
    let Request { arm, seeds, .. } = *request;
    let wrong = |error: sabul_scenario::Error| Error::usage(error.to_string());
    let mut overrides = request.settings.clone();
    overrides.push(sabul_scenario::parse_override(&format!("seed=1..{seeds}")).map_err(wrong)?);
    let mut all = Vec::new();
    for exam in exams {
        let file = format!("{}.toml", exam.name);
        all.extend(sabul_scenario::read_for(arm, &exam.text, &file, &overrides).map_err(wrong)?);
    }
    Ok(all)
}

fn run_all(
    all: &[Run],
    threads: Option<usize>,
    observer: &Observer,
) -> Result<Vec<Finished>, Error> {
    let count = all.len();
    let progress = |done: usize| {
        if done.is_multiple_of(10) || done == count {
            observer.note(format_args!("{done} of {count} runs done"));
        }
    };
    let finished = sabul_scenario::run_all_with_progress(all, threads, progress, simulate);
    finished.into_iter().collect()
}

/// Builds the error for a failed controller.
fn fault(cc: &str, scenario: &str, what: &str) -> Error {
    Error::failed(format!("controller '{cc}' failed in the scenario '{scenario}': {what}"))
}

/// Groups runs and their results by scenario. Fails on numbers that only a faulty controller
/// produces.
fn answers<Q>(
    cc: &str,
    exams: Vec<Exam<Q>>,
    all: Vec<Run>,
    finished: Vec<Finished>,
    seeds: u32,
) -> Result<Vec<Answer<Q>>, Error> {
    let mut trials = all.into_iter().zip(finished).map(|(run, finished)| Trial { run, finished });
    let mut answers = Vec::new();
    for exam in exams {
        let trials: Vec<Trial> = trials.by_ref().take(seeds as usize).collect();
        let (trials, invalid): (Vec<_>, Vec<_>) =
            trials.into_iter().partition(|trial| trial.finished.is_valid());
        for trial in &trials {
            if let Some(what) = measure::invalid_number(trial) {
                return Err(fault(cc, &trial.run.scenario.name, &what));
            }
        }
        answers.push(Answer { exam, trials, invalid });
    }
    Ok(answers)
}

/// Returns the overrides, as recorded in the first run, without the seed.
fn settings(all: &[Run]) -> BTreeMap<String, String> {
    let settings = all.first().into_iter().flat_map(|run| run.settings.iter().cloned());
    settings.filter(|(key, _)| key != "seed").collect()
}

/// Returns the scenario files, as pairs of name and text.
fn scenarios<Q>(answers: &[Answer<Q>]) -> Vec<(String, String)> {
    let file = |answer: &Answer<Q>| {
        let name = format!("{SCENARIOS}/{}.toml", answer.exam.name);
        Some((name, answer.first()?.run.text.clone()))
    };
    answers.iter().filter_map(file).collect()
}

/// Writes the files of a card. The manifest is written last: if it exists, all files are complete.
fn write(dir: &Path, card: &Card, files: &[(String, String)]) -> Result<(), Error> {
    let document = card.to_json()?;
    let head = card.head();
    let (name, seconds_per_flow, order) = match &card.paper {
        Paper::Tests(sheet) => ("card.json", Some(sheet.seconds_per_flow), None),
        Paper::Contract(sheet) => ("contract.json", None, Some(sheet.order)),
        Paper::Draw(_) => ("draw.json", None, None),
    };
    let manifest = |files: &[String]| {
        Ok(serde_json::to_string_pretty(&Manifest {
            schema: SCHEMA,
            program: "sabul",
            version: env!("CARGO_PKG_VERSION"),
            commit: head.commit,
            arm: head.arm,
            cc: head.cc,
            transport: head.transport,
            params: &head.params,
            seeds: head.seeds,
            seconds_per_flow,
            order,
            settings: &head.settings,
            files,
        })?)
    };
    let fill = || {
        let mut folder = Folder::begin(dir)?;
        folder.write(name, document)?;
        files.iter().try_for_each(|(name, text)| folder.write(name, text))?;
        folder.end(manifest)
    };
    fill().map_err(|error| runs::cannot_write(dir, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Result<(), String> {
        let given = sabul_scenario::parse_override(text).unwrap();
        check_setting(&given, false).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_that_would_defeat_a_test_are_refused() {
        for text in ["link.bottleneck.rate_mbps=10", "link.*.discipline=codel", "flow.*.ecn=true"] {
            assert_eq!(setting(text), Ok(()), "{text}");
        }
        let given = sabul_scenario::parse_override("link.*.rate_mbps=10").unwrap();
        assert!(check_setting(&given, true).unwrap_err().to_string().contains("--only"));
        for (text, part) in [
            ("link.bottleneck.loss=0.1", "sim run"),
            ("link.bottleneck.queue_packets=9", "sim run"),
            ("link.bottleneck.queue_bytes=9000", "sim run"),
            ("flow.*.access_delay_ms=5", "--cc-param"),
            ("flow.*.bytes=5", "--cc-param"),
            ("flow.*.count=5", "--cc-param"),
            ("flow.*.spread_s=5", "--cc-param"),
            ("flow.*.cc=reno", "--cc-param"),
            ("flow.a.params.beta=0.5", "--cc-param"),
            ("seed=5", "--seeds"),
            ("duration_s=5", "link.bottleneck.KEY"),
            ("link.bottleneck.rate_mbps=10,20", "one value"),
        ] {
            let error = setting(text).unwrap_err();
            assert!(error.starts_with("--set ") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn tests_are_selected_by_name_prefix() {
        let entry = registry::find("cubic").unwrap();
        let exams = || {
            let transport = Carrier::Tcp;
            Subject { entry, params: &[], transport }.exams(&LAB, 6.0)
        };
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&test| test.to_owned()).collect();
            chosen(exams(), &only)
                .map(|exams| exams.into_iter().map(|exam| exam.name).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(names(&[]).unwrap().len(), exams().len());
        assert_eq!(names(&["mice", "queue"]).unwrap(), ["queue", "mice", "mice-alone"]);
        assert_eq!(names(&["regions-10ms"]).unwrap(), ["regions-10ms"]);
        assert_eq!(names(&["regions"]).unwrap().len(), 3);
        let error = names(&["regions-1"]).unwrap_err();
        assert!(error.contains("--only regions-1") && error.contains("regions-10ms"), "{error}");
    }

    #[test]
    fn rate_controllers_are_refused_on_tcp_and_window_controllers_are_not() {
        let of = |name: &str, wanted| transport(registry::find(name).unwrap(), wanted);
        assert_eq!(of("cubic", None).unwrap(), Carrier::Tcp);
        assert_eq!(of("cubic", Some(Carrier::Sabul)).unwrap(), Carrier::Sabul);
        assert_eq!(of("sabul2003", None).unwrap(), Carrier::Sabul);
        let error = of("sabul2003", Some(Carrier::Tcp)).unwrap_err().to_string();
        assert!(error.contains("--transport tcp"), "{error}");
    }

    #[test]
    fn runs_are_in_the_order_of_the_scenarios_seeds_together() {
        let entry = registry::find("cubic").unwrap();
        let transport = Carrier::of(entry);
        let exams = Subject { entry, params: &[], transport }.exams(&SIM, 1.0);
        let all = read(&Request { seeds: 3, ..Request::new("cubic") }, &exams).unwrap();
        assert_eq!(all.len(), exams.len() * 3);
        for (exam, runs) in exams.iter().zip(all.chunks(3)) {
            for (seed, run) in (1..).zip(runs) {
                let wanted = (format!("cubic {}", exam.name), seed);
                assert_eq!((run.scenario.name.clone(), run.scenario.seed), wanted);
            }
        }
    }
}
