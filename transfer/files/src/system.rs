//! Threads for file work, and texts of errors of the operating system.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::thread::Builder;

/// Runs a closure on a new thread. A panic of the closure ends the thread, without a message.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let run = move || drop(panic::catch_unwind(AssertUnwindSafe(run)));
    Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Returns the text of an operating system error without its number.
pub fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.trim_end_matches(&format!(" (os error {number})")).to_owned(),
        None => text,
    }
}
