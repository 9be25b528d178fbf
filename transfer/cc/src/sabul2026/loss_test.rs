//! Loss test: the flow sends less than the rate that arrives, to see whether its losses stay or fall.
//!
//! Source: ours.
//! Not here:    the counts of a test and their meaning (`losses`).

use super::losses::Verdict;
use super::path::Epoch;
use super::{ALONE_PART, Sabul2026, State};
use crate::controller::Context;
use crate::reason::Reason;

/// Ours: part of the window kept during a loss test, and after it if the flow's own queue caused the losses.
pub(super) const TEST_PART: f64 = 0.85;
/// Ours: epochs at the start of a loss test that count as before the test: the first has packets from before the test,
/// and the second has losses that reordering delayed.
const TEST_SETTLES: u32 = 2;

/// A loss test in progress, and the epoch before the test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossTest {
    /// Epochs that still report packets and losses from before the test.
    pub(super) settles_left: u32,
    /// Part of the window.
    pub(super) part: f64,
    /// Share of packets that was lost.
    lost: f64,
    /// Arrival rate in packets a second.
    rate: f64,
    /// Base RTT in seconds.
    base: f64,
}

impl LossTest {
    /// Returns the test after an epoch that still reports on packets from before the test; the most of the epochs
    /// before is the reference.
    pub(super) fn settle(self, epoch: &Epoch) -> Self {
        Self {
            settles_left: self.settles_left - 1,
            lost: self.lost.max(epoch.lost),
            rate: self.rate.max(epoch.rate_pps),
            ..self
        }
    }
}

impl Sabul2026 {
    /// Starts a loss test: the flow sends less than the rate that arrives, for a given share of lost packets.
    pub(super) fn start_test(&mut self, lost: f64, epoch: &Epoch) {
        let excess = (lost - self.losses.random_loss()).max(0.0);
        self.enter(State::Test(LossTest {
            settles_left: TEST_SETTLES,
            part: TEST_PART * (1.0 - excess),
            lost,
            rate: epoch.rate_pps,
            base: self.path.base_s(),
        }));
    }

    pub(super) fn end_test(&mut self, test: &LossTest, epoch: &Epoch, cx: &mut Context<'_>) {
        // If the base RTT falls at a lower rate, it contained a queue that other flows keep full.
        let packet = 1.0 / self.link.rate_pps().max(1.0);
        let was_queue = test.base - self.path.base_s() > self.path.jitter_s().max(2.0 * packet);
        match self.losses.judge(test.lost, epoch) {
            _ if was_queue => {
                self.enter(State::Cruise);
                self.on_congestion(epoch, false, cx);
            }
            Verdict::Open => {}
            Verdict::Random => {
                cx.log_reason(Reason::Own("losses-stay"));
                self.enter(State::Cruise);
                if self.losses.is_proven() {
                    self.fallback.bound_until = cx.now;
                }
            }
            Verdict::Ours if test.rate < ALONE_PART * self.link.rate_pps() => {
                self.enter(State::Cruise);
                self.on_congestion(epoch, false, cx);
            }
            Verdict::Ours => {
                cx.log_reason(Reason::LossEpoch);
                // The rate that arrived is a rate that the link carries.
                let carried = test.rate * self.path.base_s();
                self.set_window(
                    (self.window_packets * test.part).max(carried.min(self.window_packets)),
                );
                self.losses.note_overflow(epoch);
                self.probing.schedule(cx);
                self.headroom.wait(self.probing.at);
                self.enter(State::Cruise);
            }
        }
    }
}
