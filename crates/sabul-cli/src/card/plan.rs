//! The tests of a card as scenario files.
//!
//! Every test is plain scenarios, so that each can be read, kept and repeated with `sabul sim run`. The
//! link is called `bottleneck` everywhere, and flows of the controller are `a` to `d`. What is chosen
//! here, and why, stands in `docs/manual/card.md`.

use sabul_cc::registry::{Entry, Family};

/// Base round trips of the seven regions, in milliseconds. \[SLAC\]
const REGION_RTTS_MS: [f64; 3] = [10.0, 80.0, 180.0];
/// An OC-12, which the measured paths of \[SLAC\] may have been.
const REGION_RATE_MBPS: f64 = 622.0;
/// Round trips and rates of everything else.
const RTT_MS: f64 = 40.0;
const RATE_MBPS: f64 = 100.0;
/// Random loss, as a share of the packets.
const LOSSES: [f64; 8] = [0.0, 0.0001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2];
const BESIDE_RTTS_MS: [f64; 3] = [10.0, 40.0, 160.0];
const BESIDE_QUEUES_BDP: [f64; 3] = [0.25, 1.0, 4.0];
/// The two of the test of round-trip fairness.
pub(super) const NEAR_MS: f64 = 10.0;
pub(super) const FAR_MS: f64 = 80.0;
/// When the second flow of the test of convergence enters.
pub(super) const ENTRY_S: f64 = 20.0;
/// When measuring begins under cross traffic, and from when to when there is some.
pub(super) const CROSS_FROM_S: f64 = 20.0;
const CROSS_TIMES_S: [(f64, f64); 3] = [(20.0, 40.0), (60.0, 80.0), (100.0, 120.0)];
const CROSS_MBPS: f64 = 50.0;

/// The controller that a card is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) entry: &'static Entry,
    pub(crate) params: &'a [(String, String)],
}

/// What a scenario is to show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Question {
    /// Four flows that come one after another and go last in, first out.
    Regions { rtt_ms: f64 },
    /// What is left under random loss.
    Loss { share: f64 },
    /// What is left to a CUBIC flow.
    Beside { rtt_ms: f64, queue_bdp: f64 },
    /// How two flows share that are not equally far.
    RttFairness,
    /// How long a newcomer takes to its share.
    Convergence,
    /// How much it keeps waiting in a large queue.
    Queue,
    /// How long short transfers take beside it.
    Mice,
    /// How long they take alone.
    MiceAlone,
    /// How much of the capacity it finds that others leave.
    Cross,
}

/// One scenario of a card.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exam {
    pub(crate) question: Question,
    /// Its name, which its file has too.
    pub(crate) name: String,
    /// The scenario file.
    pub(crate) text: String,
}

