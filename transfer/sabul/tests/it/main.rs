//! Sessions over loopback, hostile peers, changes of running transfers, the public interface.

mod addresses;
mod api;
mod carriers;
mod common;
mod digests;
mod ends;
mod examples;
mod hostile;
mod introductions;
mod keys;
mod passes;
mod paths;
mod ranges;
mod remote_files;
mod session;
mod steer;
mod strangers;
