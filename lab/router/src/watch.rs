//! Notices about problems of a running router; each is reported once.

use std::fmt;

use sabul_units::{Rate, show_rate};

use crate::kernel::KernelSnapshot;
use crate::snapshot::RouterSnapshot;

/// Consecutive snapshots, a second apart, with packets waiting behind the router before the link
/// counts as slow.
const ROW: u32 = 3;
/// Part of the configured rate below which the link behind counts as slower. Less than 1, because
/// both are counted at different times.
const SLOWER: f64 = 0.97;

/// A notice for the user.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The link behind the router carries less than its configured rate.
    SlowLink {
        /// Measured rate.
        real: Rate,
        /// Configured rate.
        given: Rate,
        /// Bytes in the link's own queue.
        queue_bytes: u64,
    },
    /// Headers of a later version pass.
    Later {
        /// Version and form of the first such header.
        first: (u8, u8),
    },
    /// Headers of another algorithm pass.
    Foreign {
        /// Algorithm of the first such header.
        algorithm: &'static str,
    },
    /// The kernel has dropped frames because the router read too slowly.
    Missed {
        /// Frames so far.
        frames: u64,
    },
    /// The far device refuses frames.
    Refused {
        /// Frames so far.
        frames: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlowLink { real, given, queue_bytes } => {
                let (shown, set_rate) = (show_rate(real.0 as f64), show_rate(given.0 as f64));
                let wise = real.mul_ratio(97, 100).as_mbps_f64();
                write!(
                    f,
                    "the link behind carries {shown}, less than the {set_rate} of --rate-mbps: \
                     {queue_bytes} bytes wait in its own queue, of which flows get no signal; \
                     start the router with --rate-mbps {wise:.1}"
                )
            }
            Self::Later { first: (version, form) } => write!(
                f,
                "packets carry congestion headers of version {version}, form {form}, which are later \
                 than this program: they go on unchanged, as plain traffic; a newer sabul reads them"
            ),
            Self::Foreign { algorithm } => write!(
                f,
                "packets carry congestion headers of {algorithm}, which this router does not answer: \
                 they go on unchanged, as plain traffic; let all routers and senders of a path use \
                 one algorithm"
            ),
            Self::Missed { frames } => write!(
                f,
                "the kernel has dropped {frames} frames before the router could read them: this \
                 machine is too busy for what comes"
            ),
            Self::Refused { frames } => write!(
                f,
                "the far device has refused {frames} frames: see whether it is up and its MTU is not \
                 below the near device's"
            ),
        }
    }
}

/// Detector of problems, with one snapshot per second.
#[derive(Debug, Default)]
pub struct Watch {
    before: Option<(RouterSnapshot, KernelSnapshot)>,
    waiting_for: u32,
    /// Sum of the link's rates while packets waited.
    carried_bps: f64,
    said: [bool; 5],
}

impl Watch {
    /// Returns new notices for this snapshot, about a second after the previous snapshot.
    pub fn see(&mut self, snapshot: &RouterSnapshot, kernel: &KernelSnapshot) -> Vec<Notice> {
        let slow = self.slow_link(snapshot, kernel);
        let missed = kernel.missed_frames;
        let found = [
            slow,
            snapshot.first_later.map(|first| Notice::Later { first }),
            snapshot.first_foreign.map(|algorithm| Notice::Foreign { algorithm }),
            (missed > 0).then_some(Notice::Missed { frames: missed }),
            (snapshot.refused_frames > 0)
                .then_some(Notice::Refused { frames: snapshot.refused_frames }),
        ];
        self.before = Some((snapshot.clone(), *kernel));
        let fresh = found.into_iter().zip(&mut self.said).filter_map(|(notice, is_said)| {
            let notice = notice.filter(|_| !*is_said)?;
            *is_said = true;
            Some(notice)
        });
        fresh.collect()
    }

