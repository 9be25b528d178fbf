//! Settings and frames for tests.

use std::rc::Rc;

use sabul_tun::Bundle;
use sabul_units::{Rate, Span};

use super::frames::frame;
use crate::settings::{QueueSize, Settings};

/// JetMax at a link of 100 Mb/s, with half of the rate for each class.
pub(crate) fn settings() -> Settings {
    Settings {
        rate: Rate::from_mbps(100),
        framing_bytes: 0,
        queue: QueueSize::Time(Span::from_millis(50)),
        algorithm: "jetmax".to_owned(),
        params: Vec::new(),
        share_percent: 50,
        id: 7,
    }
}

/// A frame of these datagrams, as parsed by the router.
pub(crate) fn bundle(datagrams: &[Vec<u8>]) -> Rc<Bundle> {
    Rc::new(Bundle::parse(&frame(datagrams)).unwrap())
}
