//! Fuzz harness: replays a target's corpus, then mutates that corpus for some time; a failure
//! prints the command that repeats it.
//!
//! Every mutated input is determined by the corpus and a seed, so the seed repeats the input. A
//! watcher thread aborts the process if one input takes too long or memory grows without bound;
//! neither causes a panic.

use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::{BASE64, HEXLOWER};
use sabul_units::{Random, SeededRandom};

use crate::Target;

/// Longest mutated input in bytes: past every limit on paths and tickets.
pub const INPUT_MAX: usize = 12_000;
/// Time limit for one input; the slowest input takes some milliseconds.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);
/// Memory limit of the whole process in bytes; all targets together need some tens of megabytes.
const MEMORY_MAX: u64 = 1 << 30;

/// Seed and duration of the mutations.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of the first mutated input; later inputs use the following seeds.
    pub seed: u64,
    /// Time for mutated inputs; at least one is run.
    pub time: Duration,
}

impl Plan {
    /// Reads `SABUL_FUZZ_SEED` (default 1) and `SABUL_FUZZ_SECONDS` (default 2).
    ///
    /// # Panics
    /// If one of them is not a whole number.
    pub fn from_environment() -> Self {
        let number = |name: &str, default| match std::env::var(name) {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
            Err(_) => default,
        };
        Self {
            seed: number("SABUL_FUZZ_SEED", 1),
            time: Duration::from_secs(number("SABUL_FUZZ_SECONDS", 2)),
        }
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Inputs replayed from the corpus.
    pub replayed: usize,
    /// Mutated inputs.
    pub mutated: u64,
    /// Mutated inputs that passed the target's first check.
    pub admitted: u64,
}

/// Origin of an input.
#[derive(Clone, Debug)]
enum Origin {
    File(PathBuf),
    Seed(u64),
}

/// Returns a target's corpus: written seeds and inputs found by fuzzing.
///
/// # Panics
/// If the corpus cannot be read or has no seeds.
pub fn corpus(target: Target) -> Vec<(PathBuf, Vec<u8>)> {
    let mut corpus = written(target);
    corpus.extend(found(target));
    corpus
}

/// Returns the files in `corpus/`, sorted by name.
///
/// # Panics
/// If the files cannot be read or there are none.
pub fn written(target: Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let listed = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = listed
        .map(|entry| entry.expect("a folder that opens can be listed").path())
        .map(|path| {
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path, bytes)
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds no inputs", folder.display());
    files
}

/// Returns the path of the inputs that coverage-guided fuzzing found, one per line in Base64.
pub fn found_path(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("found").join(format!("{}.base64", target.name))
}

/// Returns the inputs of [`found_path`], each with its line number in its name; empty without a
/// file.
fn found(target: Target) -> Vec<(PathBuf, Vec<u8>)> {
    let path = found_path(target);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let inputs = text.lines().enumerate().map(|(index, line)| {
        let name = format!("{}:{}", path.display(), index + 1);
        let bytes = BASE64.decode(line.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name.into(), bytes)
    });
    inputs.collect()
}

/// Runs a target on its corpus and on mutations of the corpus.
///
/// # Panics
/// If the target panics; the message has the input and the command that repeats it.
pub fn run(target: Target, plan: Plan) -> Outcome {
    let corpus = corpus(target);
    let running = Mutex::new((Origin::Seed(plan.seed), Instant::now()));
    let start = |origin: Origin| {
        *running.lock().unwrap_or_else(PoisonError::into_inner) = (origin, Instant::now());
    };
    let work = || {
        for (path, bytes) in &corpus {
            start(Origin::File(path.clone()));
            feed(target, &Origin::File(path.clone()), bytes);
        }
        let mut outcome = Outcome { replayed: corpus.len(), mutated: 0, admitted: 0 };
        let (begin, mut seed) = (Instant::now(), plan.seed);
        loop {
            start(Origin::Seed(seed));
            let input = mutated(&corpus, seed);
            outcome.mutated += 1;
            outcome.admitted += u64::from(feed(target, &Origin::Seed(seed), &input));
            if begin.elapsed() >= plan.time {
                return outcome;
            }
            seed = SeededRandom::new(seed).fork("next").next_u64();
        }
    };
    thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            thread::sleep(Duration::from_millis(20));
            let (origin, since) = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let memory = resident_bytes().unwrap_or(0);
            let complaint = if since.elapsed() > INPUT_TIME_MAX {
                format!("one input takes more than {} s", INPUT_TIME_MAX.as_secs())
            } else if memory > MEMORY_MAX {
                format!("the process holds {} MiB", memory >> 20)
            } else {
                continue;
            };
            let report = format!("\n{}: {complaint}\n{}\n", target.name, repeat(target, &origin));
            // Written directly, because captured test output would be lost with the process.
            let _ = std::io::stderr().write_all(report.as_bytes());
            std::process::abort();
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn feed(target: Target, origin: &Origin, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).unwrap_or_else(|_| {
        let (name, length, hex) = (target.name, input.len(), HEXLOWER.encode(input));
        let repeat = repeat(target, origin);
        panic!("{name} failed (see above) on {length} bytes, hexadecimal: {hex}\n{repeat}")
    })
}

/// Returns the command that runs this input again.
fn repeat(target: Target, origin: &Origin) -> String {
    let test = format!("cargo test -p sabul-fuzz --test targets {}", target.name);
    match origin {
        Origin::File(path) => format!("input {}\nrepeat with: {test}", path.display()),
        Origin::Seed(seed) => {
            format!("repeat with: SABUL_FUZZ_SEED={seed} SABUL_FUZZ_SECONDS=0 {test}")
        }
    }
}

/// Returns the memory of this process, if the system reports it (Linux).
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Returns the mutated input of this seed.
///
/// # Panics
/// If the corpus is empty.
pub fn mutated(corpus: &[(PathBuf, Vec<u8>)], seed: u64) -> Vec<u8> {
    let mut rng = SeededRandom::new(seed);
    let bytes = pick(&mut rng, corpus).1.clone();
    changed(&mut rng, corpus, bytes)
}

/// Returns a mutation of `bytes`, possibly with parts of the corpus.
///
/// # Panics
/// If the corpus is empty.
pub fn varied(bytes: &[u8], corpus: &[(PathBuf, Vec<u8>)], seed: u64) -> Vec<u8> {
    changed(&mut SeededRandom::new(seed), corpus, bytes.to_vec())
}

fn changed(rng: &mut SeededRandom, corpus: &[(PathBuf, Vec<u8>)], mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=rng.below(6) {
        mutate(rng, corpus, &mut bytes);
        bytes.truncate(INPUT_MAX);
    }
    bytes
}

/// One change: bits, bytes, numbers, lengths, order, or a part of another input.
fn mutate(rng: &mut SeededRandom, corpus: &[(PathBuf, Vec<u8>)], bytes: &mut Vec<u8>) {
    let (from, to) = span(rng, bytes.len());
    match rng.below(10) {
        0 => bytes.truncate(from),
        1 => drop(bytes.drain(from..to)),
        2 => {
            // Repeats a part, sometimes until length limits are in reach.
            let part = bytes[from..to].to_vec();
            let times = if rng.below(20) == 0 { INPUT_MAX / part.len().max(1) } else { 1 };
            insert(bytes, to, &part.repeat(times.max(1)));
        }
        3 => {
            let other = &pick(rng, corpus).1;
            let (other_from, other_to) = span(rng, other.len());
            insert(bytes, from, &other[other_from..other_to]);
        }
        4 => {
            let other = &pick(rng, corpus).1;
            bytes.truncate(from);
            bytes.extend_from_slice(&other[span(rng, other.len()).0..]);
        }
        5 => {
            let noise: Vec<u8> = (0..rng.below(16)).map(|_| byte(rng)).collect();
            insert(bytes, from, &noise);
        }
        6 => {
            let number = match rng.below(4) {
                0 => u64::MAX >> rng.below(64),
                1 => 1 << rng.below(64),
                2 => rng.below(300),
                _ => rng.next_u64(),
            };
            let width = 1 << rng.below(4);
            for (place, part) in bytes[from..].iter_mut().zip(&number.to_be_bytes()[8 - width..]) {
                *place = *part;
            }
        }
        7 => bytes[from..to].reverse(),
        8 => {
            for place in &mut bytes[from..to] {
                *place = byte(rng);
            }
        }
        _ => {
            if let Some(place) = bytes.get_mut(from) {
                *place ^= 1 << rng.below(8);
            }
        }
    }
}

fn pick<'a, T>(rng: &mut SeededRandom, list: &'a [T]) -> &'a T {
    &list[below(rng, list.len())]
}

