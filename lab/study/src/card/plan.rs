//! Scenario files for the tests of a card.
//!
//! Every test consists of plain scenarios that can be read, kept and repeated with `sabul sim run`.
//! The link is always called `bottleneck`, and the flows of the controller are `a` to `d`.
//! `docs/manual/card.md` explains the choices made here.

use sabul_lab_cc::registry::{Entry, Family};

/// Transport of the flows of a card's controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Our protocol with this controller.
    Sabul,
    /// TCP: simulated, or the kernel's.
    Tcp,
}

/// Base RTTs of the seven regions, in milliseconds. \[SLAC\]
const REGION_RTTS_MS: [f64; 3] = [10.0, 80.0, 180.0];
/// RTT and rate of all other tests.
const RTT_MS: f64 = 40.0;
const RATE_MBPS: f64 = 100.0;
const BESIDE_RTTS_MS: [f64; 3] = [10.0, 40.0, 160.0];
/// The two RTTs of the test of RTT fairness, in milliseconds.
pub(super) const NEAR_MS: f64 = 10.0;
pub(super) const FAR_MS: f64 = 80.0;
const CROSS_MBPS: f64 = 50.0;

/// Extent of the tests in an arm. Times are in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Rate of the link that four flows share, in Mb/s.
    region_rate_mbps: f64,
    /// Time between flow starts in the seven regions, by default.
    pub(super) region_s: f64,
    /// Random loss, as shares of the packets.
    losses: &'static [f64],
    /// Queue sizes beside CUBIC, in BDPs.
    beside_queues_bdp: &'static [f64],
    /// One flow with loss or with a large queue: warm-up, and measured time.
    alone_s: (f64, f64),
    /// Two flows beside each other: warm-up, and measured time.
    beside_s: (f64, f64),
    /// Time until a second flow starts, and measured time.
    entry_s: (f64, f64),
    /// Short transfers: warm-up without short transfers, and measured time.
    mice_s: (f64, f64),
    /// Length of the on and of the off period of cross traffic, three times each. Averages begin
    /// with the first on period.
    cross_s: f64,
}

/// In virtual time. 622 Mb/s is an OC-12 link, probably that of the paths measured in \[SLAC\].
pub(super) const SIM: Extent = Extent {
    region_rate_mbps: 622.0,
    region_s: 120.0,
    losses: &[0.0, 0.0001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2],
    beside_queues_bdp: &[0.25, 1.0, 4.0],
    alone_s: (10.0, 60.0),
    beside_s: (30.0, 120.0),
    entry_s: (20.0, 120.0),
    mice_s: (10.0, 120.0),
    cross_s: 20.0,
};

/// In real time: a subset that takes less than ten minutes, at a rate that a small machine carries.
pub(super) const LAB: Extent = Extent {
    region_rate_mbps: RATE_MBPS,
    region_s: 8.0,
    losses: &[0.0, 0.001, 0.01, 0.05],
    beside_queues_bdp: &[1.0],
    alone_s: (3.0, 10.0),
    beside_s: (7.0, 18.0),
    entry_s: (6.0, 24.0),
    mice_s: (4.0, 16.0),
    cross_s: 5.0,
};

/// The controller under test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) entry: &'static Entry,
    pub(crate) params: &'a [(String, String)],
    /// Transport of its flows.
    pub(crate) transport: Carrier,
}

impl Carrier {
    /// Returns the native transport of a controller: TCP for windows, our protocol for rates.
    pub(crate) fn of(entry: &Entry) -> Self {
        match entry.family {
            Family::Window | Family::PacedWindow => Self::Tcp,
            Family::Rate => Self::Sabul,
        }
    }

    /// Returns the name used in scenario files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sabul => "sabul",
            Self::Tcp => "tcp",
        }
    }
}

/// The measurement that a scenario is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Question {
    /// Four flows that start one after another and stop in reverse order.
    Regions { rtt_ms: f64 },
    /// Goodput under random loss.
    Loss { share: f64 },
    /// Goodput of a CUBIC flow beside the controller.
    Beside { rtt_ms: f64, queue_bdp: f64 },
    /// Share of two flows with different RTTs.
    RttFairness,
    /// Time until a flow that joins late has its fair share, observed for `watched_s`.
    Convergence { entry_s: f64, watched_s: f64 },
    /// Standing queue in a large queue.
    Queue,
    /// Completion times of short transfers beside the controller.
    Mice,
    /// Completion times of short transfers alone.
    MiceAlone,
    /// Share used of the capacity that cross traffic leaves.
    Cross { from_s: f64 },
}

