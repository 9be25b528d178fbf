//! Circuit breaker: bounds the rate of a flow with persistent heavy loss.
//!
//! Source: ours, after [RFC8084]; the bound is the TCP-friendly rate of [RFC5348]. The breaker is part of the
//! guard, outside every algorithm, so that a wrong estimate inside an algorithm cannot hold a link in collapse.
//! Model, once a round (one RTT by packet numbers):
//!     heavy  = more than 3 % of the round's packets were lost
//!     queued = smallest RTT of the round > 1.15 × smallest RTT of the flow
//! States:      Closed --heavy for a second, most rounds queued--> Open
//!              Closed --heavy for a second, other cases--> Trial: half of the rate for some rounds
//!              Trial  --loss falls by half--> Closed, with a warning; Open if a warning is still valid
//!              Trial  --loss stays--> Exempt: the path loses at random
//!              Exempt --queued while heavy for four rounds, or time is over--> Closed
//!              Open   --bound has not limited the flow, or loss was light, for some time--> Closed
//!              Open   --loss stays at half of the rate, not queued, for some time--> Exempt
//! Invariants:  the breaker only lowers a rate; the bound is at least a packet every four RTTs.

use sabul_units::{Gap, Instant, Span};

use crate::controller::{Acked, Moment, SentNumber};
use crate::tfrc::{self, LossIntervals};

/// Ours: more loss than any working congestion control has for a second. CUBIC has 6 % with two packets per
/// RTT, and at such rates the TCP-friendly rate equals CUBIC's.
const LOSS_MAX: f64 = 0.03;
/// Ours: how long loss must be heavy, in time, rounds and lost packets, before the breaker acts.
const HEAVY_TIME: Span = Span::from_secs(1);
const HEAVY_ROUNDS: u32 = 4;
const HEAVY_LOST: f64 = 20.0;
/// Ours: part of the base RTT above which a queue stands; default controllers keep at most an eighth.
const QUEUED_PART: f64 = 0.15;
/// Ours: rounds of a trial before its losses count, and losses that its old rate would have shown.
const TRIAL_SETTLES: u32 = 1;
const TRIAL_LOST: f64 = 10.0;
const TRIAL_ROUNDS_MAX: u32 = 16;
/// Ours: length of the first exemption; each further exemption is twice as long, up to 160 s. A trial of four
/// 100 ms rounds costs 2 % of 10 s.
const EXEMPT_TIME: Span = Span::from_secs(5);
const EXEMPT_DOUBLINGS_MAX: u32 = 5;
/// Ours: a flow below this part of the bound is not limited by the bound; the breaker closes after this time.
const IDLE_PART: f64 = 0.8;
const IDLE_TIME: Span = Span::from_secs(10);
/// Ours: time without heavy loss after which an open breaker closes, so that a flow is not bound for ever to the
/// TCP-friendly rate of a lossy path; doubled by each opening, up to 160 s.
const LIGHT_TIME: Span = Span::from_secs(10);
const LIGHT_DOUBLINGS_MAX: u64 = 4;
/// Ours: how long losses must stay at half of the rate; doubled as `LIGHT_TIME`.
const SLOWER_TIME: Span = Span::from_secs(3);
/// Ours: how long a warning is valid. A controller that reduces its own rate needs no bound.
const WARNING_TIME: Span = Span::from_secs(60);
/// Ours: the least bound, in packets an RTT.
const LEAST_PER_RTT: f64 = 0.25;
/// [RFC5348 §4.3] The bound is at most twice the rate that arrives.
const ARRIVED_TIMES_MAX: f64 = 2.0;

#[derive(Clone, Copy, Debug)]
enum State {
    /// Start of heavy loss; rounds, rounds with a queue, and lost packets since then.
    Closed { since: Option<Instant>, rounds: u32, queued: u32, lost: f64 },
    /// Loss before the trial, and rounds, packets and losses in the trial so far.
    Trial { before: f64, rounds: u32, packets: f64, lost: f64 },
    /// Exempt until this time, unless heavy loss comes with a queue for some rounds.
    Exempt { until: Instant, queued: u32 },
    Open {
        intervals: LossIntervals,
        /// When the bound last limited the flow, and when loss was last heavy.
        limited_at: Instant,
        heavy_at: Instant,
        slower: Slower,
    },
}

