//! Trace-driven link: the times at which packets may leave, read from a file in the format of
//! mahimahi.
//!
//! Source: [MAHIMAHI], `LinkQueue` and the manual page of `mm-link`.
//! Format:  one whole number a line, in milliseconds, in order; each is one opportunity to deliver
//!          [`OPPORTUNITY_BYTES`]. The last number is the period after which the trace repeats,
//!          without end.
//! Model:   an opportunity serves as many waiting packets as fit, and part of the next. A packet
//!          leaves with the opportunity that serves its last byte. Bytes of an opportunity without
//!          a waiting packet are wasted. A packet that arrives at the time of an opportunity misses
//!          it.

use std::fmt;
use std::sync::Arc;

use sabul_units::{Bytes, Instant, Rate, Span};

use crate::setting::{RATE_MAX, RATE_MIN};

/// Bytes of one opportunity: an Ethernet MTU and the 4 bytes that a TUN device puts before it. Source: `[MAHIMAHI]`.
pub const OPPORTUNITY_BYTES: u32 = 1_504;
/// Largest trace file, in bytes: enough for some 20 minutes at 100 Mb/s.
pub const TRACE_BYTES_MAX: usize = 8 << 20;
/// Most opportunities of a trace, which keeps it below 4 MB of memory.
pub const OPPORTUNITIES_MAX: usize = 1_000_000;
/// Longest period in milliseconds: the 10^6 seconds of the longest run.
pub const PERIOD_MS_MAX: u32 = 1_000_000_000;

/// Opportunities of one period, which repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds since the beginning of the period, in order; the last is the period, above 0.
    times_ms: Arc<[u32]>,
}

/// A trace that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, counted from 1; `None` for the trace as a whole.
    pub line: Option<usize>,
    /// The problem and the advice.
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Parses the bytes of a trace file.
    ///
    /// # Errors
    /// - The file is larger than [`TRACE_BYTES_MAX`] or empty.
    /// - A line is not a whole number up to [`PERIOD_MS_MAX`], or is below the line before.
    /// - The file has more than [`OPPORTUNITIES_MAX`] lines, or the last line is 0.
    /// - The mean rate is outside the range of link rates.
    pub fn parse(bytes: &[u8]) -> Result<Self, TraceError> {
        let whole = |what: String| Err(TraceError { line: None, what });
        if bytes.len() > TRACE_BYTES_MAX {
            let size = bytes.len();
            return whole(format!("has {size} bytes; a trace has at most {TRACE_BYTES_MAX}"));
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if bytes.is_empty() {
            return whole("is empty; write one time in milliseconds a line".to_owned());
        }
        let mut times_ms: Vec<u32> = Vec::new();
        for (n, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |what| Err(TraceError { line: Some(n + 1), what });
            let Some(time_ms) = number(line.strip_suffix(b"\r").unwrap_or(line)) else {
                let allowed = format!("a whole number of milliseconds from 0 to {PERIOD_MS_MAX}");
                return wrong(format!("'{}' is not allowed; use {allowed}", shown(line)));
            };
            if let Some(before) = times_ms.last().filter(|before| **before > time_ms) {
                let what = format!("{time_ms} is below {before}, the line before it");
                return wrong(format!("{what}; write times in order"));
            }
            if times_ms.len() == OPPORTUNITIES_MAX {
                return wrong(format!("a trace has at most {OPPORTUNITIES_MAX} lines"));
            }
            times_ms.push(time_ms);
        }
        let trace = Self { times_ms: times_ms.into() };
        if trace.period_ms() == 0 {
            return whole("ends at 0; the last line is the period, use 1 or more".to_owned());
        }
        let rate = trace.mean_rate();
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            return whole(format!("has a mean rate of {rate}; use 1 kbit/s to 1 Tbit/s"));
        }
        Ok(trace)
    }

    /// Number of opportunities in a period.
    pub fn opportunities(&self) -> usize {
        self.times_ms.len()
    }

    /// Period of the trace in milliseconds.
    pub fn period_ms(&self) -> u32 {
        self.times_ms.last().copied().unwrap_or_default()
    }

    /// Mean rate over a period, if every opportunity is used.
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.times_ms.len() as u64 * u64::from(OPPORTUNITY_BYTES);
        Rate::from_size_over(Bytes(bytes), Span::from_millis(self.period_ms().into()))
    }

    /// Bits of the opportunities after `from` and not after `until`.
    pub(crate) fn bits_between(&self, from: Instant, until: Instant) -> f64 {
        let count = |at| {
            let (period, place) = self.after(at);
            period as f64 * self.times_ms.len() as f64 + place as f64
        };
        (count(until) - count(from)).max(0.0) * f64::from(OPPORTUNITY_BYTES) * 8.0
    }

    /// Returns the first opportunity after a time: its period and its index, which may be the end
    /// of that period.
    fn after(&self, at: Instant) -> (u64, usize) {
        let ms = at.elapsed().0 / Span::from_millis(1).0;
        let period = u64::from(self.period_ms());
        let place = self.times_ms.partition_point(|time| u64::from(*time) <= ms % period);
        (ms / period, place)
    }
}

