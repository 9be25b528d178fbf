//! Random loss of the demonstration's path.

use sabul_net::{LinkPlan, PathPreset};
use sabul_units::Probability;

use crate::path::show_chance;

/// Random loss of data packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Losses {
    /// The path's own loss.
    Own,
    /// The path's own loss plus one packet in a thousand.
    More,
}

impl Losses {
    pub(super) const BOTH: [Self; 2] = [Self::Own, Self::More];
    /// Added loss of packets in the data direction.
    const MORE: f64 = 0.001;

    /// Returns the loss from 0 to 1.
    pub(super) fn rate(self, path: &PathPreset) -> f64 {
        let own = path.forward.loss().as_f64();
        match self {
            Self::Own => own,
            Self::More => (own + Self::MORE).min(1.0),
        }
    }

    fn chance(self, path: &PathPreset) -> Probability {
        Probability::new(self.rate(path)).unwrap_or(Probability::ONE)
    }

    pub(super) fn words(self, path: &PathPreset) -> String {
        match self.chance(path) {
            Probability::ZERO => "no loss".to_owned(),
            chance => format!("{} loss", show_chance(chance)),
        }
    }

    /// Returns the path with this loss.
    pub(super) fn on(self, path: &PathPreset) -> LinkPlan {
        let forward = path.forward.to_builder().with_loss(self.chance(path)).build();
        LinkPlan {
            id: path.name.to_owned(),
            // Building cannot fail: a link may lose any share of its packets.
            forward: forward.unwrap_or_else(|_| path.forward.clone()),
            back: path.back.clone(),
        }
    }
}
