//! Contract on random paths. Three measurements: utilisation and queue with one flow of the
//! controller, goodput of CUBIC flows beside flows of the controller, and goodput of the
//! controller's flows.
//!
//! [`Path::drawn`] draws the paths (`paths`). Each path is run in three scenarios with every seed
//! (`runs`). `judge` answers four questions per path with yes, no or open. The constants of a
//! controller are tuned on one draw and judged on another: [`DrawSeed::Tune`] and
//! [`DrawSeed::Judge`].

mod judge;
mod page;
mod paths;
mod runs;

use std::str::FromStr;

use serde::Serialize;

use super::head::Head;
use super::plan::{Exam, Subject};
use crate::Error;
use judge::{PathResult, RESAMPLES, TERMS, Terms, Verdict, lower_bound};
pub(super) use page::{csv, page, text};
pub(super) use paths::{Path, Question};
pub(super) use runs::{Identity, run};

/// Seeds of the two named draws. Any two different numbers would do; these are dates.
const TUNE_SEED: u64 = 20_261_124;
const JUDGE_SEED: u64 = 20_261_125;
/// Largest number of paths in a draw.
pub const PATHS_MAX: u32 = 10_000;
/// Default number of seeds per path.
pub const SEEDS: u32 = 10;

/// Seed of a draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawSeed {
    /// Paths for tuning constants.
    #[default]
    Tune,
    /// Paths for judging a controller. No constant was tuned on these paths.
    Judge,
    /// Other paths.
    Number(u64),
}

impl DrawSeed {
    /// Returns the seed of the random generator that draws the paths.
    pub const fn number(self) -> u64 {
        match self {
            Self::Tune => TUNE_SEED,
            Self::Judge => JUDGE_SEED,
            Self::Number(number) => number,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Tune => "tune".to_owned(),
            Self::Judge => "judge".to_owned(),
            Self::Number(number) => number.to_string(),
        }
    }
}

impl FromStr for DrawSeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tune" => Ok(Self::Tune),
            "judge" => Ok(Self::Judge),
            _ => text
                .parse()
                .map(Self::Number)
                .map_err(|_| format!("'{text}' is not tune, judge or a whole number")),
        }
    }
}

/// A draw of paths for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Number of paths, from 1 to [`PATHS_MAX`].
    pub paths: u32,
    /// Seed of the draw.
    pub seed: DrawSeed,
}

/// Content of `draw.json`.
#[derive(Debug, Serialize)]
pub(super) struct Sheet {
    #[serde(flatten)]
    pub(super) head: Head,
    draw: String,
    draw_seed: u64,
    resamples: u64,
    terms: Terms,
    /// Counts of paths: all answers yes, at least one answer no, and the rest (open).
    met: Tally,
    /// The same counts for each question.
    alone: Tally,
    cubic_keeps: Tally,
    ours_have: Tally,
    own_loss: Tally,
    paths: Vec<PathResult>,
}

/// Counts of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Tally {
    yes: usize,
    open: usize,
    no: usize,
    /// Lower bound (95 %) of the probability of a yes.
    yes_at_least: f64,
}

impl Tally {
    fn new(verdicts: impl Iterator<Item = Verdict>) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            match verdict {
                Verdict::Yes => tally.yes += 1,
                Verdict::Open => tally.open += 1,
                Verdict::No => tally.no += 1,
            }
        }
        Self { yes_at_least: lower_bound(tally.yes, tally.count()), ..tally }
    }

    const fn count(&self) -> usize {
        self.yes + self.open + self.no
    }
}

impl Sheet {
    pub(super) fn new(head: Head, draw: Draw, paths: Vec<PathResult>) -> Self {
        let tally = |of: fn(&PathResult) -> Verdict| Tally::new(paths.iter().map(of));
        Self {
            head,
            draw: draw.seed.name(),
            draw_seed: draw.seed.number(),
            resamples: RESAMPLES,
            terms: TERMS,
            met: tally(|mark| mark.met),
            alone: tally(|mark| mark.alone_verdict),
            cubic_keeps: tally(|mark| mark.keeps_verdict),
            ours_have: tally(|mark| mark.have_verdict),
            own_loss: tally(|mark| mark.loss_verdict),
            paths,
        }
    }
}

/// Returns the paths of a draw. `--only` selects paths by number.
pub(super) fn paths(draw: Draw, only: &[String]) -> Result<Vec<Path>, Error> {
    let all = 1..=draw.paths;
    let mut numbers: Vec<u32> = Vec::new();
    for text in only.iter().flat_map(|text| text.split(',')) {
        let number = text.trim().parse().ok().filter(|number| all.contains(number));
        numbers.push(number.ok_or_else(|| {
            Error::usage(format!(
                "--only {text}: a draw has paths of the numbers 1 to {}; use N[,N...]",
                draw.paths
            ))
        })?);
    }
    numbers.sort_unstable();
    numbers.dedup();
    let numbers = if only.is_empty() { all.collect() } else { numbers };
    Ok(numbers.into_iter().map(|number| Path::drawn(draw.seed.number(), number)).collect())
}

/// Returns three scenarios for each path.
pub(super) fn exams(subject: &Subject<'_>, paths: &[Path]) -> Vec<Exam<Question>> {
    paths.iter().enumerate().flat_map(|(place, path)| path.exams(subject, place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_name_or_a_number() {
        assert_eq!("tune".parse(), Ok(DrawSeed::Tune));
        assert_eq!("judge".parse(), Ok(DrawSeed::Judge));
        assert_eq!("7".parse(), Ok(DrawSeed::Number(7)));
        assert!("seven".parse::<DrawSeed>().unwrap_err().contains("judge"));
        assert_ne!(TUNE_SEED, JUDGE_SEED);
    }

    #[test]
    fn only_selects_paths_by_number() {
        let draw = Draw { paths: 5, seed: DrawSeed::Tune };
        let numbers = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&text| text.to_owned()).collect();
            paths(draw, &only).map(|paths| paths.iter().map(|path| path.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers(&[]).unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(&["4,2", "4"]).unwrap(), [2, 4]);
        for wrong in ["0", "6", "rtt_ms=10"] {
            let error = numbers(&[wrong]).unwrap_err().to_string();
            assert!(error.contains("--only") && error.contains("1 to 5"), "{error}");
        }
    }

    #[test]
    fn a_tally_counts_each_verdict() {
        let tally =
            Tally::new([Verdict::Yes, Verdict::No, Verdict::Yes, Verdict::Open].into_iter());
        assert_eq!((tally.yes, tally.open, tally.no, tally.count()), (2, 1, 1, 4));
        assert!(tally.yes_at_least > 0.0 && tally.yes_at_least < 0.5);
    }
}
