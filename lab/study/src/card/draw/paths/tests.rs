//! Tests of random paths: seeds, ranges, mixture, and scenarios.

use sabul_lab_cc::registry;
use sabul_run::scenario::Arrivals;

use super::super::super::plan::Carrier;
use super::*;

const SEED: u64 = 7;

fn paths(count: u32) -> Vec<Path> {
    (1..=count).map(|number| Path::drawn(SEED, number)).collect()
}

fn subject(name: &str) -> Subject<'static> {
    let entry = registry::find(name).unwrap();
    Subject { entry, params: &[], transport: Carrier::of(entry) }
}

#[test]
fn the_seed_determines_the_drawn_paths() {
    assert_eq!(paths(50), paths(50));
    let other = |path: &Path| Path::drawn(SEED + 1, path.number);
    assert!(paths(50).iter().all(|path| other(path) != *path));
}

/// The two named draws are published. A different path under an old number would make published
/// results wrong.
#[test]
fn the_named_draws_do_not_change() {
    let first = |seed| {
        let Path { rate_mbps, rtt_ms, queue_packets, loss, ours, theirs, .. } =
            Path::drawn(seed, 1);
        format!("{rate_mbps} {rtt_ms} {queue_packets} {loss} {ours} {theirs}")
    };
    let found = [super::super::TUNE_SEED, super::super::JUDGE_SEED].map(first);
    assert_eq!(found, ["1260 143 445 0 1 16", "786 28.7 1166 0 4 1"]);
}

#[test]
fn every_property_is_within_its_range() {
    for path in paths(2000) {
        let within = |value: f64, (low, high): (f64, f64)| value >= low && value <= high;
        assert!(within(path.rate_drawn_mbps, RATE_MBPS), "{path:?}");
        assert!(path.rate_mbps <= path.rate_drawn_mbps && path.rate_mbps > 0.4, "{path:?}");
        assert!(within(path.rtt_ms, RTT_MS), "{path:?}");
        let room = (QUEUE_BDP_MAX * path.bdp_packets()).max(1.0);
        assert!(path.queue_packets >= 1 && path.queue_packets as f64 <= room + 0.5, "{path:?}");
        assert!(path.loss == 0.0 || within(path.loss, LOSS), "{path:?}");
        assert!(FLOWS.contains(&path.ours) && FLOWS.contains(&path.theirs), "{path:?}");
        match path.background {
            Background::None => {}
            Background::Shaper { burst_mbps, bucket_bytes } => {
                assert!(burst_mbps > path.rate_mbps && burst_mbps < 20.1 * path.rate_mbps);
                assert!((3_000..=1_000_000_000).contains(&bucket_bytes), "{path:?}");
            }
            Background::Load { load_mbps } => {
                assert!(load_mbps > 0.0 && load_mbps < 0.905 * path.rate_mbps, "{path:?}");
            }
            Background::TwoWay => {}
        }
    }
}

#[test]
fn runs_have_at_most_20_million_packets_and_a_minimum_duration() {
    let (mut shortened, mut lowered) = (0, 0);
    for path in paths(2000) {
        assert!(path.packets() <= PACKETS_MAX * 1.000_001, "{path:?}");
        let measured_s = path.duration_s - path.warmup_s;
        assert!(measured_s > 19.99 && measured_s * 1e3 / path.rtt_ms > 99.9, "{path:?}");
        assert!(path.duration_s <= DURATION_S, "{path:?}");
        assert_eq!(path.is_shortened, path.duration_s < DURATION_S);
        shortened += u32::from(path.is_shortened);
        lowered += u32::from(path.rate_mbps < path.rate_drawn_mbps);
        if path.rate_mbps < path.rate_drawn_mbps {
            // The rate is lowered only where a shorter run is not enough.
            assert!(path.packets() > 0.99 * PACKETS_MAX && measured_s < 51.0, "{path:?}");
        }
    }
    assert!(shortened > 200 && lowered > 10 && lowered < 100, "{shortened} {lowered}");
}

#[test]
fn the_mixture_is_as_documented() {
    let all = paths(4000);
    let share = |is_meant: &dyn Fn(&Path) -> bool| {
        all.iter().filter(|path| is_meant(path)).count() as f64 / all.len() as f64
    };
    let near = |found: f64, wanted: f64, what: &str| {
        assert!((found - wanted).abs() < 0.03, "{what}: {found}, not {wanted}");
    };
    near(share(&|path| path.loss <= 0.0), 0.4, "without loss");
    near(share(&|path| path.first == First::Ours), 0.5, "ours first");
    for count in FLOWS {
        near(share(&|path| path.ours == count), 1.0 / 3.0, "ours");
        near(share(&|path| path.theirs == count), 1.0 / 3.0, "theirs");
        let both = |path: &Path| path.ours == count && path.theirs == count;
        near(share(&both), 1.0 / 9.0, "both: they are independent");
    }
    let kinds = ["none", "shaper", "load", "two-way"];
    for kind in kinds {
        near(share(&|path| path.background.name() == kind), 1.0 / kinds.len() as f64, kind);
    }
    // Log-uniform: half of the values are below the geometric mean.
    let middle = |(low, high): (f64, f64)| (low * high).sqrt();
    near(share(&|path| path.rate_drawn_mbps < middle(RATE_MBPS)), 0.5, "rate");
    near(share(&|path| path.rtt_ms < middle(RTT_MS)), 0.5, "round trip");
    let lossy = share(&|path| path.loss > 0.0 && path.loss < middle(LOSS));
    near(lossy, 0.3, "loss");
}

#[test]
fn every_scenario_reads_back_with_its_flows_and_its_order() {
    for name in ["cubic", "sabul2026"] {
        for (place, path) in paths(60).iter().enumerate() {
            for exam in path.exams(&subject(name), place) {
                let run = sabul_scenario::read(&exam.text, &exam.name, &[]).unwrap().remove(0);
                let count = |id: &str| {
                    let flow = run.scenario.flows.iter().find(|flow| flow.id == id)?;
                    let at_s = flow.start.elapsed().as_secs_f64();
                    let Arrivals::Together { count, .. } = flow.arrivals else { return None };
                    Some((flow.cc.clone(), count, at_s > 0.0))
                };
                let is_ours_later = path.first == First::Theirs;
                let theirs = Some(("cubic".to_owned(), path.theirs, !is_ours_later));
                let ours = |cc: &str| Some((cc.to_owned(), path.ours, is_ours_later));
                let alone = Some((name.to_owned(), 1, false));
                match exam.question.role {
                    Role::Alone => assert_eq!((count(OURS), count(THEIRS)), (alone, None)),
                    Role::Beside => assert_eq!((count(OURS), count(THEIRS)), (ours(name), theirs)),
                    Role::Reference => {
                        assert_eq!((count(PLACE), count(THEIRS)), (ours("cubic"), theirs));
                    }
                }
            }
        }
    }
}
