//! Long-run behaviour of one flow: runs of each mode, limit cycle, and averages.

use schemars::JsonSchema;
use serde::Serialize;

use crate::map::{GapNotPositive, Map, Mode, Round};
use crate::params::Params;

/// Limits on the length of an orbit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most rounds in total.
    pub rounds: u64,
    /// Rounds of the averaging window, which begins after the transient.
    pub window: u64,
}

impl Default for Limits {
    /// Enough for an initial decrease of 8000 rounds, which Pr_1 needs on some paths.
    fn default() -> Self {
        Self { rounds: 60_000, window: 8_000 }
    }
}

/// End of an orbit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum End {
    /// A limit cycle: gap and queue returned to earlier values, so all later rounds repeat.
    Cycle {
        /// Length of the cycle, in rounds.
        period: u64,
    },
    /// Increase mode reached its limit λ = µ/(1−α), ρ = α.
    LockedAtTarget,
    /// Increase mode reached λ = C without ever exceeding the target loss.
    LockedAtCapacity,
    /// The next gap was zero or negative, which no sender can keep.
    GapNotPositive {
        /// Round with this gap, from 0.
        round: u64,
        /// The gap in seconds.
        gap_s: f64,
    },
    /// The averaging window ended without a cycle.
    Window,
    /// The maximum number of rounds was reached without a decision.
    TooLong,
}

/// Complete runs of one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Runs {
    /// Number of runs.
    pub count: u64,
    /// Length of the first run, in rounds.
    pub first: u64,
    /// Length of the longest run, in rounds.
    pub longest: u64,
    /// Number of the longest run, from 1.
    pub longest_number: u64,
}

impl Runs {
    fn add(&mut self, rounds: u64) {
        self.count += 1;
        if self.count == 1 {
            self.first = rounds;
        }
        if rounds > self.longest {
            (self.longest, self.longest_number) = (rounds, self.count);
        }
    }
}

/// First rounds at which a sequence was not monotonic, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Breaks {
    /// λ did not rise within increase mode.
    pub increase_rate: Option<u64>,
    /// ρ fell within increase mode.
    pub increase_loss: Option<u64>,
    /// λ did not fall within decrease mode.
    pub decrease_rate: Option<u64>,
    /// ρ did not fall within decrease mode.
    pub decrease_loss: Option<u64>,
}

/// Class of an orbit on a map of the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Region {
    /// The rate oscillates, and the mean loss is at most the target.
    Oscillates,
    /// The rate oscillates, and the mean loss exceeds the target.
    ExcessLoss,
    /// Increase mode without end.
    Locks,
    /// Decrease mode until the iteration ended.
    StaysOverloaded,
    /// The gap became zero or negative.
    GapNegative,
    /// Increase mode until the iteration ended, without reaching the limit of increase mode.
    Undecided,
}

impl Region {
    /// All regions, in the order of reports.
    pub const ALL: [Self; 6] = [
        Self::Oscillates,
        Self::ExcessLoss,
        Self::Locks,
        Self::StaysOverloaded,
        Self::GapNegative,
        Self::Undecided,
    ];

    /// Returns the region in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Oscillates => "oscillates",
            Self::ExcessLoss => "excess loss",
            Self::Locks => "locks in increase",
            Self::StaysOverloaded => "stays overloaded",
            Self::GapNegative => "gap negative",
            Self::Undecided => "undecided",
        }
    }
}

/// Number of run lengths that are recorded.
pub const RUNS_KEPT: usize = 32;