impl Subject<'_> {
    /// A flow of the controller, on hosts that take what it controls, with further keys.
    fn flow(&self, id: &str, more: &str) -> String {
        let transport = match self.entry.family {
            Family::Window | Family::PacedWindow => "tcp",
            Family::Rate => "sabul",
        };
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

    /// Every scenario of the card, the longest runs first.
    pub(crate) fn exams(&self, seconds_per_flow: f64) -> Vec<Exam> {
        let mut exams: Vec<Exam> = REGION_RTTS_MS
            .iter()
            .rev()
            .map(|rtt_ms| self.regions(*rtt_ms, seconds_per_flow))
            .collect();
        exams.extend(LOSSES.iter().map(|share| self.loss(*share)));
        for queue_bdp in BESIDE_QUEUES_BDP {
            exams.extend(BESIDE_RTTS_MS.iter().map(|rtt_ms| self.beside(*rtt_ms, queue_bdp)));
        }
        exams.extend([
            self.rtt_fairness(),
            self.convergence(),
            self.queue(),
            self.mice(true),
            self.mice(false),
            self.cross(),
        ]);
        exams
    }

    fn exam(
        &self,
        question: Question,
        name: String,
        times: Times,
        link: &str,
        flows: &str,
    ) -> Exam {
        let Times { duration_s, warmup_s, sample_ms } = times;
        let text = format!(
            "name = \"{} {name}\"\nduration_s = {duration_s}\nwarmup_s = {warmup_s}\n\
             sample_ms = {sample_ms}\n\n[[link]]\nid = \"bottleneck\"\n{link}\n{flows}",
            self.entry.name,
        );
        Exam { question, name, text }
    }

    fn regions(&self, rtt_ms: f64, step_s: f64) -> Exam {
        let flows = [
            self.flow("a", ""),
            self.flow("b", &between(step_s, 7.5 * step_s)),
            self.flow("c", &between(2.0 * step_s, 6.5 * step_s)),
            self.flow("d", &between(3.0 * step_s, 5.5 * step_s)),
        ];
        self.exam(
            Question::Regions { rtt_ms },
            format!("regions-{rtt_ms}ms"),
            // Reports of one second, as [SLAC].
            Times { duration_s: 8.5 * step_s, warmup_s: 0.0, sample_ms: 1000 },
            &link(REGION_RATE_MBPS, rtt_ms, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }

    fn loss(&self, share: f64) -> Exam {
        self.exam(
            Question::Loss { share },
            format!("loss-{}pct", sabul_report::significant(share * 100.0, 3)),
            Times { duration_s: 70.0, warmup_s: 10.0, sample_ms: 100 },
            &link(RATE_MBPS, RTT_MS, &format!("queue_bdp = 1\nloss = {share}\n")),
            &self.flow("a", ""),
        )
    }

    fn beside(&self, rtt_ms: f64, queue_bdp: f64) -> Exam {
        let flows = [self.flow("a", ""), tcp("cubic", "cubic", "")];
        self.exam(
            Question::Beside { rtt_ms, queue_bdp },
            format!("beside-cubic-{rtt_ms}ms-{queue_bdp}bdp"),
            Times { duration_s: 150.0, warmup_s: 30.0, sample_ms: 100 },
            &link(RATE_MBPS, rtt_ms, &format!("queue_bdp = {queue_bdp}\n")),
            &flows.join("\n"),
        )
    }

    fn rtt_fairness(&self) -> Exam {
        let flows = [NEAR_MS, FAR_MS].map(|rtt_ms| format!("rtt_ms = {rtt_ms}\n"));
        let flows = [self.flow("a", &flows[0]), self.flow("b", &flows[1])];
        self.exam(
            Question::RttFairness,
            "rtt-fairness".to_owned(),
            Times { duration_s: 150.0, warmup_s: 30.0, sample_ms: 100 },
            &link(RATE_MBPS, NEAR_MS, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }

    fn convergence(&self) -> Exam {
        let flows = [self.flow("a", ""), self.flow("b", &format!("start_s = {ENTRY_S}\n"))];
        self.exam(
            Question::Convergence,
            "convergence".to_owned(),
            Times { duration_s: 140.0, warmup_s: 0.0, sample_ms: 100 },
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }

    fn queue(&self) -> Exam {
        self.exam(
            Question::Queue,
            "queue".to_owned(),
            Times { duration_s: 70.0, warmup_s: 10.0, sample_ms: 10 },
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 4\n"),
            &self.flow("a", ""),
        )
    }

    fn mice(&self, is_beside: bool) -> Exam {
        let mice = tcp(
            "mice",
            "cubic",
            "start_s = 10\narrivals = { process = \"poisson\", mean_interval_s = 0.1 }\n\
             size = { distribution = \"fixed\", packets = 30 }\n",
        );
        let (question, name, flows) = if is_beside {
            (Question::Mice, "mice", [self.flow("a", ""), mice].join("\n"))
        } else {
            (Question::MiceAlone, "mice-alone", mice)
        };
        self.exam(
            question,
            name.to_owned(),
            Times { duration_s: 130.0, warmup_s: 10.0, sample_ms: 100 },
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 1\n"),
            &flows,
        )
    }

    fn cross(&self) -> Exam {
        let mut flows = vec![self.flow("a", "")];
        for (number, (from_s, to_s)) in CROSS_TIMES_S.into_iter().enumerate() {
            flows.push(format!(
                "[[flow]]\nid = \"cross-{}\"\ntransport = \"udp-cbr\"\npath = [\"bottleneck\"]\n\
                 rate_mbps = {CROSS_MBPS}\n{}",
                number + 1,
                between(from_s, to_s),
            ));
        }
        self.exam(
            Question::Cross,
            "cross".to_owned(),
            Times { duration_s: 140.0, warmup_s: CROSS_FROM_S, sample_ms: 100 },
            &link(RATE_MBPS, RTT_MS, "queue_bdp = 1\n"),
            &flows.join("\n"),
        )
    }
}

/// How long a scenario takes and how it is measured.
#[derive(Clone, Copy, Debug)]
struct Times {
    duration_s: f64,
    warmup_s: f64,
    sample_ms: u32,
}

fn link(rate_mbps: f64, rtt_ms: f64, more: &str) -> String {
    format!("rate_mbps = {rate_mbps}\ndelay_ms = {}\n{more}", rtt_ms / 2.0)
}

fn between(start_s: f64, stop_s: f64) -> String {
    format!("start_s = {start_s}\nstop_s = {stop_s}\n")
}

fn tcp(id: &str, cc: &str, more: &str) -> String {
    format!(
        "[[flow]]\nid = \"{id}\"\ntransport = \"tcp\"\ncc = \"{cc}\"\npath = [\"bottleneck\"]\n{more}"
    )
}

#[cfg(test)]
mod tests {
    use sabul_cc::registry;
    use sabul_scenario::Run;
    use sabul_sim::results::Region;
    use sabul_sim::scenario::{Scenario, Transport};
    use sabul_units::Instant;

    use super::*;

    fn exams(name: &str, params: &[(String, String)]) -> Vec<Exam> {
        Subject { entry: registry::find(name).unwrap(), params }.exams(120.0)
    }

    fn read(exam: &Exam) -> Run {
        let mut runs = sabul_scenario::read(&exam.text, &exam.name, &[]).unwrap();
        assert_eq!(runs.len(), 1, "{}", exam.name);
        runs.remove(0)
    }

    /// Flows present between entries and exits.
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
                    assert_eq!((flow.transport, flow.cc.as_str()), (wanted, entry.name));
                }
            }
        }
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
