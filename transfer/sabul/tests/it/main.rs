//! Sessions over loopback, hostile peers, changes of running transfers.

mod common;
mod hostile;
mod session;
mod steer;
mod strangers;
