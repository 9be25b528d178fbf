//! Lab part of a card: scenarios run one after another in real time, with facts about the machine.
//!
//! A run whose path was not as requested has reasons instead of numbers. Processor cost is read
//! from the threads of the flows' hosts (`sabul_emu::FlowCpu`).

use std::fs;

use sabul_report::{Cell, Item, Section, Table, quantity};
use sabul_scenario::Run;
use serde::Serialize;

use super::measure::{Answer, Trial};
use super::plan::{Carrier, Subject};
use crate::processor::cpu_mhz;
use crate::report::INVALID;
use crate::runs::{Finished, LabFacts};
use crate::{Error, Measuring, Observer, measure};
use sabul_units::count;

/// Explains which processor time is counted and which is not.
pub(super) const COST: &str = "Processor time is that of the threads of the flows' hosts, system calls \
    included, all flows together; 100 % is one processor. The kernel's work for arriving packets, including \
    TCP's answers to acknowledgements, belongs to no thread and is not counted: numbers of the kernel's \
    TCP are too small by that. MHz/Mbps is the share of a processor × its clock ÷ goodput.";

/// Lab-specific part of a card.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LabPart {
    pub(super) machine: Machine,
    exams: Vec<ExamNote>,
}

/// The machine that the card was measured on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    cpu_model: Option<String>,
    processors: usize,
    /// Mean clock of the processors in MHz, as the system reports it.
    pub(super) cpu_mhz: Option<f64>,
    kernel: Option<String>,
}

/// Validity of one run.
#[derive(Clone, Debug, Serialize)]
struct ExamNote {
    scenario: String,
    seed: u64,
    valid: bool,
    /// The run is valid, but the machine was late at times.
    disturbed: bool,
    faults: Vec<String>,
    notes: Vec<String>,
    /// 99th percentile of packet lateness at the end of the path, in microseconds.
    late_us_p99: f64,
}

impl LabPart {
    pub(super) fn new<Q>(machine: Machine, answers: &[Answer<Q>]) -> Self {
        let trials = answers.iter().flat_map(|one| one.trials.iter().chain(&one.invalid));
        let note = |trial: &Trial| Some(ExamNote::new(&trial.run, trial.finished.lab.as_ref()?));
        Self { machine, exams: trials.filter_map(note).collect() }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.exams.iter().all(|exam| exam.valid)
    }

    /// Returns one sentence for each invalid run.
    pub(super) fn invalid(&self) -> impl Iterator<Item = String> {
        self.exams.iter().filter(|exam| !exam.valid).map(|exam| {
            let ExamNote { scenario, seed, faults, .. } = exam;
            format!("INVALID: '{scenario}' with seed {seed}: {}", faults.join("; "))
        })
    }

    /// Returns the section on the validity of the numbers.
    pub(super) fn section(&self) -> Section {
        let table = Table::of("", &self.exams)
            .text("scenario", |exam| exam.scenario.clone().into())
            .number("seed", "", |exam| Cell::Fixed(exam.seed as f64, 0))
            .text("verdict", |exam| match (exam.valid, exam.disturbed) {
                (false, _) => Cell::Fail("INVALID".to_owned()),
                (true, true) => "disturbed".into(),
                (true, false) => Cell::Pass("valid".to_owned()),
            })
            .number("99 % late by at most", "µs", |exam| Cell::Fixed(exam.late_us_p99, 0))
            .text("why", |exam| {
                exam.faults.iter().chain(&exam.notes).cloned().collect::<Vec<_>>().join("; ").into()
            })
            .table();
        let text = format!(
            "Measured on {}. Before each run its path is calibrated. An invalid run shows no \
             results: {INVALID}.",
            self.machine.line(),
        );
        Section::new("Machine and validity", text).with_item(Item::Table(table))
    }
}

impl ExamNote {
    fn new(run: &Run, facts: &LabFacts) -> Self {
        Self {
            scenario: run.scenario.name.clone(),
            seed: run.scenario.seed,
            valid: facts.faults.is_empty(),
            disturbed: facts.notes.iter().any(|note| note.starts_with("disturbed")),
            faults: facts.faults.clone(),
            notes: facts.notes.clone(),
            late_us_p99: facts.router.lateness.p99.as_secs_f64() * 1e6,
        }
    }
}

