//! HyStart++: ends slow start when the delay rises, before a loss.
//!
//! Source: [RFC9406 §4].
//! Model:       a round ends when all packets sent at its start have arrived. The smallest RTT of a round may exceed
//!              that of the previous round by an eighth (4 ms to 16 ms). Slow start then grows four times slower for
//!              five rounds and ends. If the delay falls
//!              again, full speed resumes.
//! States:      Full <--delay rises | falls--> Conservative --five rounds--> (over)
//! Not here:    the window itself (`cubic`).

use sabul_units::Span;

use crate::controller::{Acked, RttEstimate, SentNumber};

/// [RFC9406 §4.3] Bounds of the significant rise, and its share of the RTT.
const RISE_MIN: Span = Span::from_millis(4);
const RISE_MAX: Span = Span::from_millis(16);
const RISE_DIVISOR: u64 = 8;
/// [RFC9406 §4.3] RTT samples in a round before its smallest RTT counts.
const SAMPLES: u32 = 8;
/// DEV-011: on the wire four ACKs arrive per RTT, so a round never has eight samples. Three samples
/// are then sufficient if they cover as many packets as eight ACKs of TCP.
const SAMPLES_SPARSE: u32 = 3;
const PACKETS_SPARSE: u64 = 32;
/// [RFC9406 §4.3] Divisor of growth in conservative slow start, and its length in rounds.
pub(super) const CONSERVATIVE_DIVISOR: f64 = 4.0;
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Mode of slow start after an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Full growth.
    Full,
    /// Growth divided by [`CONSERVATIVE_DIVISOR`].
    Conservative,
    /// Slow start ends.
    End,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Full,
    /// `baseline` is the smallest RTT of the round in which the delay rose.
    Conservative {
        baseline: Span,
        rounds: u32,
    },
}

/// Detector state; see the module.
#[derive(Debug)]
pub(super) struct HyStart {
    stage: Stage,
    /// The round ends when this number has arrived.
    round_end: SentNumber,
    last_min: Option<Span>,
    current_min: Option<Span>,
    samples: u32,
    packets: u64,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self {
            stage: Stage::Full,
            round_end: SentNumber(0),
            last_min: None,
            current_min: None,
            samples: 0,
            packets: 0,
        }
    }

    /// Processes an ACK in slow start with its RTT sample.
    pub(super) fn on_ack(&mut self, acked: &Acked, rtt: &RttEstimate) -> Step {
        if acked.cumulative_ack >= self.round_end {
            self.round_end = acked.next;
            self.last_min = self.current_min.take();
            (self.samples, self.packets) = (0, 0);
            if let Stage::Conservative { rounds, .. } = &mut self.stage {
                // The round in which conservative slow start began counts in full.
                *rounds += 1;
                if *rounds >= CONSERVATIVE_ROUNDS {
                    return Step::End;
                }
            }
        }
        let current = self.current_min.map_or(rtt.latest, |min| min.min(rtt.latest));
        self.current_min = Some(current);
        self.samples += 1;
        self.packets = self.packets.saturating_add(acked.newly.0);
        if self.is_sampled() {
            match self.stage {
                Stage::Full => {
                    if self.last_min.is_some_and(|last| current >= last + rise(last)) {
                        self.stage = Stage::Conservative { baseline: current, rounds: 0 };
                    }
                }
                Stage::Conservative { baseline, .. } => {
                    if current < baseline {
                        self.stage = Stage::Full;
                    }
                }
            }
        }
        match self.stage {
            Stage::Full => Step::Full,
            Stage::Conservative { .. } => Step::Conservative,
        }
    }

    const fn is_sampled(&self) -> bool {
        self.samples >= SAMPLES
            || (self.samples >= SAMPLES_SPARSE && self.packets >= PACKETS_SPARSE)
    }
}

/// Returns the significant rise of the delay.
fn rise(last: Span) -> Span {
    (last / RISE_DIVISOR).clamp(RISE_MIN, RISE_MAX)
}

#[cfg(test)]
mod tests {
    use sabul_units::Packets;

    use super::*;

    /// Sends `acks` ACKs of `newly` packets each; the first ACK ends the previous round.
    fn round(hystart: &mut HyStart, first: u64, acks: u64, newly: u64, rtt_ms: u64) -> Step {
        let rtt = Span::from_millis(rtt_ms);
        let estimate = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
        let mut step = Step::Full;
        for n in 0..acks {
            let acked = Acked {
                newly: Packets(newly),
                cumulative_ack: SentNumber(first + n * newly),
                next: SentNumber(first + acks * newly),
                ..Acked::default()
            };
            step = hystart.on_ack(&acked, &estimate);
            if step == Step::End {
                break;
            }
        }
        step
    }

    #[test]
    fn an_rtt_rise_of_an_eighth_slows_growth_and_five_rounds_end_slow_start() {
        let mut hystart = HyStart::new();
        // 100 ms / 8 = 12.5 ms: 112 ms is no rise, 113 ms is one.
        assert_eq!(round(&mut hystart, 0, 10, 1, 100), Step::Full);
        assert_eq!(round(&mut hystart, 10, 10, 1, 112), Step::Full);
        // The round before had 112 ms: 112 + 14 = 126.
        assert_eq!(round(&mut hystart, 20, 10, 1, 125), Step::Full);
        assert_eq!(round(&mut hystart, 30, 10, 1, 141), Step::Conservative);
        for n in 4..8 {
            assert_eq!(round(&mut hystart, n * 10, 10, 1, 141), Step::Conservative, "round {n}");
        }
        assert_eq!(round(&mut hystart, 80, 10, 1, 141), Step::End);
    }

    #[test]
    fn a_delay_that_falls_again_resumes_full_speed() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 10, 1, 100);
        assert_eq!(round(&mut hystart, 10, 10, 1, 120), Step::Conservative);
        assert_eq!(round(&mut hystart, 20, 10, 1, 101), Step::Full);
    }

    #[test]
    fn the_rise_that_counts_is_bounded() {
        // 8 ms / 8 = 1 ms, raised to 4 ms; 400 ms / 8 = 50 ms, lowered to 16 ms.
        assert_eq!(rise(Span::from_millis(8)), Span::from_millis(4));
        assert_eq!(rise(Span::from_millis(64)), Span::from_millis(8));
        assert_eq!(rise(Span::from_millis(400)), Span::from_millis(16));
    }

    #[test]
    fn few_samples_count_only_where_they_stand_for_many_packets() {
        let rounds = |acks, newly| {
            let mut hystart = HyStart::new();
            round(&mut hystart, 0, acks, newly, 100);
            round(&mut hystart, acks * newly, acks, newly, 150)
        };
        assert_eq!(rounds(7, 2), Step::Full, "seven samples of TCP");
        assert_eq!(rounds(8, 2), Step::Conservative, "eight samples of TCP");
        assert_eq!(rounds(4, 2), Step::Full, "four for eight packets");
        assert_eq!(rounds(4, 8), Step::Conservative, "four for 32 packets, as on the wire");
    }
}
