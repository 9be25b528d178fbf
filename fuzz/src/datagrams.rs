//! Fuzz target for datagram headers and reports: decoding and encoding are inverse.

use sabul_units::PacketNumber;
use sabul_wire::{
    DATA_HEADER_LEN, DATA_OVERHEAD, DataHeader, Feedback, HEADER_LEN, Header, Kind,
    MAX_CONGESTION_HEADER, MAX_RANGES, decode_congestion, encode_congestion, find_congestion,
};

/// Input: one datagram, which is also decoded as a report.
pub(crate) fn target(data: &[u8]) -> bool {
    let header = Header::decode(data);
    if let Ok(header) = header {
        assert_eq!(header.encode(), data[..HEADER_LEN]);
        assert!(usize::from(header.congestion_len) <= MAX_CONGESTION_HEADER);
        assert!(!header.ends_block || header.kind == Kind::Data);
    }
    if let Ok(data_header) = DataHeader::decode(data) {
        assert_eq!(data_header.encode(), data[..DATA_HEADER_LEN]);
        let overhead = DATA_OVERHEAD + usize::from(data_header.congestion_len);
        let may_end = data_header.congestion_len > 0;
        assert!(data.len() + usize::from(may_end) > overhead, "a payload and the tag follow");
        let number = PacketNumber::expand(data_header.number_low, PacketNumber(1 << 40));
        assert_eq!(number.low(), data_header.number_low);
    }
    check_congestion(data);
    let report = Feedback::decode(data);
    if let Ok(report) = &report {
        check_report(report);
    }
    header.is_ok() || report.is_ok()
}

/// Bytes that a router finds as a congestion header decode and encode to the same bits, in a DATA
/// packet or alone.
fn check_congestion(data: &[u8]) {
    let found = find_congestion(data).map(|range| &data[range]);
    assert!(found.is_none_or(|bytes| decode_congestion(bytes).is_ok()));
    for bytes in [Some(data), found].into_iter().flatten() {
        if let Ok(header) = decode_congestion(bytes) {
            let mut again = vec![0; bytes.len()];
            encode_congestion(&header, &mut again);
            assert_eq!(again, bytes);
        }
    }
}

/// Checks a report that the peer sent, or that is about to be sent.
pub(crate) fn check_report(report: &Feedback) {
    let ranges: &[_] = match report {
        Feedback::Ack(ack) => &ack.missing,
        Feedback::Nak(nak) => &nak.ranges,
        Feedback::Missing(missing) => &missing.ranges,
        Feedback::Syn { .. } | Feedback::ErrorRate(_) | Feedback::PairTime(_) => &[],
    };
    assert!(ranges.len() <= MAX_RANGES, "{} ranges", ranges.len());
    assert!(ranges.iter().all(|range| range.first <= range.last));
    assert!(ranges.windows(2).all(|pair| pair[0].last < pair[1].first), "ranges ascend");
    let mut bytes = Vec::new();
    report.encode(&mut bytes);
    // Times are whole microseconds on the wire, so only the second round must be exact.
    let again = Feedback::decode(&bytes).expect("what was encoded decodes");
    let mut bytes_again = Vec::new();
    again.encode(&mut bytes_again);
    assert_eq!(bytes, bytes_again);
    if !matches!(report, Feedback::Ack(_)) {
        assert_eq!(&again, report);
    }
}
