//! What the lab can carry of a scenario, and how its hosts are set for it.

use sabul_run::scenario::{Arrivals, Defects, FlowPlan, Profile, Scenario, Transport};
use sabul_units::Rate;

use crate::error::LabError;

/// Pairs of hosts: each is two namespaces and two devices.
const FLOWS_MAX: usize = 64;
/// Copies of one flow that start together: each is a connection with two ends.
const COPIES_MAX: u32 = 1_000;
/// No machine routes more through one thread; asking is a slip of the pen.
const RATE_MAX: Rate = Rate::from_mbps(40_000);
/// What the kernel sends at first, and no socket option changes. [RFC6928 §2]
const KERNEL_INITIAL_WINDOW: u32 = 10;

/// Refuses what the lab cannot do, before anything is made.
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
            if let Some(rate) = config.rate().filter(|rate| *rate > RATE_MAX) {
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
    for (key, rate) in [
        ("nic_mbps", flow.nic_rate),
        ("source_mbps", flow.source_rate),
        ("sink_mbps", flow.sink_rate),
    ] {
        if rate.is_some() {
            return refuse(&format!(
                "has {key}, which only the simulator knows; leave it out, or put a link of that rate \
                 into its path"
            ));
        }
    }
    if flow.defects != Defects::default() || flow.profile == Profile::Sabul2002 {
        return refuse(
            "behaves as the implementation of 2002 (profile or defects), which only the simulator has",
        );
    }
    if flow.transport == Transport::Tcp && flow.initial_window != KERNEL_INITIAL_WINDOW {
        return refuse(&format!(
            "has initial_window = {}; the kernel's TCP starts with {KERNEL_INITIAL_WINDOW}",
            flow.initial_window
        ));
    }
    if flow.streams > 1 {
        return refuse(
            "has streams, which only the simulator has; count gives as many flows of their own",
        );
    }
    if let (Transport::Tcp, Some((name, _))) = (flow.transport, flow.params.first()) {
        return refuse(&format!(
            "has the parameter {name}, and the kernel's TCP takes none; leave it out"
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
    use super::*;

    #[test]
    fn what_flows_cannot_be_here_is_named() {
        let refused = |transport: Transport, change: fn(&mut FlowPlan), part: &str| {
            let mut flow = FlowPlan::new("f", transport, "cubic", vec![0]);
            assert!(check_flow(&flow).is_ok());
            change(&mut flow);
            let why = check_flow(&flow).unwrap_err().to_string();
            assert!(why.contains("'f'") && why.contains(part), "{part}: {why}");
        };
        refused(Transport::Sabul, |flow| flow.profile = Profile::Sabul2002, "2002");
        refused(Transport::Sabul, |flow| flow.defects.rtt_once = true, "defects");
        refused(Transport::Sabul, |flow| flow.nic_rate = Some(Rate::from_mbps(1)), "nic_mbps");
        refused(Transport::Sabul, |flow| flow.sink_rate = Some(Rate::from_mbps(1)), "sink_mbps");
        refused(Transport::Tcp, |flow| flow.initial_window = 2, "initial_window = 2");
        let beta = |flow: &mut FlowPlan| flow.params = vec![("beta".to_owned(), "1".to_owned())];
        refused(Transport::Tcp, beta, "beta");
        let mut ours = FlowPlan::new("f", Transport::Sabul, "cubic", vec![0]);
        beta(&mut ours);
        assert!(check_flow(&ours).is_ok());
    }
}