/// One scenario of a card.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exam<Q = Question> {
    pub(crate) question: Q,
    /// Name of the scenario and of its file.
    pub(crate) name: String,
    /// The scenario file.
    pub(crate) text: String,
}

impl Subject<'_> {
    /// Returns a flow of the controller as scenario text, with further keys in `more`.
    pub(super) fn flow(&self, id: &str, more: &str) -> String {
        let transport = self.transport.name();
        let cc = self.entry.name;
        let mut text = format!(
            "[[flow]]\nid = \"{id}\"\ntransport = \"{transport}\"\ncc = \"{cc}\"\n\
             path = [\"bottleneck\"]\n{more}"
        );
        if !self.params.is_empty() {
            let quoted = |text: &str| toml::Value::from(text).to_string();
            let params =
                self.params.iter().map(|(key, value)| format!("{key} = {}", quoted(value)));
            text += &format!("params = {{ {} }}\n", params.collect::<Vec<_>>().join(", "));
        }
        text
    }

    /// Returns every scenario of the card, the longest runs first.
    pub(super) fn exams(&self, extent: &Extent, seconds_per_flow: f64) -> Vec<Exam> {
        let mut exams: Vec<Exam> = REGION_RTTS_MS
            .iter()
            .rev()
            .map(|rtt_ms| self.regions(extent, *rtt_ms, seconds_per_flow))
            .collect();
        exams.extend(extent.losses.iter().map(|share| self.loss(extent, *share)));
        for queue_bdp in extent.beside_queues_bdp {
            let beside = |rtt_ms: &f64| self.beside(extent, *rtt_ms, *queue_bdp);
            exams.extend(BESIDE_RTTS_MS.iter().map(beside));
        }
        exams.extend([
            self.rtt_fairness(extent),
            self.convergence(extent),
            self.queue(extent),
            self.mice(extent, true),
            self.mice(extent, false),
            self.cross(extent),
        ]);
        exams
    }

    pub(super) fn exam<Q>(
        &self,
        question: Q,
        name: String,
        times: Times,
        link: &str,
        flows: &str,
    ) -> Exam<Q> {
        let Times { duration_s, warmup_s, sample_ms } = times;
        let text = format!(
            "name = \"{} {name}\"\nduration_s = {duration_s}\nwarmup_s = {warmup_s}\n\
             sample_ms = {sample_ms}\n\n[[link]]\nid = \"bottleneck\"\n{link}\n{flows}",
            self.entry.name,
        );
        Exam { question, name, text }
    }

    fn regions(&self, extent: &Extent, rtt_ms: f64, step_s: f64) -> Exam {
        let flows = [
            self.flow("a", ""),
            self.flow("b", &between(step_s, 7.5 * step_s)),
            self.flow("c", &between(2.0 * step_s, 6.5 * step_s)),
            self.flow("d", &between(3.0 * step_s, 5.5 * step_s)),
        ];
        self.exam(
            Question::Regions { rtt_ms },
            format!("regions-{rtt_ms}ms"),
            // Samples of one second, as in [SLAC].
            Times::new((0.0, 8.5 * step_s), 1000),
            &link(extent.region_rate_mbps, rtt_ms, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }

    fn loss(&self, extent: &Extent, share: f64) -> Exam {
        self.exam(
            Question::Loss { share },
            format!("loss-{}pct", sabul_report::significant(share * 100.0, 3)),
            Times::new(extent.alone_s, 100),
            &link(RATE_MBPS, RTT_MS, &format!("queue_bdp = 1\nloss = {share}\n")),
            &self.flow("a", ""),
        )
    }

    fn beside(&self, extent: &Extent, rtt_ms: f64, queue_bdp: f64) -> Exam {
        let flows = [self.flow("a", ""), tcp("cubic", "cubic", "")];
        self.exam(
            Question::Beside { rtt_ms, queue_bdp },
            format!("beside-cubic-{rtt_ms}ms-{queue_bdp}bdp"),
            Times::new(extent.beside_s, 100),
            &link(RATE_MBPS, rtt_ms, &format!("queue_bdp = {queue_bdp}\n")),
            &flows.join("\n"),
        )
    }

    fn rtt_fairness(&self, extent: &Extent) -> Exam {
        let flows = [NEAR_MS, FAR_MS].map(|rtt_ms| format!("rtt_ms = {rtt_ms}\n"));
        let flows = [self.flow("a", &flows[0]), self.flow("b", &flows[1])];
        self.exam(
            Question::RttFairness,
            "rtt-fairness".to_owned(),
            Times::new(extent.beside_s, 100),
            &link(RATE_MBPS, NEAR_MS, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }

    fn convergence(&self, extent: &Extent) -> Exam {
        let (entry_s, watched_s) = extent.entry_s;
        let flows = [self.flow("a", ""), self.flow("b", &format!("start_s = {entry_s}\n"))];
        self.exam(
            Question::Convergence { entry_s, watched_s },
            "convergence".to_owned(),
            Times::new((0.0, entry_s + watched_s), 100),
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }

    fn queue(&self, extent: &Extent) -> Exam {
        self.exam(
            Question::Queue,
            "queue".to_owned(),
            Times::new(extent.alone_s, 10),
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 4\n"),
            &self.flow("a", ""),
        )
    }

    fn mice(&self, extent: &Extent, is_beside: bool) -> Exam {
        let mice = tcp(
            "mice",
            "cubic",
            &format!(
                "start_s = {}\narrivals = {{ process = \"poisson\", mean_interval_s = 0.1 }}\n\
                 size = {{ distribution = \"fixed\", packets = 30 }}\n",
                extent.mice_s.0,
            ),
        );
        let (question, name, flows) = if is_beside {
            (Question::Mice, "mice", [self.flow("a", ""), mice].join("\n"))
        } else {
            (Question::MiceAlone, "mice-alone", mice)
        };
        self.exam(
            question,
            name.to_owned(),
            Times::new(extent.mice_s, 100),
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 1\n"),
            &flows,
        )
    }

    fn cross(&self, extent: &Extent) -> Exam {
        let step_s = extent.cross_s;
        let mut flows = vec![self.flow("a", "")];
        for (number, begins) in [1.0, 3.0, 5.0].into_iter().enumerate() {
            flows.push(format!(
                "[[flow]]\nid = \"cross-{}\"\ntransport = \"udp-cbr\"\npath = [\"bottleneck\"]\n\
                 rate_mbps = {CROSS_MBPS}\n{}",
                number + 1,
                between(begins * step_s, (begins + 1.0) * step_s),
            ));
        }
        self.exam(
            Question::Cross { from_s: step_s },
            "cross".to_owned(),
            Times::new((step_s, 6.0 * step_s), 100),
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }
}

/// Duration and sampling of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    duration_s: f64,
    warmup_s: f64,
    sample_ms: u32,
}

impl Times {
    /// Takes seconds of warm-up, seconds of measurement, and the sample interval in milliseconds.
    pub(super) const fn new((warmup_s, measured_s): (f64, f64), sample_ms: u32) -> Self {
        Self { duration_s: warmup_s + measured_s, warmup_s, sample_ms }
    }
}

pub(super) fn link(rate_mbps: f64, rtt_ms: f64, more: &str) -> String {
    format!("rate_mbps = {rate_mbps}\ndelay_ms = {}\n{more}", rtt_ms / 2.0)
}

fn between(start_s: f64, stop_s: f64) -> String {
    format!("start_s = {start_s}\nstop_s = {stop_s}\n")
}

pub(super) fn tcp(id: &str, cc: &str, more: &str) -> String {
    format!(
        "[[flow]]\nid = \"{id}\"\ntransport = \"tcp\"\ncc = \"{cc}\"\npath = [\"bottleneck\"]\n{more}"
    )
}

#[cfg(test)]
mod tests {
    use sabul_lab_cc::registry;
    use sabul_run::results::Region;
    use sabul_run::scenario::{Scenario, Transport};
    use sabul_scenario::Run;
    use sabul_units::Instant;

    use super::*;

    fn exams(name: &str, params: &[(String, String)]) -> Vec<Exam> {
        let entry = registry::find(name).unwrap();
        let transport = Carrier::of(entry);
        Subject { entry, params, transport }.exams(&SIM, 120.0)
    }

    fn read(exam: &Exam) -> Run {
        let mut runs = sabul_scenario::read(&exam.text, &exam.name, &[]).unwrap();
        assert_eq!(runs.len(), 1, "{}", exam.name);
        runs.remove(0)
    }

    /// Returns the flows present between consecutive starts and stops.
    fn present(scenario: &Scenario) -> Vec<Region> {
        let end = Instant::ZERO + scenario.duration;
        let lives = scenario.flows.iter().map(|flow| (flow.start, flow.stop.unwrap_or(end)));
        let lives: Vec<_> = lives.collect();
        let mut times: Vec<_> = lives.iter().flat_map(|(start, stop)| [*start, *stop]).collect();
        times.sort_unstable();
        times.dedup();
        let region = |pair: &[Instant]| Region {
            from_s: pair[0].elapsed().as_secs_f64(),
            to_s: pair[1].elapsed().as_secs_f64(),
            jain: lives.iter().filter(|(from, to)| *from <= pair[0] && *to >= pair[1]).count()
                as f64,
            ..Region::default()
        };
        times.windows(2).map(region).collect()
    }

    #[test]
    fn every_scenario_of_every_controller_reads_back() {
        for entry in registry::all() {
            let exams = exams(entry.name, &[]);
            let names: std::collections::BTreeSet<_> =
                exams.iter().map(|exam| &exam.name).collect();
            assert_eq!((exams.len(), names.len()), (26, 26));
            let wanted = match entry.family {
                Family::Window | Family::PacedWindow => Transport::Tcp,
                Family::Rate => Transport::Sabul,
            };
            for exam in &exams {
                let scenario = read(exam).scenario;
                let ours = scenario.flows.iter().filter(|flow| flow.id.len() == 1);
                for flow in ours {
                    assert_eq!((flow.transport(), flow.cc.as_str()), (wanted, entry.name));
                }
            }
        }
    }

    #[test]
    fn lab_exams_are_a_subset_of_simulated_exams_and_take_eight_minutes() {
        let entry = registry::find("cubic").unwrap();
        let subject = Subject { entry, params: &[], transport: Carrier::Tcp };
        let all: Vec<String> =
            subject.exams(&SIM, SIM.region_s).into_iter().map(|exam| exam.name).collect();
        let exams = subject.exams(&LAB, LAB.region_s);
        assert_eq!(exams.len(), 16);
        assert!(exams.iter().all(|exam| all.contains(&exam.name)));
        let runs = exams.iter().map(|exam| {
            let found = sabul_scenario::read_for(sabul_scenario::Arm::Lab, &exam.text, "x", &[]);
            found.unwrap().remove(0).scenario.duration.as_secs_f64()
        });
        let seconds: f64 = runs.sum();
        assert!((350.0..480.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn the_seven_regions_are_those_of_the_paper() {
        let run = read(&exams("cubic", &[])[0]);
        assert_eq!(run.scenario.name, "cubic regions-180ms");
        let regions: Vec<_> =
            present(&run.scenario).iter().map(|r| (r.from_s, r.to_s, r.jain)).collect();
        let wanted = [
            (0.0, 120.0, 1.0),
            (120.0, 240.0, 2.0),
            (240.0, 360.0, 3.0),
            (360.0, 660.0, 4.0),
            (660.0, 780.0, 3.0),
            (780.0, 900.0, 2.0),
            (900.0, 1020.0, 1.0),
        ];
        assert_eq!(regions, wanted);
    }

    #[test]
    fn parameters_reach_each_flow_of_the_controller_and_no_other() {
        let params = [("syn_interval_ms".to_owned(), "20".to_owned())];
        for exam in exams("sabul2003", &params) {
            for flow in read(&exam).scenario.flows {
                let wanted: &[(String, String)] = if flow.id.len() == 1 { &params } else { &[] };
                assert_eq!(flow.params, wanted, "{} {}", exam.name, flow.id);
            }
        }
    }
}