/// Long-run behaviour of one flow: input of the lemmas.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Orbit {
    /// Number of computed rounds.
    pub rounds: u64,
    /// End of the orbit.
    pub end: End,
    /// Class of the orbit.
    pub region: Region,
    /// Whether the first round is in increase mode.
    pub starts_in_increase: bool,
    /// Lengths of the first runs, in rounds; the modes alternate, from the mode of the first round.
    pub first_runs: Vec<u64>,
    /// Number of mode changes.
    pub switches: u64,
    /// Runs of increase mode.
    pub increase: Runs,
    /// Runs of decrease mode, Equation 3 included.
    pub decrease: Runs,
    /// Length of the unfinished last run, in rounds.
    pub last_run: u64,
    /// Largest gap at the start of an increase run after a decrease run, in seconds.
    pub gap_highest_s: Option<f64>,
    /// Smallest gap at the start of a decrease run after an increase run, in seconds.
    pub gap_lowest_s: Option<f64>,
    /// Rounds at which sequences were not monotonic.
    pub breaks: Breaks,
    /// γ, the mean loss rate over the window or one cycle.
    pub gamma: f64,
    /// Error bound of γ: its change from one half of the window to the other.
    pub gamma_error: f64,
    /// Mean rate over the rounds of γ, in bit/s; the fields below use the same rounds.
    pub rate_mean: f64,
    /// Lowest rate, in bit/s.
    pub rate_min: f64,
    /// Highest rate, in bit/s.
    pub rate_max: f64,
    /// Rate served by the bottleneck, as a share of µ.
    pub utilisation: f64,
}

impl Orbit {
    /// Returns whether the orbit oscillates for ever: a cycle with both modes, or at least twenty
    /// mode changes without an end. `None` if undecided.
    pub fn oscillates(&self) -> Option<bool> {
        match self.end {
            End::Cycle { .. } => Some(true),
            End::LockedAtTarget | End::LockedAtCapacity | End::GapNotPositive { .. } => Some(false),
            End::Window | End::TooLong if self.switches >= 20 => Some(true),
            End::Window | End::TooLong => None,
        }
    }
}

/// Sums over rounds.
#[derive(Clone, Copy, Debug)]
struct Sums {
    rounds: f64,
    loss: f64,
    rate: f64,
    served: f64,
    rate_min: f64,
    rate_max: f64,
}

impl Sums {
    const EMPTY: Self = Self {
        rounds: 0.0,
        loss: 0.0,
        rate: 0.0,
        served: 0.0,
        rate_min: f64::INFINITY,
        rate_max: 0.0,
    };

    #[inline]
    fn add(&mut self, round: &Round<1>) {
        self.rounds += 1.0;
        self.loss += round.loss;
        self.rate += round.rate;
        self.served += round.served;
        self.rate_min = self.rate_min.min(round.rate);
        self.rate_max = self.rate_max.max(round.rate);
    }

    fn with(&self, other: &Self) -> Self {
        Self {
            rounds: self.rounds + other.rounds,
            loss: self.loss + other.loss,
            rate: self.rate + other.rate,
            served: self.served + other.served,
            rate_min: self.rate_min.min(other.rate_min),
            rate_max: self.rate_max.max(other.rate_max),
        }
    }

    fn gamma(&self) -> f64 {
        self.loss / self.rounds
    }
}

/// Cycle detection by Brent's method: compares (gap, queue) with an anchor that moves ever more
/// rarely, so any period is eventually found.
#[derive(Debug)]
struct CycleFinder {
    anchor: (f64, f64),
    anchor_round: u64,
    seen: u64,
    limit: u64,
    sums: Sums,
}

impl CycleFinder {
    /// Relative distance that counts as equal: far above rounding, far below the distance between
    /// orbits.
    const NEAR: f64 = 1e-12;

    /// Compares the state before `round` with the anchor. Returns the period if the states are
    /// equal.
    fn visit(&mut self, round: u64, gap: f64, queue: f64, room: f64) -> Option<u64> {
        let is_back = (gap - self.anchor.0).abs() <= Self::NEAR * gap
            && (queue - self.anchor.1).abs() <= Self::NEAR * room;
        if is_back {
            return Some(round - self.anchor_round);
        }
        self.seen += 1;
        if self.seen >= self.limit {
            *self = Self {
                anchor: (gap, queue),
                anchor_round: round,
                seen: 0,
                limit: self.limit * 2,
                sums: Sums::EMPTY,
            };
        }
        None
    }
}

