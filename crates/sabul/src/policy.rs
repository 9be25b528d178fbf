//! What a peer may choose for what this end sends.
//!
//! Whoever asks for data names a controller and a rate, and whoever sends it answers for what that
//! does to the network. So the sending end decides: the request's wish counts within this policy.

use sabul_cc::registry;
use sabul_wire::control::{ChannelParams, Failure, FailureCode};

use crate::ceiling::Ceiling;

/// Which controllers a peer may choose for what this end sends.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Controllers {
    /// Those that react to loss.
    #[default]
    Adaptive,
    /// These.
    Named(Vec<String>),
    /// All, those included that send at one rate whatever happens.
    Any,
}

impl Controllers {
    fn allow(&self, name: &str) -> bool {
        match self {
            Self::Adaptive => registry::find(name).is_ok_and(|entry| entry.is_adaptive),
            Self::Named(names) => names.iter().any(|allowed| allowed == name),
            Self::Any => true,
        }
    }

    /// The names, for a message.
    fn list(&self) -> String {
        let allowed = registry::all().map(|entry| entry.name).filter(|name| self.allow(name));
        allowed.collect::<Vec<_>>().join(", ")
    }
}

/// What a peer may choose for what this end sends. What this end asks for itself is not bound by it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SendPolicy {
    /// Which controllers.
    pub controllers: Controllers,
    /// Never send faster than this in one transfer, in bit/s.
    pub rate_limit_bps: Option<u64>,
    /// Send no faster than this in all transfers together.
    pub ceiling: Option<Ceiling>,
}

impl SendPolicy {
    /// Everything a peer may ask for: for measurements, on paths that bear them.
    pub fn any() -> Self {
        Self { controllers: Controllers::Any, ..Self::default() }
    }

    /// Refuses what is not allowed, and lowers what is too fast.
    pub(crate) fn apply(&self, params: &mut ChannelParams) -> Result<(), Failure> {
        if !self.controllers.allow(&params.controller) {
            let text = format!(
                "this end does not send with the controller {}; choose one of these by --cc: {}; \
                 or have it served with --allow-cc {0}",
                params.controller,
                self.controllers.list()
            );
            return Err(Failure::new(FailureCode::Refused, text));
        }
        let limits = [params.rate_limit_bps, self.rate_limit_bps];
        params.rate_limit_bps = limits.into_iter().flatten().min();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(controller: &str, rate_limit_bps: Option<u64>) -> ChannelParams {
        ChannelParams {
            controller: controller.to_owned(),
            controller_params: Vec::new(),
            block_bytes: 1 << 20,
            window_bytes: 1 << 30,
            rate_limit_bps,
            mtu_max: None,
            rules: 0,
            control_feedback: false,
        }
    }

    #[test]
    fn a_peer_chooses_among_adaptive_controllers_unless_told_otherwise() {
        let allows = |controllers: Controllers, name: &str| {
            let policy = SendPolicy { controllers, ..SendPolicy::default() };
            policy.apply(&mut params(name, None))
        };
        for name in ["sabul2003", "cubic", "tsunami"] {
            assert_eq!(allows(Controllers::Adaptive, name), Ok(()));
        }
        for name in ["fixed", "rbudp", "fobs", "netblt", "unknown"] {
            let refusal = allows(Controllers::Adaptive, name).unwrap_err();
            assert_eq!(refusal.code, FailureCode::Refused);
            assert!(refusal.message.contains("sabul2003, "), "{refusal}");
            assert!(refusal.message.contains(&format!("--allow-cc {name}")), "{refusal}");
            assert_eq!(allows(Controllers::Any, name), Ok(()));
        }
        let named = || Controllers::Named(vec!["fixed".to_owned()]);
        assert_eq!(allows(named(), "fixed"), Ok(()));
        assert!(allows(named(), "sabul2003").unwrap_err().message.contains("--cc: fixed;"));
    }

    #[test]
    fn the_lower_rate_counts() {
        for (asked, allowed, expected) in [
            (None, None, None),
            (Some(5), None, Some(5)),
            (None, Some(7), Some(7)),
            (Some(5), Some(7), Some(5)),
            (Some(9), Some(7), Some(7)),
        ] {
            let policy = SendPolicy { rate_limit_bps: allowed, ..SendPolicy::default() };
            let mut params = params("sabul2003", asked);
            policy.apply(&mut params).unwrap();
            assert_eq!(params.rate_limit_bps, expected);
        }
    }
}
