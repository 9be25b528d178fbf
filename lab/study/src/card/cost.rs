//! Processor cost of flows in the lab: processor time of their hosts, and clock cycles per bit.

use sabul_emu::FlowCpu;
use serde::Serialize;

use super::measure::{Trial, mean};
use crate::processor::mhz_per_mbps;

/// Processor time of the flows' hosts. \[SLAC\] Table 1
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// Percent of one processor.
    pub(crate) cpu_percent_sender: f64,
    pub(crate) cpu_percent_receiver: f64,
    /// Share of a processor × its clock ÷ goodput.
    pub(crate) mhz_per_mbps_sender: f64,
    pub(crate) mhz_per_mbps_receiver: f64,
}

/// Returns the mean cost of all flows over runs. For each run, `part` returns start and end in
/// seconds and the total goodput in bit/s.
pub(super) fn cost(
    trials: &[Trial],
    mhz: Option<f64>,
    part: impl Fn(&Trial) -> Option<(f64, f64, f64)>,
) -> Option<Cost> {
    let of = |one: &Trial| -> Option<Cost> {
        let cpu = &one.finished.lab.as_ref()?.cpu;
        let (from_s, to_s, goodput_bps) = part(one)?;
        // Processor time used until the last sample at or before `at_s`.
        let rows = |at_s: f64| one.finished.series.t_s.partition_point(|t_s| *t_s <= at_s + 1e-6);
        let until = |side: &[f64], at_s: f64| match rows(at_s) {
            0 => 0.0,
            rows => side.get(rows - 1).copied().unwrap_or(f64::NAN),
        };
        let used = |side: fn(&FlowCpu) -> &[f64]| -> f64 {
            cpu.iter().map(|flow| until(side(flow), to_s) - until(side(flow), from_s)).sum()
        };
        let [sender, receiver] = [used(|flow| &flow.sender_s), used(|flow| &flow.receiver_s)];
        let seconds = to_s - from_s;
        let clocks = |used| mhz_per_mbps(Some(used), mhz, seconds, goodput_bps).unwrap_or(f64::NAN);
        Some(Cost {
            cpu_percent_sender: sender / seconds * 100.0,
            cpu_percent_receiver: receiver / seconds * 100.0,
            mhz_per_mbps_sender: clocks(sender),
            mhz_per_mbps_receiver: clocks(receiver),
        })
    };
    let costs: Vec<Cost> = trials.iter().map(of).collect::<Option<_>>()?;
    let over = |number: fn(&Cost) -> f64| mean(costs.iter().map(number));
    Some(Cost {
        cpu_percent_sender: over(|cost| cost.cpu_percent_sender),
        cpu_percent_receiver: over(|cost| cost.cpu_percent_receiver),
        mhz_per_mbps_sender: over(|cost| cost.mhz_per_mbps_sender),
        mhz_per_mbps_receiver: over(|cost| cost.mhz_per_mbps_receiver),
    })
}

#[cfg(test)]
mod tests {
    use sabul_run::results::{Results, Series};

    use super::super::measure::tests::{close, series, trial};
    use super::*;
    use crate::runs::LabFacts;

    #[test]
    fn cost_is_processor_time_by_time_and_by_goodput() {
        // The sender takes half a processor in the first two seconds and none after, the receiver a
        // tenth throughout.
        let lab = LabFacts {
            cpu: vec![FlowCpu {
                id: "a".to_owned(),
                sender_s: vec![0.5, 1.0, 1.0, 1.0],
                receiver_s: vec![0.1, 0.2, 0.3, 0.4],
            }],
            ..crate::runs::tests::facts()
        };
        let mut one = trial("", Results::default(), series(1.0, &[("a", vec![8e6; 4])]));
        one.finished.lab = Some(lab);
        let part = |from_s, to_s| move |_: &Trial| Some((from_s, to_s, 8e6));
        let found = cost(std::slice::from_ref(&one), Some(2000.0), part(0.0, 2.0)).unwrap();
        close(found.cpu_percent_sender, 50.0);
        close(found.cpu_percent_receiver, 10.0);
        // 0.5 × 2000 MHz ÷ 8 Mb/s.
        close(found.mhz_per_mbps_sender, 125.0);
        close(found.mhz_per_mbps_receiver, 25.0);
        let later = cost(std::slice::from_ref(&one), None, part(2.0, 4.0)).unwrap();
        close(later.cpu_percent_sender, 0.0);
        close(later.cpu_percent_receiver, 10.0);
        assert!(later.mhz_per_mbps_receiver.is_nan(), "no clock is known");
        let not_measured = trial("", Results::default(), Series::default());
        assert_eq!(cost(&[one, not_measured], Some(2000.0), part(0.0, 2.0)), None);
    }
}
