//! C library of sabul: blocking transfers for C, C++, Julia and R, in the header `include/sabul.h`.
//!
//! Each function returns `SABUL_OK` or another code, and [`sabul_message`] then has the reason. A session can be used by
//! several threads at the same time, except for its close. Paths are byte strings, as in the file system.

#![allow(unsafe_code, reason = "the callers are C programs")]

mod buffer;
mod fault;
mod session;

pub use fault::sabul_message;
pub use session::{
    SabulEntry, SabulListCallback, SabulReport, SabulSession, sabul_close, sabul_connect,
    sabul_connect_ssh, sabul_get, sabul_list, sabul_make_directory, sabul_put, sabul_read,
    sabul_remove, sabul_rename, sabul_stat, sabul_write,
};

use std::ffi::c_char;

/// The call succeeded.
pub const SABUL_OK: i32 = 0;
/// The transfer or request failed, completely or in part.
pub const SABUL_FAILED: i32 = 1;
/// An argument is not valid.
pub const SABUL_USAGE: i32 = 2;
/// The server cannot be reached, or the connection was lost.
pub const SABUL_UNREACHABLE: i32 = 3;
/// The server does not accept the ticket or key.
pub const SABUL_AUTHENTICATION: i32 = 4;
/// The content that arrived is not the content that was sent.
pub const SABUL_VERIFICATION: i32 = 5;
/// The destination has no space or gives no permission.
pub const SABUL_DESTINATION: i32 = 6;
/// The call was interrupted.
pub const SABUL_INTERRUPTED: i32 = 130;
/// The file or directory does not exist. The program has no such exit code.
pub const SABUL_NOT_FOUND: i32 = 201;

/// A file.
pub const SABUL_KIND_FILE: i32 = 1;
/// A directory.
pub const SABUL_KIND_DIRECTORY: i32 = 2;
/// A symbolic link.
pub const SABUL_KIND_LINK: i32 = 3;
/// A device, pipe or socket.
pub const SABUL_KIND_OTHER: i32 = 4;

/// Returns the version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn sabul_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
