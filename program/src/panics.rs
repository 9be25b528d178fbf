//! Panic hook for congestion controllers and decoders of tables.
//!
//! The core catches panics of controllers (`sabul_cc::Guarded`) and reports them as faults. The
//! core has neither threads nor an environment, so the hook that records the source location is
//! here. Decoders of tables return their panics as errors, so these are not printed.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic;

use sabul_cc::Panic;
#[cfg(feature = "join")]
use sabul_join::read::is_decoding;

thread_local! {
    /// Whether this thread is executing controller code.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Source location of the last panic in controller code.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs the hook. A panic of a controller is then reported only by its fault, which names the
/// source location. A panic of a decoder is not printed. Other panics go to the previous hook, and
/// so do all panics if `RUST_BACKTRACE` requests traces. Call once, at the start.
pub(crate) fn report_as_faults() {
    if !sabul_cc::catch_panics_with(caught) {
        return;
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let is_ours = IS_INSIDE.get();
        if is_ours {
            PLACE.set(info.location().map(ToString::to_string));
        }
        let is_caught = is_ours || is_decoding();
        if !is_caught || Backtrace::capture().status() == BacktraceStatus::Captured {
            before(info);
        }
    }));
}

#[cfg(not(feature = "join"))]
const fn is_decoding() -> bool {
    false
}

fn caught(work: &mut dyn FnMut()) -> Result<(), Panic> {
    let was_inside = IS_INSIDE.replace(true);
    let result = sabul_cc::catch_panic(work);
    IS_INSIDE.set(was_inside);
    result.map_err(|panic| Panic { place: PLACE.take(), ..panic })
}
