//! Parallel runner of a draw, with a journal. Each finished path is written to `paths.jsonl` at
//! once, so an interrupted draw resumes where it ended.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sabul_scenario::Run;
use serde::{Deserialize, Serialize};

use super::super::measure::{Trial, invalid_number};
use super::super::plan::Exam;
use super::judge::{PathResult, SeedResults, TrialResult};
use super::paths::{PACKETS_MAX, Path, Question, Role};
use crate::{Cause, Error, Observer, simulate};

/// Packets that the simulator carries per second and processor. Measured: 1.9 to 4.0 million on the
/// links that dominate the time of a draw. On small links that lose a third of the packets: 0.6 to
/// 1.1 million.
const PACKETS_PER_SECOND: f64 = 2e6;
const JOURNAL: &str = "paths.jsonl";

/// Everything that the numbers of a path depend on: the first line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Identity {
    pub(in super::super) cc: String,
    pub(in super::super) transport: String,
    pub(in super::super) params: BTreeMap<String, String>,
    pub(in super::super) settings: BTreeMap<String, String>,
    pub(in super::super) commit: String,
    pub(in super::super) seeds: u32,
    pub(in super::super) draw_seed: u64,
}

/// One run, and the position of its numbers.
struct Job {
    path: usize,
    role: Role,
    seed: usize,
    run: Run,
}

/// Numbers of a path whose runs have not all finished.
struct PathRuns {
    results: Vec<SeedResults>,
    /// Reasons of failed runs by seed and scenario.
    faults: BTreeMap<(usize, &'static str), String>,
    left: usize,
}

/// State shared by the threads.
struct Progress {
    runs: Vec<PathRuns>,
    judged: Vec<Option<PathResult>>,
    journal: Option<(PathBuf, File)>,
}

/// Runs and judges every path. `all` has the seeds of the first exam, then those of the next.
pub(in super::super) fn run(
    paths: &[Path],
    exams: &[Exam<Question>],
    all: &[Run],
    identity: &Identity,
    (threads, dir): (Option<usize>, Option<&std::path::Path>),
    observer: &Observer,
) -> Result<Vec<PathResult>, Error> {
    let seeds = identity.seeds as usize;
    let (kept, journal) = match dir {
        None => (Vec::new(), None),
        Some(dir) => {
            let file = dir.join(JOURNAL);
            open(&file, identity)
                .map(|(kept, journal)| (kept, Some((file.clone(), journal))))
                .map_err(|error| Error::failed(format!("cannot use {}: {error}", file.display())))?
        }
    };
    // A journal entry with a different path is from another version of the draw and is ignored.
    let known = |path: &Path| {
        kept.iter()
            .find(|result| result.path.number == path.number && is_same(&result.path, path))
            .cloned()
    };
    let judged: Vec<Option<PathResult>> = paths.iter().map(known).collect();
    let done = judged.iter().flatten().count();
    let mut jobs = Vec::new();
    for (exam, runs) in exams.iter().zip(all.chunks(seeds)) {
        let Question { path, role } = exam.question;
        if judged[path].is_none() {
            let job = |(seed, run): (usize, &Run)| Job { path, role, seed, run: run.clone() };
            jobs.extend(runs.iter().enumerate().map(job));
        }
    }
    announce(paths, done, &jobs, threads, observer);
    let path_runs = || PathRuns {
        results: vec![SeedResults::default(); seeds],
        faults: BTreeMap::new(),
        left: Role::ALL.len() * seeds,
    };
    let progress =
        Mutex::new(Progress { runs: paths.iter().map(|_| path_runs()).collect(), judged, journal });
    let is_broken = AtomicBool::new(false);
    let work = |job: &Job| {
        if is_broken.load(Ordering::Relaxed) {
            return Ok(());
        }
        let answer = work_off(job, paths, &progress, observer);
        if answer.is_err() {
            is_broken.store(true, Ordering::Relaxed);
        }
        answer
    };
    sabul_scenario::run_all_with_progress(&jobs, threads, |_| {}, work)
        .into_iter()
        .collect::<Result<(), Error>>()?;
    Ok(progress
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .judged
        .into_iter()
        .flatten()
        .collect())
}

/// Returns whether a path in the journal equals the drawn path. Numbers from a file may differ in
/// their last bit.
fn is_same(kept: &Path, path: &Path) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    near(kept.queue_bdp, path.queue_bdp)
        && Path { queue_bdp: 0.0, ..*kept } == Path { queue_bdp: 0.0, ..*path }
}

