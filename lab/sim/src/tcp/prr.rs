//! Proportional Rate Reduction: the congestion window during a recovery.
//!
//! Source: [RFC9937 §6], in segments.
//! Model: for each ACK that delivers `newly` segments; `target` is the controller's window:
//!     delivered += newly
//!     in flight > target:  quota = ceil(delivered × target / flight) - sent
//!     else (PRR-CRB):      quota = max(delivered - sent, newly)
//!                          PRR-SSRB: one more if the ACK advanced and showed no further loss
//!                          quota = min(quota, target - in flight)
//!     cwnd = in flight + quota
//! Invariants:  the first retransmission is never held back.
//! Not here:    the target, and the beginning and end of recoveries (`sender`).

/// State of one recovery; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prr {
    /// [RFC9937 §6] RecoverFS: segments outstanding when the recovery began.
    flight: u64,
    delivered: u64,
    sent: u64,
    cwnd: u64,
}

/// The effects of one ACK.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    /// Segments that the ACK delivers, cumulatively or selectively.
    pub(super) newly: u64,
    /// Segments in flight after the ACK.
    pub(super) in_flight: u64,
    /// The controller's window for the end of the recovery.
    pub(super) target: u64,
    /// [RFC9937 §6] SafeACK: the ACK advances the cumulative acknowledgement and shows no further
    /// loss.
    pub(super) is_safe: bool,
}

impl Prr {
    /// Starts a recovery with `flight` segments outstanding, those of the newest ACK included.
    pub(super) const fn new(flight: u64) -> Self {
        Self { flight, delivered: 0, sent: 0, cwnd: 0 }
    }

    /// Sets the window for the time until the next ACK.
    pub(super) fn on_ack(&mut self, ack: Delivery) {
        let Delivery { newly, in_flight, target, is_safe } = ack;
        if newly == 0 && self.cwnd > 0 {
            return;
        }
        self.delivered += newly;
        let mut quota = if in_flight > target {
            let share = (self.delivered * target).div_ceil(self.flight.max(1));
            share.saturating_sub(self.sent)
        } else {
            let conserved = self.delivered.saturating_sub(self.sent).max(newly);
            (conserved + u64::from(is_safe)).min(target - in_flight)
        };
        if self.sent == 0 {
            quota = quota.max(1);
        }
        self.cwnd = in_flight + quota;
    }

    pub(super) const fn on_send(&mut self) {
        self.sent += 1;
    }

    /// Segments that may be in flight.
    pub(super) const fn cwnd(&self) -> u64 {
        self.cwnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(prr: &mut Prr, newly: u64, in_flight: u64, is_safe: bool) -> u64 {
        prr.on_ack(Delivery { newly, in_flight, target: 10, is_safe });
        prr.cwnd() - in_flight
    }

    #[test]
    fn reduction_to_half_sends_one_segment_for_two_arrivals() {
        // 20 outstanding, target 10: one leaves for each two arrivals.
        let mut prr = Prr::new(20);
        let (mut in_flight, mut sent) = (18, Vec::new());
        for _ in 0..16 {
            let count = quota(&mut prr, 1, in_flight, false);
            (0..count).for_each(|_| prr.on_send());
            in_flight = in_flight + count - u64::from(in_flight > 0);
            sent.push(count);
        }
        assert_eq!(sent, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(in_flight, 10);
    }

    #[test]
    fn prr_below_its_target_sends_as_much_as_arrives_plus_one_without_new_loss() {
        // A burst of losses left 3 in flight of a target of 10.
        let mut prr = Prr::new(20);
        assert_eq!(quota(&mut prr, 1, 3, false), 1, "never more than has arrived");
        prr.on_send();
        assert_eq!(quota(&mut prr, 1, 3, false), 1);
        prr.on_send();
        assert_eq!(quota(&mut prr, 2, 2, true), 3, "slow start while it goes well");
        (0..3).for_each(|_| prr.on_send());
        assert_eq!(quota(&mut prr, 8, 9, true), 1, "up to the target");
    }

    #[test]
    fn the_first_retransmission_is_sent_at_once() {
        let mut prr = Prr::new(100);
        prr.on_ack(Delivery { newly: 0, in_flight: 97, target: 50, is_safe: false });
        assert_eq!(prr.cwnd(), 98);
    }
}
