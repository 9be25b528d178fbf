//! Golden test: events of each controller on the same path, compared with committed text.
//!
//! After an intended change of an algorithm or of the path, `SABUL_GOLDEN=write cargo test -p
//! sabul-cc events` rewrites the text; explain the change in the commit.

use sabul_units::{Bytes, Gap, Packets, Span};

use super::*;
use crate::conformance;
use crate::registry::ENTRIES;

const STEADY: Phase = Phase::Named("steady");

#[test]
fn each_controller_records_the_expected_events() {
    for entry in ENTRIES {
        let mut lines = vec![COLUMNS.to_owned()];
        lines.extend(conformance::events_of(entry, &[]));
        assert!(lines.len() > 1 || !entry.is_adaptive, "{} has no events", entry.name);
        conformance::compare_golden(
            &format!("events/{}.txt", entry.name),
            &(lines.join("\n") + "\n"),
        );
    }
}

#[test]
fn a_journal_keeps_the_newest_events_and_counts_dropped_ones() {
    let limits = SendLimits { gap: Gap::NONE, window: Some(Packets(1)), hold_until: None };
    let mut journal = Journal::new();
    let extra = 5;
    for n in 0..EVENTS_MAX as u64 + extra {
        journal.reasons.record(Reason::LossEpoch);
        let at = Instant::ZERO + Span::from_micros(n);
        journal.note(at, "on_loss", (STEADY, limits), (STEADY, limits));
    }
    assert_eq!(journal.missed(), extra);
    assert_eq!(journal.next().unwrap().at, Instant::ZERO + Span::from_micros(extra));
}

#[test]
fn insignificant_changes_are_not_recorded() {
    let limits = SendLimits { gap: Gap::NONE, window: Some(Packets(4)), hold_until: None };
    let wider = SendLimits { window: Some(Packets(5)), ..limits };
    let mut journal = Journal::new();
    journal.note(Instant::ZERO, "on_ack", (STEADY, limits), (STEADY, wider));
    journal.note(Instant::ZERO, "on_loss", (STEADY, limits), (STEADY, limits));
    assert_eq!(journal.next(), None);
    journal.note(Instant::ZERO, "on_loss", (STEADY, wider), (STEADY, limits));
    journal.note(Instant::ZERO, "on_ack", (Phase::Named("start"), limits), (STEADY, limits));
    let hold_until = Some(Instant::ZERO + Span::from_millis(2));
    let gap = sabul_units::Rate::from_mbps(12).gap(Bytes(1500));
    let held = SendLimits { hold_until, gap, window: None };
    journal.reasons.record(Reason::LossEpoch);
    journal.reasons.record(Reason::Own("tired"));
    journal.note(Instant::ZERO, "on_interval", (STEADY, limits), (STEADY, held));
    let texts: Vec<String> =
        std::iter::from_fn(|| journal.next()).map(|event| event.to_string()).collect();
    assert_eq!(
        texts,
        [
            "0.000000 on_loss steady 0 4 - -",
            "0.000000 on_ack steady 0 4 - -",
            "0.000000 on_interval steady 1000000 - 0.002000 loss-epoch+tired",
        ]
    );
    assert_eq!(COLUMNS.split(' ').count(), texts[0].split(' ').count());
}