/// Rounds of an open breaker at half of the rate before or less, without a queue.
#[derive(Clone, Copy, Debug)]
struct Slower {
    /// Sending rate in packets a second, and share of packets lost, in the round before the opening.
    rate: f64,
    share: f64,
    /// Begin of these rounds, and their packets and losses.
    since: Instant,
    packets: f64,
    lost: f64,
}

impl Slower {
    fn of(round: &Ended) -> Self {
        let share = round.lost / round.packets;
        Self { rate: round.sent(), share, since: round.now, packets: 0.0, lost: 0.0 }
    }

    /// Takes in a round; returns whether losses have stayed for this time.
    fn note(&mut self, round: &Ended, time: Span) -> bool {
        if round.is_queued || round.sent() > self.rate / 2.0 {
            *self = Self { since: round.now, packets: 0.0, lost: 0.0, ..*self };
            return false;
        }
        (self.packets, self.lost) = (self.packets + round.packets, self.lost + round.lost);
        let is_enough = self.packets * self.share >= TRIAL_LOST;
        if !is_enough || round.now.since(self.since) < time {
            return false;
        }
        let stays = self.lost >= self.packets * self.share / 2.0;
        *self = Self { since: round.now, packets: 0.0, lost: 0.0, ..*self };
        stays
    }
}

const CLOSED: State = State::Closed { since: None, rounds: 0, queued: 0, lost: 0.0 };

/// Counts at the beginning of a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    arrived: u64,
    lost: u64,
    began: Instant,
    end: SentNumber,
    rtt_least: Span,
}

/// State of the breaker; see the module.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    round: Option<Round>,
    /// Bound in packets a second; `None` while the rate is free.
    bound: Option<f64>,
    exemptions: u32,
    opened: u64,
    /// When losses last fell in a trial.
    warned_at: Option<Instant>,
}

impl Breaker {
    pub(crate) const fn new() -> Self {
        Self { state: CLOSED, round: None, bound: None, exemptions: 0, opened: 0, warned_at: None }
    }

    /// Returns the least gap between packets; `None` while the rate is free.
    pub(crate) fn gap(&self) -> Option<Gap> {
        self.bound.map(|rate| Gap(Span::from_secs_f64(1.0 / rate)))
    }

    /// Returns how often the breaker has opened.
    pub(crate) const fn opened(&self) -> u64 {
        self.opened
    }

