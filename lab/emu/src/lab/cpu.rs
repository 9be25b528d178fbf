//! Processor time of each flow's hosts.
//!
//! A thread of this process belongs to the host whose network namespace the thread is in. Such
//! threads are the flow's own threads and the threads that the library started from them. A host's
//! processor time is the time that the kernel has given its threads (`schedstat`), system calls
//! included.
//!
//! Not included is the kernel's work for incoming packets, such as TCP's reaction to ACKs: that
//! work happens in the router's thread or in no thread. Programs of `command` flows are separate
//! processes and not included either.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use sabul_run::scenario::Scenario;

use crate::flow::Ends;

/// Least interval between two readings; rows between two readings repeat the last values.
const SAMPLE_GAP: Duration = Duration::from_millis(90);

/// Processor time of a flow's hosts since the start of the run, at the end of each sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowCpu {
    /// Name of the flow.
    pub id: String,
    /// Seconds in the sending host.
    pub sender_s: Vec<f64>,
    /// Seconds in the receiving host.
    pub receiver_s: Vec<f64>,
}

/// Sums the processor time of threads.
#[derive(Debug)]
pub(super) struct CpuMeter {
    /// Flow and side (0 near, 1 far) of a host, by namespace number.
    hosts: HashMap<u64, (usize, usize)>,
    /// Nanoseconds of each thread at the last reading, by thread id.
    threads: HashMap<String, u64>,
    /// Nanoseconds so far, by flow: near, far.
    used: Vec<[u64; 2]>,
    sampled_at: Instant,
    series: Vec<FlowCpu>,
}

impl CpuMeter {
    /// Starts to count now.
    pub(super) fn start(scenario: &Scenario, ends: &[Ends]) -> Self {
        let numbers = ends.iter().enumerate().flat_map(|(flow, ends)| {
            let both = [&ends.near, &ends.far].into_iter().enumerate();
            both.filter_map(move |(side, host)| Some((host.namespace_number()?, (flow, side))))
        });
        let flow =
            |id: &String| FlowCpu { id: id.clone(), sender_s: Vec::new(), receiver_s: Vec::new() };
        let mut meter = Self {
            hosts: numbers.collect(),
            threads: HashMap::new(),
            used: vec![[0; 2]; ends.len()],
            sampled_at: Instant::now(),
            series: scenario.flows.iter().map(|plan| flow(&plan.id)).collect(),
        };
        meter.sample();
        // Excludes the time of the preparation.
        meter.used.fill([0; 2]);
        meter
    }

    /// Extends the series to this many rows.
    pub(super) fn note(&mut self, rows: usize) {
        if self.sampled_at.elapsed() >= SAMPLE_GAP {
            self.sample();
        }
        for (flow, [near, far]) in self.series.iter_mut().zip(&self.used) {
            flow.sender_s.resize(rows, *near as f64 / 1e9);
            flow.receiver_s.resize(rows, *far as f64 / 1e9);
        }
    }

    pub(super) fn finish(self) -> Vec<FlowCpu> {
        self.series
    }

    /// If a thread ends between two readings, its time since the first of them is not counted.
    fn sample(&mut self) {
        self.sampled_at = Instant::now();
        let Ok(tasks) = fs::read_dir("/proc/self/task") else { return };
        let before = std::mem::take(&mut self.threads);
        for task in tasks.flatten() {
            let path = task.path();
            let number = fs::metadata(path.join("ns/net")).map(|namespace| namespace.ino());
            let Some((flow, side)) = number.ok().and_then(|number| self.hosts.get(&number)) else {
                continue;
            };
            let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            let Some(used) = used_in(&text) else { continue };
            let name = task.file_name().to_string_lossy().into_owned();
            // A reused thread id counts from zero again.
            let since = before.get(&name).filter(|before| **before <= used).unwrap_or(&0);
            self.used[*flow][*side] += used - since;
            self.threads.insert(name, used);
        }
    }
}

/// The first of the three numbers: nanoseconds on a processor.
fn used_in(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_cpu_time_is_the_first_field() {
        assert_eq!(used_in("943027 19638746 4\n"), Some(943_027));
        assert_eq!(used_in(""), None);
        assert_eq!(used_in("x 1 2"), None);
    }

    #[test]
    fn cpu_time_of_threads_counts_for_the_flow_of_their_namespace() {
        let here = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let mut meter = CpuMeter {
            hosts: HashMap::from([(here, (0, 1))]),
            threads: HashMap::new(),
            used: vec![[0; 2]; 2],
            sampled_at: Instant::now(),
            series: vec![FlowCpu::default(); 2],
        };
        meter.sample();
        let first = meter.used.clone();
        let me = crate::clock::thread_cpu_seconds();
        while crate::clock::thread_cpu_seconds() - me < 0.02 {
            std::hint::spin_loop();
        }
        meter.sample();
        assert!(meter.used[0][1] >= first[0][1] + 10_000_000, "{:?} {first:?}", meter.used);
        assert_eq!((meter.used[0][0], meter.used[1]), (0, [0, 0]));
        meter.note(3);
        let series = meter.finish();
        assert_eq!(series[0].receiver_s.len(), 3);
        assert!(series[0].receiver_s[2] >= 0.01 && series[0].sender_s == [0.0; 3], "{series:?}");
    }
}
