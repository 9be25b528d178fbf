//! Pictures and pages from plain data.

mod page;
mod pictures;
