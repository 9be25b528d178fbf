//! Messages of `sabul lab shell`, for users who run their own programs at both ends of a path.

use sabul_emu::RouterSnapshot;
use sabul_emu::shell::{FAR_ADDRESS, NEAR_ADDRESS, ShellOutcome};
use sabul_net::{LinkConfig, LinkPlan, LinkSnapshot};
use sabul_units::{Rate, Span};

use crate::path::{self, PathOverrides};
use crate::{conversations, report};

/// Most conversations in the summary.
const CONVERSATIONS_SHOWN: usize = 10;
const TEXT_WIDTH: usize = 120;
/// Ours: up to this rate the router's 99th percentile of lateness should not exceed [`MEANT_P99`].
const MEANT_RATE: Rate = Rate::from_mbps(1_000);
/// See [`MEANT_RATE`].
const MEANT_P99: Span = Span::from_micros(100);
/// Ours: if packets are late by more than 1/50 of the RTT and by more than [`LATE_FLOOR`], the path
/// is not as requested. Runs of scenarios have the same limits.
const LATE_SHARE: u64 = 50;
/// See [`LATE_SHARE`].
const LATE_FLOOR: Span = Span::from_micros(300);

/// Returns the lines to print before the program starts.
pub fn greeting(overrides: &PathOverrides, link: &LinkPlan, is_far_empty: bool) -> Vec<String> {
    let mut path = path::describe(link);
    if let Some(first) = path.first_mut() {
        let name = match &overrides.preset {
            Some(name) => format!("'{name}': "),
            None if *overrides == PathOverrides::default() => {
                "the default, as none was asked for: ".to_owned()
            }
            None => String::new(),
        };
        first.insert_str(0, &name);
    }
    let mut lines: Vec<String> = Vec::new();
    for (n, line) in path.into_iter().enumerate() {
        lines.push(format!("{} {line}", if n == 0 { "path" } else { "    " }));
    }
    let far = if is_far_empty {
        "; start something there with --peer 'iperf3 -s', or from here: sabul lab far -- COMMAND"
    } else {
        ", where --peer runs; more from here: sabul lab far -- COMMAND"
    };
    lines.push(format!("near {} ('near') is you", NEAR_ADDRESS));
    lines.push(format!("far  {} ('far'){far}", FAR_ADDRESS));
    lines.push("'exit', or the end of your program, ends everything".to_owned());
    lines
}

/// Returns a summary of the traffic on the path.
pub fn summary(link: &LinkPlan, outcome: &ShellOutcome) -> String {
    let router = &outcome.router;
    let mut text = String::from("\n");
    if outcome.tuples.is_empty() {
        text += "Nothing went over the path.";
    } else {
        let table = conversations::table(&outcome.tuples, &[], CONVERSATIONS_SHOWN);
        text += &format!("{}\n", table.to_text(TEXT_WIDTH));
        if let Some([there, back]) = router.links.first() {
            let seconds = router.at.elapsed().as_secs_f64();
            text += &link_line("near to far", &link.forward, there, seconds);
            text += &link_line("far to near", &link.back, back, seconds);
        }
        text += &schedule(link, router);
    }
    for warning in &outcome.warnings {
        text += &format!("\nNot as it should be: {warning}");
    }
    text
}

fn link_line(way: &str, link: &LinkConfig, snapshot: &LinkSnapshot, seconds: f64) -> String {
    let stats = &snapshot.stats;
    let used = match link.rate() {
        Some(rate) if seconds > 0.0 => {
            let share = stats.delivered_bytes as f64 * 8.0 / seconds / rate.0 as f64;
            format!("{:.1} % of the rate used over {seconds:.1} s, ", share * 100.0)
        }
        _ => String::new(),
    };
    let causes: Vec<String> = [
        ("queue full", stats.dropped_full),
        ("by the discipline", stats.dropped_early),
        ("by chance", stats.dropped_loss),
        ("in silence", stats.dropped_outage),
        ("too large", stats.dropped_too_large),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(cause, count)| format!("{count} {cause}"))
    .collect();
    let causes =
        if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    format!(
        "{way}: {used}longest queue {} packets, {} of {} packets dropped{causes}\n",
        stats.queue_max_packets,
        stats.dropped(),
        stats.arrived,
    )
}