fn announce(
    paths: &[Path],
    done: usize,
    jobs: &[Job],
    threads: Option<usize>,
    observer: &Observer,
) {
    let packets: f64 = jobs.iter().map(|job| paths[job.path].packets()).sum();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.unwrap_or(processors).min(processors);
    let hours = packets / PACKETS_PER_SECOND / threads as f64 / 3600.0;
    observer.note(format_args!(
        "{} paths, {} runs of at most {} million packets, {:.1} billion packets in all: about {hours:.1} h on \
         {threads} processors",
        paths.len() - done,
        jobs.len(),
        PACKETS_MAX / 1e6,
        packets / 1e9,
    ));
    if done > 0 {
        observer.note(format_args!(
            "{done} paths of an earlier run are kept; remove {JOURNAL} to run them again"
        ));
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PathRuns {
    /// Returns the result of a path whose runs are finished. Seeds with a failed run are excluded
    /// from its numbers.
    fn result(&self, path: Path) -> PathResult {
        let has_failed = |seed: usize| self.faults.keys().any(|(failed, _)| *failed == seed);
        let good = self.results.iter().enumerate().filter(|(seed, _)| !has_failed(*seed));
        let good: Vec<SeedResults> = good.map(|(_, results)| *results).collect();
        let faults: Vec<String> = self.faults.values().cloned().collect();
        PathResult::new(path, &good, &faults)
    }
}

/// Returns the numbers of a run, or the reason of its failure. A controller may fail on one path of
/// many; the other paths are still judged.
///
/// # Errors
/// If the run cannot be simulated as requested.
fn result(job: &Job, path: &Path) -> Result<Result<TrialResult, String>, Error> {
    let finished = match simulate(&job.run) {
        Ok(finished) => finished,
        Err(error) if error.cause() == Cause::Request => return Err(error),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let trial = Trial { run: job.run.clone(), finished };
    Ok(match invalid_number(&trial) {
        Some(what) => Err(format!("scenario '{}', {what}", job.run.scenario.name)),
        None => Ok(TrialResult::new(path, job.role, &trial)),
    })
}

fn work_off(
    job: &Job,
    paths: &[Path],
    progress: &Mutex<Progress>,
    observer: &Observer,
) -> Result<(), Error> {
    let path = paths[job.path];
    let result = result(job, &path)?;
    let mut progress = lock(progress);
    let path_runs = &mut progress.runs[job.path];
    let results = &mut path_runs.results[job.seed];
    match (result, job.role) {
        (Ok(result), Role::Alone) => results.alone = result,
        (Ok(result), Role::Beside) => results.beside = result,
        (Ok(result), Role::Reference) => results.reference = result,
        (Err(fault), role) => {
            path_runs.faults.insert((job.seed, role.name()), fault);
        }
    }
    path_runs.left -= 1;
    if path_runs.left > 0 {
        return Ok(());
    }
    let result = path_runs.result(path);
    let verdict = result.met.name();
    if let Some((file, journal)) = &mut progress.journal {
        write_line(journal, &result).map_err(|error| {
            Error::failed(format!("cannot write to {}: {error}", file.display()))
        })?;
    }
    progress.judged[job.path] = Some(result);
    let done = progress.judged.iter().flatten().count();
    observer.note(format_args!(
        "path {}: {} ({done} of {} done)",
        path.number,
        verdict,
        paths.len()
    ));
    Ok(())
}

fn write_line(journal: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    journal.write_all(text.as_bytes())
}

/// Opens the journal. Keeps the results of an earlier run with the same identity and discards
/// everything else.
fn open(file: &std::path::Path, identity: &Identity) -> io::Result<(Vec<PathResult>, File)> {
    let kept = match File::open(file) {
        Ok(old) => read(BufReader::new(old), identity)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    // The new file replaces the old one atomically, so a crash here loses nothing.
    let fresh = file.with_extension("jsonl.new");
    let mut journal = File::create(&fresh)?;
    write_line(&mut journal, identity)?;
    kept.iter().try_for_each(|result| write_line(&mut journal, result))?;
    fs::rename(&fresh, file)?;
    Ok((kept, journal))
}

fn read(old: BufReader<File>, identity: &Identity) -> io::Result<Vec<PathResult>> {
    let mut lines = old.lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    if serde_json::from_str::<Identity>(&first).ok().as_ref() != Some(identity) {
        return Ok(Vec::new());
    }
    // If the program was killed, the last line may be incomplete.
    Ok(lines.map_while(Result::ok).map_while(|line| serde_json::from_str(&line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seeds: u32) -> Identity {
        Identity {
            cc: "cubic".to_owned(),
            transport: "tcp".to_owned(),
            params: BTreeMap::new(),
            settings: BTreeMap::new(),
            commit: "abc".to_owned(),
            seeds,
            draw_seed: 7,
        }
    }

    #[test]
    fn a_seed_with_a_failed_run_is_excluded_from_numbers() {
        let results = |bps: f64| {
            let result = TrialResult { theirs_bps: bps, ..TrialResult::default() };
            SeedResults { beside: result, reference: result, ..SeedResults::default() }
        };
        let faults = [((1, "beside"), "too fast".to_owned())];
        let path_runs =
            PathRuns { results: vec![results(2e6), results(0.0)], faults: faults.into(), left: 0 };
        let result = path_runs.result(Path::drawn(7, 1));
        assert!((result.cubic_bps - 2e6).abs() < 1.0, "{result:?}");
        assert_eq!((result.failed_runs, result.fault.as_deref()), (1, Some("too fast")));
    }

    #[test]
    fn a_journal_keeps_whole_lines_of_the_same_draw() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(JOURNAL);
        let judged: Vec<PathResult> = (1..=40)
            .map(|number| PathResult { path: Path::drawn(7, number), ..PathResult::default() })
            .collect();
        let (kept, mut journal) = open(&file, &identity(2)).unwrap();
        assert!(kept.is_empty());
        judged.iter().for_each(|result| write_line(&mut journal, result).unwrap());
        journal.write_all(b"{\"number\": 41, \"rate").unwrap();
        let (kept, _) = open(&file, &identity(2)).unwrap();
        assert_eq!(kept.len(), 40);
        for (kept, result) in kept.iter().zip(&judged) {
            assert!(is_same(&kept.path, &result.path), "{kept:?} {result:?}");
        }
        assert!(!is_same(&kept[0].path, &judged[1].path));
        let (kept, _) = open(&file, &identity(2)).unwrap();
        assert_eq!(kept.len(), 40, "the cut line is gone and the others are there");
        let (kept, _) = open(&file, &identity(3)).unwrap();
        assert!(kept.is_empty(), "another number of seeds makes other numbers");
    }
}