/// A number of milliseconds in decimal digits.
fn number(line: &[u8]) -> Option<u32> {
    let is_plain = (1..=10).contains(&line.len()) && line.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(line).ok().filter(|_| is_plain)?;
    text.parse().ok().filter(|number| *number <= PERIOD_MS_MAX)
}

/// Returns the beginning of a line, escaped for display.
fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 24;
    let mut shown = line[..line.len().min(SHOWN)].escape_ascii().to_string();
    if line.len() > SHOWN {
        shown.push('…');
    }
    shown
}

/// Playback state of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    trace: Trace,
    /// Number of finished periods, and index of the next opportunity in the present period.
    period: u64,
    next: usize,
    /// Time of the latest opportunity, and its bytes that may still serve a packet.
    at: Instant,
    left: u32,
}

impl Player {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { trace, period: 0, next: 0, at: Instant::ZERO, left: 0 }
    }

    /// Wastes all opportunities until `now`, because no packet waits.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.left = 0;
        let after = self.trace.after(now);
        (self.period, self.next) = after.max((self.period, self.next));
    }

    /// Returns when the last byte of a packet leaves that may use opportunities from `start` on.
    pub(crate) fn finish(&mut self, start: Instant, size: u32) -> Instant {
        let (mut finish, mut size) = (start, size);
        while size > 0 {
            if self.left == 0 {
                self.take();
            }
            let served = size.min(self.left);
            size -= served;
            self.left -= served;
            finish = self.at;
        }
        finish
    }

    fn take(&mut self) {
        if self.next >= self.trace.times_ms.len() {
            self.period += 1;
            self.next = 0;
        }
        let times_ms = &self.trace.times_ms;
        let before = self.period.saturating_mul(self.trace.period_ms().into());
        let now_ms = before.saturating_add(times_ms[self.next].into());
        self.at = Instant::ZERO + Span::from_millis(now_ms);
        self.left = OPPORTUNITY_BYTES;
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::{Random, SeededRandom};

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    fn wrong(text: &str) -> String {
        Trace::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_trace_is_read_with_or_without_a_final_newline() {
        for text in ["0\n3\n3\n10\n", "0\n3\n3\n10", "0\r\n3\r\n3\r\n10\r\n"] {
            let trace = Trace::parse(text.as_bytes()).unwrap();
            assert_eq!((trace.opportunities(), trace.period_ms()), (4, 10));
            // 4 × 1504 × 8 bits in 10 ms.
            assert_eq!(trace.mean_rate(), Rate(4_812_800));
        }
    }

    #[test]
    fn each_problem_is_named_with_its_line() {
        assert!(wrong("").contains("is empty"));
        assert!(wrong("\n").contains("is empty"));
        assert!(wrong("0\n0\n").contains("ends at 0"));
        assert_eq!(
            wrong("5\n4\n"),
            "line 2: 4 is below 5, the line before it; write times in order"
        );
        for line in ["", "x", "-1", "1.5", " 1", "1000000001", "99999999999999999999", "\u{e9}"] {
            let wrong = wrong(&format!("1\n{line}\n5\n"));
            assert!(wrong.starts_with("line 2: '"), "{line}: {wrong}");
            assert!(wrong.contains("from 0 to 1000000000"), "{line}: {wrong}");
        }
        assert!(wrong("1000000000\n").contains("mean rate"));
        assert!(wrong(&"1\n".repeat(100_000)).contains("mean rate"));
        assert!(wrong(&"1\n".repeat(OPPORTUNITIES_MAX + 1)).contains("at most 1000000 lines"));
        assert!(wrong(&"1".repeat(TRACE_BYTES_MAX + 1)).contains("at most 8388608"));
        assert!(wrong(&"7".repeat(99)).contains("…"));
    }

    #[test]
    fn any_bytes_parse_or_are_refused_and_parsed_traces_play_in_order() {
        let mut read = 0;
        for seed in 0..20_000 {
            let mut random = SeededRandom::new(seed);
            let alphabet = b"0123456789\n\n\n\r-x\xff";
            let length = random.below(40);
            let draw = |_| alphabet[usize::try_from(random.below(17)).unwrap()];
            let bytes: Vec<u8> = (0..length).map(draw).collect();
            let Ok(trace) = Trace::parse(&bytes) else { continue };
            read += 1;
            let mut player = Player::new(trace);
            let mut at = Instant::ZERO;
            for size in [1, 1_504, 40, 9_000, 0] {
                let finish = player.finish(at, size);
                assert!(finish >= at, "seed {seed}: {at:?} {finish:?}");
                at = finish + Span(u64::from(size));
                player.rest(at);
                assert!(player.clone().finish(at, 1) > at, "seed {seed}");
            }
        }
        assert!(read > 100, "only {read}");
    }

    #[test]
    fn an_opportunity_serves_several_small_packets_or_part_of_a_large_packet() {
        let mut player = Player::new(Trace::parse(b"5\n10\n").unwrap());
        let mut finish = |size| player.finish(at_ms(0), size).elapsed().0 / 1_000_000_000;
        // 1504 bytes at 5, 10, 15, 20, ... ms.
        assert_eq!([finish(500), finish(500), finish(500)], [5, 5, 5]);
        // 4 bytes of the first are left, 1500 of the second make this one whole, and 4 are left again.
        assert_eq!([finish(1_504), finish(4), finish(1)], [10, 10, 15]);
        assert_eq!(finish(4_511), 25);
        assert_eq!(finish(1_504), 30);
    }

    #[test]
    fn an_opportunity_without_a_packet_is_wasted() {
        let mut player = Player::new(Trace::parse(b"5\n10\n").unwrap());
        assert_eq!(player.finish(at_ms(0), 100), at_ms(5));
        player.rest(at_ms(5));
        assert_eq!(player.finish(at_ms(5), 100), at_ms(10));
        player.rest(at_ms(1_000_000_007));
        assert_eq!(player.finish(at_ms(1_000_000_007), 100), at_ms(1_000_000_010));
    }

    #[test]
    fn bits_between_two_times_count_each_opportunity_once() {
        let trace = Trace::parse(b"0\n4\n10\n").unwrap();
        let count = |from, until| trace.bits_between(at_ms(from), at_ms(until)) / 8.0 / 1_504.0;
        // At 0, 4, 10, 10, 14, 20, 20, ...
        for (from, until, wanted) in
            [(0, 4, 1.0), (0, 10, 3.0), (4, 14, 3.0), (10, 20, 3.0), (5, 9, 0.0)]
        {
            assert!((count(from, until) - wanted).abs() < 1e-9, "{from} to {until}");
        }
    }
}