/// Returns whether the router kept the path's schedule; a violation is written in capitals.
fn schedule(link: &LinkPlan, router: &RouterSnapshot) -> String {
    let rtt = link.forward.delay() + link.back.delay();
    let bound = (rtt / LATE_SHARE).max(LATE_FLOOR);
    let rates = [&link.forward, &link.back].map(LinkConfig::rate);
    let is_meant = rates.into_iter().all(|rate| rate.is_some_and(|rate| rate <= MEANT_RATE));
    let verdict = match router.lateness.p99 {
        late if late <= MEANT_P99 => "the schedule was kept",
        late if late > bound => {
            "THE SCHEDULE WAS NOT KEPT: these numbers are about this machine and not about the path"
        }
        _ if is_meant => "DISTURBED: this machine did not keep the schedule to the 0.1 ms meant",
        _ => "the schedule was kept as well as it goes above 1 Gbit/s",
    };
    format!("{}; {verdict}", report::lateness(router))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use sabul_emu::{Amount, Lateness, Protocol, Tuple, TupleSnapshot};
    use sabul_net::{LinkStats, Way};
    use sabul_units::Instant;

    use super::*;

    fn link(args: &PathOverrides) -> LinkPlan {
        path::plan(args).unwrap()
    }

    #[test]
    fn the_greeting_shows_path_hosts_and_how_to_exit_in_four_lines() {
        let args = PathOverrides::default();
        let lines = greeting(&args, &link(&args), true);
        assert_eq!(lines.len(), 4, "{lines:?}");
        let text = lines.join("\n");
        for part in [
            "the default, as none was asked for: 100 Mbit/s, 50 ms one way",
            "1 BDP",
            "'near'",
            "'far'",
            "--peer 'iperf3 -s'",
            "sabul lab far --",
            "'exit'",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let args =
            PathOverrides { preset: Some("satellite".to_owned()), ..PathOverrides::default() };
        let text = greeting(&args, &link(&args), false).join("\n");
        assert!(text.contains("path 'satellite': 50 Mbit/s") && !text.contains("iperf3"), "{text}");
        let args = PathOverrides { rate: Some(Rate::from_mbps(10)), ..PathOverrides::default() };
        let text = greeting(&args, &link(&args), true).join("\n");
        assert!(text.starts_with("path 10 Mbit/s, 50 ms one way, queue 83 packets"), "{text}");
    }

    /// Ten seconds in which one direction used a quarter of 100 Mb/s.
    fn outcome(late_us: u64) -> ShellOutcome {
        let stats = LinkStats {
            arrived: 21_000,
            delivered_bytes: 31_250_000,
            dropped_full: 7,
            dropped_loss: 2,
            queue_max_packets: 55,
            ..LinkStats::default()
        };
        let there = LinkSnapshot { stats, ..LinkSnapshot::default() };
        let late = Span::from_micros(late_us);
        let router = RouterSnapshot {
            at: Instant::ZERO + Span::from_secs(10),
            links: vec![[there, LinkSnapshot::default()]],
            lateness: Lateness { packets: 21_000, p50: late / 2, p99: late, max: late * 3 },
            ..RouterSnapshot::default()
        };
        let warnings = vec!["'iperf3 -s' ended with code 1".to_owned()];
        let tuple = Tuple {
            protocol: Protocol::Tcp,
            source: IpAddr::from([10, 0, 0, 1]),
            source_port: 5000,
            destination: IpAddr::from([10, 0, 0, 2]),
            destination_port: 5201,
        };
        let amount =
            Amount { sent_bytes: 31_250_000, arrived_bytes: 31_245_000, ..Amount::default() };
        let (first, last) = (Instant::ZERO, Instant::ZERO + Span::from_secs(2));
        let way = Way::Forward;
        let tuples = vec![TupleSnapshot { pair: 0, way, tuple, amount, first, last }];
        ShellOutcome { code: 3, router, tuples, warnings }
    }

    #[test]
    fn the_summary_shows_conversations_link_and_schedule() {
        let plan = link(&PathOverrides::default());
        let text = summary(&plan, &outcome(40));
        for part in [
            "10.0.0.2:5201",
            "near to far: 25.0 % of the rate used over 10.0 s, longest queue 55 packets, 9 of 21000",
            "21000 packets dropped (7 queue full, 2 by chance)\n",
            "far to near: 0.0 % of the rate used over 10.0 s, longest queue 0 packets, 0 of 0 packets \
             dropped\n",
            "99 % at most 0.040 ms",
            "the schedule was kept",
            "Not as it should be: 'iperf3 -s' ended with code 1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn schedule_lateness_is_reported_relative_to_path_rate_and_rtt() {
        let reported = |mbps: u64, rtt_ms: u64, late_us| {
            let args = PathOverrides {
                rate: Some(Rate::from_mbps(mbps)),
                rtt: Some(Span::from_millis(rtt_ms)),
                ..PathOverrides::default()
            };
            summary(&link(&args), &outcome(late_us))
        };
        assert!(reported(100, 1, 100).ends_with(
            "the schedule was kept\nNot as it should be: 'iperf3 -s' ended with code 1"
        ));
        assert!(reported(100, 1, 105).contains("DISTURBED"));
        assert!(reported(100, 1, 305).contains("THE SCHEDULE WAS NOT KEPT"));
        // 2 % of 100 ms are 2 ms.
        assert!(reported(100, 100, 1_995).contains("DISTURBED"));
        assert!(reported(100, 100, 2_005).contains("NOT KEPT"));
        assert!(reported(2_000, 100, 105).contains("as it goes above 1 Gbit/s"));
        assert!(reported(2_000, 100, 2_005).contains("NOT KEPT"));
    }

    #[test]
    fn an_idle_path_is_reported_as_idle() {
        let plan = link(&PathOverrides::default());
        let nothing = ShellOutcome {
            code: 0,
            router: RouterSnapshot::default(),
            tuples: Vec::new(),
            warnings: Vec::new(),
        };
        assert!(summary(&plan, &nothing).contains("Nothing went over the path"));
    }
}