/// Tolerance for sequences that are constant up to rounding.
const LOSS_SLACK: f64 = 1e-14;

/// Mode changes after which the transient is assumed to be over.
const SETTLED: u64 = 6;

/// Follows one flow from a gap in seconds and an empty queue.
pub fn follow(params: &Params, gap: f64, limits: Limits) -> Orbit {
    Follower::new(params, gap, limits).run()
}

struct Follower<'a> {
    params: &'a Params,
    limits: Limits,
    map: Map<1>,
    /// Whether the current run is a decrease.
    run: Option<bool>,
    run_rounds: u64,
    before: (f64, f64),
    settled_at: Option<u64>,
    early: Sums,
    late: Sums,
    finder: CycleFinder,
    orbit: Orbit,
}

impl<'a> Follower<'a> {
    fn new(params: &'a Params, gap: f64, limits: Limits) -> Self {
        let orbit = Orbit {
            rounds: 0,
            end: End::TooLong,
            region: Region::Undecided,
            starts_in_increase: false,
            first_runs: Vec::with_capacity(RUNS_KEPT),
            switches: 0,
            increase: Runs::default(),
            decrease: Runs::default(),
            last_run: 0,
            gap_highest_s: None,
            gap_lowest_s: None,
            breaks: Breaks::default(),
            gamma: 0.0,
            gamma_error: 0.0,
            rate_mean: 0.0,
            rate_min: 0.0,
            rate_max: 0.0,
            utilisation: 0.0,
        };
        let finder = CycleFinder {
            anchor: (f64::INFINITY, 0.0),
            anchor_round: 0,
            seen: 0,
            limit: 1,
            sums: Sums::EMPTY,
        };
        Self {
            params,
            limits,
            map: Map::new(params, [gap]),
            run: None,
            run_rounds: 0,
            before: (0.0, 0.0),
            settled_at: None,
            early: Sums::EMPTY,
            late: Sums::EMPTY,
            finder,
            orbit,
        }
    }

    fn run(mut self) -> Orbit {
        let p = self.params;
        let can_lock_at_capacity = 1.0 - p.service() / p.capacity() < p.alpha();
        let gap_of_capacity = 1e-9 * p.packet() / p.capacity();
        let mut last = None;
        self.orbit.end = loop {
            if self.map.rounds() >= self.limits.rounds {
                break End::TooLong;
            }
            let round = match self.map.step() {
                Ok(round) => round,
                Err(GapNotPositive { round, gap, .. }) => {
                    break End::GapNotPositive { round, gap_s: gap };
                }
            };
            last = Some(round);
            if round.mode == Mode::Equal && !p.equation3() {
                break End::LockedAtTarget;
            }
            if can_lock_at_capacity
                && round.mode == Mode::Increase
                && round.gaps[0] <= gap_of_capacity
            {
                break End::LockedAtCapacity;
            }
            if let Some(end) = self.take(&round) {
                break end;
            }
        };
        self.finish(last)
    }

    /// Records one round. Returns the end if further rounds add no information.
    #[inline]
    fn take(&mut self, round: &Round<1>) -> Option<End> {
        let number = self.map.rounds() - 1;
        let is_decrease = round.mode != Mode::Increase;
        let mut end = None;
        if self.run == Some(is_decrease) {
            self.run_rounds += 1;
            self.check_monotony(number, round, is_decrease);
        } else {
            end = self.switch(number, round, is_decrease);
        }
        self.before = (round.rate, round.loss);
        if end.is_some() {
            return end;
        }
        if let Some(settled_at) = self.settled_at {
            self.finder.sums.add(round);
            let done = number - settled_at;
            let half = if done < self.limits.window / 2 { &mut self.early } else { &mut self.late };
            half.add(round);
            if done + 1 >= self.limits.window {
                return Some(End::Window);
            }
        } else if number >= self.limits.rounds / 2 && self.orbit.switches > 0 {
            self.settled_at = Some(number + 1);
        }
        None
    }