    /// Processes an ACK; returns the name of a state change.
    pub(crate) fn on_ack(&mut self, acked: &Acked, moment: &Moment) -> Option<&'static str> {
        let rtt = moment.rtt?;
        let here = Round {
            arrived: acked.total.0,
            lost: acked.lost.0,
            began: moment.now,
            end: acked.next,
            rtt_least: rtt.latest,
        };
        let Some(round) = &mut self.round else {
            self.round = Some(here);
            return None;
        };
        round.rtt_least = round.rtt_least.min(rtt.latest);
        if acked.largest < round.end || moment.now <= round.began {
            return None;
        }
        let elapsed = moment.now.since(round.began).as_secs_f64();
        let arrived = here.arrived.saturating_sub(round.arrived) as f64;
        let lost = here.lost.saturating_sub(round.lost) as f64;
        let is_queued = round.rtt_least.as_secs_f64() > (1.0 + QUEUED_PART) * rtt.min.as_secs_f64();
        self.round = Some(Round { rtt_least: Span::MAX, ..here });
        self.end_round(&Ended {
            now: moment.now,
            rtt: rtt.smoothed.as_secs_f64().max(1e-6),
            rate: arrived / elapsed,
            packets: arrived + lost,
            lost,
            is_heavy: lost > LOSS_MAX * (arrived + lost),
            is_queued,
        })
    }

    fn end_round(&mut self, round: &Ended) -> Option<&'static str> {
        match &mut self.state {
            State::Closed { .. } => self.end_closed_round(round),
            State::Trial { before, rounds, packets, lost } => {
                *rounds += 1;
                if *rounds <= TRIAL_SETTLES {
                    return None;
                }
                (*packets, *lost) = (*packets + round.packets, *lost + round.lost);
                if *packets * *before < TRIAL_LOST && *rounds < TRIAL_ROUNDS_MAX {
                    return None;
                }
                if *lost < *packets * *before / 2.0 {
                    return Some(self.warn(round));
                }
                Some(self.exempt(round))
            }
            State::Exempt { until, queued } => {
                *queued = if round.is_heavy && round.is_queued { *queued + 1 } else { 0 };
                if round.now >= *until || *queued >= HEAVY_ROUNDS {
                    self.state = CLOSED;
                }
                None
            }
            State::Open { .. } => self.end_open_round(round),
        }
    }

    fn end_closed_round(&mut self, round: &Ended) -> Option<&'static str> {
        let State::Closed { since, rounds, queued, lost } = &mut self.state else { return None };
        if !round.is_heavy {
            self.state = CLOSED;
            return None;
        }
        let began = *since.get_or_insert(round.now);
        (*rounds, *lost) = (*rounds + 1, *lost + round.lost);
        *queued += u32::from(round.is_queued);
        if *rounds < HEAVY_ROUNDS || *lost < HEAVY_LOST || round.now.since(began) < HEAVY_TIME {
            return None;
        }
        if 2 * *queued > *rounds {
            return Some(self.open(round));
        }
        self.bound = Some(round.sent() / 2.0);
        let before = round.lost / round.packets;
        self.state = State::Trial { before, rounds: 0, packets: 0.0, lost: 0.0 };
        Some("breaker-trial")
    }

    fn end_open_round(&mut self, round: &Ended) -> Option<&'static str> {
        let State::Open { intervals, limited_at, heavy_at, slower } = &mut self.state else {
            return None;
        };
        intervals.note(round.packets, round.lost > 0.0);
        let friendly = tfrc::rate(intervals.loss_event_rate(), round.rtt);
        let bound = friendly.min(ARRIVED_TIMES_MAX * round.rate).max(LEAST_PER_RTT / round.rtt);
        if round.is_heavy {
            (*limited_at, *heavy_at) = (round.now, round.now);
        } else if round.sent() > IDLE_PART * bound {
            *limited_at = round.now;
        }
        let doublings = self.opened.saturating_sub(1).min(LIGHT_DOUBLINGS_MAX);
        if slower.note(round, SLOWER_TIME * (1 << doublings)) {
            return Some(self.exempt(round));
        }
        let light_time = LIGHT_TIME * (1 << doublings);
        if round.now.since(*limited_at) > IDLE_TIME || round.now.since(*heavy_at) > light_time {
            (self.state, self.bound) = (CLOSED, None);
            return Some("breaker-closed");
        }
        self.bound = Some(bound);
        None
    }

    /// Ends a trial in which losses fell: the first such trial is a warning, and the next opens the breaker.
    fn warn(&mut self, round: &Ended) -> &'static str {
        let warned_at = self.warned_at.replace(round.now);
        if warned_at.is_some_and(|at| round.now.since(at) <= WARNING_TIME) {
            return self.open(round);
        }
        (self.state, self.bound) = (CLOSED, None);
        "breaker-warning"
    }

    /// Lets the flow send for some time: its losses did not fall with its rate.
    fn exempt(&mut self, round: &Ended) -> &'static str {
        let time = EXEMPT_TIME * (1 << self.exemptions.min(EXEMPT_DOUBLINGS_MAX));
        (self.exemptions, self.bound) = (self.exemptions + 1, None);
        self.state = State::Exempt { until: round.now + time, queued: 0 };
        "breaker-exempt"
    }

    /// Opens at half of the arrival rate, with a loss history that yields this rate. [RFC5348 §6.3.1]
    fn open(&mut self, round: &Ended) -> &'static str {
        let rate = (round.rate / 2.0).max(LEAST_PER_RTT / round.rtt);
        let intervals = LossIntervals::of(tfrc::loss_event_rate(rate, round.rtt));
        let (limited_at, heavy_at) = (round.now, round.now);
        self.state = State::Open { intervals, limited_at, heavy_at, slower: Slower::of(round) };
        (self.bound, self.opened) = (Some(rate), self.opened + 1);
        "breaker-open"
    }
}

