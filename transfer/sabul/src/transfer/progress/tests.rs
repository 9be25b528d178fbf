//! Tests of progress and reports of a transfer.

use super::*;

#[test]
fn a_transfer_of_any_duration_has_a_bounded_number_of_intervals() {
    let shared_progress = SharedProgress::new();
    let mut reports = 0;
    // A day of progress messages, one each 100 ms.
    for tick in 1..=864_000_u64 {
        shared_progress.advance(
            Counts { bytes: tick * 1000, ..Counts::default() },
            Duration::from_millis(tick * 100),
        );
        reports += 1;
    }
    let intervals = shared_progress.report(Counts::default()).intervals;
    assert!(intervals.len() < INTERVALS_MAX && intervals.len() > INTERVALS_MAX / 4, "{reports}");
    assert_eq!(intervals.iter().map(|interval| interval.bytes).sum::<u64>(), 864_000_000);
    assert!(intervals.is_sorted_by(|a, b| a.t_s < b.t_s));
    assert!(intervals.last().unwrap().t_s > 86_300.0);
}

#[test]
fn a_short_transfer_keeps_every_interval() {
    let shared_progress = SharedProgress::new();
    for tick in 1..=1000_u64 {
        shared_progress.advance(
            Counts { bytes: tick, ..Counts::default() },
            Duration::from_millis(tick * 100),
        );
    }
    assert_eq!(shared_progress.report(Counts::default()).intervals.len(), 1000);
}

#[test]
fn names_awaiting_the_receivers_count_are_bounded() {
    let shared_progress = SharedProgress::new();
    for index in 0..200_000_u64 {
        shared_progress.add_names(std::iter::once(index.to_string().into_bytes()));
    }
    assert!(shared_progress.lock().names.len() <= NAMES_MAX);
    let failure = || Failure::new(FailureCode::Unwritable, "x");
    shared_progress.entry_failed(199_999, failure());
    shared_progress.entry_failed(7, failure());
    let failures = shared_progress.report(Counts::default()).failures;
    assert_eq!([&failures[0].0[..], &failures[1].0], [&b"199999"[..], b"entry 7"]);
}

#[test]
fn final_totals_are_not_replaced_by_an_earlier_count() {
    let shared_progress = SharedProgress::new();
    let (few, all) = (
        Totals { entries: 1, bytes: 7, is_all: false },
        Totals { entries: 2, bytes: 9, is_all: true },
    );
    for (told, known) in [(few, few), (all, all), (few, all)] {
        shared_progress.set_ahead(told);
        assert_eq!(shared_progress.progress().ahead, Some(known));
    }
}

#[test]
fn a_report_with_failed_entries_becomes_an_error_of_the_first_failure() {
    assert!(Report::default().into_result().is_ok());
    let failure = |code, text: &str| Failure::new(code, text);
    let failures = vec![
        (b"a\x1b".to_vec(), failure(FailureCode::NoSpace, "the disk is full")),
        (b"b".to_vec(), failure(FailureCode::NotFound, "there is no such file")),
    ];
    let error = Report { entries_failed: 2, failures, ..Report::default() }.into_result();
    let error = error.unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error:?}");
    let text = "2 entries failed; the first is 'a\\u{1b}': the disk is full";
    assert_eq!(error.to_string(), text);
    let unnamed = Report { entries_failed: 1, ..Report::default() }.into_result().unwrap_err();
    assert_eq!(unnamed.to_string(), "1 entry failed");
}

#[test]
fn counts_of_a_receiver_beyond_the_announced_entries_are_a_violation() {
    let shared_progress = SharedProgress::new();
    shared_progress.add_names((0..3_u8).map(|name| vec![name]));
    let of = |entries, files, failed| Counts { entries, files, failed, ..Counts::default() };
    for counts in [of(0, 0, 0), of(3, 3, 0), of(0, 0, 3)] {
        shared_progress.check(counts).unwrap();
    }
    for counts in [of(4, 0, 0), of(0, 4, 0), of(0, 0, 4), of(u64::MAX, u64::MAX, u64::MAX)] {
        assert_eq!(shared_progress.check(counts).unwrap_err().code, FailureCode::Protocol);
    }
    let progress = |entries| Message::Progress {
        transfer: 1,
        bytes: 0,
        resumed: 0,
        durable: 0,
        entries,
        files: 0,
        at_us: 1,
    };
    shared_progress.follow(&progress(3)).unwrap();
    shared_progress.follow(&progress(4)).unwrap_err();
    assert_eq!(shared_progress.progress().entries, 3);
    // Must not overflow.
    shared_progress.report(of(u64::MAX, 0, u64::MAX));
}
