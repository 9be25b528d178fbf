//! Response of a window controller to regular losses, for comparison with published figures. The figures are the mean
//! window at a loss rate, the part of the window left by one loss, and the recovery time.

use sabul_units::{Instant, Packets, Span};

use super::path::{PACKET, moment};
use crate::controller::{Acked, LossReport, SentNumber};
use crate::entry::Entry;
use crate::guard::Guarded;

/// RTT of the path.
pub const RTT: Span = Span::from_millis(100);

/// Path without a queue at any rate: each packet is acknowledged or reported lost one RTT after it
/// left.
#[derive(Debug)]
pub struct Flow {
    controller: Guarded,
    now: Instant,
    received: u64,
    arrived: u64,
    lost: u64,
}

impl Flow {
    /// Creates a flow of this controller with these parameters.
    ///
    /// # Panics
    /// If the controller rejects the parameters.
    pub fn new(entry: &Entry, params: &[(&str, &str)]) -> Self {
        let given: Vec<_> =
            params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let controller = entry.build(&given, PACKET).expect("the parameters are allowed");
        Self { controller, now: Instant::ZERO + RTT, received: 0, arrived: 0, lost: 0 }
    }

    /// Returns the window.
    ///
    /// # Panics
    /// If the controller has no window.
    pub fn window(&self) -> u64 {
        self.controller.limits().window.expect("a window controller has a window").0
    }

    /// Processes the feedback on the next packet.
    pub fn step(&mut self, is_lost: bool) {
        let window = self.window();
        self.now = self.now + RTT / window;
        self.received += 1;
        let (number, next) = (SentNumber(self.received), SentNumber(self.received + window));
        let moment = moment(self.now, RTT, RTT);
        if is_lost {
            self.lost += 1;
            let report = LossReport::new(Packets(1), Packets(0), number, next.before());
            self.controller.on_loss(&report, &moment);
            return;
        }
        self.arrived += 1;
        let acked = Acked {
            newly: Packets(1),
            total: Packets(self.arrived),
            in_flight: Packets(window - 1),
            largest: number,
            cumulative_ack: number,
            lost: Packets(self.lost),
            next,
            arrived_at: self.now.elapsed(),
            ..Acked::default()
        };
        self.controller.on_ack(&acked, &moment);
    }

    /// Returns packets per RTT with one in `every` lost, over the second half of `losses`.
    pub fn response(mut self, every: u64, losses: u64) -> f64 {
        let mut half = (self.now, self.received);
        for loss in 0..losses {
            if loss == losses / 2 {
                half = (self.now, self.received);
            }
            (1..every).for_each(|_| self.step(false));
            self.step(true);
        }
        let rounds = self.now.since(half.0).as_secs_f64() / RTT.as_secs_f64();
        (self.received - half.1) as f64 / rounds
    }
    /// Loses the next packet; returns the part of the window that is left.
    pub fn lose_one(&mut self) -> f64 {
        let before = self.window();
        self.step(true);
        self.window() as f64 / before as f64
    }

    /// Delivers packets until the window is back; returns the RTTs since then, at most 2000.
    pub fn rounds_until(&mut self, window: u64) -> f64 {
        let began = self.now;
        while self.window() < window && self.now.since(began) < RTT * 2000 {
            self.step(false);
        }
        self.now.since(began).as_secs_f64() / RTT.as_secs_f64()
    }
}

/// Returns the mean window of a law that adds `gain` packets per RTT and removes the part `drop` at
/// a loss, after which one RTT passes without growth. Half a packet is subtracted because windows
/// are whole packets.
pub fn additive(gain: f64, drop: f64, p: f64) -> f64 {
    // With W at the loss: 1/p = drop / gain × (1 - drop / 2) × W^2 + (1 - drop) × W.
    let (a, b) = (drop / gain * (1.0 - drop / 2.0), 1.0 - drop);
    let most = ((b * b + 4.0 * a / p).sqrt() - b) / (2.0 * a);
    1.0 / p / (drop * most / gain + 1.0) - 0.5
}