/// Measurements of a completed round; times in seconds, rates in packets a second.
#[derive(Clone, Copy, Debug)]
struct Ended {
    now: Instant,
    rtt: f64,
    /// Arrival rate.
    rate: f64,
    packets: f64,
    lost: f64,
    is_heavy: bool,
    is_queued: bool,
}

impl Ended {
    /// Returns the sending rate of the round's packets.
    fn sent(&self) -> f64 {
        self.rate * self.packets / (self.packets - self.lost).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: f64 = 0.1;

    fn round(ms: u64, lost: f64, is_queued: bool) -> Ended {
        let packets = 100.0;
        Ended {
            now: Instant::ZERO + Span::from_millis(ms),
            rtt: RTT,
            rate: (packets - lost) / RTT,
            packets,
            lost,
            is_heavy: lost > LOSS_MAX * packets,
            is_queued,
        }
    }

    /// Returns the state changes of rounds from `from` ms on, one each 100 ms.
    fn words(
        breaker: &mut Breaker,
        from: u64,
        rounds: u64,
        lost: f64,
        queued: bool,
    ) -> Vec<&'static str> {
        (0..rounds)
            .filter_map(|n| breaker.end_round(&round(from + 100 * n, lost, queued)))
            .collect()
    }

    #[test]
    fn the_breaker_opens_after_a_second_of_heavy_loss_with_a_queue() {
        let mut breaker = Breaker::new();
        assert!(words(&mut breaker, 0, 9, 30.0, true).is_empty());
        assert!(words(&mut breaker, 900, 1, 3.0, true).is_empty(), "3 % is the limit");
        assert!(words(&mut breaker, 1000, 10, 30.0, true).is_empty());
        assert_eq!(words(&mut breaker, 2000, 1, 30.0, true), ["breaker-open"]);
        assert!((breaker.bound.unwrap() - 350.0).abs() < 1e-9, "half of what arrives");
        words(&mut breaker, 2100, 20, 30.0, true);
        // One loss event in each 100 packets: 1.22 / (0.1 × 0.1), less the timeouts.
        let bound = breaker.bound.unwrap();
        assert!((80.0..125.0).contains(&bound), "{bound}");
        assert_eq!(breaker.opened(), 1);
    }

    #[test]
    fn single_rounds_with_a_queue_do_not_open_the_breaker() {
        let mut breaker = Breaker::new();
        assert!(words(&mut breaker, 0, 6, 20.0, false).is_empty());
        assert!(words(&mut breaker, 600, 4, 20.0, true).is_empty());
        assert_eq!(words(&mut breaker, 1000, 1, 20.0, true), ["breaker-trial"], "5 of 11");
    }

    #[test]
    fn an_open_breaker_exempts_losses_that_stay_at_half_of_the_rate_without_a_queue() {
        let opened = || {
            let mut breaker = Breaker::new();
            assert_eq!(words(&mut breaker, 0, 11, 20.0, true), ["breaker-open"]);
            breaker
        };
        // A tenth of the packets, of which this many are lost.
        let slow = |breaker: &mut Breaker, lost: f64, is_queued: bool| -> Vec<&str> {
            let slower = |n: u64| Ended {
                rate: (10.0 - lost) / RTT,
                packets: 10.0,
                lost,
                is_heavy: lost > 0.3,
                ..round(1100 + 100 * n, lost, is_queued)
            };
            (0..40_u64).filter_map(|n| breaker.end_round(&slower(n))).collect()
        };
        assert_eq!(slow(&mut opened(), 2.0, false), ["breaker-exempt"]);
        assert!(slow(&mut opened(), 2.0, true).is_empty(), "other flows fill a queue");
        assert!(slow(&mut opened(), 0.9, false).is_empty(), "9 instead of 20 %");
    }