    fn slow_link(&mut self, snapshot: &RouterSnapshot, kernel: &KernelSnapshot) -> Option<Notice> {
        let (before, kernel_before) = self.before.as_ref()?;
        let (then, now) = (kernel_before.uplink?, kernel.uplink?);
        let seconds = snapshot.at_s - before.at_s;
        let waits = now.waiting_bytes > 0 && then.waiting_bytes > 0;
        if seconds <= 0.0 || !(waits || now.dropped > then.dropped) {
            (self.waiting_for, self.carried_bps) = (0, 0.0);
            return None;
        }
        self.waiting_for += 1;
        self.carried_bps += now.sent_bytes.saturating_sub(then.sent_bytes) as f64 * 8.0 / seconds;
        let real = self.carried_bps / f64::from(self.waiting_for);
        let is_slow = self.waiting_for >= ROW && real < SLOWER * snapshot.rate_bps as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let real = Rate(real as u64);
        let (given, queue_bytes) = (Rate(snapshot.rate_bps), now.waiting_bytes);
        is_slow.then_some(Notice::SlowLink { real, given, queue_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::QueueSnapshot;

    /// A snapshot after `second` seconds in which the link behind carried 20 Mb/s, with this many
    /// bytes waiting there.
    fn at(second: u32, rate_mbps: u64, waiting_bytes: u64) -> (RouterSnapshot, KernelSnapshot) {
        let snapshot = RouterSnapshot {
            at_s: f64::from(second),
            rate_bps: rate_mbps * 1_000_000,
            ..RouterSnapshot::default()
        };
        let sent_bytes = 2_500_000 * u64::from(second);
        let uplink = Some(QueueSnapshot { sent_bytes, waiting_bytes, dropped: 0 });
        (snapshot, KernelSnapshot { missed_frames: 0, uplink })
    }

    fn said(
        watch: &mut Watch,
        (snapshot, kernel): (RouterSnapshot, KernelSnapshot),
    ) -> Vec<Notice> {
        watch.see(&snapshot, &kernel)
    }

    #[test]
    fn a_link_slower_than_configured_is_reported_once_with_its_rate() {
        let mut watch = Watch::default();
        let all: Vec<_> = (0..10).map(|second| said(&mut watch, at(second, 50, 90_000))).collect();
        assert!(all[..3].iter().all(Vec::is_empty), "{all:?}");
        let slow = Notice::SlowLink {
            real: Rate::from_mbps(20),
            given: Rate::from_mbps(50),
            queue_bytes: 90_000,
        };
        let text = slow.to_string();
        assert_eq!(all[3], [slow]);
        assert!(all[4..].iter().all(Vec::is_empty), "{all:?}");
        assert!(text.contains("20") && text.contains("--rate-mbps 19.4"), "{text}");
    }

    #[test]
    fn a_transient_queue_or_a_link_at_its_rate_is_not_reported() {
        let mut watch = Watch::default();
        for second in 0..20 {
            let bytes = if second % 3 == 0 { 0 } else { 9_000 };
            assert!(said(&mut watch, at(second, 50, bytes)).is_empty());
        }
        let mut watch = Watch::default();
        for second in 0..20 {
            assert!(said(&mut watch, at(second, 20, 9_000)).is_empty());
        }
    }

    #[test]
    fn each_notice_is_given_once_with_advice() {
        let mut watch = Watch::default();
        let (mut snapshot, mut kernel) = at(0, 50, 0);
        snapshot.first_later = Some((2, 4));
        snapshot.first_foreign = Some("rcp");
        snapshot.refused_frames = 3;
        kernel.missed_frames = 5;
        let texts: Vec<_> = watch.see(&snapshot, &kernel).iter().map(Notice::to_string).collect();
        let words = ["version 2", "of rcp", "dropped 5 frames", "refused 3 frames"];
        assert_eq!(texts.len(), words.len());
        for (text, words) in texts.iter().zip(words) {
            assert!(text.contains(words), "{text}");
        }
        assert!(watch.see(&snapshot, &kernel).is_empty());
    }
}
