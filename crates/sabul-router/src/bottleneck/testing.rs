//! Settings and a bed for tests.

use std::rc::Rc;

use sabul_tun::Bundle;
use sabul_units::{Rate, Span};

use super::frames::frame;
use crate::settings::{QueueSize, Settings};

/// JetMax before 100 Mb/s, half of it for either class.
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

/// A frame of these datagrams as the router reads it.
pub(crate) fn bundle(datagrams: &[Vec<u8>]) -> Rc<Bundle> {
    Rc::new(Bundle::parse(&frame(datagrams)).unwrap())
}