    #[inline]
    fn check_monotony(&mut self, number: u64, round: &Round<1>, is_decrease: bool) {
        let (rate, loss) = self.before;
        let breaks = &mut self.orbit.breaks;
        let note = |place: &mut Option<u64>, is_broken: bool| {
            if is_broken && place.is_none() {
                *place = Some(number);
            }
        };
        if is_decrease {
            note(&mut breaks.decrease_rate, round.rate >= rate);
            note(&mut breaks.decrease_loss, round.loss >= loss);
        } else {
            note(&mut breaks.increase_rate, round.rate <= rate);
            note(&mut breaks.increase_loss, round.loss < loss - LOSS_SLACK);
        }
    }

    fn switch(&mut self, number: u64, round: &Round<1>, is_decrease: bool) -> Option<End> {
        let gap = round.gaps[0];
        let Some(was_decrease) = self.run.replace(is_decrease) else {
            self.orbit.starts_in_increase = !is_decrease;
            self.run_rounds = 1;
            return None;
        };
        let orbit = &mut self.orbit;
        orbit.switches += 1;
        if orbit.first_runs.len() < RUNS_KEPT {
            orbit.first_runs.push(self.run_rounds);
        }
        if was_decrease {
            orbit.decrease.add(self.run_rounds);
            orbit.gap_highest_s = Some(orbit.gap_highest_s.map_or(gap, |most| most.max(gap)));
        } else {
            orbit.increase.add(self.run_rounds);
            orbit.gap_lowest_s = Some(orbit.gap_lowest_s.map_or(gap, |least| least.min(gap)));
        }
        self.run_rounds = 1;
        if !was_decrease {
            return None;
        }
        if self.settled_at.is_none() && orbit.switches >= SETTLED {
            self.settled_at = Some(number);
        }
        if self.settled_at.is_some() {
            // State before this round: its gap and the queue.
            let queue = round.queue + round.served + round.lost - round.rate * self.params.round();
            let period = self.finder.visit(number, gap, queue, self.params.room().max(1.0))?;
            return Some(End::Cycle { period });
        }
        None
    }

    fn finish(mut self, last: Option<Round<1>>) -> Orbit {
        let p = self.params;
        let orbit = &mut self.orbit;
        orbit.rounds = self.map.rounds();
        orbit.last_run = self.run_rounds;
        let mut sums = match orbit.end {
            End::Cycle { .. } => self.finder.sums,
            _ => self.early.with(&self.late),
        };
        if sums.rounds < 1.0 {
            // Locked, or a single run only: the last round represents all later rounds.
            sums = Sums::EMPTY;
            if let Some(round) = last {
                sums.add(&round);
            }
        } else if !matches!(orbit.end, End::Cycle { .. }) {
            orbit.gamma_error = if self.late.rounds >= 1.0 {
                (self.early.gamma() - self.late.gamma()).abs()
            } else {
                sums.gamma()
            };
        }
        if sums.rounds >= 1.0 {
            orbit.gamma = sums.gamma();
            orbit.rate_mean = sums.rate / sums.rounds;
            (orbit.rate_min, orbit.rate_max) = (sums.rate_min, sums.rate_max);
            orbit.utilisation = sums.served / sums.rounds / (p.service() * p.round());
        }
        orbit.region = match orbit.end {
            End::GapNotPositive { .. } => Region::GapNegative,
            End::LockedAtTarget | End::LockedAtCapacity => Region::Locks,
            End::TooLong if orbit.switches < 2 && self.run == Some(true) => Region::StaysOverloaded,
            End::TooLong if orbit.switches < 2 => Region::Undecided,
            _ if orbit.gamma > p.alpha() => Region::ExcessLoss,
            _ => Region::Oscillates,
        };
        self.orbit
    }
}

#[cfg(test)]
#[path = "orbit/tests.rs"]
mod tests;
