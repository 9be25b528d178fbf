//! Checks of a scenario against the lab's limits, and settings of the hosts.

use sabul_run::scenario::{Arrivals, FlowDraft, FlowPlan, Scenario, Transport};
use sabul_units::Rate;

use crate::error::LabError;

/// Most pairs of hosts; each pair has two namespaces and two devices.
const FLOWS_MAX: usize = 64;
/// Most copies of one flow that start together; each copy is a connection with two ends.
const COPIES_MAX: u32 = 1_000;
/// Largest rate of a link: no machine routes more through one thread, so larger values are taken
/// for errors.
const RATE_MAX: Rate = Rate::from_mbps(40_000);

/// Refuses settings that the lab does not support, before any host is made.
pub(super) fn check(scenario: &Scenario) -> Result<(), LabError> {
    let refuse = |why: String| Err(LabError::CannotCarry(why));
    if scenario.flows.len() > FLOWS_MAX {
        let count = scenario.flows.len();
        return refuse(format!(
            "it has {count} flows, each with two hosts of its own; use {FLOWS_MAX} or fewer, and \
             `count` or `arrivals` for many of a kind"
        ));
    }
    for link in &scenario.links {
        for config in [&link.forward, &link.back] {
            if let Some(rate) = config.rate_max().filter(|rate| *rate > RATE_MAX) {
                let (rate, most) = (rate.as_mbps_f64(), RATE_MAX.as_mbps_f64());
                return refuse(format!(
                    "link '{}' has {rate} Mb/s; use {most} or less, or the simulator",
                    link.id
                ));
            }
        }
    }
    scenario.flows.iter().try_for_each(check_flow)
}

fn check_flow(flow: &FlowPlan) -> Result<(), LabError> {
    let refuse = |why: &str| Err(LabError::CannotCarry(format!("flow '{}' {why}", flow.id)));
    if let Some((key, why)) = FlowDraft::lab_refusal(flow.clone()) {
        return refuse(&format!("has {key}: {why}"));
    }
    if let (Transport::Tcp, Some((name, _))) = (flow.transport(), flow.params.first()) {
        return refuse(&format!(
            "has the parameter {name}, but the kernel's TCP has no parameters; remove {name}"
        ));
    }
    match flow.arrivals {
        Arrivals::Together { count, .. } | Arrivals::Chain { parallel: count, .. }
            if count > COPIES_MAX =>
        {
            refuse(&format!("has {count} copies at a time; use {COPIES_MAX} or fewer"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use sabul_run::scenario::{Carrier, Defects, Profile, SabulEnds, TcpEnds};

    use super::*;

    #[test]
    fn flow_settings_the_lab_cannot_carry_are_refused_by_name() {
        let refused = |carrier: Carrier, change: fn(&mut FlowPlan), part: &str| {
            assert!(check_flow(&FlowPlan::new("f", carrier.transport(), "cubic", vec![0])).is_ok());
            let mut flow = FlowPlan::new("f", carrier, "cubic", vec![0]);
            change(&mut flow);
            let why = check_flow(&flow).unwrap_err().to_string();
            assert!(why.contains("'f'") && why.contains(part), "{part}: {why}");
        };
        let (ours, tcp) = (SabulEnds::default(), TcpEnds::default());
        let slow = Some(Rate::from_mbps(1));
        let defects = Defects { rtt_once: true, ..Defects::default() };
        for (ends, part) in [
            (SabulEnds { profile: Profile::Sabul2002, ..ours }, "profile: only the simulator"),
            (SabulEnds { defects, ..ours }, "defects"),
            (SabulEnds { nic_rate: slow, ..ours }, "nic_mbps"),
            (SabulEnds { source_rate: slow, ..ours }, "source_mbps"),
            (SabulEnds { sink_rate: slow, ..ours }, "sink_mbps"),
        ] {
            refused(ends.into(), |_| {}, part);
        }
        refused(TcpEnds { initial_window: 2, ..tcp }.into(), |_| {}, "initial_window");
        refused(TcpEnds { streams: 2, ..tcp }.into(), |_| {}, "streams");
        let beta = |flow: &mut FlowPlan| flow.params = vec![("beta".to_owned(), "1".to_owned())];
        refused(tcp.into(), beta, "beta");
        let mut ours = FlowPlan::new("f", Transport::Sabul, "cubic", vec![0]);
        beta(&mut ours);
        assert!(check_flow(&ours).is_ok());
    }
}
