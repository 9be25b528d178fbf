//! Gilbert-Elliott process: losses in bursts.
//!
//! Source: [Gilbert 1960], where the good state loses nothing; [Elliott 1963] for both states.
//! Model:  at each packet the good state turns bad with `to_bad`, or the bad state good with
//!         `to_good`. The packet is then lost with the probability of the present state.
//! In the long run a share `to_bad ÷ (to_bad + to_good)` of the packets is in the bad state, in
//! runs of 1 ÷ `to_good` packets on average. The process starts in the good state.

use sabul_units::{Random, SeededRandom};

use crate::discipline::BurstLoss;

/// State between two packets.
#[derive(Clone, Debug)]
pub(crate) struct BurstProcess {
    settings: BurstLoss,
    random: SeededRandom,
    is_bad: bool,
}

impl BurstProcess {
    pub(crate) fn new(settings: BurstLoss, random: SeededRandom) -> Self {
        Self { settings, random, is_bad: false }
    }

    /// Draws whether the next packet is lost.
    #[inline(never)]
    pub(crate) fn loses_next(&mut self) -> bool {
        let BurstLoss { to_bad, to_good, loss_good, loss_bad } = self.settings;
        self.is_bad ^= self.random.chance(if self.is_bad { to_good } else { to_bad });
        self.random.chance(if self.is_bad { loss_bad } else { loss_good })
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Probability;

    use super::*;

    const PACKETS: usize = 1_000_000;

    fn losses(settings: BurstLoss) -> Vec<bool> {
        let mut process = BurstProcess::new(settings, SeededRandom::new(5));
        (0..PACKETS).map(|_| process.loses_next()).collect()
    }

    fn share(losses: &[bool]) -> f64 {
        losses.iter().filter(|&&lost| lost).count() as f64 / losses.len() as f64
    }

    #[test]
    fn mean_loss_and_mean_burst_length_match_theory() {
        // 1 % in bursts of 8: about 1 250 bursts. The mean of 1 250 geometric lengths has a sigma
        // of 8 ÷ √1250 = 2.8 %, the share a sigma of about 4 %. Four sigma each.
        let settings = BurstLoss::for_mean(Probability::per_mille(10), 8.0).unwrap();
        let losses = losses(settings);
        let bursts = losses.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
        let mean_burst = share(&losses) * PACKETS as f64 / bursts as f64;
        assert!((mean_burst / 8.0 - 1.0).abs() < 0.11, "{mean_burst}");
        assert!((share(&losses) / 0.01 - 1.0).abs() < 0.16, "{}", share(&losses));
    }

    #[test]
    fn both_states_of_burst_loss_can_lose_packets() {
        // (0.03 × 0.001 + 0.01 × 0.5) ÷ 0.04 = 0.12575.
        let settings = BurstLoss {
            to_bad: Probability::per_mille(10),
            to_good: Probability::per_mille(30),
            loss_good: Probability::per_mille(1),
            loss_bad: Probability::per_mille(500),
        };
        assert!((settings.mean_loss() - 0.125_75).abs() < 1e-12);
        let share = share(&losses(settings));
        assert!((share / 0.125_75 - 1.0).abs() < 0.05, "{share}");
    }

    #[test]
    fn equal_states_lose_independently() {
        // 10 % each time: losses are independent.
        let p = Probability::per_mille(100);
        let settings = BurstLoss { to_bad: p, to_good: p, loss_good: p, loss_bad: p };
        let losses = losses(settings);
        let after_loss: Vec<_> = losses.windows(2).filter(|w| w[0]).map(|w| w[1]).collect();
        assert!((share(&losses) - 0.1).abs() < 0.002, "{}", share(&losses));
        assert!((share(&after_loss) - 0.1).abs() < 0.005, "{}", share(&after_loss));
    }
}
