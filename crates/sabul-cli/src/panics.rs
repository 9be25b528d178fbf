//! Panics of controllers, told by the fault they become and by nothing else.
//!
//! The core catches them (`sabul_cc::Guarded`) and has neither threads nor an environment, so what a
//! hook can say of one, its place in the source, comes from here.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic;

use sabul_cc::Panic;

thread_local! {
    /// Whether this thread is in a controller's code.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Where a controller's code panicked last.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on a panic of a controller is told by its fault alone, which names the place in the source;
/// any other panic goes to the hook before, as does every one where `RUST_BACKTRACE` asks for traces.
/// Call it once, at the start.
pub(crate) fn tell_as_faults() {
    if !sabul_cc::catch_panics_with(caught) {
        return;
    }
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let is_ours = IS_INSIDE.get();
        if is_ours {
            PLACE.set(info.location().map(ToString::to_string));
        }
        if !is_ours || Backtrace::capture().status() == BacktraceStatus::Captured {
            before(info);
        }
    }));
}

fn caught(work: &mut dyn FnMut()) -> Result<(), Panic> {
    let was_inside = IS_INSIDE.replace(true);
    let result = sabul_cc::catch_panic(work);
    IS_INSIDE.set(was_inside);
    result.map_err(|panic| Panic { place: PLACE.take(), ..panic })
}
