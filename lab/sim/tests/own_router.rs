//! A router algorithm that a program adds: a link finds the algorithm by name and runs it.

use sabul_cc::router::{LinkState, RouterController, RouterEntry};
use sabul_lab_cc::routers;
use sabul_net::{LinkConfig, LinkPlan, RouterPlan};
use sabul_run::scenario::{FlowPlan, Scenario, Transport};
use sabul_sim::World;
use sabul_units::{Bytes, CongestionFields, CongestionForm, Rate, Span};

/// Signals half of the link's capacity, in the header form of RCP.
#[derive(Debug)]
struct Half;

impl RouterController for Half {
    fn on_arrival(&mut self, _: Bytes, _: Option<&CongestionFields>, _: &LinkState) {}
    fn on_departure(&mut self, _: Bytes, fields: &mut CongestionFields, link: &LinkState) {
        if let CongestionFields::Rcp { rate, .. } = fields {
            *rate = (*rate).min(link.capacity.mul_ratio(1, 2));
        }
    }
    fn on_interval(&mut self, _: Span, _: &LinkState) {}
    fn interval(&self) -> Span {
        Span::from_millis(10)
    }
}

const HALF: RouterEntry = RouterEntry {
    name: "half",
    form: CongestionForm::Rcp,
    params: &[],
    build: |_, _, _| Ok(Box::new(Half)),
};

#[test]
fn an_added_router_sets_the_rate_of_a_flow_with_its_header_form() {
    routers::add(&[HALF]).unwrap();
    let back = LinkConfig::droptail(Rate::from_mbps(100), Span::from_millis(10), 100);
    let forward = back.clone().with_router(Some(RouterPlan::new("half"))).build().unwrap();
    let scenario = Scenario {
        name: "own router".to_owned(),
        duration: Span::from_secs(6),
        warmup: Span::from_secs(2),
        links: vec![LinkPlan { id: "link".to_owned(), forward, back: back.build().unwrap() }],
        flows: vec![FlowPlan::new("flow", Transport::Sabul, "rcp", vec![0])],
        ..Scenario::default()
    };
    let link = World::new(scenario).unwrap().run().unwrap().results.links.remove(0);
    assert!((0.49..0.51).contains(&link.utilisation), "{}", link.utilisation);
}
