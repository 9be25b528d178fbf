use super::words::Change;
use super::*;

#[test]
fn a_rate_that_makes_no_sense_changes_nothing() {
    let job = Job::new("cp", "a host:").with_rates("fair", None, Some(5_000_000));
    let limit = |bps| Change { rate_limit_bps: Some(bps), ..Change::default() };
    assert!(job.set(&limit(4_000_000)).unwrap_err().contains("--min-rate"));
    assert!(job.set(&limit(u64::MAX)).unwrap_err().contains("up to"));
    let total = Change { rate_limit_total_bps: Some(1), ..Change::default() };
    assert!(job.set(&total).unwrap_err().contains("no server"));
    let policy = Change { policy: Some("rude".to_owned()), ..Change::default() };
    assert!(job.set(&policy).unwrap_err().contains("fair, high, low"));
    assert_eq!(job.look().rate_limit_bps, None);
    job.set(&limit(6_000_000)).unwrap();
    assert_eq!(job.look().rate_limit_bps, Some(6_000_000), "what begins later keeps to it");
    assert!(job.look().line().contains("not connected, policy fair, at most 6.0 Mbit/s: a host:"));
}
