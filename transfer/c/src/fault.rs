//! Errors of calls: a code, and a message for each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sabul::{Error, ErrorKind, Failure, FailureCode};

use crate::{
    SABUL_AUTHENTICATION, SABUL_DESTINATION, SABUL_FAILED, SABUL_INTERRUPTED, SABUL_NOT_FOUND,
    SABUL_OK, SABUL_UNREACHABLE, SABUL_USAGE, SABUL_VERIFICATION,
};

thread_local! {
    /// Message of the last call of this thread that failed.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Code and message of a call that failed.
#[derive(Debug)]
pub(crate) struct Fault {
    code: i32,
    message: String,
}

impl Fault {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: SABUL_USAGE, message: message.into() }
    }

    fn of(code: Option<FailureCode>, kind: ErrorKind, message: String) -> Self {
        let code = match (code, kind) {
            (Some(FailureCode::NotFound), _) => SABUL_NOT_FOUND,
            (_, ErrorKind::Request) => SABUL_USAGE,
            (_, ErrorKind::Unreachable) => SABUL_UNREACHABLE,
            (_, ErrorKind::Authentication) => SABUL_AUTHENTICATION,
            (_, ErrorKind::Verification) => SABUL_VERIFICATION,
            (_, ErrorKind::Destination) => SABUL_DESTINATION,
            (_, ErrorKind::Interrupt) => SABUL_INTERRUPTED,
            _ => SABUL_FAILED,
        };
        Self { code, message }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Exists(failure) | Error::Failed(failure) => Some(failure.code),
            _ => None,
        };
        Self::of(code, error.kind(), error.to_string())
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::of(Some(failure.code), ErrorKind::of(failure.code), failure.message)
    }
}

/// Runs a call: returns its code and keeps its message. A panic is an error, because C cannot unwind.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Fault>) -> i32 {
    let fault = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return SABUL_OK,
        Ok(Err(fault)) => fault,
        Err(_) => Fault { code: SABUL_FAILED, message: "the library has a fault".to_owned() },
    };
    let text = fault.message.replace('\0', "\u{FFFD}");
    MESSAGE.with_borrow_mut(|message| *message = CString::new(text).unwrap_or_default());
    fault.code
}

/// Returns the reason why the last failed call of this thread failed, in UTF-8. Empty before the first failure. The text
/// is valid until the next failed call of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn sabul_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// Returns the bytes of a string of the caller.
///
/// # Safety
/// `text` is null, or points to a string that ends in a NUL byte and outlives the call.
pub(crate) unsafe fn bytes(text: *const c_char, name: &str) -> Result<Vec<u8>, Fault> {
    if text.is_null() {
        return Err(Fault::usage(format!("{name} is NULL; pass a string")));
    }
    // SAFETY: the caller of this function passes a string that ends in a NUL byte.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
}