impl Machine {
    /// Returns the properties of this machine.
    fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            cpu_model: model_in(&cpuinfo),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_mhz: cpu_mhz(),
            kernel: kernel.map(|text| text.trim().to_owned()),
        }
    }

    pub(super) fn line(&self) -> String {
        let model = self.cpu_model.as_deref().unwrap_or("an unknown processor");
        let clock = match self.cpu_mhz {
            Some(mhz) => format!("at {}", quantity(mhz * 1e6, "Hz")),
            None => "of unknown clock".to_owned(),
        };
        let kernel = self.kernel.as_deref().unwrap_or("unknown");
        format!("{}, {model} {clock}, Linux {kernel}", count(self.processors as u64, "processor"))
    }
}

fn model_in(cpuinfo: &str) -> Option<String> {
    let models = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let model = models.filter(|(key, _)| key.trim() == "model name").map(|(_, model)| model).next();
    model.map(|model| model.trim().to_owned())
}

/// Rejects TCP controllers and parameters that this machine's kernel lacks, before any run.
pub(super) fn check(subject: &Subject<'_>) -> Result<(), Error> {
    if subject.transport != Carrier::Tcp {
        return Ok(());
    }
    let name = subject.entry.name;
    if !subject.params.is_empty() {
        return Err(Error::usage(format!(
            "--cc-param: in the lab TCP is the kernel's, whose '{name}' takes no parameters; use \
             --transport sabul for our protocol with the controller '{name}'"
        )));
    }
    sabul_emu::check_kernel_algorithm(name).map_err(|error| {
        Error::usage(format!(
            "{error}; or use --transport sabul for our protocol with the controller '{name}'"
        ))
    })
}

/// Runs everything, one run after another. The caller must have isolated the process with
/// `sabul_emu::isolate`.
pub(super) fn run_all(
    cc: &str,
    all: &[Run],
    observer: &Observer,
) -> Result<(Vec<Finished>, Machine), Error> {
    let machine = Machine::here();
    let seconds: f64 = all.iter().map(|run| run.scenario.duration.as_secs_f64()).sum();
    observer.note(format_args!(
        "{} of {seconds:.0} s in all, and a calibration of some seconds before each",
        count(all.len() as u64, "run"),
    ));
    let mut finished = Vec::new();
    for (index, run) in all.iter().enumerate() {
        let measuring = Measuring {
            title: format!("{} of {}, {}", index + 1, all.len(), run.scenario.name),
            ..Measuring::default()
        };
        let one = measure(run, measuring, observer).map_err(|error| {
            let name = &run.scenario.name;
            let text = format!("card of '{cc}', scenario '{name}': {error}; nothing was written");
            error.in_words(text)
        })?;
        if !one.is_valid() {
            observer.note(format_args!("invalid: {}", one.faults().join("; ")));
        }
        finished.push(one);
    }
    Ok((finished, machine))
}

#[cfg(test)]
mod tests {
    use sabul_lab_cc::registry;

    use super::*;

    fn subject<'a>(name: &str, params: &'a [(String, String)], transport: Carrier) -> Subject<'a> {
        Subject { entry: registry::find(name).unwrap(), params, transport }
    }

    #[test]
    fn controllers_missing_from_the_kernel_are_refused_with_alternatives() {
        let refused = |subject: &Subject<'_>| check(subject).unwrap_err();
        let error = refused(&subject("fast", &[], Carrier::Tcp));
        assert_eq!(error.cause(), crate::Cause::Request);
        let text = error.to_string();
        for part in ["'fast'", "cubic", "--transport sabul"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let params = [("beta".to_owned(), "0.5".to_owned())];
        let text = refused(&subject("cubic", &params, Carrier::Tcp)).to_string();
        assert!(text.contains("--cc-param") && text.contains("--transport sabul"), "{text}");
        for (name, params, transport) in [
            ("fast", &[][..], Carrier::Sabul),
            ("cubic", &params, Carrier::Sabul),
            ("newreno", &[], Carrier::Tcp),
        ] {
            assert!(check(&subject(name, params, transport)).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_model_of_the_processor_is_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\ncpu MHz\t\t: 2000.0\n";
        assert_eq!(model_in(text).as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(model_in(""), None);
        let machine = Machine {
            cpu_model: model_in(text),
            processors: 2,
            cpu_mhz: Some(2000.0),
            kernel: Some("6.1".to_owned()),
        };
        assert_eq!(machine.line(), "2 processors, Some CPU @ 2.00GHz at 2 GHz, Linux 6.1");
    }
}
