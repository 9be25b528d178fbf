//! Set-up that the tests share: one link, its flows, and a measured run.

#![expect(clippy::unwrap_used, reason = "a test's own numbers")]

use sabul_net::{LinkConfigBuilder, LinkPlan};
use sabul_run::results::Results;
use sabul_run::scenario::{FlowPlan, Scenario};
use sabul_sim::World;
use sabul_units::Span;

/// Returns one link with these settings in the data direction and back.
pub(crate) fn one_link(forward: LinkConfigBuilder, back: LinkConfigBuilder) -> Vec<LinkPlan> {
    let (forward, back) = (forward.build().unwrap(), back.build().unwrap());
    vec![LinkPlan { id: "link".to_owned(), forward, back }]
}

/// Returns one link with these settings in both directions.
pub(crate) fn both_ways(link: LinkConfigBuilder) -> Vec<LinkPlan> {
    one_link(link.clone(), link)
}

/// Returns a scenario that is measured from `from_s` to `end_s`.
pub(crate) fn scenario(
    from_s: u64,
    end_s: u64,
    links: Vec<LinkPlan>,
    flows: Vec<FlowPlan>,
) -> Scenario {
    let (duration, warmup) = (Span::from_secs(end_s), Span::from_secs(from_s));
    Scenario { name: "test".to_owned(), duration, warmup, links, flows, ..Scenario::default() }
}

/// Runs a scenario without faults.
pub(crate) fn results(scenario: Scenario) -> Results {
    World::new(scenario).unwrap().run().unwrap().results
}

/// Returns the goodput of each flow, in Mb/s.
pub(crate) fn goodput(results: &Results) -> Vec<f64> {
    results.flows.iter().map(|flow| flow.goodput_bps / 1e6).collect()
}