    #[test]
    fn the_breaker_exempts_random_loss_after_a_trial_at_half_rate() {
        let mut breaker = Breaker::new();
        assert_eq!(words(&mut breaker, 0, 11, 20.0, false), ["breaker-trial"]);
        assert!((breaker.bound.unwrap() - 500.0).abs() < 1e-9, "half of 1000");
        assert_eq!(words(&mut breaker, 1100, 2, 20.0, false), ["breaker-exempt"]);
        assert_eq!(breaker.gap(), None);
        assert!(words(&mut breaker, 1300, 49, 20.0, false).is_empty(), "for five seconds");
        assert_eq!(words(&mut breaker, 6300, 12, 20.0, false), ["breaker-trial"]);
    }

    #[test]
    fn the_breaker_opens_after_two_trials_in_which_losses_fell_and_closes_after_light_loss() {
        let mut breaker = Breaker::new();
        words(&mut breaker, 0, 11, 50.0, false);
        assert_eq!(words(&mut breaker, 1100, 2, 0.0, false), ["breaker-warning"]);
        assert_eq!(breaker.gap(), None);
        words(&mut breaker, 1300, 11, 50.0, false);
        assert_eq!(words(&mut breaker, 2400, 2, 0.0, false), ["breaker-open"]);
        assert!(words(&mut breaker, 2600, 98, 1.0, false).is_empty(), "one loss in each round");
        assert!(breaker.gap().is_some());
        assert_eq!(words(&mut breaker, 12_400, 3, 1.0, false), ["breaker-closed"]);
        assert_eq!(breaker.gap(), None);
    }

    #[test]
    fn a_warning_expires_and_each_opening_doubles_the_time_with_light_loss() {
        let mut breaker = Breaker::new();
        words(&mut breaker, 0, 11, 50.0, false);
        words(&mut breaker, 1100, 2, 0.0, false);
        words(&mut breaker, 61_500, 11, 50.0, false);
        assert_eq!(words(&mut breaker, 62_600, 2, 0.0, false), ["breaker-warning"]);
        let mut opened_for = |from: u64| {
            assert_eq!(words(&mut breaker, from, 11, 30.0, true), ["breaker-open"]);
            (0..).find(|n| !words(&mut breaker, from + 1100 + 100 * n, 1, 1.0, false).is_empty())
        };
        assert_eq!([opened_for(70_000), opened_for(90_000)], [Some(100), Some(200)]);
    }

    /// Breakers in each state: closed, closed after ten heavy rounds, in a trial, exempt, open.
    fn in_each_state() -> [(&'static str, Breaker); 5] {
        let mut breakers = ["closed", "closed, heavy", "trial", "exempt", "open"]
            .map(|name| (name, Breaker::new()));
        words(&mut breakers[1].1, 0, 10, 50.0, true);
        words(&mut breakers[2].1, 0, 11, 50.0, false);
        words(&mut breakers[3].1, 0, 11, 50.0, false);
        words(&mut breakers[3].1, 1100, 2, 50.0, false);
        words(&mut breakers[4].1, 0, 11, 50.0, true);
        breakers
    }

    #[test]
    fn the_transitions_match_the_golden_table() {
        let mut text = "state | two seconds of rounds | changes | free or bound\n".to_owned();
        for (number, (state, _)) in in_each_state().into_iter().enumerate() {
            for (name, lost, is_queued) in [
                ("no loss", 0.0, false),
                ("2 % lost", 2.0, true),
                ("50 % lost, no queue", 50.0, false),
                ("50 % lost, a queue", 50.0, true),
                ("20 % lost, no queue", 20.0, false),
            ] {
                let (_, mut breaker) = in_each_state().into_iter().nth(number).unwrap();
                let changes = words(&mut breaker, 1300, 20, lost, is_queued).join(", ");
                let is_free = if breaker.gap().is_none() { "free" } else { "bound" };
                text += &format!("{state} | {name} | {changes} | {is_free}\n");
            }
        }
        crate::conformance::compare_golden("states/breaker.txt", &text);
        for word in ["open", "trial", "exempt", "warning"] {
            assert!(text.contains(&format!("breaker-{word}")), "no change to {word}");
        }
    }
}