fn below(rng: &mut SeededRandom, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).expect("below a number that fits")
}

fn byte(rng: &mut SeededRandom) -> u8 {
    // Checks are often at the ends of the range and at powers of two.
    match rng.below(4) {
        0 => [0, 1, 0x7F, 0x80, 0xFF, b'/', b'.', b':'][below(rng, 8)],
        _ => rng.next_u64().to_be_bytes()[0],
    }
}

/// Returns a part of `length` bytes: mostly short, sometimes long; empty only at the end.
fn span(rng: &mut SeededRandom, length: usize) -> (usize, usize) {
    let from = below(rng, length + 1);
    let most = if rng.below(4) == 0 { length } else { 8 };
    (from, length.min(from + 1 + below(rng, most + 1)).max(from))
}

fn insert(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    bytes.splice(at..at, part.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> Vec<(PathBuf, Vec<u8>)> {
        vec![("a".into(), b"first input".to_vec()), ("b".into(), vec![0; 200])]
    }

    #[test]
    fn a_seed_determines_the_mutated_input() {
        let corpus = inputs();
        assert_eq!(mutated(&corpus, 7), mutated(&corpus, 7));
        let distinct: std::collections::BTreeSet<_> =
            (0..1000).map(|seed| mutated(&corpus, seed)).collect();
        assert!(distinct.len() > 900, "{} of 1000", distinct.len());
    }

    #[test]
    fn mutations_grow_shrink_and_stay_within_the_limit() {
        let corpus = inputs();
        let lengths: Vec<_> = (0..5000).map(|seed| mutated(&corpus, seed).len()).collect();
        assert!(lengths.iter().all(|length| *length <= INPUT_MAX));
        assert!(lengths.contains(&0) && lengths.iter().any(|length| *length > 5000));
    }

    #[test]
    fn a_failure_report_names_the_target_and_the_command_to_repeat_it() {
        let target = Target { name: "paths", run: |_| panic!("on purpose") };
        let seed = Origin::Seed(77);
        let report = catch_unwind(|| feed(target, &seed, &[0xAB, 1])).unwrap_err();
        let report = report.downcast_ref::<String>().unwrap();
        assert!(report.contains("paths failed") && report.contains(": ab01"), "{report}");
        let command = "SABUL_FUZZ_SEED=77 SABUL_FUZZ_SECONDS=0 cargo test -p sabul-fuzz \
                       --test targets paths";
        assert!(report.contains(command), "{report}");
    }
}
